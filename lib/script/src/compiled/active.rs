//! What payloads do to the program: a result, errno, a delay, a signal; and what they choose the
//! call by: how often they have run, and texts.
//!
//! Part of the reader of payloads. Must not know how a call is changed.

use rhai::{Expr, FnCallExpr, Position, Stmt};
use sptrace_payload::acts::{Act, FAILURE, Moment, RESULT, Step};
use sptrace_payload::program::{Binary, Expression, Source};
use sptrace_payload::text;
use sptrace_types::names::table::{ERRNO, SIGNALS};

use super::{Read, Reader, Type, Value};

/// The variable that has how often the payload has run.
pub(super) const NTH: &str = "c.nth";
/// Why the call's own words cannot be assigned to.
pub(super) const NOT_SO: &str = "the call is not changed by assignment";
/// How it is.
pub(super) const FORMS: &str =
    "write c.override(RESULT), c.deny(ERRNO), c.delay(DURATION) or c.raise(SIGNAL)";
/// A call is delayed no longer.
const MOST_DELAY_NS: i64 = 60_000_000_000;
const MOST_SIGNAL: u64 = 64;
const MOST_ERRNO: u64 = 4095;

/// Is this what changes the program?
pub(super) fn is_active(name: &str) -> bool {
    matches!(name, "override" | "deny" | "delay" | "raise")
}

/// What somebody may write who wants that.
pub(super) fn is_other(name: &str) -> bool {
    matches!(
        name,
        "fail" | "skip" | "signal" | "kill" | "inject" | "sleep"
    )
}

impl Reader<'_, '_> {
    /// All of a closure. Where it asks how often it has run, that is counted first.
    pub(super) fn all(&mut self, body: &[Stmt]) -> Read<Vec<Step>> {
        let counter = self.around.counters;
        let counts = asks_nth(body, &self.call);
        if counts {
            self.locals.push((NTH.into(), Type::Number));
        }
        let mut steps = self.block(body)?;
        if counts {
            steps.insert(0, Step::Next(0, counter));
        }
        Ok(steps)
    }

    /// `c.deny(...)` and so on.
    pub(super) fn active(
        &mut self,
        method: &FnCallExpr,
        at: Position,
        steps: &mut Vec<Step>,
    ) -> Read<()> {
        if self.moment == Moment::Return {
            return self.refuse(
                at,
                "the call has been made when it returns",
                "write it in on_enter, where it comes before the call",
            );
        }
        let place = (at.line().unwrap_or(0), at.position().unwrap_or(0));
        self.changes_at.get_or_insert(place);
        match (method.name.as_str(), &method.args[..]) {
            ("override", [result]) => {
                let result = self.number(result)?;
                steps.push(Step::Act(Act::Result, result));
            }
            ("deny", [errno]) => {
                let errno = self.named_number(errno, "errno")?;
                if !self.is_of_kernel {
                    steps.push(Step::Act(Act::Result, Source::Named(FAILURE).into()));
                }
                steps.push(Step::Act(Act::Errno, errno));
            }
            ("deny", [errno, result]) if !self.is_of_kernel => {
                let (errno, result) = (self.named_number(errno, "errno")?, self.number(result)?);
                steps.push(Step::Act(Act::Result, result));
                steps.push(Step::Act(Act::Errno, errno));
            }
            ("delay", [ns]) => {
                let at = ns.position();
                let ns = self.number(ns)?;
                if let Expression::Constant(word) = ns
                    && !(0..=MOST_DELAY_NS).contains(&(word as i64))
                {
                    return self.refuse(at, "a call is delayed by 60.s at most", "as in 50.ms");
                }
                let most = Expression::Constant(MOST_DELAY_NS as u64);
                steps.push(Step::Act(Act::Delay, ns.with(Binary::Minimum, most)));
            }
            ("raise", [signal]) => {
                let signal = self.named_number(signal, "signal")?;
                steps.push(Step::Act(Act::Raise, signal));
            }
            _ => return self.refuse(at, "something else is wanted here", FORMS),
        }
        Ok(())
    }

    /// `"ENOENT"`, `"SIGUSR1"`, or its number.
    fn named_number(&mut self, expression: &Expr, what: &str) -> Read<Expression> {
        let at = expression.position();
        let (is_errno, most) = match what {
            "errno" => (true, MOST_ERRNO),
            _ => (false, MOST_SIGNAL),
        };
        let number = match self.text(expression) {
            Some(name) if is_errno => ERRNO.value(&name).map(Expression::Constant),
            Some(name) => {
                let full = format!("SIG{name}");
                let number = SIGNALS.value(&name).or_else(|| SIGNALS.value(&full));
                number.map(Expression::Constant)
            }
            None => Some(self.number(expression)?),
        };
        match number {
            Some(Expression::Constant(n)) if n == 0 || n > most => {
                let reason = format!("there is no {what} {}", n as i64);
                self.refuse(at, &reason, "write its name, as in \"EIO\" and \"SIGUSR1\"")
            }
            Some(Expression::Constant(n)) => Ok(Expression::Constant(n)),
            // A signal that does not exist raises nothing.
            Some(number) => Ok(number),
            None => {
                let reason = format!("there is no {what} of this name");
                self.refuse(at, &reason, "write it as in \"EIO\" and \"SIGUSR1\"")
            }
        }
    }

