//! What shows a recording while it is made, of `run` and `attach`.
//!
//! Given what the options ask for, opened; waits at the end until all is shown.

use crate::commands::live::Live;
use crate::commands::top::Top;

/// What shows a recording while it is made.
#[derive(Default)]
pub struct Shows {
    /// Lines of system calls.
    pub lines: Option<Live>,
    /// The functions that take the most time.
    pub top: Option<Top>,
    /// The recording goes on from its start to its end, whoever looks at it.
    pub is_steady: bool,
}

impl Shows {
    /// What the options have opened.
    pub fn of(lines: Option<Live>, top: Option<Top>) -> Self {
        let is_steady = false;
        Self {
            lines,
            top,
            is_steady,
        }
    }

    /// The recording has ended: waits until all is shown.
    pub fn end(self) {
        if let Some(lines) = self.lines {
            lines.end();
        }
        if let Some(top) = self.top {
            top.end();
        }
    }
}
