//! What a function's code says of its frame, where no table does.
//!
//! Given an address in a function, a way to read code, and perhaps where the function begins; gives
//! a [`Rule`]: where the return address and the preserved registers of the caller lie. Two ways:
//! the code is followed from the function's entry to the address ([`from_entry`]), or from the
//! address to a return ([`to_return`]). What it does to the stack pointer and to the registers that
//! the calling convention preserves is kept in terms of where it began; the rest is not known and
//! not needed. Calls are taken to come back with the stack as it was.
//!
//! Both can be wrong (a call that does not return has no code behind it, hand-written code may do
//! anything): the walk takes a rule only if it finds a return address by it. Must not know what
//! memory holds, but for code.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::rc::Rc;

use crate::memory::Memory;
use crate::registers::{RBP, RSP, is_preserved};

/// Instructions followed at most from one address.
const LONGEST_SEARCH: usize = 40_000;
/// Stack pointers with which an instruction is followed at most.
const HEIGHTS: usize = 4;
const LONGEST_INSTRUCTION_BYTES: usize = 15;
/// Number of a stack pointer that was aligned: it is not known by how much.
const ALIGNED: usize = 16;

/// A register of the frame, by DWARF number, and what is added to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub register: usize,
    pub offset: i64,
}

impl Place {
    fn at(self, offset: i64) -> Self {
        Self {
            offset: self.offset.wrapping_add(offset),
            ..self
        }
    }
}

/// Where the caller's value of a register is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Saved {
    /// In the register still.
    Same,
    /// In memory.
    At(Place),
    Lost,
}

/// How to come to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Of the return address.
    pub return_word: Place,
    /// By DWARF numbers; of those that are not preserved, `Lost`.
    pub saved: [Saved; 16],
    /// Arguments that the function itself takes off the stack.
    pub popped_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Unknown,
    Number(u64),
    /// What a register was in the beginning, and what was added to it.
    Start(Place),
    /// What lay in memory there.
    Word(Place),
}

impl Value {
    fn add(self, offset: i64) -> Self {
        match self {
            Self::Start(place) => Self::Start(place.at(offset)),
            Self::Number(n) => Self::Number(n.wrapping_add_signed(offset)),
            _ => Self::Unknown,
        }
    }
}

/// A word that was stored; the last one first.
struct Stored {
    at: Place,
    value: Value,
    before: Option<Rc<Stored>>,
}

#[derive(Clone)]
struct State {
    registers: [Value; 16],
    stored: Option<Rc<Stored>>,
}

impl State {
    fn new() -> Self {
        let start = |register| {
            Value::Start(Place {
                register,
                offset: 0,
            })
        };
        Self {
            registers: std::array::from_fn(start),
            stored: None,
        }
    }

    fn rsp(&self) -> Value {
        self.registers[RSP]
    }

    fn load(&self, at: Value) -> Value {
        let Value::Start(at) = at else {
            return Value::Unknown;
        };
        let mut next = &self.stored;
        while let Some(stored) = next {
            if stored.at == at {
                return stored.value;
            }
            next = &stored.before;
        }
        Value::Word(at)
    }

    fn store(&mut self, at: Value, value: Value) {
        if let Value::Start(at) = at {
            let before = self.stored.take();
            self.stored = Some(Rc::new(Stored { at, value, before }));
        }
    }

    fn push(&mut self, value: Value) {
        self.registers[RSP] = self.rsp().add(-8);
        self.store(self.rsp(), value);
    }

    fn pop(&mut self) -> Value {
        let value = self.load(self.rsp());
        self.registers[RSP] = self.rsp().add(8);
        value
    }

    /// The address of a memory operand.
    fn address(&self, i: &Instruction) -> Value {
        match whole(i.memory_base()) {
            Some(base) if i.memory_index() == Register::None => {
                self.registers[base].add(i.memory_displacement64() as i64)
            }
            _ => Value::Unknown,
        }
    }

    fn operand(&self, i: &Instruction, n: u32) -> Value {
        match i.op_kind(n) {
            OpKind::Register => {
                whole(i.op_register(n)).map_or(Value::Unknown, |r| self.registers[r])
            }
            OpKind::Memory if i.memory_size().size() == 8 => self.load(self.address(i)),
            _ => i.try_immediate(n).map_or(Value::Unknown, Value::Number),
        }
    }

