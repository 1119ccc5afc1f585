//! What the kernel did for a thread, told inside of what the thread ran.
//!
//! Given events of the kernel's side that lie between two of the program's, in order; opens and
//! closes frames above all that the program has open. Code of the program runs only when the kernel
//! has returned, so an event of the program ends what is open of the kernel: where it does so, the
//! end itself was lost, and no time is known; but for the events of a vfork(2) child (`lent.rs`).
//! What the kernel did while the thread waited for sptrace is sptrace's own work, and is left out
//! as the wait is.
//!
//! Must not know: how the two are brought together.

use super::super::side::{Side, Wait};
use super::super::visitor::Visitor;
use super::{CallTree, Stream, known};
use crate::decoder::Block;
use crate::error::Malformed;
use crate::model::{Entry, Event, StreamId};
use crate::reader::Dictionary;
use crate::values::is_of_function;

impl CallTree {
    /// Begins a block of the kernel's, inside of stream `id`: what is open at its start, if it is
    /// the first one.
    pub(in super::super) fn kernel_begin(
        &mut self,
        id: StreamId,
        block: &Block,
        dictionary: &Dictionary,
        visitor: &mut impl Visitor,
    ) -> Result<(), Malformed> {
        if block.opening().next().is_none() {
            return Ok(());
        }
        let stream = self.of_kernel(id, block.first_tsc);
        if !stream.kernel.is_empty() || stream.kernel_events > 0 {
            return Ok(());
        }
        for frame in block.opening() {
            known(frame.function, dictionary)?;
            stream.kernel.push(Side::Shown);
            stream.enter(
                id,
                block.first_tsc,
                frame.function,
                Entry::Call,
                true,
                visitor,
            );
        }
        Ok(())
    }

    /// Replays events of a block of the kernel's inside of stream `id`. `wait`: the program's next
    /// event tells of it.
    pub(in super::super) fn kernel_events(
        &mut self,
        (id, block): (StreamId, &Block),
        events: &[Event],
        wait: Option<Wait>,
        dictionary: &Dictionary,
        visitor: &mut impl Visitor,
    ) -> Result<(), Malformed> {
        let Some(first) = events.first() else {
            return Ok(());
        };
        let stream = self.of_kernel(id, first.tsc());
        for event in events {
            if let Event::Enter { callee, .. } = event {
                known(*callee, dictionary)?;
            }
            // A thread in the kernel does not wait for sptrace: that is a vfork(2) child then.
            let is_ours = !stream.kernel.contains(&Side::Shown)
                && wait.is_some_and(|wait| wait.has(event.tsc()));
            if let Event::Values { tsc, at, bytes } = *event
                && stream.kernel.last() == Some(&Side::Shown)
            {
                // Those of system calls the program tells, who knows which are sptrace's own.
                let told = Some(block.values(at, bytes)).filter(|bytes| is_of_function(bytes));
                told.into_iter()
                    .for_each(|bytes| visitor.values(id, tsc, bytes));
            }
            stream.kernel_event(id, event, is_ours, visitor);
        }
        Ok(())
    }

    fn of_kernel(&mut self, id: StreamId, tsc: u64) -> &mut Stream {
        self.streams.entry(id).or_insert_with(|| Stream::new(tsc))
    }

    /// All of the stream was told.
    pub(in super::super) fn is_told(&self, id: StreamId) -> bool {
        !self.streams.contains_key(&id)
    }
}

impl Stream {
    fn kernel_event(
        &mut self,
        id: StreamId,
        event: &Event,
        is_ours: bool,
        visitor: &mut impl Visitor,
    ) {
        self.kernel_events += 1;
        let is_lent = self.lent.is_some();
        if is_lent {
            self.advance(event.tsc());
            self.parent_goes_on(id, visitor);
        }
        match *event {
            Event::Enter { callee, .. } if !is_ours => {
                self.advance(event.tsc());
                self.kernel.push(Side::Shown);
                self.enter(id, event.tsc(), callee, Entry::Call, false, visitor);
            }
            Event::Enter { .. } => self.kernel.push(Side::Gone),
            Event::Exit { tsc } => self.kernel_exit(id, tsc, visitor),
            // The task has ended: what is open stays so until its stream's end.
            _ => {}
        }
        if is_lent {
            self.parent_was_told(id, visitor);
        }
    }

    fn kernel_exit(&mut self, id: StreamId, tsc: u64, visitor: &mut impl Visitor) {
        if self.kernel.pop() == Some(Side::Shown) {
            self.advance(tsc);
            self.leave(id, |_| {}, visitor);
        }
    }

    /// The program runs, so the kernel has returned.
    pub(super) fn end_kernel(&mut self, id: StreamId, visitor: &mut impl Visitor) {
        for at in (0..self.kernel.len()).rev() {
            if self.kernel[at] == Side::Shown {
                self.kernel[at] = Side::Gone;
                self.leave(id, |flags| flags.end_unseen = true, visitor);
            }
        }
    }
}
