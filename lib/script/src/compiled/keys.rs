//! Keys that are more than a number: the place that calls, stacks of such places, texts.
//!
//! Part of the reader of payloads. Nothing is done with them but that they are added to sheets.
//! Must not know how they are found.

use rhai::{Expr, FnCallExpr, Position};
use sptrace_payload::callers::MOST_PLACES;
use sptrace_payload::program::Source;
use sptrace_payload::text::TOLD;

use super::{Read, Reader, Type, Value};

/// How a text is named.
const STR_FORM: &str = "write c.str(1) or c.str(\"path\")";

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

    pub(super) fn refuse_text<T>(&self, at: Position) -> Read<T> {
        self.refuse(
            at,
            "c.str() is a key, and nothing is done with it but that it is added to a sheet",
            "write SHEET.add(c.str(1)); texts are compared as in c.arg1 == \"/etc\"",
        )
    }

    /// A number that is written there, or captured.
    fn known_number(&self, expression: &Expr) -> Option<i64> {
        match expression {
            Expr::IntegerConstant(n, _) => Some(*n),
            Expr::Variable(name, ..) => self.captured.get(&name.1)?.flatten_clone().as_int().ok(),
            _ => None,
        }
    }

    /// `c.str(1)`, `c.str("path")`: the text that an argument points to.
    pub(super) fn told_text(&mut self, method: &FnCallExpr, at: Position) -> Read<Value> {
        let [argument] = &method.args[..] else {
            return self.refuse(at, "one argument of the call is wanted here", STR_FORM);
        };
        let argument = match (self.known_number(argument), self.text(argument)) {
            (Some(number), _) => self.argument(number, at)?.0,
            (None, Some(name)) => self.property(&name, at)?.0,
            (None, None) => return self.refuse(at, "which argument is not known here", STR_FORM),
        };
        let source = self.text_at(argument, (TOLD, "a key"), at)?;
        Ok((source, Type::Text))
    }

    /// `c.result_str()`: the text that the result points to.
    pub(super) fn result_text(&mut self, method: &FnCallExpr, at: Position) -> Read<Value> {
        if !method.args.is_empty() {
            return self.refuse(at, "the result is one", "write c.result_str()");
        }
        let (result, _) = self.of_return("result", at)?;
        let source = self.text_at(result, (TOLD, "a key"), at)?;
        Ok((source, Type::Text))
    }

    /// `c.stack(8)`.
    pub(super) fn stack(&self, method: &FnCallExpr, at: Position) -> Read<Value> {
        let count = match &method.args[..] {
            [count] => self.known_number(count),
            _ => None,
        };
        match count.and_then(|count| u8::try_from(count).ok()) {
            Some(count @ 1..=MOST_PLACES) => Ok((Source::Callers(count).into(), Type::Stack)),
            _ => {
                let reason = format!("1 to {MOST_PLACES} callers are wanted here");
                self.refuse(at, &reason, "write c.stack(8)")
            }
        }
    }
}