    /// What one instruction does to all this.
    fn step(&mut self, i: &Instruction, info: &mut InstructionInfoFactory) {
        let target = match i.op_count() > 0 && i.op_kind(0) == OpKind::Register {
            true => whole(i.op_register(0)),
            false => None,
        };
        let is_stored = i.op_count() > 0 && i.op_kind(0) == OpKind::Memory;
        match (i.mnemonic(), target) {
            (Mnemonic::Push, _) if i.stack_pointer_increment() == -8 => {
                self.push(self.operand(i, 0))
            }
            (Mnemonic::Pop, Some(target)) => {
                let value = self.pop();
                self.registers[target] = value;
            }
            (Mnemonic::Leave, _) => {
                self.registers[RSP] = self.registers[RBP];
                self.registers[RBP] = self.pop();
            }
            (Mnemonic::Mov, Some(target)) => self.registers[target] = self.operand(i, 1),
            (Mnemonic::Mov, None) if is_stored && i.memory_size().size() == 8 => {
                self.store(self.address(i), self.operand(i, 1));
            }
            (Mnemonic::Lea, Some(target)) => self.registers[target] = self.address(i),
            (Mnemonic::Add | Mnemonic::Sub, Some(target)) => {
                let sign = if i.mnemonic() == Mnemonic::Add { 1 } else { -1 };
                self.registers[target] = match self.operand(i, 1) {
                    Value::Number(n) => self.registers[target].add((n as i64).wrapping_mul(sign)),
                    _ => Value::Unknown,
                };
            }
            (Mnemonic::And, Some(RSP)) => {
                let register = ALIGNED;
                self.registers[RSP] = Value::Start(Place {
                    register,
                    offset: 0,
                });
            }
            (Mnemonic::Call, _) => self.call(i),
            _ => self.step_over(i, info),
        }
    }

    fn call(&mut self, i: &Instruction) {
        if i.code() == Code::Call_rel32_64 && i.near_branch64() == i.next_ip() {
            return self.push(Value::Number(i.next_ip()));
        }
        for (number, value) in self.registers.iter_mut().enumerate() {
            if !is_preserved(number) {
                *value = Value::Unknown;
            }
        }
    }

    /// Whatever it computes, it is not an address in the frame.
    fn step_over(&mut self, i: &Instruction, info: &mut InstructionInfoFactory) {
        let rsp = self.rsp().add(i64::from(i.stack_pointer_increment()));
        for used in info.info(i).used_registers() {
            let is_written = matches!(
                used.access(),
                OpAccess::Write
                    | OpAccess::ReadWrite
                    | OpAccess::CondWrite
                    | OpAccess::ReadCondWrite
            );
            if let Some(number) = whole(used.register().full_register()).filter(|_| is_written) {
                self.registers[number] = Value::Unknown;
            }
        }
        if i.is_stack_instruction() && i.mnemonic() != Mnemonic::Enter {
            self.registers[RSP] = rsp;
        }
    }
}

