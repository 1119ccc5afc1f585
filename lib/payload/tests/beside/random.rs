//! Acts and calls at random, for the moments at which they may run.
//!
//! Given choices; gives acts, expressions and words. Must not know what becomes of them.

use sptrace_payload::acts::{Act, MOST_LOCALS, Step};
use sptrace_payload::contract::in_place::*;
use sptrace_payload::interpret::Call;
use sptrace_payload::program::{Binary, Expression, Source};
use sptrace_payload::tables::{MOST_VARIABLES, Tables};
use sptrace_payload::text;

use super::acts::{Stack, TID};
use super::{Choices, operation, width};

/// The word that is kept for a call's own time, if that is asked for.
pub const SELF_WORD: u8 = 1;

/// When acts run that are made.
#[derive(Clone, Copy, PartialEq)]
pub enum Moment {
    Call,
    Slot,
    Return,
}

/// Acts and calls at random.
pub struct Random<'a>(pub &'a mut dyn Choices, pub Moment);

impl Random<'_> {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// At a return times may stand in the place of the last two.
    fn locals(&self) -> u64 {
        match self.1 {
            Moment::Return => u64::from(MOST_LOCALS) - 2,
            Moment::Call | Moment::Slot => MOST_LOCALS.into(),
        }
    }

    pub fn word(&mut self) -> u64 {
        match self.below(4) {
            0 => self.0.next(),
            1 => (self.0.next() as i32) as u64,
            _ => self.below(6),
        }
    }

    pub fn source(&mut self) -> Source {
        if self.1 == Moment::Return {
            return match self.below(8) {
                7 => Source::SelfTime(SELF_WORD),
                6 => Source::Elapsed,
                5 => self.variable(),
                0 => Source::Kept(self.below(MOST_KEPT as u64) as u8),
                1 => Source::SecondResult,
                2 => Source::Errno,
                3 => Source::Thread,
                _ => Source::Result,
            };
        }
        if self.1 == Moment::Slot {
            return match self.below(10) {
                0 => self.variable(),
                1 => Source::Vector(self.below(4) as u8),
                2 => Source::Thread,
                // Not in a slot.
                3 if self.below(60) == 0 => Source::StackPointer,
                _ => Source::Argument(self.below(6) as u8),
            };
        }
        match self.below(12) {
            11 => self.variable(),
            10 => Source::Caller,
            9 => Source::Depth,
            0 => Source::Vector(self.below(4) as u8),
            1 => Source::Stack(self.below(8) as u8),
            2 => Source::StackPointer,
            3 => Source::Thread,
            _ => Source::Argument(self.below(6) as u8),
        }
    }

    pub fn variable(&mut self) -> Source {
        Source::Variable(self.below(u64::from(MOST_VARIABLES)) as u8)
    }

    /// An argument is a certain text, or begins so.
    pub fn text(&mut self) -> Expression {
        let at: fn(u8, u16) -> Source = match (self.1, self.below(2)) {
            (Moment::Return, 0) => |_, length| Source::ResultText(length),
            (Moment::Return, _) => Source::KeptText,
            _ => Source::Text,
        };
        let argument = self.below(2) as u8;
        let all: [&[u8]; 3] = [b"/etc", b"/etc/passwd", b"/e"];
        let text = all[self.below(3) as usize];
        let (length, word) = match self.below(3) {
            0 => (text::WHOLE, text::whole(text)),
            1 => return at(argument, text::FIELDS + self.below(2) as u16).into(),
            _ => (text.len() as u16, text::beginning(text)),
        };
        Expression::Source(at(argument, length)).with(Binary::Equal, word)
    }

    pub fn expression(&mut self, depth: u32) -> Expression {
        let inner = |r: &mut Self| Box::new(r.expression(depth + 1));
        match self.below(if depth > 3 { 4 } else { 8 }) {
            0 => self.word().into(),
            1 => Expression::Local(self.below(self.locals()) as u8),
            2 | 3 => self.source().into(),
            4 => Expression::Narrow(inner(self), width(self.0)),
            5 => Expression::Both(inner(self), inner(self)),
            6 => Expression::Either(inner(self), inner(self)),
            _ => Expression::Binary(operation(self.0), inner(self), inner(self)),
        }
    }

    pub fn steps(&mut self, tables: &Tables, depth: u32) -> Vec<Step> {
        (0..self.below(4))
            .map(|_| self.step(tables, depth))
            .collect()
    }

    pub fn step(&mut self, tables: &Tables, depth: u32) -> Step {
        match self.below(if depth < 3 { 6 } else { 4 }) {
            0 => Step::Set(self.below(self.locals()) as u8, self.expression(0)),
            1 if self.1 == Moment::Call && self.below(3) == 0 => Step::Record,
            1 if self.1 == Moment::Call && self.below(3) == 0 => {
                let act = Act::ALL[self.below(4) as usize];
                Step::Act(act, self.expression(1))
            }
            1 if self.1 != Moment::Slot && self.below(4) == 0 => Step::Bid(self.below(32) as u8),
            1 if self.below(3) == 0 => {
                let local = self.below(self.locals()) as u8;
                Step::Next(local, self.below(3) as u8)
            }
            2 if self.below(3) == 0 => {
                let (variable, value) = (self.below(3) as u8, self.expression(1));
                match self.below(2) {
                    0 => Step::Keep(variable, value),
                    _ => Step::Increase(variable, value),
                }
            }
            5 => Step::If(
                match self.1 != Moment::Slot && self.below(6) == 0 {
                    true => self.text(),
                    false => self.expression(0),
                },
                self.steps(tables, depth + 1),
                self.steps(tables, depth + 1),
            ),
            _ => self.addition(tables),
        }
    }

    pub fn addition(&mut self, tables: &Tables) -> Step {
        let table = self.below(tables.all.len() as u64) as u8;
        let (keys, told) = {
            let table = &tables.all[usize::from(table)];
            (table.keys, table.told)
        };
        Step::Add {
            table,
            // Few keys, so that rows are met again.
            keys: (0..usize::from(keys))
                .map(|i| match told[i] {
                    0 => self.expression(1).with(Binary::And, 3),
                    text::TOLD_WORDS => self.told_text(),
                    words => {
                        let odd = self.below(2) as u8;
                        self.stack(2 * words - odd)
                    }
                })
                .collect(),
            value: match self.below(2) {
                0 => 1.into(),
                _ => self.expression(1),
            },
        }
    }

    /// A text as a key; in a slot there is none.
    pub fn told_text(&mut self) -> Expression {
        let number = self.below(4) as u8;
        match (self.1, number) {
            (Moment::Call, _) => Source::Text(number / 2, text::TOLD).into(),
            (Moment::Return, 0 | 1) => Source::KeptText(number, text::TOLD).into(),
            (Moment::Return, _) => Source::ResultText(text::TOLD).into(),
            (Moment::Slot, _) => self.expression(1).with(Binary::And, 3),
        }
    }

    /// So many places that lead to the call; in a slot nobody knows them.
    pub fn stack(&mut self, places: u8) -> Expression {
        let source = match self.1 {
            Moment::Slot => return self.expression(1).with(Binary::And, 3),
            Moment::Call => Source::Callers(places),
            Moment::Return => Source::KeptCallers(places, self.below(2) as u8),
        };
        source.into()
    }

    /// The condition on which values of a call are kept, as options make them.
    pub fn wanted(&mut self) -> Option<Expression> {
        (self.below(4) == 0).then(|| {
            let argument = Expression::argument(self.below(6) as u8);
            let number = argument.narrow(width(self.0));
            number.with(operation(self.0), self.word())
        })
    }

    /// What the return needs of the call.
    pub fn kept(&mut self) -> Option<Vec<Source>> {
        (self.below(4) == 0).then(|| {
            let words = self.below(MOST_KEPT as u64 + 1);
            let mut one = || match self.below(4) {
                3 => Source::Inside,
                0 => Source::Stack(self.below(8) as u8),
                _ => Source::Argument(self.below(6) as u8),
            };
            (0..words).map(|_| one()).collect()
        })
    }

    /// A word that may be where a text is.
    pub fn place(&mut self, stack: &Stack) -> u64 {
        match self.below(2) {
            0 => stack.texts[self.below(4) as usize].as_ptr() as u64,
            _ => self.word(),
        }
    }

    pub fn call(&mut self, stack: &Stack) -> Call {
        let mut arguments = std::array::from_fn(|_| self.word());
        if self.below(2) == 0 {
            arguments[0] = stack.texts[self.below(4) as usize].as_ptr() as u64;
        }
        Call {
            arguments,
            stack_pointer: stack.words.as_ptr() as u64,
            vectors: std::array::from_fn(|_| self.word()),
            result: self.word(),
            thread: TID,
            depth: self.below(300) as u32,
            caller: self.word() as u32,
            ..Call::default()
        }
    }
}
