//! Calls that lie too deep to be recorded (`-D`), where the agents cannot leave them out.
//!
//! Where all calls have stamps, functions that are reached too deep are not instrumented. Of calls
//! in order the agents do not know how deep they are: all come here. Given what begins and ends,
//! and how many recorded calls are open; says what of it is told. Must not know what a function is.

use crate::decode::module::{PLACE_OPEN, PLACE_TAIL};

/// A frame inside of the deepest recorded call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    /// A call that is left out.
    Call,
    /// The same of one without an end of its own.
    Open,
    /// A call of the kernel: those are told at any depth.
    Told,
}

/// What of a thread is open and too deep.
#[derive(Clone, Debug)]
pub(crate) struct Deep {
    limit: u32,
    inside: Vec<Inside>,
}

impl Deep {
    /// A call is told with so many others around it, as where a function that is reached there is
    /// not instrumented.
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit,
            inside: Vec::new(),
        }
    }

    /// A function begins, of `kind` (`PLACE_*`), while so many recorded calls are open. Is it told?
    pub(crate) fn enters(&mut self, kind: u8, depth: u32) -> bool {
        if self.inside.is_empty() && (depth <= self.limit || kind & PLACE_TAIL != 0) {
            return true;
        }
        if kind & PLACE_TAIL == 0 {
            self.inside.push(match kind & PLACE_OPEN {
                0 => Inside::Call,
                _ => Inside::Open,
            });
        }
        false
    }

    /// A call of the kernel begins, which is told.
    pub(crate) fn enters_kernel(&mut self) {
        if !self.inside.is_empty() {
            self.inside.push(Inside::Told);
        }
    }

    /// What begins now is told; a function that goes on is none of those that are left out.
    pub(crate) fn is_empty(&self) -> bool {
        self.inside.is_empty()
    }

    /// The innermost call is left out.
    pub(crate) fn leaves_out(&self) -> bool {
        matches!(self.inside.last(), Some(Inside::Call | Inside::Open))
    }

    /// The innermost call ends, with those without ends of their own that are inside of it. Is that
    /// told?
    pub(crate) fn exits(&mut self) -> bool {
        while let Some(inside) = self.inside.pop() {
            match inside {
                Inside::Open => {}
                Inside::Call => return false,
                Inside::Told => return true,
            }
        }
        true
    }

    /// So many calls were left: of how many is that told?
    pub(crate) fn leaves(&mut self, calls: u32) -> u32 {
        (0..calls).map(|_| u32::from(self.exits())).sum()
    }

    /// So many frames without ends of their own have ended: of how many is that told?
    pub(crate) fn closes(&mut self, mut frames: u32) -> u32 {
        while frames > 0 && self.inside.last() == Some(&Inside::Open) {
            self.inside.pop();
            frames -= 1;
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::module::PLACE_ENTRY;

    const OPEN: u8 = PLACE_ENTRY | PLACE_OPEN;
    const TAIL: u8 = PLACE_ENTRY | PLACE_TAIL;

    #[test]
    fn what_is_deeper_than_the_limit_is_left_out_with_its_end() {
        let mut deep = Deep::new(1);
        assert!(deep.enters(PLACE_ENTRY, 0) && deep.enters(PLACE_ENTRY, 1));
        assert!(!deep.enters(PLACE_ENTRY, 2) && !deep.enters(TAIL, 2));
        assert!(!deep.enters(PLACE_ENTRY, 2) && !deep.exits() && !deep.exits());
        // The call at the limit goes on with another function, and ends.
        assert!(deep.is_empty() && deep.enters(TAIL, 2) && deep.exits());
    }

    #[test]
    fn frames_without_ends_end_with_what_holds_them() {
        let mut deep = Deep::new(0);
        assert!(deep.enters(PLACE_ENTRY, 0) && !deep.enters(PLACE_ENTRY, 1));
        assert!(!deep.enters(OPEN, 1) && !deep.enters(OPEN, 1));
        assert_eq!((deep.closes(1), deep.closes(0)), (0, 0));
        assert!(!deep.exits() && deep.is_empty() && deep.closes(1) == 1);
    }

    #[test]
    fn calls_of_the_kernel_are_told_at_any_depth() {
        let mut deep = Deep::new(0);
        deep.enters_kernel();
        assert!(deep.is_empty() && deep.enters(PLACE_ENTRY, 0) && !deep.enters(PLACE_ENTRY, 1));
        assert!(deep.leaves_out());
        deep.enters_kernel();
        assert!(!deep.leaves_out());
        // A handler interrupts it.
        assert!(!deep.enters(PLACE_ENTRY, 2) && !deep.exits() && deep.exits());
        deep.enters_kernel();
        assert_eq!(deep.leaves(3), 2);
    }
}
