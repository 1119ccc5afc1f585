//! Variables of a thread: numbers that payloads keep from one call to the next.
//!
//! Part of the reader of payloads. Must not know where they lie.

use rhai::{FnCallExpr, Position};
use sptrace_payload::acts::Step;
use sptrace_payload::program::Source;

use super::{Read, Reader, Type, Value};
use crate::words::variables::ThreadVariable;

/// What can be done.
const FORMS: &str = "write X.get(), X.set(VALUE) or X.add(VALUE)";

impl Reader<'_, '_> {
    /// The number of the variable of a thread that this name stands for. None: for none.
    pub(super) fn thread_variable(&self, name: &str) -> Option<u8> {
        let captured = self.captured.get(name)?.flatten_clone();
        captured.try_cast::<ThreadVariable>().map(|one| one.0)
    }

    /// `X.set(VALUE)`, `X.add(VALUE)`.
    pub(super) fn change_variable(
        &mut self,
        number: u8,
        method: &FnCallExpr,
        at: Position,
    ) -> Read<Step> {
        match (method.name.as_str(), &method.args[..]) {
            ("set", [value]) => Ok(Step::Keep(number, self.number(value)?)),
            ("add", [value]) => Ok(Step::Increase(number, self.number(value)?)),
            _ => self.refuse(at, "a variable of the thread does nothing else", FORMS),
        }
    }

    /// `X.get()`.
    pub(super) fn variable_of_thread(
        &mut self,
        name: &str,
        method: &FnCallExpr,
        at: Position,
    ) -> Read<Value> {
        match (self.thread_variable(name), method.name.as_str()) {
            (Some(number), "get") if method.args.is_empty() => {
                Ok((Source::Variable(number).into(), Type::Number))
            }
            (Some(_), _) => self.refuse(at, "this gives no value", FORMS),
            (None, _) => self.refuse(at, "this is not compiled", super::RUN_LATER),
        }
    }
}
