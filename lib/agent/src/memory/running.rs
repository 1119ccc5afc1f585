//! Which lane a thread runs, as the program's runtime says.
//!
//! A lane is a sequence of calls with a stack of its own that threads take turns in running, as a
//! goroutine. Given where the runtime keeps that ([`sptrace_wire::plan::PlanHeader::lane_at`]);
//! gives the lane's number and the bounds of its stack. The layout is Go's (its source,
//! `runtime/runtime2.go`): a `g` begins with the bounds of its stack and leads to the thread's `m`,
//! which begins with the `g` of the thread's own stack. Must not know what is done with it.

use crate::memory::state::Lanes;
use crate::memory::thread::Hot;
use crate::memory::{mapped, state, sys};

/// In a `g`: the lowest and the highest address of its stack, and its `m`.
const LOW_AT: u64 = 0;
const HIGH_AT: u64 = 8;
const THREAD_AT: u64 = 48;
/// The status stands before the number.
const STATUS_BELOW: u64 = 8;
/// What the collector of garbage sets in it.
const SCANNED: u64 = 0x1000;
/// `_Gdead`.
const OVER: u64 = 6;

/// A lane as the runtime has it, which never gives its memory back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lane {
    /// Where its `g` is.
    pub at: u64,
    /// Its number; 0: it is no goroutine, but a thread's own stack, or one for signals.
    pub id: u64,
    /// The lowest address of its stack.
    pub low: u64,
    /// The end of that.
    pub high: u64,
}

impl Lane {
    /// True if an event at this stack pointer is on its stack.
    pub fn holds(&self, rsp: u64) -> bool {
        (self.low..=self.high).contains(&rsp)
    }

    fn at(at: u64) -> Option<Self> {
        let is_one = at > 0xffff && at.is_multiple_of(8);
        is_one.then(|| Self {
            at,
            id: word(at + state::process().lane_number.get()),
            low: word(at + LOW_AT),
            high: word(at + HIGH_AT),
        })
    }

    /// The thread's own stack, as the lane that it runs says.
    pub fn own_of_thread(&self) -> Option<Self> {
        let thread = word(self.at + THREAD_AT);
        (thread != 0).then(|| Self::at(word(thread)))?
    }

    /// True if the lane that was here and had this number is over.
    pub fn is_over(at: u64, id: u64) -> bool {
        let number_at = at + state::process().lane_number.get();
        let status = word(number_at - STATUS_BELOW) & 0xffff_ffff & !SCANNED;
        word(number_at) != id || status == OVER
    }
}

/// Threads of this process run lanes from here on.
pub fn begin(at: u32, number: u32) {
    let p = state::process();
    if p.lanes.get().is_none() {
        p.lanes.set(mapped::make::<Lanes>());
    }
    if p.lanes.get().is_none() {
        return;
    }
    p.lane_at.set(i64::from(at as i32) as u64);
    p.lane_number.set(number.into());
    for hot in p.threads() {
        forget(hot);
    }
}

/// In a fork child, which has one thread: what it does is told as one.
pub fn end(hot: &Hot) {
    let p = state::process();
    p.lane_number.set(0);
    p.lanes.set(None);
    forget(hot);
}

/// A block of a thread of which nothing is known yet: every event of a lane's routine is to take
/// the slow path, if there are any.
pub fn forget(hot: &Hot) {
    hot.lane.set(0);
    hot.lane_low.set(0);
    let has_lanes = state::process().lane_number.get() != 0;
    hot.lane_bytes.set(if has_lanes { 0 } else { u64::MAX });
    hot.home.set(None);
    hot.last_lane.set(None);
}

/// What this thread runs. `None`: nothing of the runtime's.
pub fn running() -> Option<Lane> {
    let fs = sys::fs_base();
    let at = fs.wrapping_add(state::process().lane_at.get());
    if fs == 0 {
        return None;
    }
    Lane::at(word(at))
}

fn word(at: u64) -> u64 {
    // SAFETY: the plan names these words of the program's own runtime: one in the thread's local
    // storage, which its fs base leads to, and what that leads to, which the runtime never unmaps.
    unsafe { (at as *const u64).read_volatile() }
}