/// DWARF number of a 64-bit register (System V ABI, figure 3.36).
fn whole(register: Register) -> Option<usize> {
    // In the order of the instruction set: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, and the others.
    const NUMBERS: [usize; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
    let index = (register as usize).checked_sub(Register::RAX as usize)?;
    NUMBERS.get(index).copied()
}

/// What a search says of an instruction that it has come to.
enum Found {
    GoOn,
    /// No further on this path.
    Leave,
    End,
}

/// What searches have found, and what one needs, kept for the next: it happens while a process
/// stands still, and memory that is used for the first time is slow.
#[derive(Default)]
pub(crate) struct Search {
    /// By the next instruction: rules that were accepted, and those to be tried first, of which a
    /// thorough search finds many.
    pub rules: FxHashMap<u64, Rule>,
    /// A function is followed to its end.
    pub is_thorough: bool,
    seen: Seen,
    paths: Paths,
}

/// By instruction: the stack pointers that it was met with, 0 for none.
type Seen = FxHashMap<u64, [u64; HEIGHTS]>;
type Paths = VecDeque<(u64, State)>;

impl Value {
    /// Not 0, and another for another place.
    fn number(self) -> u64 {
        let place = |p: Place| (p.register as u64) << 48 | p.offset as u64 & ((1 << 48) - 1);
        match self {
            Self::Unknown => 1,
            Self::Number(_) => 2,
            Self::Start(at) => 1 << 63 | place(at),
            Self::Word(at) => 1 << 62 | place(at),
        }
    }
}

/// Follows the code from `start` on, the nearest instructions first. What follows a call that does
/// not return is come to with a wrong stack pointer: so each instruction is followed with some that
/// differ.
fn follow(
    (seen, paths): (&mut Seen, &mut Paths),
    memory: &mut dyn Memory,
    start: u64,
    mut look: impl FnMut(u64, Option<&Instruction>, &State, &mut dyn Memory) -> Found,
) {
    seen.clear();
    paths.clear();
    paths.push_back((start, State::new()));
    let mut steps = 0;
    let mut info = InstructionInfoFactory::new();
    while let Some((mut at, mut state)) = paths.pop_front() {
        // One block, then the next path's turn.
        loop {
            let (met, rsp) = (seen.entry(at).or_default(), state.rsp().number());
            let known = met.iter_mut().find(|m| **m == 0 || **m == rsp);
            match known {
                Some(free) if *free == 0 => *free = rsp,
                _ => break,
            }
            steps += 1;
            if steps > LONGEST_SEARCH {
                return;
            }
            let instruction = decode(memory, at);
            match look(at, instruction.as_ref(), &state, memory) {
                Found::GoOn => {}
                Found::Leave => break,
                Found::End => return,
            }
            let Some(i) = instruction else { break };
            state.step(&i, &mut info);
            match i.flow_control() {
                FlowControl::Next
                | FlowControl::Call
                | FlowControl::IndirectCall
                | FlowControl::XbeginXabortXend => at = i.next_ip(),
                FlowControl::ConditionalBranch => {
                    paths.push_back((i.near_branch_target(), state.clone()));
                    at = i.next_ip();
                }
                FlowControl::UnconditionalBranch if i.is_jmp_short_or_near() => {
                    paths.push_back((i.near_branch_target(), state));
                    break;
                }
                _ => break,
            }
        }
    }
}

pub(crate) fn decode(memory: &mut dyn Memory, at: u64) -> Option<Instruction> {
    let mut bytes = [0; LONGEST_INSTRUCTION_BYTES];
    // What is mapped may end behind it.
    let mut length = bytes.len();
    while memory.read(at, &mut bytes[..length]).is_err() {
        length = length.checked_sub(1).filter(|n| *n > 0)?;
    }
    let mut decoder = Decoder::with_ip(64, &bytes[..length], at, DecoderOptions::NONE);
    let instruction = decoder.decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// Offers the rules at `address` of the function that begins at `entry`, by the shortest paths
/// there first, until one is accepted. `is_inside` says whether what is before a return address
/// belongs to that function.
pub(crate) fn from_entry(
    search: &mut Search,
    memory: &mut dyn Memory,
    (entry, is_inside): (u64, &dyn Fn(u64) -> bool),
    address: u64,
    accept: &mut dyn FnMut(&mut dyn Memory, &Rule) -> bool,
) -> Option<Rule> {
    let (mut accepted, is_thorough) = (None, search.is_thorough);
    let needed = (&mut search.seen, &mut search.paths);
    let (mut first, mut behind_calls) = (FxHashMap::default(), Vec::new());
    follow(needed, memory, entry, |at, instruction, state, memory| {
        if is_thorough {
            // What a search for this address would try first.
            if let Entry::Vacant(place) = first.entry(at)
                && let Some(rule) = rule_inside(state)
            {
                place.insert(rule);
            }
            let call = instruction.filter(|i| i.mnemonic() == Mnemonic::Call);
            behind_calls.extend(call.map(Instruction::next_ip));
        }
        if at != address || accepted.is_some() {
            return Found::GoOn;
        }
        accepted = rule_inside(state).filter(|r| accept(memory, r));
        match accepted {
            _ if is_thorough => Found::GoOn,
            Some(_) => Found::End,
            None => Found::Leave,
        }
    });
    for next in behind_calls {
        // A jump at the end, or a call that does not return, may have led out of the function.
        if let Some(rule) = first.remove(&next).filter(|_| is_inside(next)) {
            search.rules.entry(next).or_insert(rule);
        }
    }
    accepted
}

/// The registers are those of the entry; what is asked for is said in terms of those at the
/// address.
fn rule_inside(state: &State) -> Option<Rule> {
    let is_stack = |value: &Value| matches!(value, Value::Start(place) if place.register == RSP);
    // With a frame pointer the stack pointer may be anywhere: a loop may have moved it.
    let frame = Value::Start(Place {
        register: RSP,
        offset: -8,
    });
    let first = if state.registers[RBP] == frame {
        RBP
    } else {
        RSP
    };
    let by = [first, RSP, RBP]
        .into_iter()
        .chain((0..16).filter(|r| is_preserved(*r)))
        .find(|r| is_stack(&state.registers[*r]))?;
    let Value::Start(known) = state.registers[by] else {
        return None;
    };
    let return_word = Place {
        register: by,
        offset: -known.offset,
    };
    let saved = std::array::from_fn(|number| {
        let register = number;
        let entry = Value::Start(Place {
            register,
            offset: 0,
        });
        if !is_preserved(number) || number == RSP {
            return Saved::Lost;
        }
        if state.registers[number] == entry {
            return Saved::Same;
        }
        let mut next = &state.stored;
        while let Some(stored) = next {
            // The last store of each place is what is there.
            let is_there = stored.value == entry && state.load(Value::Start(stored.at)) == entry;
            if is_there && stored.at.register == RSP {
                return Saved::At(return_word.at(stored.at.offset));
            }
            next = &stored.before;
        }
        Saved::Lost
    });
    Some(Rule {
        return_word,
        saved,
        popped_bytes: 0,
    })
}

/// Offers the rule of each return that code at `address` may come to, nearest first, until one is
/// accepted; then those of jumps through pointers, which may be a function's end, too.
pub(crate) fn to_return(
    search: &mut Search,
    memory: &mut dyn Memory,
    address: u64,
    accept: &mut dyn FnMut(&mut dyn Memory, &Rule) -> bool,
) -> Option<Rule> {
    let (mut accepted, mut at_jumps) = (None, Vec::new());
    let needed = (&mut search.seen, &mut search.paths);
    follow(needed, memory, address, |_, instruction, state, memory| {
        let Some(i) = instruction else {
            return Found::Leave;
        };
        match i.flow_control() {
            FlowControl::Return => {
                let popped_bytes = if i.op_count() == 1 {
                    i.immediate16().into()
                } else {
                    0
                };
                accepted = rule_at_return(state, popped_bytes).filter(|r| accept(memory, r));
                if accepted.is_some() {
                    Found::End
                } else {
                    Found::Leave
                }
            }
            FlowControl::IndirectBranch => {
                at_jumps.extend(rule_at_return(state, 0).filter(|r| !at_jumps.contains(r)));
                Found::Leave
            }
            _ => Found::GoOn,
        }
    });
    accepted.or_else(|| at_jumps.into_iter().find(|rule| accept(memory, rule)))
}

fn rule_at_return(state: &State, popped_bytes: u64) -> Option<Rule> {
    let Value::Start(return_word) = state.rsp() else {
        return None;
    };
    let saved = std::array::from_fn(|number| {
        let register = number;
        match state.registers[number] {
            _ if !is_preserved(number) || number == RSP => Saved::Lost,
            value
                if value
                    == Value::Start(Place {
                        register,
                        offset: 0,
                    }) =>
            {
                Saved::Same
            }
            Value::Word(at) if at.register != ALIGNED => Saved::At(at),
            _ => Saved::Lost,
        }
    });
    (return_word.register != ALIGNED).then_some(Rule {
        return_word,
        saved,
        popped_bytes,
    })
}

/// True if what lies before `avma` is a call instruction.
pub(crate) fn follows_call(memory: &mut dyn Memory, avma: u64) -> bool {
    // 5: direct. Through a register or memory: opcode FF, then 1 to 6 bytes; one prefix more.
    (2..=8).any(|length| {
        let start = avma.wrapping_sub(length);
        decode(memory, start).is_some_and(|i| {
            i.next_ip() == avma
                && matches!(
                    i.flow_control(),
                    FlowControl::Call | FlowControl::IndirectCall
                )
                && i.mnemonic() == Mnemonic::Call
        })
    })
}
