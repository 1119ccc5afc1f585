//! Keys that are more than a number: the place that calls, stacks of such places.
//!
//! Part of the reader of payloads. Nothing is done with them but that they are added to sheets.
//! Must not know how they are found.

use rhai::{Expr, FnCallExpr, Position};
use sptrace_payload::callers::MOST_PLACES;
use sptrace_payload::program::Source;

use super::{Read, Reader, Type, Value};

impl Reader<'_, '_> {
    pub(super) fn refuse_caller<T>(&self, at: Position) -> Read<T> {
        self.refuse(
            at,
            "c.caller is a key, and nothing is known of it but which one it is",
            "write SHEET.add(c.caller), or later(|e| ...), where e.caller is a text",
        )
    }

    pub(super) fn refuse_stack<T>(&self, at: Position) -> Read<T> {
        self.refuse(
            at,
            "a stack is a key, and nothing is done with it but that it is added to a sheet",
            "write SHEET.add(c.stack(8)), or later(|e| ...), where e.callers(8) is a text",
        )
    }

    /// `c.stack(8)`.
    pub(super) fn stack(&self, method: &FnCallExpr, at: Position) -> Read<Value> {
        let count = match &method.args[..] {
            [Expr::IntegerConstant(n, _)] => u8::try_from(*n).ok(),
            [Expr::Variable(name, ..)] => {
                let captured = self.captured.get(&name.1);
                let number = captured.and_then(|n| n.flatten_clone().as_int().ok());
                number.and_then(|n| u8::try_from(n).ok())
            }
            _ => None,
        };
        match count {
            Some(count @ 1..=MOST_PLACES) => Ok((Source::Callers(count).into(), Type::Stack)),
            _ => {
                let reason = format!("1 to {MOST_PLACES} callers are wanted here");
                self.refuse(at, &reason, "write c.stack(8)")
            }
        }
    }
}
