//! Tasks that could run and do not: who woke them, and behind whom they are queued.
//!
//! Given which task each processor goes to; says of a task that gets one who had it for the longest
//! time since the task was woken or preempted. Where switches between other tasks are not told, it
//! is the one that ran when the task was woken, or the last one.
//!
//! Must not know: records, and how frames are written.

use super::Tasks;
use crate::error::KernelError;
use crate::source::{Frame, Waker};
use crate::trace::Trace;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// In place of the state that a task waits in: it was woken, and has not run yet.
const WOKEN: char = 'w';

/// Number of the tasks that run where there is nothing to do, one of each processor.
const IDLE: u32 = 0;

/// Turns of a processor that are kept. A task that is queued for longer sees the latest ones.
const TURNS: usize = 1024;

/// What is known of tasks that are queued, and of those that run.
#[derive(Debug, Default)]
pub(super) struct Queued {
    /// The processor on which things happen.
    processor: u32,
    /// By processor: since when it has had which task, the latest last.
    turns: HashMap<u32, VecDeque<(u64, u32)>>,
    /// When tasks that are queued were woken.
    woken: HashMap<u32, u64>,
}

impl Queued {
    /// The processor has this task since then, at the latest.
    fn has(&mut self, task: u32, tsc: u64) {
        let turns = self.turns.entry(self.processor).or_default();
        if turns.back().is_some_and(|(_, last)| *last == task) {
            return;
        }
        if turns.len() == TURNS {
            turns.pop_front();
        }
        turns.push_back((tsc, task));
    }

    /// Who had the processor for the longest time between `since` and `until`, but for one task.
    fn longest(&self, since: u64, until: u64, but: u32) -> Option<u32> {
        let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
        let mut end = until;
        for (start, task) in self.turns.get(&self.processor)?.iter().rev() {
            let ticks = end.saturating_sub((*start).max(since));
            if *task != IDLE && *task != but {
                *sums.entry(*task).or_default() += ticks;
            }
            end = end.min(*start);
            if end <= since {
                break;
            }
        }
        let longest = sums.into_iter().max_by_key(|(_, ticks)| *ticks);
        longest
            .filter(|(_, ticks)| *ticks > 0)
            .map(|(task, _)| task)
    }
}

impl<T: Trace> Tasks<T> {
    /// What happens from here on happens on this processor.
    pub fn on_processor(&mut self, processor: u32) {
        self.queued.processor = processor;
    }

    /// A task is woken. One that does not wait, or was woken before, is not.
    pub(super) fn woken(&mut self, tid: u32, tsc: u64, by: Waker) -> Result<(), KernelError> {
        let (Waker::Task(running) | Waker::Interrupt(running) | Waker::SoftInterrupt(running)) = by;
        self.queued.has(running, tsc);
        let task = self.tasks.get_mut(&tid);
        let open = task.and_then(|task| task.open.last_mut());
        let Some(Frame::Waiting(state)) = open else {
            return Ok(());
        };
        let was_woken = std::mem::replace(state, WOKEN) == WOKEN;
        if was_woken {
            return Ok(());
        }
        self.queued.woken.insert(tid, tsc);
        let by = match by {
            Waker::Task(tid) => self.names.of(tid),
            Waker::Interrupt(tid) => self.interrupting(tid).unwrap_or("an interrupt".to_owned()),
            Waker::SoftInterrupt(tid) => self.interrupting(tid).unwrap_or("a softirq".to_owned()),
        };
        self.instant(tid, tsc, "[scheduler]", format!("woken by {by}"))
    }

    /// A task gets the processor from `last`. If it could have run before, this says behind whom it
    /// was queued.
    pub(super) fn runs(&mut self, tid: u32, tsc: u64, last: u32) -> Result<(), KernelError> {
        let woken = self.queued.woken.remove(&tid);
        let task = self.tasks.get(&tid);
        let known = task.and_then(|task| Some((task.open.last()?, task.since()?)));
        let named = match known {
            Some((Frame::Waiting(WOKEN), since)) => {
                match self.queued.longest(woken.unwrap_or(since), tsc, tid) {
                    Some(who) => Some(format!("queued behind {}", self.names.of(who))),
                    None if last == IDLE => None,
                    None => Some(format!("queued, at last behind {}", self.names.of(last))),
                }
            }
            Some((Frame::Preempted(first), since)) => {
                let longest = self.queued.longest(since, tsc, tid);
                let who = longest.map(|who| self.names.of(who));
                let who = who.filter(|who| who != first);
                who.map(|who| format!("queued behind {who}"))
            }
            _ => None,
        };
        self.queued.has(tid, tsc);
        match named {
            Some(name) => self.instant(tid, tsc, "[scheduler]", name),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Happening;
    use sptrace_trace::{Header, TraceWriter};

    /// Names of what a trace has of the scheduler, where task 7 waits, is woken while `running` has
    /// processor 1, and gets processor `then` from `last`.
    fn told(running: u32, then: u32, last: u32) -> Vec<String> {
        let writer = TraceWriter::create(Vec::new(), &Header::default()).unwrap();
        let mut tasks = Tasks::new(writer, false, Vec::new()).unwrap();
        tasks.expect(7, 7);
        let switch = |from: u32, why, next: u32| Happening::Switch {
            name: format!("task{from}"),
            why,
            next,
            next_name: format!("task{next}"),
        };
        tasks.on_processor(1);
        let mut all = vec![(7, switch(7, Frame::Waiting('S'), 8))];
        let by = Waker::Interrupt(running);
        all.push((running, Happening::Woken { tid: 7, by }));
        for (at, (tid, happening)) in all.into_iter().enumerate() {
            tasks.happened(tid, 10 + at as u64, happening).unwrap();
        }
        tasks.on_processor(then);
        let preempted = Frame::Preempted(String::new());
        tasks
            .happened(last, 20, switch(last, preempted, 7))
            .unwrap();
        let mut names: Vec<_> = tasks
            .functions
            .keys()
            .map(|(_, name)| name.clone())
            .collect();
        names.retain(|name| name.starts_with("queued"));
        names.sort();
        names
    }

    #[test]
    fn a_task_is_queued_behind_who_ran_when_it_was_woken() {
        assert_eq!(told(8, 1, 8), ["queued behind task8"]);
        assert_eq!(
            told(8, 1, 9),
            ["queued behind task8"],
            "a switch was not told"
        );
    }

    #[test]
    fn of_another_processor_only_the_last_one_is_known() {
        assert_eq!(told(8, 2, 9), ["queued, at last behind task9"]);
    }

    #[test]
    fn nobody_is_queued_behind_a_processor_that_has_nothing_to_do() {
        assert!(told(IDLE, 1, IDLE).is_empty());
    }

    #[test]
    fn who_had_the_processor_longest_is_named() {
        let mut queued = Queued::default();
        for (tsc, task) in [(5, 1), (10, 2), (20, 3), (22, 4), (31, 3), (32, IDLE)] {
            queued.has(task, tsc);
        }
        assert_eq!(queued.longest(0, 40, 9), Some(2));
        assert_eq!(queued.longest(15, 40, 9), Some(4));
        assert_eq!(queued.longest(15, 40, 4), Some(2));
        assert_eq!(queued.longest(32, 40, 9), None, "nobody ran");
        queued.processor = 1;
        assert_eq!(queued.longest(0, 40, 9), None);
    }
}
