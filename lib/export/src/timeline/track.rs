//! What is kept of each thread and each function while a time line is collected.
//!
//! Plain data: `timeline.rs` fills it and `page.rs` writes it.

use super::levels::Levels;

/// Functions of the page with a smaller number are marks.
pub const MARKS: [&str; 4] = [
    "waited for sptrace",
    "events lost",
    "returned again",
    "a frame from before ended",
];

/// The call of a function that took longest, as far as is known.
#[derive(Clone, Copy, Default)]
pub struct Longest {
    pub stream: u32,
    pub start_ns: u64,
    pub total_ns: u64,
}

/// One stream.
pub struct Track {
    pub levels: Levels,
    /// Of each open frame: is its function open below?
    pub open: Vec<bool>,
    pub start_ns: u64,
    pub end_ns: u64,
    pub rows: u32,
    pub calls: u64,
    pub is_over: bool,
}
