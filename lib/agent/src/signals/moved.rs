//! Executes the rest of some moved instructions on saved registers, where a signal has interrupted
//! them in a slot.
//!
//! Given registers, the bytes at their rip, and a way to read memory; gives the registers after one
//! instruction, or refuses. What is executed is exact, all arithmetic flags included (AF stays as
//! it was where it is undefined). Everything else is refused: other instructions, operands of 8 and
//! 16 bits, and every store but to the stack. Stores are collected, and the caller makes them when
//! all went well.
//!
//! Only the stack of the interrupted function is read and written. Other memory may be half changed
//! by the handler that runs meanwhile; its own frames begin below the red zone of what it
//! interrupted. Must not know slots, signal frames and text.

/// Instructions executed at most.
const STEPS: u32 = 8;
/// Bytes of code executed at most.
const CODE_BYTES: u64 = 64;
/// No instruction is longer.
pub const LONGEST_BYTES: usize = 15;
/// Above the stack pointer, what may be read as the function's own stack.
const FRAME_BYTES: u64 = 1 << 16;
/// Below it: the red zone.
const RED_ZONE_BYTES: u64 = 128;
const RAX: usize = 0;
const RDX: usize = 2;
const RSP: usize = 4;
const RBP: usize = 5;
const CF: u64 = 1;
const PF: u64 = 1 << 2;
const AF: u64 = 1 << 4;
const ZF: u64 = 1 << 6;
const SF: u64 = 1 << 7;
const OF: u64 = 1 << 11;
/// The arithmetic flags.
const ARITHMETIC: u64 = CF | PF | AF | ZF | SF | OF;

/// A run of instructions being executed.
#[derive(Clone)]
pub struct Run {
    /// In the order of their numbers in instructions: rax rcx rdx rbx rsp rbp rsi rdi r8..r15.
    pub registers: [u64; 16],
    /// The next instruction.
    pub rip: u64,
    /// rflags.
    pub flags: u64,
    /// Below lie the frames of the handler.
    lowest: u64,
    stores: [(u64, u64, usize); STEPS as usize],
    stored: usize,
    steps: u32,
    code_bytes: u64,
}

/// Where an operand is.
#[derive(Clone, Copy)]
enum Operand {
    Register(usize),
    Memory(u64),
    /// Counted from the end of the instruction.
    Relative(u64),
}

/// The bytes of one instruction, and what its prefixes say.
struct Code<'a> {
    bytes: &'a [u8],
    at: usize,
    rex: u8,
}

impl Code<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }

    /// A signed immediate or displacement.
    fn signed(&mut self, bytes: usize) -> Option<u64> {
        let mut value = 0;
        for k in 0..bytes {
            value |= u64::from(self.byte()?) << (8 * k);
        }
        let unused = 64 - 8 * bytes as u32;
        Some(((value << unused) as i64 >> unused) as u64)
    }

    fn is_wide(&self) -> bool {
        self.rex & 8 != 0
    }

    /// A register number with the bit of REX that extends it.
    fn number(&self, low: u8, bit: u8) -> usize {
        usize::from(low & 7 | (self.rex >> bit & 1) << 3)
    }
}

impl Run {
    /// Begins at `rip`.
    pub fn new(registers: [u64; 16], rip: u64, flags: u64) -> Self {
        Self {
            registers,
            rip,
            flags,
            lowest: registers[RSP].wrapping_sub(RED_ZONE_BYTES),
            stores: [(0, 0, 0); STEPS as usize],
            stored: 0,
            steps: 0,
            code_bytes: 0,
        }
    }

    /// What was pushed or moved to the stack, as (address, value, bytes), in order; addresses need
    /// not be aligned.
    pub fn stores(&self) -> &[(u64, u64, usize)] {
        self.stores.get(..self.stored).unwrap_or(&[])
    }

