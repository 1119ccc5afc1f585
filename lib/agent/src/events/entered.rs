//! A special function that is about to run, as those see it who must do something before.

use crate::memory::frame::Frame;
use crate::plans::modules::Special;

/// A special function that is about to run.
pub struct Entered<'a> {
    /// Why it is intercepted, and where it begins.
    pub special: Special,
    /// The program's registers.
    pub f: &'a mut Frame,
    /// The program's signal mask.
    pub mask: u64,
}
