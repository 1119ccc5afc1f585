//! Which calls of the kernel the common routines record by themselves.
//!
//! Given the host's table of what is read for a call ([`crate::record::capture`] shows its use);
//! gives one byte for each number. A call whose memory must be read, or at which the agent has
//! something else to do, is left to the slow path. Must not know how a call is recorded.

use crate::memory::certain;
use core::sync::atomic::{AtomicU8, Ordering};
use sptrace_wire::control::Control;

/// For [`crate::routines::common`], whose macros it uses: reads the byte of a call.
macro_rules! rules {
    () => {
        r#"
    .macro CALL_RULE slow
    mov rcx, gs:[{quick}]
    test rcx, rcx
    jz \slow
    cmp eax, {quick_calls}
    jae \slow
    movzx ecx, byte ptr [rcx+rax]
    .endm
    /* ecx = the rule of a call for which memory must be read: not if its command says otherwise. */
    .macro CHECK_COMMAND quick, slow
    MARK CHECKING, 32
    test cl, {commands}
    jz \slow
    mov eax, esi
    cmp eax, {command_numbers}
    jae \slow
    mov rdx, gs:[{quick}]
    cmp byte ptr [rdx+rax+{commands_at}], 0
    je \slow
    jmp \quick
    .endm
    "#
    };
}

pub(crate) use rules;

/// From the counter of calls on others to that of calls left out when they have ended.
pub const NOT_CHOSEN: usize = core::mem::offset_of!(Control, calls_not_chosen)
    - core::mem::offset_of!(Control, calls_on_others);

/// Numbers that have a byte (asm/unistd_64.h has fewer).
pub const CALLS: usize = 512;
/// The call is not recorded.
pub const UNWANTED: u8 = 1;
/// Nothing is read before the call.
pub const ENTERS: u8 = 2;
/// Nothing is read after it.
pub const LEAVES: u8 = 4;
/// Nothing is read after it if it has failed.
pub const LEAVES_FAILED: u8 = 8;
/// The agent has nothing to do at the call but to record it.
pub const PLAIN: u8 = 16;
/// The call is recorded if its first argument is a descriptor that is asked for; no other one is a
/// descriptor.
pub const BOUND: u8 = 32;

/// What is read depends on the second argument's low half, the command: nothing where the table of
/// commands says so.
pub const COMMANDS: u8 = 64;

/// After a success a struct stat is read, where the kernel has put it, and nothing else.
pub const FILLS: u8 = 128;

/// The call that has commands: fcntl(2).
pub const COMMANDED: u32 = 72;
/// Commands that have a byte: more than any has that reads nothing (linux/fcntl.h).
pub const COMMAND_NUMBERS: usize = 1088;
/// Where the bytes of commands are, from the rules on.
pub const COMMANDS_AT: usize = core::mem::offset_of!(Table, commands);

#[repr(C)]
struct Table {
    rules: [AtomicU8; CALLS],
    /// 1: nothing is read, before or after.
    commands: [AtomicU8; COMMAND_NUMBERS],
}

static TABLE: Table = Table {
    rules: [const { AtomicU8::new(0) }; CALLS],
    commands: [const { AtomicU8::new(0) }; COMMAND_NUMBERS],
};

/// True if the call is recorded, and the agent has nothing else to do at it.
pub fn is_recorded(number: u32) -> bool {
    let rule = TABLE.rules.get(number as usize);
    rule.is_some_and(|rule| rule.load(Ordering::Relaxed) & (UNWANTED | PLAIN) == PLAIN)
}

/// Says of all commands, or of one, whether nothing is read.
pub fn set_command(command: Option<u64>, reads_nothing: bool) {
    let first = command.map_or(0, |command| command as usize);
    let count = command.map_or(COMMAND_NUMBERS, |_| 1);
    for byte in TABLE.commands.iter().skip(first).take(count) {
        byte.store(reads_nothing.into(), Ordering::Relaxed);
    }
}

/// Where the tables are.
pub fn address() -> u64 {
    &raw const TABLE as u64
}

/// Fills the table by `rule`, which may be called for any number. Says whether all calls that
/// change what is mapped are seen. `is_any`: calls are recorded whatever descriptors and paths they
/// are on.
pub fn fill(rule: impl Fn(u32) -> u8, is_any: bool) {
    for (number, byte) in (0..).zip(&TABLE.rules) {
        byte.store(rule(number), Ordering::Relaxed);
    }
    let mapping = certain::MAPPING
        .iter()
        .filter_map(|number| TABLE.rules.get(*number as usize));
    let mut mapping = mapping.map(|rule| rule.load(Ordering::Relaxed));
    certain::watch(is_any && mapping.all(|rule| rule & (UNWANTED | BOUND) == 0));
}
