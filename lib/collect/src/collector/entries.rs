//! Beginnings of functions, and the functions that call them where that must be known.
//!
//! Part of the [`Collector`]. While a call is open whose end is not recorded, it is looked up for
//! each new call which function it comes from. That shows which of the open calls still run, so
//! that readers show the new call inside of those only. Also counts why calls have no recorded end.

use super::{Collector, StreamState};
use crate::module::{Module, PLACE_OPEN, PLACE_TAIL};
use sptrace_trace::FunctionId;
use std::io::Write;

/// Where a call comes from: the module, and the place in its patch area.
#[derive(Clone, Copy)]
pub(super) struct CalledFrom {
    pub(super) module: usize,
    pub(super) offset: u32,
}

/// Why so many calls have no recorded end.
#[derive(Clone, Copy, Default)]
pub(super) struct WithoutEnd {
    /// Code that is not patched has called them; what they jumped to was seen.
    unseen_caller: u64,
    /// The caller's return addresses must stay.
    kept_caller: u64,
    /// The callee takes its return address.
    reader: u64,
}

impl<W: Write> Collector<W> {
    /// A function begins, called or jumped to from a known place or from code that is not seen.
    pub(super) fn enter(
        &mut self,
        state: &mut StreamState,
        kind: u8,
        tsc: u64,
        callee: FunctionId,
        from: Option<CalledFrom>,
    ) {
        if let Some(calls) = &mut self.calls {
            let is_call = kind & (PLACE_TAIL | PLACE_OPEN) == 0;
            let (class, depth) = (self.writer.class(callee), state.line.depth());
            let depth = depth + u32::from(is_call);
            calls.enter(&mut state.watched, class, depth, tsc, state.pid);
            self.may_begin(state);
        }
        let is_open = kind & PLACE_OPEN != 0;
        if is_open || state.line.has_open() {
            let caller = self.caller(from, is_open);
            state.line.called_by(tsc, caller);
        }
        state.line.enter(tsc, kind, callee);
    }

    /// The function that a call is made from, if the trace names it. `is_open`: the call's end is
    /// not recorded, which is counted by its reason.
    fn caller(&mut self, from: Option<CalledFrom>, is_open: bool) -> Option<FunctionId> {
        let calls = u64::from(is_open && !self.is_peeking);
        let module = from.and_then(|from| self.modules.get_mut(from.module));
        let (Some(module), Some(from)) = (module, from) else {
            self.without_end.unseen_caller += calls;
            return None;
        };
        let caller = module.caller(from.offset)?;
        if caller.keeps_returns {
            module.calls_without_end += calls;
            self.without_end.kept_caller += calls;
        } else {
            self.without_end.reader += calls;
        }
        module.named(caller.svma)
    }

    /// Of each module that is seen in part only: which, why, and how many of its calls have no
    /// recorded end.
    pub fn seen_in_part(&self) -> Vec<(String, u64)> {
        let told = |m: &Module| {
            Some((
                format!("{}: {}", m.path, m.seen_in_part()?),
                m.calls_without_end,
            ))
        };
        self.modules.iter().filter_map(told).collect()
    }

    /// Why calls have no recorded end, and how many.
    pub fn without_end(&self) -> [(&'static str, u64); 3] {
        let counted = &self.without_end;
        [
            ("called by code that is not seen", counted.unseen_caller),
            (
                "called where a runtime walks its own stacks",
                counted.kept_caller,
            ),
            (
                "of functions that take their return address",
                counted.reader,
            ),
        ]
    }
}
