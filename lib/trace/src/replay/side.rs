//! What is known of the kernel's side of a stream while it is replayed.
//!
//! Must not know: events, and how frames are told.

/// A frame of the kernel's whose end has not come yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    /// It is the innermost one in view, or around it.
    Shown,
    /// It is not in view: it was left out, or an event of the program has ended it.
    Gone,
}

/// A wait for sptrace, between these times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wait {
    pub begin_tsc: u64,
    pub end_tsc: u64,
}

impl Wait {
    pub(super) fn has(&self, tsc: u64) -> bool {
        (self.begin_tsc..=self.end_tsc).contains(&tsc)
    }
}
