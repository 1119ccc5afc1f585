//! Which calls of the kernel the common routines record by themselves.
//!
//! Given the host's table of what is read for a call ([`crate::record::capture`] shows its use);
//! gives one byte for each number. A call whose memory must be read, or at which the agent has
//! something else to do, is left to the slow path. Must not know how a call is recorded.

use crate::memory::certain;
use core::sync::atomic::{AtomicU8, Ordering};
use sptrace_wire::control::Control;

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

static RULES: [AtomicU8; CALLS] = [const { AtomicU8::new(0) }; CALLS];

/// True if the call is recorded, and the agent has nothing else to do at it.
pub fn is_recorded(number: u32) -> bool {
    let rule = RULES.get(number as usize);
    rule.is_some_and(|rule| rule.load(Ordering::Relaxed) & (UNWANTED | PLAIN) == PLAIN)
}

/// Fills the table by `rule`, which may be called for any number, and gives its address. Says
/// whether all calls that change what is mapped are seen. `is_any`: calls are recorded whatever
/// descriptors and paths they are on.
pub fn fill(rule: impl Fn(u32) -> u8, is_any: bool) -> u64 {
    for (number, byte) in (0..).zip(&RULES) {
        byte.store(rule(number), Ordering::Relaxed);
    }
    let mapping = certain::MAPPING
        .iter()
        .filter_map(|number| RULES.get(*number as usize));
    let mut mapping = mapping.map(|rule| rule.load(Ordering::Relaxed));
    certain::watch(is_any && mapping.all(|rule| rule & (UNWANTED | BOUND) == 0));
    RULES.as_ptr() as u64
}
