//! Threads are bid to look at the clock again and again where calls are recorded in order.
//!
//! Part of the [`Collector`]. A call in order has no stamp; its time lies between those of its
//! neighbours. So that these are never far, a word of the thread's block is made zero some
//! thousand times a second, which sends its next event to the slow path, where the clock is read,
//! and the agent is told when that was done: nothing has been recorded between that moment and the
//! event. The thread is not stopped, and nothing is done in it if it does not come to an event.
//! Must not know what is recorded.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sptrace_tracee::arena::Arena;
use sptrace_wire::OWN_AVMA;
use sptrace_wire::control::{LOOK_BEGUN, PIDS_SAME, STREAM_LIVE, Stream, block};

use super::Collector;

/// So often: a time that is estimated is wrong by no more, where calls are that long.
const BID_EVERY: Duration = Duration::from_micros(400);
/// So many times as long at most while no thread comes to an event.
const MOST_IDLE: u32 = 4;

impl<W: Write> Collector<W> {
    /// Bids each thread that has come to an event since the last time, if it is time; gives when
    /// that is to be done again. `None`: it need not be.
    pub(crate) fn bid_looks(&mut self, arena: &Arena) -> Option<Duration> {
        let lengths = self.lengths.as_mut().filter(|lengths| lengths.has_any())?;
        let every = BID_EVERY * lengths.idle.max(1);
        if lengths.last_bid.elapsed() < every {
            return Some(every);
        }
        lengths.last_bid = Instant::now();
        lengths.idle = (lengths.idle + 1).min(MOST_IDLE);
        for (i, state) in self.streams.iter().enumerate() {
            let Some(state) = state else { continue };
            let stream = arena.stream(i);
            let is_here = stream.state.load(Ordering::Acquire) == STREAM_LIVE
                && stream.epoch.load(Ordering::Relaxed) == state.epoch
                && stream.other_pids == PIDS_SAME;
            if is_here && let Some(memory) = lengths.memories.of(stream.process, state.lane.pid) {
                let is_bidden = bid(stream, memory);
                lengths.idle = if is_bidden { 0 } else { lengths.idle };
            }
        }
        Some(BID_EVERY * lengths.idle.max(1))
    }
}

/// False: the thread has not come to an event since it was bidden last.
fn bid(stream: &Stream, memory: &File) -> bool {
    let page = stream.hot_page.load(Ordering::Acquire);
    let is_due = page != 0 && stream.looked.load(Ordering::Acquire) == 0;
    if !is_due {
        return false;
    }
    stream.looked.store(LOOK_BEGUN, Ordering::Release);
    let limit = OWN_AVMA + u64::from(page) * 4096 + block::LIMIT_IN_PAGE;
    let is_done = memory
        .write_at(&[0; 8], limit)
        .is_ok_and(|bytes| bytes == 8);
    // The agent may have looked meanwhile, and knows nothing of this moment then.
    let now = if is_done { crate::clock::tsc() } else { 0 };
    let known = (Ordering::AcqRel, Ordering::Relaxed);
    let _ = stream
        .looked
        .compare_exchange(LOOK_BEGUN, now, known.0, known.1);
    true
}
