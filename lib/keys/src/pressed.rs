//! What is told of a key: which one of those that are waited for it was, and when it was read.

/// A key that was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressed {
    /// The number that the key was given with.
    pub number: usize,
    /// When it was read, by the clock that was given.
    pub time: u64,
}

/// Gives the time; called in another process, too.
pub type Clock = fn() -> u64;
