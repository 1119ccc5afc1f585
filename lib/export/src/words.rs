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

/// How it ended: `return` if nothing is unusual, `estimated` if its times are.
pub fn end(frame: &Frame) -> &'static str {
    match frame.flags {
        FrameFlags { unwound: true, .. } => "unwound",
        FrameFlags {
            end_unseen: true, ..
        } => "not seen",
        // Neither its duration nor when it began and ended was measured.
        _ if frame.estimate.is_some() && frame.total_ticks.is_none() => "estimated",
        FrameFlags {
            until_process_end: true,
            ..
        } => "process ended",
        _ => "return",
    }
}