    /// A text that is written there, or captured.
    pub(super) fn text(&self, expression: &Expr) -> Option<String> {
        match expression {
            Expr::StringConstant(text, _) => Some(text.to_string()),
            Expr::Variable(name, ..) => {
                let captured = self.captured.get(&name.1)?.flatten_clone();
                captured.into_string().ok()
            }
            _ => None,
        }
    }

    /// `c.path == "/etc/passwd"`. None: it is none of texts.
    pub(super) fn compared_text(
        &mut self,
        name: &str,
        arguments: &[Expr],
        at: Position,
    ) -> Read<Option<Value>> {
        let [first, second] = arguments else {
            return Ok(None);
        };
        let (argument, text) = match (self.text(first), self.text(second)) {
            (None, Some(text)) => (first, text),
            (Some(text), None) => (second, text),
            _ => return Ok(None),
        };
        let operation = match name {
            "==" => Binary::Equal,
            "!=" => Binary::NotEqual,
            _ => {
                return self.refuse(
                    at,
                    "texts are compared by == and != alone",
                    "or write c.NAME.starts_with(TEXT)",
                );
            }
        };
        let word = text::whole(text.as_bytes());
        let source = self.text_of(argument, (text::WHOLE, &text))?;
        Ok(Some((source.with(operation, word), Type::Truth)))
    }

    /// `c.path.starts_with("/etc/")`: what stands behind `c.`.
    pub(super) fn begins_with(&mut self, parts: &rhai::BinaryExpr, at: Position) -> Read<Value> {
        let text = match &parts.rhs {
            Expr::MethodCall(method, _) if method.name == "starts_with" => {
                method.args.first().and_then(|text| self.text(text))
            }
            _ => None,
        };
        let Some(text) = text else {
            if let (Expr::Property(..), Expr::Property(..) | Expr::Dot(..)) =
                (&parts.lhs, &parts.rhs)
            {
                return self.field(parts, at);
            }
            let hint = "write c.NAME == TEXT or c.NAME.starts_with(TEXT)";
            return self.refuse(at, "this is not compiled", hint);
        };
        let word = text::beginning(text.as_bytes());
        let length = text.len() as u16;
        let source = match &parts.lhs {
            Expr::Property(property, at) => self.property(&property.2, *at)?,
            _ => return self.refuse(at, "this is not compiled", "name an argument: c.arg1"),
        };
        let source = self.text_at(source.0, (length, &text), at)?;
        Ok((source.with(Binary::Equal, word), Type::Truth))
    }

    /// `c.order.price.cents`: a number in what an argument points to.
    fn field(&mut self, parts: &rhai::BinaryExpr, at: Position) -> Read<Value> {
        let mut path = String::new();
        let mut rest = parts;
        loop {
            let Expr::Property(name, _) = &rest.lhs else {
                return self.refuse(at, "this is not compiled", super::RUN_LATER);
            };
            path.push_str(&name.2);
            path.push('.');
            match &rest.rhs {
                Expr::Property(name, _) => {
                    path.push_str(&name.2);
                    break;
                }
                Expr::Dot(inner, ..) => rest = inner,
                _ => return self.refuse(at, "a field is a number here", "write c.NAME.FIELD"),
            }
        }
        self.named(path, at)
    }

    fn is_field(&self, number: u8) -> bool {
        let name = self.names.get(usize::from(number));
        name.is_some_and(|name| name.contains('.'))
    }

    fn text_of(&mut self, argument: &Expr, of: (u16, &str)) -> Read<Expression> {
        let at = argument.position();
        let (value, _) = self.value(argument)?;
        self.text_at(value, of, at)
    }

    pub(super) fn text_at(
        &self,
        value: Expression,
        (length, text): (u16, &str),
        at: Position,
    ) -> Read<Expression> {
        if text.is_empty() && length != text::WHOLE || text.len() >= text::MOST_BYTES {
            let reason = "a text of 1 to 4095 bytes is wanted here";
            return self.refuse(at, reason, "write another");
        }
        match value {
            Expression::Source(Source::Argument(n)) => Ok(Source::Text(n, length).into()),
            Expression::Source(Source::Named(RESULT)) if self.is_of_kernel => self.refuse(
                at,
                "a system call gives no text",
                "write c.str(2) for what it has put where an argument points to",
            ),
            Expression::Source(Source::Named(RESULT)) => Ok(Source::ResultText(length).into()),
            Expression::Source(Source::Named(n)) if self.is_field(n) => self.refuse(
                at,
                "the text that a field points to is not read",
                "write values(GLOB) and later(|e| ...), where e.arg(\"NAME.FIELD\") has it",
            ),
            Expression::Source(Source::Named(n)) => Ok(Source::NamedText(n, length).into()),
            _ => self.refuse(
                at,
                "a text is compared with an argument in a register",
                "write c.arg1 to c.arg6, or c.NAME",
            ),
        }
    }
}

/// Does something in it ask how often it has run?
fn asks_nth(body: &[Stmt], call: &str) -> bool {
    let mut asks = false;
    for statement in body {
        statement.walk(&mut Vec::new(), &mut |path| {
            if let Some(rhai::ASTNode::Expr(Expr::Dot(parts, ..))) = path.last() {
                let is_call = matches!(&parts.lhs, Expr::Variable(name, ..) if name.1 == call);
                let is_nth = matches!(&parts.rhs, Expr::Property(name, _) if name.2 == "nth");
                asks |= is_call && is_nth;
            }
            true
        });
    }
    asks
}
