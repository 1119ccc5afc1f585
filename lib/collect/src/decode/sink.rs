//! Who is told of the events of one thread.
//!
//! A recording's sink is `collector/feed.rs`, which hands on to the trace; tests have one that
//! keeps what it is told.

use sptrace_trace::{FunctionId, Run, Span};
use sptrace_wire::record::{FRAME_FOUND, FRAME_OPEN};

use super::module::{PLACE_ENTRY, Place};
use super::names::Naming;

/// A frame that was open when a thread's records begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherited {
    /// It was found on the stack when the thread was attached to, and its end is not recorded.
    Found,
    /// The same, and its end is recorded.
    FoundCall,
    /// The process was forked in it, and its end is recorded.
    Call,
    /// The process was forked in it, and its end is not recorded.
    Open,
}

impl Inherited {
    /// Of what the agent says of a frame (`sptrace_wire::record::INHERITED`).
    pub fn of(frame: u64) -> Self {
        match frame & FRAME_OPEN {
            0 if frame & FRAME_FOUND != 0 => Self::FoundCall,
            0 => Self::Call,
            _ if frame == FRAME_OPEN => Self::Found,
            _ => Self::Open,
        }
    }
}

/// A call, a tail jump or an exit of which all is known; or where a span of time begins, which has
/// the number that the place says.
#[derive(Clone, Copy, Default)]
pub struct Plain {
    /// Low half of the clock.
    pub stamp: u32,
    /// What has happened, and of which function.
    pub place: Place,
}

/// Is told of events in the order in which they happened.
pub trait Sink: Naming {
    /// Time has come to `tsc`, with so many events of the trace. False: what happens from here on
    /// is not wanted.
    fn come_to(&mut self, tsc: u64, events: u64) -> bool;

    /// A function begins; `kind` has the bits `PLACE_*`. `caller` looks up which function it is
    /// called from, and is told whether the call's end is not recorded.
    fn enter(
        &mut self,
        tsc: u64,
        kind: u8,
        callee: FunctionId,
        caller: impl FnOnce(bool) -> Option<FunctionId>,
    );

    /// A call of the kernel begins.
    fn enter_kernel(&mut self, tsc: u64, callee: FunctionId) {
        self.enter(tsc, PLACE_ENTRY, callee, |_| None);
    }

    /// The innermost call has returned.
    fn exit(&mut self, tsc: u64);

    /// So many calls were left by a longjmp or throw.
    fn unwound(&mut self, tsc: u64, frames: u32);

    /// So many frames whose ends are not recorded are known to have ended.
    fn closed(&mut self, tsc: u64, frames: u32);

    /// A call of this function returned once more.
    fn resumed(&mut self, tsc: u64, callee: FunctionId);

    /// So many events are missing.
    fn lost(&mut self, tsc: u64, events: u64);

    /// What the call that has just begun, or ends next, brought with it, as the trace has it
    /// ([`sptrace_trace::values`]).
    fn values(&mut self, tsc: u64, bytes: &[u8]);

    /// The thread waited so long for the host.
    fn blocked(&mut self, tsc: u64, ticks: u64);

    /// A frame was open when the thread's records begin.
    fn inherited(&mut self, tsc: u64, how: Inherited, callee: FunctionId);

    /// What is told until the later of these times happened between the two, and its times are
    /// estimates.
    fn between(&mut self, from_tsc: u64, to_tsc: u64);

    /// The innermost call is left out, and so is what it has brought.
    fn leaves_out(&self) -> bool {
        false
    }

    /// Calls are counted by who makes them, and not recorded.
    fn counts(&self) -> bool {
        false
    }

    /// What comes next happened in the lane with this number, of which nothing is open yet.
    fn lane(&mut self, _tsc: u64, _number: u64) {}

    /// Plain events may be told in a row, without [`Self::come_to`] and the others.
    fn takes_rows(&self) -> bool;

    /// Plain events in the order of time, all with this high half of the clock, and the spans that
    /// begin among them, as [`Self::between`] would be told of each.
    fn row(&mut self, high: u64, events: &[Plain], spans: &[(u64, u64)]);

    /// Calls without times may be told in runs.
    fn takes_runs(&self) -> bool {
        false
    }

    /// For calls without times; when they happened is said by [`Self::end_run`], before anything
    /// else is told. Beside it the classes of functions, by number: calls of those that have one
    /// other than 0 have to be told by themselves.
    fn run(&mut self) -> Option<(Run<'_>, &[u64])> {
        None
    }

    /// So many calls were in the run, the last of them at this time of the span.
    fn end_run(&mut self, _calls: u64, _span: Span, _last_tsc: u64) {}
}
