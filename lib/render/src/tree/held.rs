//! What a tree holds of each thread: its open frames, and lines that are not known to be shown.
//!
//! Given a stream's number; gives what is held of it, of the stream asked for last without a
//! search, since most events follow one of the same thread. Must not know what a line says.

use super::line::Who;
use crate::call_values::Begun;
use rustc_hash::FxHashMap as HashMap;
use sptrace_trace::{Entry, Frame, FrameFlags, FunctionId, StreamId};

/// What is held of one thread.
#[derive(Default)]
pub struct Lines {
    /// Whose they are.
    pub who: Who,
    /// Lines that are not known to be shown.
    pub held: String,
    /// Its open frames.
    pub open: Vec<OpenLine>,
}

/// An open frame.
pub struct OpenLine {
    /// What runs.
    pub function: FunctionId,
    /// The one below it.
    pub caller: Option<FunctionId>,
    /// When it began.
    pub start_tsc: u64,
    /// Frames below it.
    pub depth: u32,
    /// How it began.
    pub entry: Entry,
    /// What was unusual about that.
    pub flags: FrameFlags,
    /// Its opening line was made, because something happened inside it.
    pub is_opened: bool,
    /// Where its opening line begins in `held`; `None` once it was written out.
    pub held_at: Option<usize>,
    /// What it brought with it.
    pub values: Option<Begun>,
    /// What a payload has done to it, in words.
    pub acted: Option<String>,
}

impl OpenLine {
    /// Of a frame that begins.
    pub fn of(frame: &Frame, caller: Option<FunctionId>) -> Self {
        Self {
            function: frame.function,
            caller,
            start_tsc: frame.start_tsc,
            depth: frame.depth,
            entry: frame.entry,
            flags: frame.flags,
            is_opened: false,
            held_at: None,
            values: None,
            acted: None,
        }
    }
}

/// What is held of all threads.
#[derive(Default)]
pub struct Held {
    /// Of the stream that was asked for last.
    last: Option<(StreamId, Lines)>,
    others: HashMap<StreamId, Lines>,
}

impl Held {
    /// Nothing if nothing is held of it.
    pub fn get_mut(&mut self, stream: StreamId) -> Option<&mut Lines> {
        self.turn_to(stream);
        self.last.as_mut().map(|last| &mut last.1)
    }

    /// Of a stream that nothing is held of, from here on this.
    pub fn get_or_make(&mut self, stream: StreamId, who: impl FnOnce() -> Who) -> &mut Lines {
        self.turn_to(stream);
        let made = || Lines {
            who: who(),
            ..Lines::default()
        };
        &mut self.last.get_or_insert_with(|| (stream, made())).1
    }

    /// `last` is of this stream, or none if nothing is held of it.
    #[inline]
    fn turn_to(&mut self, stream: StreamId) {
        if self.last.as_ref().is_some_and(|last| last.0 == stream) {
            return;
        }
        let found = self.others.remove(&stream).map(|lines| (stream, lines));
        if let Some((before, lines)) = std::mem::replace(&mut self.last, found) {
            self.others.insert(before, lines);
        }
    }

    /// Nothing is held of it any more.
    pub fn remove(&mut self, stream: StreamId) {
        self.turn_to(stream);
        self.last = None;
    }
}
