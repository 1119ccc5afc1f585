//! One row of an unwind table, applied: from a frame's registers to its caller's.
//!
//! Complete for what compilers and assembler sources state, expressions included. framehop's own
//! evaluation knows three registers, cannot read memory in an expression and goes on by frame
//! pointers where it fails; [`plain`] says of which rows it is right.

use gimli::{
    CfaRule, Encoding, Evaluation, EvaluationResult, Format, Location, Register, RegisterRule,
    UnwindExpression, Value, X86_64,
};

use crate::frame::End;
use crate::memory::{Memory, read_u64};
use crate::registers::{RBP, RSP, Registers, is_preserved};
use crate::tables::{Row, Slice, Tables};

/// No expression in a real table has loops.
const LONGEST_EVALUATION: u32 = 1000;
const ENCODING: Encoding = Encoding {
    address_size: 8,
    format: Format::Dwarf32,
    version: 1,
};
/// Beyond user addresses, also with five levels of page tables.
const HIGHEST_AVMA: u64 = 1 << 56;

/// The caller of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub cfa: u64,
    /// Where the return address lies, if it lies in memory.
    pub return_word: Option<u64>,
    pub registers: Registers,
}

/// A CFA of the form register + offset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlainCfa {
    register: Register,
    offset: u64,
    /// The function has saved rbp.
    pub saves_rbp: bool,
}

impl PlainCfa {
    /// `None` where nothing good can follow.
    pub fn cfa(self, registers: &Registers) -> Option<u64> {
        let cfa = registers.get(self.register)?.checked_add(self.offset)?;
        (cfa > registers.rsp() && cfa < HIGHEST_AVMA).then_some(cfa)
    }
}

/// The row says that this is the outermost frame.
pub(crate) fn is_outermost(row: &Row) -> bool {
    row.register(X86_64::RA) == Some(RegisterRule::Undefined)
}

/// The CFA of a row which framehop keeps as a rule of its own cache, so that it evaluates it
/// without falling back: nearly every row of compiled code.
pub(crate) fn plain(row: &Row) -> Option<PlainCfa> {
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
        return None;
    };
    let saved_rbp = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => None,
        Some(RegisterRule::Offset(o)) => Some(o),
        Some(_) => return None,
    };
    let is_word = |value: i64| value % 8 == 0;
    let fits = match register {
        // framehop keeps these in 16 bits, divided by 8
        X86_64::RSP => {
            let room = 8..=8 * i64::from(i16::MAX);
            let rbp_fits = |o: i64| is_word(o) && (-room.end()..0).contains(&o);
            is_word(offset) && room.contains(&offset) && saved_rbp.is_none_or(rbp_fits)
        }
        X86_64::RBP => offset == 16 && saved_rbp == Some(-16),
        _ => false,
    };
    let returns = row.register(X86_64::RA) == Some(RegisterRule::Offset(-8));
    (fits && returns).then_some(PlainCfa {
        register,
        offset: offset as u64,
        saves_rbp: saved_rbp.is_some(),
    })
}

/// Applies a row. The caller's stack pointer is the CFA unless the row says otherwise.
pub(crate) fn apply(
    tables: &Tables<'_>,
    row: &Row,
    registers: &Registers,
    memory: &mut dyn Memory,
) -> Result<Caller, End> {
    let mut machine = Machine {
        tables,
        registers,
        memory,
    };
    let cfa = machine.cfa(row.cfa())?;
    let mut outer = Registers::only(0, cfa, None);
    for (number, value) in outer.general.iter_mut().enumerate() {
        let rule = row.register(Register(number as u16));
        match rule {
            None if number == RSP => {}
            // A register without a rule is preserved if the calling convention says so.
            None => *value = machine.registers.general[number].filter(|_| is_preserved(number)),
            Some(rule) => *value = machine.value(number, &rule, cfa)?,
        }
    }
    let return_rule = row.register(X86_64::RA).ok_or(End::BadTable)?;
    let return_word = machine.word_of(&return_rule, cfa)?;
    let rip = machine.value(usize::from(X86_64::RA.0), &return_rule, cfa)?;
    outer.rip = rip.ok_or(End::BadTable)?;
    outer.general[RSP] = outer.general[RSP].or(Some(cfa));
    Ok(Caller {
        cfa,
        return_word,
        registers: outer,
    })
}

