//! What payloads of a script bid is heeded while records are read.
//!
//! Part of the [`Collector`]. What ends or begins the recording does so at its own time. It is
//! looked for before a chunk is read: a thread says it before it hands over what comes later, so of
//! the thread that bids nothing is in the trace that should not be, however late its chunks are
//! read. What follows otherwise is done by [`crate::react`]. Must not know scripts.

use std::io::Write;
use std::sync::atomic::Ordering;

use sptrace_tracee::arena::Arena;
use sptrace_wire::bids::{BID_SAID, Bid as Slot};

use super::Collector;
use crate::bids::{Bid, Deed};

/// What is looked for.
#[derive(Default)]
pub(super) struct Heeded {
    /// Numbers of what begins the recording, and of what ends it.
    starts: Vec<usize>,
    stops: Vec<usize>,
    /// What was said before this is of another recording.
    from_tsc: u64,
}

impl Heeded {
    /// The recording begins again.
    pub(super) fn anew(&mut self) {
        self.from_tsc = crate::clock::tsc();
    }
}

impl<W: Write> Collector<W> {
    /// To be said before anything is recorded: what may be bidden.
    pub fn heed(&mut self, bids: &[Bid]) {
        let numbers = |deed: Deed| {
            let all = bids.iter().enumerate();
            let all = all.filter(|(_, bid)| bid.deed == deed);
            all.map(|(number, _)| number).collect()
        };
        self.heeded = Heeded {
            starts: numbers(Deed::Start),
            stops: numbers(Deed::Stop),
            from_tsc: 0,
        };
    }

    /// What was bidden by now counts for what is read next.
    pub(super) fn heed_bids(&mut self, arena: &Arena) {
        let from_tsc = self.heeded.from_tsc;
        let said = |numbers: &[usize], after_tsc: u64, of: fn(&Slot) -> u64| {
            let all = numbers.iter().map(|number| arena.bid(*number));
            let said = all.filter(|bid| bid.state.load(Ordering::Acquire) == BID_SAID);
            said.map(of).filter(|tsc| *tsc > after_tsc).min()
        };
        let mut begun_tsc = from_tsc;
        if self.recorder.is_followed() {
            let starts = &self.heeded.starts;
            let Some(tsc) = said(starts, from_tsc, |b| b.before_tsc.load(Ordering::Relaxed)) else {
                return;
            };
            self.record_from(tsc);
            begun_tsc = tsc;
        }
        let stops = &self.heeded.stops;
        if let Some(tsc) = said(stops, begun_tsc, |b| b.after_tsc.load(Ordering::Relaxed)) {
            self.record_until(tsc);
        }
    }

    /// The recording begins so, and ends so if it does, unless it has begun.
    pub fn heed_said(&mut self, start_tsc: u64, stop_tsc: Option<u64>) {
        if self.recorder.is_followed() {
            self.record_from(start_tsc);
            self.record_until(stop_tsc.unwrap_or(u64::MAX));
        }
    }

    /// The process with this number in the recording; 0: nothing was read of it yet.
    pub fn pid_of(&self, arena: &Arena, process: u32) -> u32 {
        let mut streams = (0..).zip(&self.streams);
        let of = streams.find_map(|(i, state)| {
            let state = state.as_ref()?;
            (arena.stream(i).process == process).then_some(state.lane.pid)
        });
        of.unwrap_or(0)
    }
}
