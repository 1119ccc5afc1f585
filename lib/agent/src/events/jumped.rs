//! Jumps by which hooked functions are reached: were they recorded?
//!
//! Given what was recorded last, and the place of a hooked function's call; says whether that was
//! the jump that has led there. Must not know what follows from it.

use crate::events::ordered::Last;
use crate::frames::shadow;
use crate::memory::thread::Hot;
use crate::plans::{modules, slot};
use sptrace_wire::record;

/// True if a jump out of a call that was not recorded was the last event, and has led here: it was
/// recorded as the function's entry, or as a jump of what was entered so at the same place before.
pub fn has_jumped(hot: &Hot, last: Last, rsp: u64, function: u64) -> bool {
    let [_, first, second, third] = last;
    let entered = u64::from(second) | u64::from(third) << 32;
    let is_entered = first == record::ENTERED && entered == function;
    let is_direct = || {
        let id = modules::in_area(third);
        id.is_some_and(|id| slot::direct_target(id) == function)
    };
    let is_through_pointer = || third == function as u32 && modules::in_area(second).is_some();
    shadow::call(hot).rsp() == rsp && (is_entered || is_direct() || is_through_pointer())
}