/// Only what a row says of the registers that framehop does not follow; `outer` are the callee's.
pub(crate) fn apply_to_others(row: &Row, cfa: u64, outer: &mut Registers, memory: &mut dyn Memory) {
    for (number, value) in outer.general.iter_mut().enumerate() {
        *value = match row.register(Register(number as u16)) {
            _ if number == RSP || number == RBP => *value,
            None | Some(RegisterRule::SameValue) if is_preserved(number) => *value,
            Some(RegisterRule::Offset(offset)) => cfa
                .checked_add_signed(offset)
                .and_then(|word| read_u64(memory, word).ok()),
            _ => None,
        };
    }
}

/// What a rule may ask for.
struct Machine<'a, 'data> {
    tables: &'a Tables<'data>,
    registers: &'a Registers,
    memory: &'a mut dyn Memory,
}

impl Machine<'_, '_> {
    fn cfa(&mut self, rule: &CfaRule<usize>) -> Result<u64, End> {
        let cfa = match rule {
            CfaRule::RegisterAndOffset { register, offset } => self
                .registers
                .get(*register)
                .and_then(|value| value.checked_add_signed(*offset)),
            CfaRule::Expression(expression) => Some(self.evaluate(expression, None)?),
        };
        cfa.filter(|cfa| *cfa < HIGHEST_AVMA).ok_or(End::BadTable)
    }

    /// Where the value lies; `None` if it does not lie in memory.
    fn word_of(&mut self, rule: &RegisterRule<usize>, cfa: u64) -> Result<Option<u64>, End> {
        match rule {
            RegisterRule::Offset(offset) => {
                let word = cfa.checked_add_signed(*offset);
                word.map(Some).ok_or(End::BadTable)
            }
            RegisterRule::Expression(expression) => self.evaluate(expression, Some(cfa)).map(Some),
            _ => Ok(None),
        }
    }

    /// `None`: the caller's value is lost.
    fn value(
        &mut self,
        number: usize,
        rule: &RegisterRule<usize>,
        cfa: u64,
    ) -> Result<Option<u64>, End> {
        if let Some(word) = self.word_of(rule, cfa)? {
            return self.word(word).map(Some);
        }
        Ok(match rule {
            RegisterRule::SameValue => self.registers.get(Register(number as u16)),
            RegisterRule::ValOffset(offset) => cfa.checked_add_signed(*offset),
            RegisterRule::Register(register) => self.registers.get(*register),
            RegisterRule::ValExpression(expression) => Some(self.evaluate(expression, Some(cfa))?),
            RegisterRule::Constant(value) => Some(*value),
            _ => None,
        })
    }

    fn word(&mut self, avma: u64) -> Result<u64, End> {
        read_u64(self.memory, avma).map_err(|_| End::Unreadable(sptrace_addr::Avma(avma)))
    }

    fn evaluate(
        &mut self,
        expression: &UnwindExpression<usize>,
        initial: Option<u64>,
    ) -> Result<u64, End> {
        let bytes = expression.get(&self.tables.section);
        let bytes = bytes.map_err(|_| End::BadTable)?.0;
        let mut evaluation = Evaluation::new(bytes, ENCODING);
        evaluation.set_max_iterations(LONGEST_EVALUATION);
        if let Some(value) = initial {
            evaluation.set_initial_value(value);
        }
        let mut state = evaluation.evaluate();
        loop {
            state = match state.map_err(|_| End::BadTable)? {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = self.registers.get(register).ok_or(End::BadTable)?;
                    evaluation.resume_with_register(Value::Generic(value))
                }
                EvaluationResult::RequiresMemory {
                    address, size: 8, ..
                } => evaluation.resume_with_memory(Value::Generic(self.word(address)?)),
                _ => return Err(End::BadTable),
            };
        }
        result(&evaluation).ok_or(End::BadTable)
    }
}

fn result(evaluation: &Evaluation<Slice<'_>>) -> Option<u64> {
    match evaluation.as_result().last()?.location {
        Location::Address { address } => Some(address),
        _ => None,
    }
}
