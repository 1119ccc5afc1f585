//! One task: its frames of the kernel's that are open, and what encodes them.
//!
//! A task of which nothing is recorded yet has no encoder; what is open when the recording begins
//! becomes frames that began before it.
//!
//! Must not know: other tasks, and what frames are called.

use crate::source::Frame;
use sptrace_trace::{FunctionId, StreamEncoder};

/// See the module.
pub struct Task {
    pub(crate) encoder: Option<StreamEncoder>,
    /// Its process.
    pub(crate) pid: u32,
    /// The open frames.
    pub(crate) open: Vec<Frame>,
    /// Of each of them: what it is shown as, and when it began.
    begun: Vec<(FunctionId, u64)>,
    /// So many of them began before the recording.
    earlier: usize,
    /// It makes a system call that is not the program's own.
    pub(crate) is_own_call: bool,
}

impl Task {
    /// One with nothing open.
    pub fn new(pid: u32, encoder: Option<StreamEncoder>) -> Self {
        Self {
            encoder,
            pid,
            open: Vec::new(),
            begun: Vec::new(),
            earlier: 0,
            is_own_call: false,
        }
    }

    /// It is recorded from here on.
    pub fn record(&mut self, mut encoder: StreamEncoder, tsc: u64) {
        for (function, _) in &self.begun {
            encoder.enter_earlier(tsc, *function);
        }
        self.earlier = self.begun.len();
        self.encoder = Some(encoder);
    }

    /// A frame begins, with what it brings.
    pub fn begin(&mut self, tsc: u64, frame: Frame, function: FunctionId, values: Option<&[u8]>) {
        self.open.push(frame);
        self.begun.push((function, tsc));
        if let Some(encoder) = &mut self.encoder {
            encoder.enter(tsc, function);
        }
        if let Some(values) = values {
            self.values(tsc, values);
        }
    }

    /// When the innermost frame began.
    pub fn since(&self) -> Option<u64> {
        self.begun.last().map(|(_, tsc)| *tsc)
    }

    /// What the innermost frame brings.
    pub fn values(&mut self, tsc: u64, values: &[u8]) {
        // Of a frame that began earlier nothing was brought that this could belong to.
        let is_earlier = self.open.len() <= self.earlier;
        if let Some(encoder) = self.encoder.as_mut().filter(|_| !is_earlier) {
            encoder.values(tsc, values);
        }
    }

    /// Something without length.
    pub fn instant(&mut self, tsc: u64, function: FunctionId) {
        if let Some(encoder) = &mut self.encoder {
            encoder.enter(tsc, function);
            encoder.exit(tsc);
        }
    }

    /// Frames end until so many are open; gives what they were shown as, and when they began.
    pub fn end_above(&mut self, tsc: u64, open: usize) -> Vec<(FunctionId, u64)> {
        let mut ended = Vec::new();
        while self.open.len() > open {
            self.open.pop();
            ended.extend(self.begun.pop());
            let is_earlier = self.open.len() < self.earlier;
            let Some(encoder) = &mut self.encoder else {
                continue;
            };
            match is_earlier {
                true => {
                    encoder.close_earlier(tsc, 1);
                    self.earlier -= 1;
                }
                false => encoder.exit(tsc),
            }
        }
        ended
    }

    /// It ends with all that is open, of which no end is known.
    pub fn leave(&mut self, tsc: u64) {
        self.open.clear();
        self.begun.clear();
        self.earlier = 0;
        if let Some(encoder) = &mut self.encoder {
            encoder.close_all(tsc);
        }
    }
}
