//! Why calls have no recorded end.
//!
//! Given for each such call who makes it; gives the counts and what they are called.

use super::callers::Caller;

/// So many calls have no recorded end, by the reason.
#[derive(Clone, Copy, Default)]
pub(super) struct WithoutEnd {
    /// Code that is not patched has called them; what they jumped to was seen.
    unseen_caller: u64,
    /// The caller's return addresses must stay.
    kept_caller: u64,
    /// The callee takes its return address.
    reader: u64,
}

impl WithoutEnd {
    /// So many more, made by `caller`, if it is known.
    pub(super) fn count(&mut self, caller: Option<Caller>, calls: u64) {
        match caller {
            None => self.unseen_caller += calls,
            Some(caller) if caller.keeps_returns => self.kept_caller += calls,
            Some(_) => self.reader += calls,
        }
    }

    /// In words.
    pub(super) fn told(&self) -> [(&'static str, u64); 3] {
        [
            ("called by code that is not seen", self.unseen_caller),
            (
                "called where a runtime walks its own stacks",
                self.kept_caller,
            ),
            ("of functions that take their return address", self.reader),
        ]
    }
}
