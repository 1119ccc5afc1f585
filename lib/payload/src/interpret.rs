//! What a program means, step by step: slow, and plain to see. Compiled code must do the same.

use std::cell::Cell;

use crate::callers;
use crate::captured::{CUT, FAULT, Kind, MOST_ASKED, tagged};
use crate::contract::{KEPT_COUNT, LOCALS};
use crate::program::{Binary, Expression, Program, Source, Statement, Width};
use crate::tables::MOST_VARIABLES;
use crate::text::{self, MOST_BYTES, TOLD, WHOLE};

/// The registers of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// rdi, rsi, rdx, rcx, r8, r9.
    pub arguments: [u64; 6],
    /// rax.
    pub result: u64,
    /// The stack pointer before the call.
    pub stack_pointer: u64,
    /// The lower halves of xmm0 to xmm7.
    pub vectors: [u64; 8],
    /// The thread's number.
    pub thread: u32,
    /// What the entry has kept for the return.
    pub kept: [u64; KEPT_COUNT as usize],
    /// errno, at a return.
    pub errno: u32,
    /// How long the call took, at its return.
    pub elapsed_ns: u64,
    /// How long calls have taken that ask for their own time, which acts of a return change.
    pub inside_ns: Cell<u64>,
    /// Recorded calls that are open around it.
    pub depth: u32,
    /// The number of the place that makes it.
    pub caller: u32,
    /// The places of the recorded calls around it, from the innermost on.
    pub around: Vec<u32>,
    /// Variables of the thread, which acts change.
    pub variables: [Cell<u64>; MOST_VARIABLES as usize],
}

impl Call {
    /// How long it has taken without what calls inside of it have, given what all had taken when it
    /// began.
    pub fn self_ns(&self, before_ns: u64) -> u64 {
        let inside_ns = self.inside_ns.get().wrapping_sub(before_ns);
        self.elapsed_ns - inside_ns.min(self.elapsed_ns)
    }

    /// The places that lead to it, if the source is a stack of them.
    pub fn stack(&self, source: Source) -> Option<Vec<u32>> {
        let (own, count) = match source {
            Source::Callers(count) => (self.caller, count),
            Source::KeptCallers(count, kept) => (*self.kept.get(usize::from(kept))? as u32, count),
            _ => return None,
        };
        let all = std::iter::once(&own).chain(&self.around);
        Some(all.take(usize::from(count)).copied().collect())
    }
}

/// Memory that need not be there.
pub trait Memory {
    /// Reads from `address` on; gives how many bytes could be read.
    fn read(&self, address: u64, to: &mut [u8]) -> usize;
}

/// What a program has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The call is wanted.
    pub is_wanted: bool,
    /// A word is 0 because memory could not be read.
    pub has_faulted: bool,
    /// What it has kept.
    pub bytes: Vec<u8>,
    /// What the return will be given.
    pub kept: [u64; KEPT_COUNT as usize],
}

/// Runs a program that [`crate::check::check`] has accepted.
pub fn interpret(program: &Program, call: &Call, memory: &dyn Memory) -> Outcome {
    let mut run = Run {
        call,
        memory,
        locals: [0; LOCALS as usize],
        outcome: Outcome {
            kept: call.kept,
            ..Outcome::default()
        },
    };
    let wanted = program.wanted.as_ref();
    if wanted.is_some_and(|wanted| run.word(wanted) == 0) {
        return Outcome {
            kept: call.kept,
            ..Outcome::default()
        };
    }
    run.outcome.is_wanted = true;
    for word in &program.words {
        let word = run.word(word);
        run.outcome.bytes.extend(word.to_le_bytes());
    }
    run.all(&program.parts);
    run.outcome
}

/// What an expression gives, with these locals.
pub(crate) fn word_of(
    expression: &Expression,
    call: &Call,
    memory: &dyn Memory,
    locals: &[u64],
) -> u64 {
    let mut run = Run {
        call,
        memory,
        locals: [0; LOCALS as usize],
        outcome: Outcome {
            kept: call.kept,
            ..Outcome::default()
        },
    };
    for (number, word) in (0..).zip(locals) {
        run.set(number, *word);
    }
    run.word(expression)
}

