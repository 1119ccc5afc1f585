//! When a recording begins, ends, or is copied: at a time, a signal, or a call.
//!
//! Given what is waited for; is told of names of frames as they begin and end, and asked what the
//! time and signals have brought. Gives what shall be done.
//!
//! Must not know: tracefs, tasks, and how any of it is done.

use crate::tell::Step;
use sptrace_trace::glob_matches;
use std::time::{Duration, Instant};

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// So much time has passed, again and again: since the start, or since the recording has begun.
    Time(Duration),
    /// We receive this signal.
    Signal(i32),
    /// A function or a system call begins whose name matches.
    Call(String),
    /// It ends.
    Return(String),
    /// It has taken longer than this.
    Slow(String, Duration),
    /// The command has ended.
    Exit,
    /// A signal has ended it.
    Crash,
}

/// What is done then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// The recording begins.
    Start,
    /// It ends.
    Stop,
    /// What is kept of it is copied.
    Dump,
}

/// One event and what follows from it.
#[derive(Clone, Debug)]
pub struct Turn {
    /// What is waited for.
    pub what: What,
    /// Each so many times.
    pub every: u64,
    /// What follows.
    pub deed: Deed,
    /// As the user has written it.
    pub text: String,
}

/// An event has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired {
    /// What follows.
    pub deed: Deed,
    /// The event.
    pub text: String,
}

/// All of a recording.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    all: Vec<(Turn, u64)>,
    hz: u64,
    /// When the recording was started, and how often times have fired since.
    since: Option<(Instant, u64)>,
}

impl Turns {
    /// By a counter of so many ticks a second.
    pub fn new(all: Vec<Turn>, hz: u64) -> Self {
        Self {
            all: all.into_iter().map(|turn| (turn, 0)).collect(),
            hz,
            since: None,
        }
    }

    /// Nothing is recorded until an event.
    pub fn begin_later(&self) -> bool {
        self.all.iter().any(|(turn, _)| turn.deed == Deed::Start)
    }

    /// Somebody waits for frames of this name.
    pub fn wants(&self, name: &str) -> bool {
        self.all.iter().any(|(turn, _)| match &turn.what {
            What::Call(glob) | What::Return(glob) | What::Slow(glob, _) => glob_matches(glob, name),
            _ => false,
        })
    }

    /// Time counts from here.
    pub fn start(&mut self) {
        self.since = Some((Instant::now(), 0));
    }

    /// A frame of this name has begun or ended.
    pub fn saw(&mut self, name: &str, step: Step) -> Vec<Fired> {
        let hz = self.hz;
        self.fire(|what| match (what, step) {
            (What::Call(glob), Step::Begins | Step::Instant) => glob_matches(glob, name),
            (What::Return(glob), Step::Ends(_)) => glob_matches(glob, name),
            (What::Slow(glob, least), Step::Ends(ticks)) => {
                let nanoseconds = u128::from(ticks) * 1_000_000_000 / u128::from(hz.max(1));
                nanoseconds > least.as_nanos() && glob_matches(glob, name)
            }
            _ => false,
        })
    }

    /// What time and signals have brought since the last look. `signals`: how often one has come
    /// since then.
    pub fn look(&mut self, signals: &dyn Fn(i32) -> u64) -> Vec<Fired> {
        let mut fired = Vec::new();
        if let Some((since, looked)) = self.since {
            let now = since.elapsed().as_nanos() as u64;
            self.since = Some((since, now));
            for i in 0..self.all.len() {
                let times = match self.all.get(i).map(|(turn, _)| &turn.what) {
                    Some(What::Time(each)) => {
                        let each = (each.as_nanos() as u64).max(1);
                        now / each - looked / each
                    }
                    _ => 0,
                };
                (0..times).for_each(|_| fired.extend(self.count(i)));
            }
        }
        for i in 0..self.all.len() {
            let times = match self.all.get(i).map(|(turn, _)| &turn.what) {
                Some(What::Signal(signal)) => signals(*signal),
                _ => 0,
            };
            (0..times).for_each(|_| fired.extend(self.count(i)));
        }
        fired
    }

    /// The command has ended.
    pub fn ended(&mut self, has_crashed: bool) -> Vec<Fired> {
        self.fire(|what| match what {
            What::Exit => true,
            What::Crash => has_crashed,
            _ => false,
        })
    }

    fn fire(&mut self, is_so: impl Fn(&What) -> bool) -> Vec<Fired> {
        let so = self.all.iter().enumerate();
        let so: Vec<usize> = so
            .filter(|(_, (t, _))| is_so(&t.what))
            .map(|(i, _)| i)
            .collect();
        so.into_iter().filter_map(|i| self.count(i)).collect()
    }

    /// It has happened once more.
    fn count(&mut self, i: usize) -> Option<Fired> {
        let (turn, seen) = self.all.get_mut(i)?;
        *seen += 1;
        (*seen % turn.every.max(1) == 0).then(|| Fired {
            deed: turn.deed,
            text: turn.text.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(what: What, every: u64) -> Turns {
        let (deed, text) = (Deed::Dump, "it".to_owned());
        let turn = Turn {
            what,
            every,
            deed,
            text,
        };
        Turns::new(vec![turn], 1_000_000_000)
    }

    #[test]
    fn calls_count_by_their_names_and_times() {
        let mut every_second = turns(What::Call("vfs_*".to_owned()), 2);
        assert!(every_second.wants("vfs_read") && !every_second.wants("ksys_read"));
        let fired = |t: &mut Turns, step| t.saw("vfs_read", step).len();
        assert_eq!(fired(&mut every_second, Step::Begins), 0);
        assert_eq!(fired(&mut every_second, Step::Ends(9)), 0);
        assert_eq!(fired(&mut every_second, Step::Begins), 1);
        let mut slow = turns(
            What::Slow("vfs_read".to_owned(), Duration::from_nanos(5)),
            1,
        );
        assert_eq!(fired(&mut slow, Step::Ends(5)), 0);
        assert_eq!(fired(&mut slow, Step::Ends(6)), 1);
    }

    #[test]
    fn signals_and_the_end_are_seen_by_looking() {
        let mut heard = turns(What::Signal(10), 1);
        assert_eq!(heard.look(&|signal| u64::from(signal == 10) * 2).len(), 2);
        assert_eq!(heard.look(&|_| 0).len(), 0);
        assert_eq!(turns(What::Crash, 1).ended(false).len(), 0);
        assert_eq!(turns(What::Exit, 1).ended(false).len(), 1);
        let mut timed = turns(What::Time(Duration::from_nanos(1)), u64::MAX);
        assert_eq!(timed.look(&|_| 0).len(), 0, "it has not begun");
    }
}
