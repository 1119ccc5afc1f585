//! Somebody who wants to know of frames at once, and not of all.
//!
//! Given to who turns records into frames; is told of each frame when it begins and when it ends.
//! Only the names that its patterns ask for are passed on: a slow line bears no more.
//!
//! Must not know: where it goes, and how it looks.

use sptrace_trace::glob_matches;
use std::sync::Arc;

/// What has happened to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It begins.
    Begins,
    /// It ends, after so many ticks.
    Ends(u64),
    /// It has no length.
    Instant,
}

/// Something that is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// When.
    pub tsc: u64,
    /// Of which task.
    pub tid: u32,
    /// The frame's name.
    pub name: String,
    /// What has happened.
    pub step: Step,
}

/// Who is told. It must not wait.
#[derive(Clone)]
pub struct Listener {
    /// Names, or modules in brackets; none: all.
    patterns: Vec<String>,
    hear: Arc<dyn Fn(Told) + Send + Sync>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Listener").field(&self.patterns).finish()
    }
}

impl Listener {
    /// Wants frames whose name, or whose module in brackets, matches one of these; all if there
    /// are none.
    pub fn new(patterns: Vec<String>, hear: Arc<dyn Fn(Told) + Send + Sync>) -> Self {
        Self { patterns, hear }
    }

    /// Is a frame of this name and module wanted?
    pub fn wants(&self, name: &str, module: &str) -> bool {
        let is_meant = |p: &String| glob_matches(p, name) || p == module;
        self.patterns.is_empty() || self.patterns.iter().any(is_meant)
    }

    /// Tells.
    pub fn tell(&self, told: Told) {
        (self.hear)(told);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_modules_are_chosen() {
        let patterns = vec!["pipe_*".to_owned(), "[signals]".to_owned()];
        let some = Listener::new(patterns, Arc::new(|_| ()));
        assert!(some.wants("pipe_write", "[kernel]") && some.wants("SIGINT", "[signals]"));
        assert!(!some.wants("vfs_write", "[kernel]"));
        assert!(Listener::new(Vec::new(), Arc::new(|_| ())).wants("x", "[kernel]"));
    }
}