struct Run<'a> {
    call: &'a Call,
    memory: &'a dyn Memory,
    locals: [u64; LOCALS as usize],
    outcome: Outcome,
}

impl Run<'_> {
    fn all(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.one(statement);
        }
    }

    fn one(&mut self, statement: &Statement) {
        match statement {
            Statement::Set(local, value) => {
                let word = self.word(value);
                self.set(*local, word);
            }
            Statement::Keep(number, value) => {
                let word = self.word(value);
                if let Some(kept) = self.outcome.kept.get_mut(usize::from(*number)) {
                    *kept = word;
                }
            }
            Statement::Word { tag, value } => {
                let word = self.word(value).to_le_bytes();
                self.part(*tag, Kind::Word, &word, 8);
            }
            Statement::Bytes {
                tag,
                address,
                length,
                limit,
            } => {
                let length = self.word(length);
                let address = self.word(address);
                self.bytes(*tag, address, length, *limit);
            }
            Statement::Text {
                tag,
                address,
                limit,
            } => {
                let address = self.word(address);
                self.text(*tag, address, *limit);
            }
            Statement::If(condition, then, or) => match self.word(condition) {
                0 => self.all(or),
                _ => self.all(then),
            },
            Statement::Repeat {
                count,
                limit,
                counter,
                body,
            } => {
                let count = self.word(count).min(u64::from(*limit));
                self.set(*counter, 0);
                for _ in 0..count {
                    self.all(body);
                    let next = self.local(*counter).wrapping_add(1);
                    self.set(*counter, next);
                }
            }
        }
    }

    fn bytes(&mut self, tag: u8, address: u64, length: u64, limit: u16) {
        let wanted = length.min(u64::from(limit)) as usize;
        let mut bytes = vec![0; wanted];
        let got = match wanted {
            0 => 0,
            _ => self.memory.read(address, &mut bytes).min(wanted),
        };
        let mut more = length.min(MOST_ASKED) as u32;
        if length > u64::from(limit) {
            more |= CUT;
        }
        if got < wanted {
            more |= FAULT;
        }
        self.part(tag, Kind::Bytes, &bytes[..got], more);
    }

    fn text(&mut self, tag: u8, address: u64, limit: u16) {
        let limit = usize::from(limit);
        let mut bytes = vec![0; limit + 1];
        let got = self.memory.read(address, &mut bytes).min(limit + 1);
        let more = match bytes[..got].iter().position(|b| *b == 0) {
            Some(end) => {
                bytes.truncate(end);
                0
            }
            None => {
                bytes.truncate(got.min(limit));
                if got > limit { CUT } else { FAULT }
            }
        };
        let more = bytes.len() as u32 | more;
        self.part(tag, Kind::Text, &bytes, more);
    }

    fn part(&mut self, tag: u8, kind: Kind, bytes: &[u8], more: u32) {
        let low = tagged(tag, kind) | (bytes.len() as u64) << 16;
        let header = low | u64::from(more) << 32;
        let kept = &mut self.outcome.bytes;
        kept.extend(header.to_le_bytes());
        kept.extend(bytes);
        kept.resize(kept.len().next_multiple_of(8), 0);
    }

    fn local(&self, number: u8) -> u64 {
        self.locals.get(usize::from(number)).copied().unwrap_or(0)
    }

    fn set(&mut self, number: u8, word: u64) {
        if let Some(local) = self.locals.get_mut(usize::from(number)) {
            *local = word;
        }
    }

    fn word(&mut self, expression: &Expression) -> u64 {
        match expression {
            Expression::Constant(word) => *word,
            Expression::Source(source) => self.source(*source),
            Expression::Local(number) => self.local(*number),
            Expression::Load(address, width) => {
                let address = self.word(address);
                self.load(address, *width)
            }
            Expression::Narrow(inner, width) => width.extend(self.word(inner)),
            Expression::Binary(operation, a, b) => {
                let (a, b) = (self.word(a), self.word(b));
                binary(*operation, a, b)
            }
            Expression::Both(a, b) => u64::from(self.word(a) != 0 && self.word(b) != 0),
            Expression::Either(a, b) => u64::from(self.word(a) != 0 || self.word(b) != 0),
        }
    }

    fn load(&mut self, address: u64, width: Width) -> u64 {
        let mut bytes = [0; 8];
        let wanted = usize::from(width.bytes());
        if self.memory.read(address, &mut bytes[..wanted]) < wanted {
            self.outcome.has_faulted = true;
            return 0;
        }
        width.extend(u64::from_le_bytes(bytes))
    }

    /// See [`crate::text`]; 0: it cannot be read, or is shorter.
    fn text_word(&self, address: u64, length: u16) -> u64 {
        if let Some(behind) = text::field_at(length) {
            let mut bytes = [0; 8];
            self.memory.read(address.wrapping_add(behind), &mut bytes);
            return u64::from_le_bytes(bytes);
        }
        let (most, is_whole) = match length {
            WHOLE | TOLD => (MOST_BYTES, true),
            length => (usize::from(length), false),
        };
        let mut bytes = Vec::new();
        for at in 0..most as u64 {
            let mut byte = [0];
            if self.memory.read(address.wrapping_add(at), &mut byte) == 0 {
                return 0;
            }
            bytes.push(byte[0]);
            if byte == [0] {
                return if is_whole { text::word_of(bytes) } else { 0 };
            }
        }
        if is_whole { 0 } else { text::word_of(bytes) }
    }

    fn source(&mut self, source: Source) -> u64 {
        let call = self.call;
        let word = |words: &[u64], n: u8| words.get(usize::from(n)).copied().unwrap_or(0);
        match source {
            Source::Argument(n) => word(&call.arguments, n),
            Source::Vector(n) => word(&call.vectors, n),
            Source::Stack(n) => {
                let address = call.stack_pointer.wrapping_add(u64::from(n) * 8);
                self.load(address, Width::U64)
            }
            Source::Result => call.result,
            Source::SecondResult => call.arguments[2],
            Source::StackPointer => call.stack_pointer,
            Source::Kept(n) => word(&self.outcome.kept, n),
            Source::Thread => u64::from(call.thread),
            Source::Errno => u64::from(call.errno),
            Source::Elapsed => call.elapsed_ns,
            Source::SelfTime(n) => call.self_ns(word(&self.outcome.kept, n)),
            Source::Inside => call.inside_ns.get(),
            Source::Text(n, length) => self.text_word(word(&call.arguments, n), length),
            Source::KeptText(n, length) => {
                let at = word(&self.outcome.kept, n);
                self.text_word(at, length)
            }
            Source::ResultText(length) => self.text_word(call.result, length),
            Source::Depth => u64::from(call.depth),
            Source::Caller => u64::from(call.caller),
            Source::Callers(_) | Source::KeptCallers(..) => {
                call.stack(source).map_or(0, |places| callers::key(&places))
            }
            Source::Variable(n) => {
                let variable = call.variables.get(usize::from(n));
                variable.map_or(0, Cell::get)
            }
            Source::Named(_) | Source::NamedText(..) => 0,
        }
    }
}

fn binary(operation: Binary, a: u64, b: u64) -> u64 {
    let shift = (b & 63) as u32;
    match operation {
        Binary::Add => a.wrapping_add(b),
        Binary::Subtract => a.wrapping_sub(b),
        Binary::Multiply => a.wrapping_mul(b),
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::ExclusiveOr => a ^ b,
        Binary::ShiftLeft => a << shift,
        Binary::ShiftRight => a >> shift,
        Binary::ShiftRightSigned => ((a as i64) >> shift) as u64,
        Binary::Minimum => a.min(b),
        Binary::Equal => u64::from(a == b),
        Binary::NotEqual => u64::from(a != b),
        Binary::Below => u64::from(a < b),
        Binary::BelowOrEqual => u64::from(a <= b),
        Binary::Less => u64::from((a as i64) < b as i64),
        Binary::LessOrEqual => u64::from(a as i64 <= b as i64),
    }
}
