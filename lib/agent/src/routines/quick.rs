//! Which calls of the kernel the common routines record by themselves.
//!
//! Given the host's table of what is read for a call ([`crate::record::capture`] shows its use);
//! gives one byte for each number. A call whose memory must be read, or at which the agent has
//! something else to do, is left to the slow path. Must not know how a call is recorded.

use core::sync::atomic::{AtomicU8, Ordering};

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

static RULES: [AtomicU8; CALLS] = [const { AtomicU8::new(0) }; CALLS];

/// True if the call is recorded, and the agent has nothing else to do at it.
pub fn is_recorded(number: u32) -> bool {
    let rule = RULES.get(number as usize);
    rule.is_some_and(|rule| rule.load(Ordering::Relaxed) & (UNWANTED | PLAIN) == PLAIN)
}

/// Calls that change what is mapped: mmap, mprotect, munmap, brk, mremap, shmat, shmdt,
/// remap_file_pages, pkey_mprotect (arch/x86/entry/syscalls/syscall_64.tbl).
const MAPPING: [usize; 9] = [9, 10, 11, 12, 25, 30, 31, 216, 329];

/// True if no call that changes what is mapped goes without a record.
pub fn mapping_is_recorded() -> bool {
    let rules = MAPPING.iter().filter_map(|number| RULES.get(*number));
    let mut rules = rules.map(|rule| rule.load(Ordering::Relaxed));
    rules.all(|rule| rule & (UNWANTED | BOUND) == 0)
}

/// Fills the table by `rule`, which may be called for any number, and gives its address.
pub fn fill(rule: impl Fn(u32) -> u8) -> u64 {
    for (number, byte) in (0..).zip(&RULES) {
        byte.store(rule(number), Ordering::Relaxed);
    }
    RULES.as_ptr() as u64
}
