//! Tasks that were woken and do not run yet: who woke them, and behind whom they are queued.
//!
//! The kernel tells of a switch between tasks only where one of the two is recorded. Of those that
//! had the processor while a task was queued there are therefore known at most two: the one that
//! ran when it was woken, if that was on the processor on which it runs later, and the last one.
//!
//! Must not know: records, and how frames are written.

use super::Tasks;
use crate::error::KernelError;
use crate::source::{Frame, Waker};
use crate::trace::Trace;
use std::collections::HashMap;

/// In place of the state that a task waits in: it was woken, and has not run yet.
const WOKEN: char = 'w';

/// Number of the tasks that run where there is nothing to do, one of each processor.
const IDLE: u32 = 0;

/// What is known of tasks that are queued.
#[derive(Debug, Default)]
pub(super) struct Queued {
    /// The processor on which things happen.
    processor: u32,
    /// By task: on which processor it was woken, and the task that had it then.
    woken_on: HashMap<u32, (u32, u32)>,
}

impl<T: Trace> Tasks<T> {
    /// What happens from here on happens on this processor.
    pub fn on_processor(&mut self, processor: u32) {
        self.queued.processor = processor;
    }

    /// A task is woken. One that does not wait, or was woken before, is not.
    pub(super) fn woken(&mut self, tid: u32, tsc: u64, by: Waker) -> Result<(), KernelError> {
        let task = self.tasks.get_mut(&tid);
        let open = task.and_then(|task| task.open.last_mut());
        let Some(Frame::Waiting(state)) = open else {
            return Ok(());
        };
        let was_woken = std::mem::replace(state, WOKEN) == WOKEN;
        if was_woken {
            return Ok(());
        }
        let (Waker::Task(running) | Waker::Interrupt(running) | Waker::SoftInterrupt(running)) = by;
        let place = (self.queued.processor, running);
        self.queued.woken_on.insert(tid, place);
        let by = match by {
            Waker::Task(tid) => self.names.of(tid),
            Waker::Interrupt(tid) => self.interrupting(tid).unwrap_or("an interrupt".to_owned()),
            Waker::SoftInterrupt(tid) => self.interrupting(tid).unwrap_or("a softirq".to_owned()),
        };
        self.instant(tid, tsc, "[scheduler]", format!("woken by {by}"))
    }

    /// A task gets the processor from `last`. If it was queued, this says behind whom: behind the
    /// one that ran when it was woken, and at last behind another.
    pub(super) fn runs(&mut self, tid: u32, tsc: u64, last: u32) -> Result<(), KernelError> {
        let woken_on = self.queued.woken_on.remove(&tid);
        let open = self.tasks.get(&tid).and_then(|task| task.open.last());
        if open != Some(&Frame::Waiting(WOKEN)) {
            return Ok(());
        }
        let is_here = |(processor, running): &(u32, u32)| {
            *processor == self.queued.processor && *running != IDLE && *running != tid
        };
        let first = woken_on.filter(is_here).map(|(_, running)| running);
        if let Some(first) = first {
            let name = format!("queued behind {}", self.names.of(first));
            self.instant(tid, tsc, "[scheduler]", name)?;
        }
        if last == IDLE || first == Some(last) {
            return Ok(());
        }
        let name = format!("queued, at last behind {}", self.names.of(last));
        self.instant(tid, tsc, "[scheduler]", name)
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
            ["queued behind task8", "queued, at last behind task9"]
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
}