    /// Executes the instruction at `rip`, whose bytes `code` begins with. `read` gives the word at
    /// an address. True: it has jumped. `None`: refused; the run is of no use then.
    pub fn step(&mut self, code: &[u8], read: impl Fn(u64) -> Option<u64>) -> Option<bool> {
        let mut c = Code {
            bytes: code.get(..LONGEST_BYTES).unwrap_or(code),
            at: 0,
            rex: 0,
        };
        let jump = match self.filling(&mut c) {
            Some(()) => None,
            None => {
                c.at = 0;
                self.execute(&mut c, &read)?
            }
        };
        let next = self.rip.wrapping_add(c.at as u64);
        self.rip = jump.unwrap_or(next);
        self.steps += 1;
        self.code_bytes += c.at as u64;
        (self.steps <= STEPS && self.code_bytes <= CODE_BYTES).then_some(jump.is_some())
    }

    /// What `push OPERAND` at `rip` pushes, whose bytes `code` begins with: the operand of a call,
    /// which loads it after the handler, so any memory may be read. `None`: it is none.
    pub fn operand_pushed(&self, code: &[u8], read: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        const PUSH: usize = 6;
        let mut c = Code {
            bytes: code.get(..LONGEST_BYTES).unwrap_or(code),
            at: 0,
            rex: 0,
        };
        let mut opcode = c.byte()?;
        if opcode & 0xf0 == 0x40 {
            c.rex = opcode;
            opcode = c.byte()?;
        }
        if opcode != 0xff {
            return None;
        }
        let (extension, operand) = self.modrm(&mut c)?;
        match operand {
            _ if extension & 7 != PUSH => None,
            Operand::Memory(address) => read(address),
            Operand::Relative(distance) => read(self.after(&c).wrapping_add(distance)),
            Operand::Register(_) => self.get(operand),
        }
    }

