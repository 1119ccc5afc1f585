//! A thread that waits in the kernel while a vfork(2) child runs in its memory.
//!
//! The child writes into its parent's stream, so there are events of a program though the kernel
//! has not returned. They are told inside of what the kernel does for the parent. What the parent
//! has open stays so until the kernel returns, also what the child has left: it is the child that
//! has returned from vfork(2) then. The child's own frames end where the kernel goes on with the
//! parent, and their ends are not known: it has executed a program, or ended.
//!
//! Meanwhile there are two stacks of open frames: the parent's, which is in view, and one that the
//! child's events change, as they would change the parent's if there were no kernel's side. Of
//! that, what the parent has opened is out of view.
//!
//! Must not know: how both sides are brought together.

use super::super::side::Side;
use super::super::visitor::Visitor;
use super::{Open, Stream};
use crate::model::{FunctionId, StreamId};
use crate::reader::Dictionary;

/// Calls that may lend the memory of who makes them.
const LENDING: [&str; 3] = ["vfork", "clone", "clone3"];
/// How the names of modules end that stand for system calls.
const CALLS: &str = "system calls]";

impl Stream {
    /// An event of the program comes: lends the memory, if the kernel is in a call that does so.
    pub(super) fn lend(&mut self, dictionary: &Dictionary) {
        let is_shown = |side: &Side| *side == Side::Shown;
        if self.lent.is_some() || !self.kernel.iter().all(is_shown) {
            return;
        }
        let below = self.open.len().saturating_sub(self.kernel.len());
        let outermost = self.open.get(below).map(|open| open.frame.function);
        if !outermost.is_some_and(|function| is_lending(function, dictionary)) {
            return;
        }
        let copies = self.open.iter().take(below).map(|open| Open {
            is_past: true,
            is_parents: true,
            ..open.clone()
        });
        let copies = copies.collect();
        self.lent = Some(std::mem::replace(&mut self.open, copies));
    }

    /// The kernel goes on with the parent: what the child has open leaves the view, and the
    /// parent's frames are those that are open.
    pub(super) fn parent_goes_on(&mut self, id: StreamId, visitor: &mut impl Visitor) {
        for at in (0..self.open.len()).rev() {
            self.end_view(id, at, |flags| flags.end_unseen = true, visitor);
        }
        self.other_stack();
    }

    /// What was to be told of the parent is told. If the kernel has returned, the memory is its own
    /// again: what the child has left has ended for both.
    pub(super) fn parent_was_told(&mut self, id: StreamId, visitor: &mut impl Visitor) {
        if !self.kernel.is_empty() {
            return self.other_stack();
        }
        let of_child = self.lent.take().unwrap_or_default();
        let left = of_child.iter().take_while(|open| open.is_parents).count();
        for at in (left..self.open.len()).rev() {
            self.end_view(id, at, |_| {}, visitor);
        }
        self.open.truncate(left);
        // The program's own events will tell of their ends.
        self.open.extend(of_child.into_iter().skip(left));
    }

    fn other_stack(&mut self) {
        if let Some(other) = &mut self.lent {
            std::mem::swap(&mut self.open, other);
        }
    }
}

fn is_lending(function: FunctionId, dictionary: &Dictionary) -> bool {
    let function = dictionary.functions.get(function.0 as usize);
    function.is_some_and(|function| {
        let module = dictionary.module(function.module);
        let is_call = module.is_some_and(|m| m.is_of_kernel() && m.path.ends_with(CALLS));
        is_call && LENDING.contains(&function.symbol.as_str())
    })
}
