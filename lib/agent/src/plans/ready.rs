//! What has become of a callee: whether its own call sites are patched.
//!
//! Given a module and a function of its plan; gives a verdict from the module's tables. Must not
//! know how a function comes to be patched.

use crate::memory::table::{INSTRUMENTED, Module};
use crate::plans::plan;
use sptrace_wire::plan::*;

/// What became of a callee.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It is instrumented as far as it can be: need not be asked again.
    Ready,
    /// Not now (too deep, lock busy, no answer), or its calls bring values: ask again at its next
    /// call.
    Later,
    /// Ready, and it must be given its original return address.
    ReturnAddress,
}

/// What is muted keeps its tail jumps as they are.
fn needs_return_address(flags: u16) -> bool {
    flags & FN_RETURN_ADDRESS != 0 || flags & FN_MUTED != 0 && flags & FN_TAILS != 0
}

/// True if the common routines may record the calls of the function at `callee` with its values.
pub fn may_bring_values(m: &Module, callee: u64) -> bool {
    let is_so = |i| m.function(i) == INSTRUMENTED && !needs_return_address(plan::flags_of(m, i));
    !m.doubtful.get() && !m.gone.get() && plan::function_at(m, callee).is_some_and(is_so)
}

/// True if the function at `callee` is instrumented: a call of it whose return address stays need
/// not ask, whatever it brings.
pub fn may_bring_acts(m: &Module, callee: u64) -> bool {
    let is_so = |i| m.function(i) == INSTRUMENTED;
    plan::function_at(m, callee).is_some_and(is_so)
}

/// Of a function that lacks nothing.
pub(crate) fn verdict(m: &Module, i: u32) -> Reach {
    let flags = plan::flags_of(m, i);
    if needs_return_address(flags) {
        Reach::ReturnAddress
    } else if m.function(i) == INSTRUMENTED && flags & FN_VALUES == 0 {
        Reach::Ready
    } else {
        Reach::Later
    }
}

/// True if the function at `callee` is instrumented: a call of it need not ask.
pub fn is_ready(m: &Module, callee: u64) -> bool {
    plan::function_at(m, callee).is_some_and(|i| verdict(m, i) == Reach::Ready)
}
