//! The end of one recording of several with pauses between them ([`crate::windows`]): what is known
//! of processes ends with it.
//!
//! Part of the [`Collector`]. A thread has another stream in each window. The calls that were open
//! when a window ended end there in the trace, so that the pause is not taken for time spent in
//! them.

use super::Collector;
use sptrace_tracee::arena::Arena;
use sptrace_wire::control::{STREAM_LIVE, STREAMS};
use std::io::Write;
use std::sync::atomic::Ordering;

impl<W: Write> Collector<W> {
    /// All processes were let go: what their threads were in ends with the recording, and nothing
    /// is known of them any more.
    pub fn end_window(&mut self, arena: &Arena) {
        self.drain(arena);
        let used = (arena.control().streams_used.load(Ordering::Acquire) as usize).min(STREAMS);
        for i in 0..used {
            let s = arena.stream(i);
            if s.state.load(Ordering::Acquire) == STREAM_LIVE {
                let end = Some(self.recorder.until_tsc)
                    .filter(|end| *end != u64::MAX && self.numbers.is_alive(arena, s));
                self.end_stream(arena, i, end);
            }
        }
        self.flush();
        self.book.processes.clear();
        self.book.forget_recent();
    }

    /// For long nothing may follow: what was written so far shall be in the file.
    pub fn write_out(&mut self) {
        let written = self.recorder.writer.flush();
        self.check(written);
    }

    /// The recording begins again.
    pub fn record_again(&mut self) {
        self.recorder.until_tsc = u64::MAX;
        self.heeded.anew();
    }
}
