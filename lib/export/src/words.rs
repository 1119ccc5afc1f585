//! How a call began and ended, in a word; the same in all formats.

use sptrace_trace::{Entry, Frame, FrameFlags};

/// How it began: `call` if nothing is unusual.
pub fn begin(frame: &Frame) -> &'static str {
    match frame.entry {
        _ if frame.flags.begin_unseen => "earlier",
        Entry::Call => "call",
        Entry::Tail => "tail",
        Entry::Open => "entry only",
        Entry::Earlier => "earlier",
    }
}

/// How it ended: `return` if nothing is unusual.
pub fn end(frame: &Frame) -> &'static str {
    match frame.flags {
        FrameFlags { unwound: true, .. } => "unwound",
        FrameFlags {
            end_unseen: true, ..
        } => "not seen",
        FrameFlags {
            until_process_end: true,
            ..
        } => "process ended",
        _ => "return",
    }
}
