//! What is told of a recording while it is made.
//!
//! Given what system calls brought with them and what happens to processes, thread by thread as it
//! is drained; tells somebody of it in the order of time, in lots. Must not know who listens, nor
//! what he makes of it.

use std::fmt;
use std::sync::Arc;

use sptrace_trace::Note;

/// One thing that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// What a system call brought with it, as the trace has it ([`sptrace_trace::values`]).
    Values {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// The process that made its process.
        ppid: u32,
        /// When.
        tsc: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// Something that happened beside the calls.
    Note(Note),
}

impl Told {
    /// When it happened.
    pub fn tsc(&self) -> u64 {
        match self {
            Self::Values { tsc, .. } => *tsc,
            Self::Note(note) => note.tsc(),
        }
    }
}

/// Who is told. He must not take long: threads of the program may wait for who tells.
#[derive(Clone)]
pub struct Tap(pub Arc<dyn Fn(Vec<Told>) + Send + Sync>);

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}

/// What was drained and has not been told yet.
pub struct Waiting {
    tap: Tap,
    told: Vec<Told>,
}

impl Waiting {
    /// For this listener.
    pub fn new(tap: Tap) -> Self {
        Self {
            tap,
            told: Vec::new(),
        }
    }

    /// Something has happened.
    pub fn push(&mut self, told: Told) {
        self.told.push(told);
    }

    /// Everything up to a time has been drained of all threads: it is told.
    pub fn tell_until(&mut self, tsc: u64) {
        // What one thread has done stays in its order: the sort is stable.
        self.told.sort_by_key(Told::tsc);
        let later = self.told.partition_point(|told| told.tsc() <= tsc);
        let later = self.told.split_off(later);
        let now = std::mem::replace(&mut self.told, later);
        if !now.is_empty() {
            (self.tap.0)(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn threads_are_told_in_the_order_of_time_and_what_is_too_new_waits() {
        let all = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&all);
        let tap = Tap(Arc::new(move |lot| to.lock().unwrap().extend(lot)));
        let mut waiting = Waiting::new(tap);
        let values = |tid, tsc| Told::Values {
            pid: 1,
            tid,
            ppid: 0,
            tsc,
            bytes: Vec::new(),
        };
        for (tid, tsc) in [(1, 10), (1, 30), (2, 5), (2, 10), (2, 20)] {
            waiting.push(values(tid, tsc));
        }
        waiting.tell_until(20);
        let expected = [(2, 5), (1, 10), (2, 10), (2, 20)].map(|(tid, tsc)| values(tid, tsc));
        assert_eq!(*all.lock().unwrap(), expected);
        waiting.tell_until(u64::MAX);
        assert_eq!(all.lock().unwrap().last(), Some(&values(1, 30)));
    }
}
