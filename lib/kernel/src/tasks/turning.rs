//! Tasks whose recording begins, ends, or is copied at an event.
//!
//! Until it begins, frames are kept as they open and close, so that those that are open then are in
//! the trace, as ones that began earlier.
//!
//! Must not know: what the events are.

use super::Tasks;
use crate::error::KernelError;
use crate::tell::Step;
use crate::trace::Trace;
use crate::turns::{Deed, Fired, Turns};
use sptrace_trace::{EarlyEnd, FunctionId, Note, Turn};

impl<T: Trace> Tasks<T> {
    /// Begins, ends, and is copied at these events. To be said before anything has happened.
    pub fn turn_at(&mut self, turns: Turns) {
        self.is_silent = turns.begin_later();
        self.turns = turns;
    }

    /// Does what follows from time and signals by `tsc`.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn look(&mut self, tsc: u64, signals: &dyn Fn(i32) -> u64) -> Result<(), KernelError> {
        let fired = self.turns.look(signals);
        fired.into_iter().try_for_each(|f| self.turn(tsc, f))
    }

    /// The command has ended.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn command_ended(&mut self, tsc: u64, has_crashed: bool) -> Result<(), KernelError> {
        let fired = self.turns.ended(has_crashed);
        fired.into_iter().try_for_each(|f| self.turn(tsc, f))
    }

    /// Time counts from here.
    pub fn start(&mut self) {
        self.turns.start();
    }

    /// Nothing was recorded, as no event of those that begin the recording has happened.
    pub fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// An event has ended the recording.
    pub fn is_stopped(&self) -> bool {
        self.until_tsc != u64::MAX
    }

    fn turn(&mut self, tsc: u64, fired: Fired) -> Result<(), KernelError> {
        let event = fired.text;
        let turn = match fired.deed {
            Deed::Start if self.is_silent => {
                self.begin_recording(tsc)?;
                let window = None;
                Turn::Begins { event, window }
            }
            Deed::Stop if !self.is_silent && !self.is_stopped() => {
                self.until_tsc = tsc;
                Turn::EndsEarly(EarlyEnd::AtEvent(event))
            }
            Deed::Dump if !self.is_silent && !self.is_stopped() => {
                self.dumps.push(event);
                return Ok(());
            }
            _ => return Ok(()),
        };
        self.trace.note(&Note::Recording { pid: 0, tsc, turn })
    }

    /// What is open now began before the recording.
    fn begin_recording(&mut self, tsc: u64) -> Result<(), KernelError> {
        self.is_silent = false;
        self.turns.start();
        let mut tids: Vec<u32> = self.tasks.keys().copied().collect();
        tids.sort_unstable();
        for tid in tids {
            let pid = self.process_of(tid);
            let encoder = self.encoder(tid, pid, tsc)?;
            if let (Some(task), Some(encoder)) = (self.tasks.get_mut(&tid), encoder) {
                task.record(encoder, tsc);
            }
        }
        Ok(())
    }

    /// A frame has begun, or ended: an event, perhaps.
    pub(super) fn saw(
        &mut self,
        tsc: u64,
        function: FunctionId,
        step: Step,
    ) -> Result<(), KernelError> {
        let Some(name) = self.turning.get(&function) else {
            return Ok(());
        };
        let fired = self.turns.saw(name, step);
        fired.into_iter().try_for_each(|f| self.turn(tsc, f))
    }
}