    /// endbr64 and the forms of nop.
    fn filling(&mut self, c: &mut Code<'_>) -> Option<()> {
        if c.bytes.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
            c.at = 4;
            return Some(());
        }
        let mut byte = c.byte()?;
        while matches!(byte, 0x66 | 0x2e) {
            byte = c.byte()?;
        }
        if byte & 0xf0 == 0x40 {
            c.rex = byte;
            byte = c.byte()?;
        }
        match byte {
            // With REX.B it is xchg.
            0x90 if c.rex & 1 == 0 => Some(()),
            0x0f if c.byte()? == 0x1f => match self.modrm(c)? {
                (0 | 8, _) => Some(()),
                _ => None,
            },
            _ => None,
        }
    }

    /// Gives where it jumps to, if it does.
    #[allow(
        clippy::option_option,
        reason = "refused, or executed with or without a jump"
    )]
    fn execute(
        &mut self,
        c: &mut Code<'_>,
        read: &impl Fn(u64) -> Option<u64>,
    ) -> Option<Option<u64>> {
        c.rex = 0;
        let mut opcode = c.byte()?;
        if opcode & 0xf0 == 0x40 {
            c.rex = opcode;
            opcode = c.byte()?;
        }
        match opcode {
            0x50..=0x57 => {
                let value = self.get(Operand::Register(c.number(opcode, 0)))?;
                self.push(value, read)?;
            }
            0x58..=0x5f => {
                let value = self.pop(read)?;
                *self.registers.get_mut(c.number(opcode, 0))? = value;
            }
            0xc9 if c.rex == 0 => {
                self.registers[RSP] = self.registers[RBP];
                let value = self.pop(read)?;
                self.registers[RBP] = value;
            }
            0xc3 if c.rex == 0 => return self.pop(read).map(Some),
            0xeb | 0xe9 if c.rex == 0 => {
                let distance = c.signed(if opcode == 0xeb { 1 } else { 4 })?;
                return Some(Some(self.after(c).wrapping_add(distance)));
            }
            0xb8..=0xbf => {
                let value = c.signed(if c.is_wide() { 8 } else { 4 })?;
                self.set(c, c.number(opcode, 0), value)?;
            }
            0x98 if c.is_wide() => self.registers[RAX] = self.registers[RAX] as i32 as u64,
            0x98 => self.set(c, RAX, self.registers[RAX] as i16 as u64)?,
            0x99 => {
                let bits = if c.is_wide() { 63 } else { 31 };
                let is_negative = self.registers[RAX] >> bits & 1 != 0;
                self.set(c, RDX, if is_negative { u64::MAX } else { 0 })?;
            }
            0x0f => return self.execute_0f(c),
            _ => self.with_modrm(c, opcode, read)?,
        }
        Some(None)
    }

    /// Conditional jumps; setcc, movzx and movsx of registers.
    #[allow(clippy::option_option, reason = "as in execute")]
    fn execute_0f(&mut self, c: &mut Code<'_>) -> Option<Option<u64>> {
        let opcode = c.byte()?;
        match opcode {
            0x80..=0x8f if c.rex == 0 => {
                let distance = c.signed(4)?;
                let to = self.after(c).wrapping_add(distance);
                return Some(self.holds(opcode).then_some(to));
            }
            0x90..=0x9f => {
                let (_, Operand::Register(to)) = self.modrm(c)? else {
                    return None;
                };
                // Without REX, numbers 4 to 7 are the second bytes of the first four registers.
                let high = c.rex == 0 && to >= 4;
                let (to, shift) = if high { (to - 4, 8) } else { (to, 0) };
                let bit = u64::from(self.holds(opcode));
                let register = self.registers.get_mut(to)?;
                *register = *register & !(0xff << shift) | bit << shift;
            }
            0xb6 | 0xb7 | 0xbe | 0xbf => {
                let (reg, Operand::Register(from)) = self.modrm(c)? else {
                    return None;
                };
                let is_word = opcode & 1 != 0;
                // Without REX, numbers 4 to 7 are the second bytes of the first four registers.
                let high = !is_word && c.rex == 0 && from >= 4;
                let value = self.get(Operand::Register(if high { from - 4 } else { from }))?
                    >> if high { 8 } else { 0 };
                let value = match (opcode >= 0xbe, is_word) {
                    (false, false) => value & 0xff,
                    (false, true) => value & 0xffff,
                    (true, false) => value as i8 as u64,
                    (true, true) => value as i16 as u64,
                };
                self.set(c, reg, value)?;
            }
            _ => return None,
        }
        Some(None)
    }

    /// Arithmetic, mov, lea, test.
    fn with_modrm(
        &mut self,
        c: &mut Code<'_>,
        opcode: u8,
        read: &impl Fn(u64) -> Option<u64>,
    ) -> Option<()> {
        if opcode < 0x40 && opcode & 7 == 5 || opcode == 0xa9 {
            // The accumulator and an immediate.
            let right = c.signed(4)?;
            let left = self.registers[0];
            let operation = if opcode == 0xa9 { TEST } else { opcode >> 3 };
            return self.operate(c, operation, Operand::Register(0), left, right);
        }
        if !has_modrm(opcode) {
            return None;
        }
        let (reg, operand) = self.modrm(c)?;
        let immediate = match opcode {
            0x83 => c.signed(1)?,
            0x81 | 0xc7 | 0xf7 => c.signed(4)?,
            _ => 0,
        };
        let operand = match operand {
            Operand::Relative(distance) => Operand::Memory(self.after(c).wrapping_add(distance)),
            other => other,
        };
        let extension = reg as u8 & 7;
        let destination = match operand {
            Operand::Register(number) => Some(number),
            _ => None,
        };
        if opcode == 0x8d {
            let Operand::Memory(address) = operand else {
                return None;
            };
            return self.set(c, reg, address);
        }
        let bytes = if c.is_wide() { 8 } else { 4 };
        if destination.is_none() && matches!(opcode, 0x89 | 0xc7) {
            let value = match (opcode, extension) {
                (0x89, _) => self.get(Operand::Register(reg))?,
                (_, 0) => immediate,
                _ => return None,
            };
            return self.mov_to_stack(operand, value, bytes, read);
        }
        let value = match destination {
            Some(_) => self.get(operand)?,
            None if opcode == 0x63 => self.load(operand, 4, read)?,
            None => self.load(operand, bytes, read)?,
        };
        self.assign(c, opcode, (reg, operand), value, immediate)
    }

    /// The deed of an instruction whose operand was read: `value`, of a register or of memory;
    /// `reg` is the other one, or what extends the opcode.
    fn assign(
        &mut self,
        c: &Code<'_>,
        opcode: u8,
        (reg, operand): (usize, Operand),
        value: u64,
        immediate: u64,
    ) -> Option<()> {
        let extension = reg as u8 & 7;
        let register = self.get(Operand::Register(reg))?;
        let destination = match operand {
            Operand::Register(number) => Some(number),
            _ => None,
        };
        match opcode {
            0x63 => self.set(c, reg, value as i32 as u64),
            0x8b => self.set(c, reg, value),
            0x89 => self.set(c, destination?, register),
            0xc7 if extension == 0 => self.set(c, destination?, immediate),
            0xc7 => None,
            0x81 | 0x83 => self.operate(c, extension, operand, value, immediate),
            0xf7 if extension == 0 => self.operate(c, TEST, operand, value, immediate),
            0xf7 => None,
            0x85 => self.operate(c, TEST, operand, value, register),
            _ if opcode & 7 == 1 => self.operate(c, opcode >> 3, operand, value, register),
            _ => self.operate(c, opcode >> 3, Operand::Register(reg), register, value),
        }
    }

    /// One of the eight arithmetic operations (or TEST), with flags. `to`: where the left side is,
    /// which was read.
    fn operate(
        &mut self,
        c: &Code<'_>,
        operation: u8,
        to: Operand,
        left: u64,
        right: u64,
    ) -> Option<()> {
        let (mask, sign) = if c.is_wide() {
            (u64::MAX, 1 << 63)
        } else {
            (u64::from(u32::MAX), 1 << 31)
        };
        let (left, right) = (left & mask, right & mask);
        let carry = match operation {
            ADC | SBB => self.flags & CF,
            _ => 0,
        };
        let result = match operation {
            ADD | ADC => left.wrapping_add(right).wrapping_add(carry),
            SUB | SBB | CMP => left.wrapping_sub(right).wrapping_sub(carry),
            AND | TEST => left & right,
            OR => left | right,
            _ => left ^ right,
        } & mask;
        let mut flags = self.flags & !ARITHMETIC;
        let mut put = |flag, is_set: bool| flags |= if is_set { flag } else { 0 };
        put(ZF, result == 0);
        put(SF, result & sign != 0);
        put(PF, (result as u8).count_ones().is_multiple_of(2));
        match operation {
            ADD | ADC => {
                put(CF, result < left || carry != 0 && result == left);
                put(AF, (left ^ right ^ result) & 0x10 != 0);
                put(OF, (left ^ result) & (right ^ result) & sign != 0);
            }
            SUB | SBB | CMP => {
                put(CF, left < right || carry != 0 && left == right);
                put(AF, (left ^ right ^ result) & 0x10 != 0);
                put(OF, (left ^ right) & (left ^ result) & sign != 0);
            }
            _ => put(AF, self.flags & AF != 0),
        }
        self.flags = flags;
        match (operation, to) {
            (CMP | TEST, _) => Some(()),
            (_, Operand::Register(number)) => self.set(c, number, result),
            (_, Operand::Memory(at)) => self.store(at, result, if c.is_wide() { 8 } else { 4 }),
            (_, Operand::Relative(_)) => None,
        }
    }

    /// True if the condition in the low half of the opcode of a conditional jump holds.
    fn holds(&self, opcode: u8) -> bool {
        let is_set = |flag: u64| self.flags & flag != 0;
        let less = is_set(SF) != is_set(OF);
        let holds = match opcode >> 1 & 7 {
            0 => is_set(OF),
            1 => is_set(CF),
            2 => is_set(ZF),
            3 => is_set(CF) || is_set(ZF),
            4 => is_set(SF),
            5 => is_set(PF),
            6 => less,
            _ => less || is_set(ZF),
        };
        holds == (opcode & 1 == 0)
    }

    /// The register field (with REX.R) and the other operand.
    fn modrm(&self, c: &mut Code<'_>) -> Option<(usize, Operand)> {
        let modrm = c.byte()?;
        let reg = c.number(modrm >> 3, 2);
        let (mode, low) = (modrm >> 6, modrm & 7);
        if mode == 3 {
            return Some((reg, Operand::Register(c.number(low, 0))));
        }
        let register = |number: usize| self.registers.get(number).copied();
        let mut address = 0;
        let mut is_absolute = false;
        if low == 4 {
            let sib = c.byte()?;
            let index = c.number(sib >> 3, 1);
            if index != RSP {
                address = register(index)?.wrapping_shl(u32::from(sib >> 6));
            }
            is_absolute = mode == 0 && sib & 7 == 5;
            if !is_absolute {
                address = address.wrapping_add(register(c.number(sib, 0))?);
            }
        } else if mode == 0 && low == 5 {
            return Some((reg, Operand::Relative(c.signed(4)?)));
        } else {
            address = register(c.number(low, 0))?;
        }
        let displacement = match mode {
            1 => c.signed(1)?,
            2 => c.signed(4)?,
            _ if is_absolute => c.signed(4)?,
            _ => 0,
        };
        Some((reg, Operand::Memory(address.wrapping_add(displacement))))
    }

    fn after(&self, c: &Code<'_>) -> u64 {
        self.rip.wrapping_add(c.at as u64)
    }

    fn get(&self, operand: Operand) -> Option<u64> {
        match operand {
            Operand::Register(number) => self.registers.get(number).copied(),
            _ => None,
        }
    }

    /// Writes a register of the instruction's width; 32 bits zero the upper half.
    fn set(&mut self, c: &Code<'_>, number: usize, value: u64) -> Option<()> {
        let value = if c.is_wide() {
            value
        } else {
            u64::from(value as u32)
        };
        *self.registers.get_mut(number)? = value;
        Some(())
    }

    fn push(&mut self, value: u64, read: &impl Fn(u64) -> Option<u64>) -> Option<()> {
        let at = self.registers[RSP].wrapping_sub(8);
        // The stack may end here.
        read(at)?;
        self.store(at, value, 8)?;
        self.registers[RSP] = at;
        Some(())
    }

    fn mov_to_stack(
        &mut self,
        operand: Operand,
        value: u64,
        bytes: u64,
        read: &impl Fn(u64) -> Option<u64>,
    ) -> Option<()> {
        let Operand::Memory(address) = operand else {
            return None;
        };
        // The stack may end here, or something else begin.
        read(address)?;
        self.store(address, value, bytes as usize)
    }

    fn store(&mut self, at: u64, value: u64, bytes: usize) -> Option<()> {
        if at.wrapping_sub(self.lowest) > FRAME_BYTES {
            return None;
        }
        *self.stores.get_mut(self.stored)? = (at, value, bytes);
        self.stored += 1;
        Some(())
    }

    fn pop(&mut self, read: &impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let at = self.registers[RSP];
        let value = self.load(Operand::Memory(at), 8, read)?;
        self.registers[RSP] = at.wrapping_add(8);
        Some(value)
    }

    fn load(
        &self,
        operand: Operand,
        bytes: u64,
        read: &impl Fn(u64) -> Option<u64>,
    ) -> Option<u64> {
        let Operand::Memory(address) = operand else {
            return None;
        };
        let from = self.registers[RSP].wrapping_sub(RED_ZONE_BYTES);
        if address.wrapping_sub(from) > FRAME_BYTES {
            return None;
        }
        for &(at, value, stored) in self.stores().iter().rev() {
            if at == address && stored as u64 >= bytes {
                return Some(if bytes == 8 {
                    value
                } else {
                    value as u32 as u64
                });
            }
            let distance = address.wrapping_sub(at) as i64;
            if distance > -(bytes as i64) && distance < stored as i64 {
                return None;
            }
        }
        let value = read(address)?;
        Some(if bytes == 8 {
            value
        } else {
            value as u32 as u64
        })
    }
}

const ADD: u8 = 0;
const OR: u8 = 1;
const ADC: u8 = 2;
const SBB: u8 = 3;
const AND: u8 = 4;
const SUB: u8 = 5;
const CMP: u8 = 7;
/// As AND, and no result.
const TEST: u8 = 8;

/// Opcodes with a ModRM byte that are known here.
fn has_modrm(opcode: u8) -> bool {
    let is_arithmetic = opcode < 0x40 && matches!(opcode & 7, 1 | 3);
    let is_other = matches!(
        opcode,
        0x63 | 0x81 | 0x83 | 0x85 | 0x89 | 0x8b | 0x8d | 0xc7 | 0xf7
    );
    is_arithmetic || is_other
}
