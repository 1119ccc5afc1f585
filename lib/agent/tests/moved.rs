//! What `moved` executes, against the processor: random instructions, registers and flags.
//!
//! An instruction that `moved` accepts is put into an executable page and executed there;
//! registers, flags, the stack and where it went must be the same. Given no input; seeds are fixed.
#![allow(clippy::unwrap_used, reason = "a test: failing loudly is right")]

use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind};
use sptrace_agent::signals::moved::Run;
use std::collections::HashMap;

const RSP: usize = 4;
/// CF PF AF ZF SF OF.
const ARITHMETIC: u64 = 0x8d5;
const AF: u64 = 0x10;
const STACK_WORDS: usize = 512;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }

    /// Values at which carries and signs change are as likely as others.
    fn value(&mut self) -> u64 {
        const EDGES: [u64; 8] = [
            0,
            1,
            u64::MAX,
            1 << 63,
            i64::MAX as u64,
            1 << 31,
            i32::MAX as u64,
            u32::MAX as u64,
        ];
        let edge = EDGES[self.below(8) as usize];
        match self.below(4) {
            0 => edge,
            1 => edge.wrapping_add(self.below(33)).wrapping_sub(16),
            2 => self.next() << self.below(64) >> self.below(64),
            _ => self.next(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct State {
    registers: [u64; 16],
    flags: u64,
    stack: Vec<u64>,
    jumped: bool,
}

/// A page of code and behind it one of data.
struct Machine {
    code: *mut u8,
}

/// Offsets of words in the data page.
const REGISTERS: usize = 0;
const FLAGS: usize = 16;
const OWN_RSP: usize = 17;
const NOT_JUMPED: usize = 18;
const STACK: usize = 64;
const DATA: usize = 4096;
/// Where the instruction lies in the page of code.
const AT: usize = 1024;
/// Where it jumps to, behind it.
const JUMP_BYTES: usize = 200;

impl Machine {
    fn new() -> Self {
        let bytes = DATA + 8 * (STACK + STACK_WORDS);
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let code = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(code, libc::MAP_FAILED);
        Self { code: code.cast() }
    }

    fn word(&self, index: usize) -> *mut u64 {
        // SAFETY: the words lie in the mapping.
        unsafe { self.code.add(DATA).cast::<u64>().add(index) }
    }

    fn stack(&self) -> u64 {
        self.word(STACK) as u64
    }

    fn rip(&self) -> u64 {
        self.code as u64 + AT as u64
    }

    /// An instruction with a rip-relative operand of four bytes that is a word of the data page.
    fn relative(&self, code: &mut Vec<u8>, offset: usize, opcode: &[u8], word: usize, tail: &[u8]) {
        code.extend(opcode);
        let end = offset + code.len() + 4 + tail.len();
        let distance = (DATA + word * 8) as i32 - end as i32;
        code.extend(distance.to_le_bytes());
        code.extend(tail);
    }

    fn put(&self, offset: usize, code: &[u8]) {
        // SAFETY: all code that is put here lies in the mapping, which nobody executes now.
        unsafe {
            std::ptr::copy_nonoverlapping(code.as_ptr(), self.code.add(offset), code.len());
        }
    }

    /// mov between a register and its word: 8b loads, 89 stores.
    fn moves(&self, code: &mut Vec<u8>, offset: usize, opcode: u8, numbers: &[usize]) {
        for &number in numbers {
            let rex = 0x48 | (number as u8 >> 3) << 2;
            let modrm = 5 | (number as u8 & 7) << 3;
            self.relative(code, offset, &[rex, opcode, modrm], REGISTERS + number, &[]);
        }
    }

    /// Executes `instruction` on the processor.
    fn execute(&self, instruction: &[u8], before: &State) -> State {
        let all: Vec<usize> = (0..16).collect();
        let mut enter = vec![0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57];
        self.relative(&mut enter, 0, &[0x48, 0x89, 0x25], OWN_RSP, &[]);
        // push flags; popfq
        self.relative(&mut enter, 0, &[0xff, 0x35], FLAGS, &[]);
        enter.push(0x9d);
        self.moves(&mut enter, 0, 0x8b, &all);
        enter.push(0xe9);
        enter.extend((AT as i32 - enter.len() as i32 - 4).to_le_bytes());
        self.put(0, &enter);

        let mut code = instruction.to_vec();
        // mov dword ptr [not jumped], 1
        self.relative(&mut code, AT, &[0xc7, 0x05], NOT_JUMPED, &[1, 0, 0, 0]);
        code.resize(JUMP_BYTES, 0x90);
        self.moves(&mut code, AT, 0x89, &all);
        self.relative(&mut code, AT, &[0x48, 0x8b, 0x25], OWN_RSP, &[]);
        code.push(0x9c);
        self.relative(&mut code, AT, &[0x8f, 0x05], FLAGS, &[]);
        code.extend([0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5d, 0x5b]);
        code.push(0xc3);
        self.put(AT, &code);

        // SAFETY: words of the mapping, and code that keeps what the ABI wants kept.
        unsafe {
            for (k, value) in before.registers.iter().enumerate() {
                self.word(REGISTERS + k).write_volatile(*value);
            }
            for (k, value) in before.stack.iter().enumerate() {
                self.word(STACK + k).write_volatile(*value);
            }
            self.word(FLAGS).write_volatile(before.flags);
            self.word(NOT_JUMPED).write_volatile(0);
            let run: extern "C" fn() = std::mem::transmute(self.code);
            run();
            State {
                registers: std::array::from_fn(|k| self.word(REGISTERS + k).read_volatile()),
                flags: self.word(FLAGS).read_volatile(),
                stack: (0..STACK_WORDS)
                    .map(|k| self.word(STACK + k).read_volatile())
                    .collect(),
                jumped: self.word(NOT_JUMPED).read_volatile() == 0,
            }
        }
    }

    fn state(&self, random: &mut Random) -> State {
        let stack = self.stack();
        let mut registers: [u64; 16] = std::array::from_fn(|_| random.value());
        registers[RSP] = stack + 8 * (128 + random.below(256));
        // Frame pointers, and small indexes of what they point at.
        for register in &mut registers {
            match random.below(6) {
                0 => *register = stack + random.below(8 * STACK_WORDS as u64),
                1 => *register = random.below(64),
                _ => {}
            }
        }
        registers[RSP] = stack + 8 * (128 + random.below(256));
        let mut words: Vec<u64> = (0..STACK_WORDS).map(|_| random.value()).collect();
        // Where `ret` goes.
        words[((registers[RSP] - stack) / 8) as usize] = self.rip() + JUMP_BYTES as u64;
        State {
            registers,
            flags: 0x202 | random.next() & ARITHMETIC,
            stack: words,
            jumped: false,
        }
    }

    /// Executes `code`, which may be longer than the instruction, by `moved`. Gives its length too.
    fn emulate(&self, code: &[u8], before: &State) -> Option<(State, Option<usize>)> {
        let mut run = Run::new(before.registers, self.rip(), before.flags);
        let stack = self.stack();
        let read = |at: u64| {
            let offset = usize::try_from(at.checked_sub(stack)?).ok()?;
            let bytes: Vec<u8> = before
                .stack
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect();
            let word = bytes.get(offset..offset + 8)?;
            Some(u64::from_le_bytes(word.try_into().ok()?))
        };
        let jumped = run.step(code, read)?;
        let mut after = State {
            registers: run.registers,
            flags: run.flags,
            stack: before.stack.clone(),
            jumped,
        };
        let words = after.stack.iter();
        let mut bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        for (at, value, width) in run.stores() {
            let offset = (at - stack) as usize;
            bytes[offset..offset + width].copy_from_slice(&value.to_le_bytes()[..*width]);
        }
        after.stack = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        if jumped && run.rip != self.rip() + JUMP_BYTES as u64 {
            // Random bytes: there is nothing.
            return None;
        }
        let length = (!jumped).then(|| (run.rip - self.rip()) as usize);
        Some((after, length))
    }
}

/// A likely instruction, with more bytes behind it than it needs.
fn instruction(random: &mut Random) -> Vec<u8> {
    const OPCODES: &[&[u8]] = &[
        &[0x50],
        &[0x58],
        &[0xb8],
        &[0x63],
        &[0x81],
        &[0x83],
        &[0x85],
        &[0x89],
        &[0x8b],
        &[0x8d],
        &[0xc7, 0xc0],
        &[0xc7],
        &[0xf7],
        &[0xa9],
        &[0x0f, 0xb6],
        &[0x0f, 0xb7],
        &[0x0f, 0xbe],
        &[0x0f, 0xbf],
        &[0x0f, 0x1f],
        &[0x90],
        &[0x66, 0x90],
        &[0x66, 0x0f, 0x1f],
        &[0xf3, 0x0f, 0x1e, 0xfa],
        &[0xc9],
    ];
    let mut code = Vec::new();
    match random.below(16) {
        0 => return jump(random),
        // Anything: what is accepted must be right, too.
        1..=3 => {
            for _ in 0..random.below(3) {
                code.push([0x66, 0x67, 0xf2, 0xf3, 0x2e, 0xf0][random.below(6) as usize]);
            }
        }
        kind => {
            if random.below(3) > 0 {
                code.push(0x40 | random.below(16) as u8);
            }
            if kind < 10 {
                code.push((random.below(8) << 3 | [1, 3, 5][random.below(3) as usize]) as u8);
            } else {
                let opcode = OPCODES[random.below(OPCODES.len() as u64) as usize];
                if opcode[0] == 0x66 || opcode[0] == 0xf3 {
                    code.clear();
                }
                code.extend(opcode);
                if matches!(opcode, [0x50 | 0x58 | 0xb8]) {
                    *code.last_mut().unwrap() |= random.below(8) as u8;
                }
            }
        }
    }
    code.extend((0..16).map(|_| random.next() as u8));
    // Registers and small displacements are more interesting than what 16 random bytes make.
    if random.below(4) == 0 {
        let at = code.len() - 14;
        code[at..at + 4].copy_from_slice(&(random.below(512) as i32 - 256).to_le_bytes());
    }
    code.truncate(15);
    code
}

fn jump(random: &mut Random) -> Vec<u8> {
    let target = |bytes: usize| (JUMP_BYTES - bytes) as i32;
    let mut code = match random.below(4) {
        0 => vec![0xe9],
        1 => return vec![0xc3],
        _ => vec![0x0f, 0x80 | random.below(16) as u8],
    };
    code.extend(target(code.len() + 4).to_le_bytes());
    code
}

#[test]
fn executes_what_the_processor_does() {
    let machine = Machine::new();
    let mut random = Random(0x5eed_0001);
    let mut seen: HashMap<Mnemonic, u32> = HashMap::new();
    let (mut refused, mut stores, mut changes) = (0, [0, 0], 0);
    for _ in 0..120_000 {
        let code = instruction(&mut random);
        let before = machine.state(&mut random);
        let mut decoder = Decoder::with_ip(64, &code, machine.rip(), DecoderOptions::NONE);
        let decoded = decoder.decode();
        let short = code[0] == 0xeb;
        if short {
            continue;
        }
        let Some((mut after, length)) = machine.emulate(&code, &before) else {
            refused += 1;
            continue;
        };
        let length = length.unwrap_or(decoded.len());
        assert_eq!(length, decoded.len(), "{decoded} {code:02x?}");
        let mut expected = machine.execute(&code[..length], &before);
        let undefined = match decoded.mnemonic() {
            Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Test => AF,
            _ => 0,
        };
        // The trap flag and the like are the harness's own.
        for state in [&mut expected, &mut after] {
            state.flags &= ARITHMETIC & !undefined;
        }
        let stack = machine.stack();
        assert_eq!(
            expected,
            after,
            "{decoded} {code:02x?} at {:x}, stack {stack:x}, before {before:x?}",
            machine.rip()
        );
        *seen.entry(decoded.mnemonic()).or_default() += 1;
        let is_store = decoded.mnemonic() == Mnemonic::Mov && decoded.op0_kind() == OpKind::Memory;
        // A variable is added to, as code without optimization does behind calls.
        let is_change = decoded.op0_kind() == OpKind::Memory
            && matches!(decoded.mnemonic(), Mnemonic::Add | Mnemonic::Sub);
        changes += u32::from(is_change);
        stores[usize::from(decoded.memory_size().size() == 8)] += u32::from(is_store);
    }
    assert!(refused > 5000, "{refused} refused");
    assert!(
        stores.iter().all(|n| *n >= 20),
        "{stores:?} stores of 4 and 8 bytes"
    );
    assert!(changes >= 20, "{changes} changes of what is on the stack");
    use Mnemonic::*;
    for wanted in [
        Push, Pop, Mov, Lea, Add, Or, Adc, Sbb, And, Sub, Xor, Cmp, Test, Movzx, Movsx, Movsxd,
        Nop, Endbr64, Ret, Jmp, Je, Jne, Jb, Jae, Jl, Jge, Jg, Jle, Ja, Jbe, Js, Jns, Jo, Jno, Jp,
        Jnp,
    ] {
        let times = seen.get(&wanted).copied().unwrap_or(0);
        assert!(times >= 50, "{wanted:?}: {times} times");
    }
}

#[test]
fn what_a_push_of_an_operand_pushes() {
    let mut registers = [0; 16];
    registers[3] = 0x1000; // rbx
    registers[RSP] = 0x2000;
    registers[14] = 0x77;
    let run = Run::new(registers, 0x40_0000, 0);
    let pushed = |code: &[u8]| run.operand_pushed(code, |at| Some(at + 1));
    // push r14 ; push [rbx+8] ; push [rsp+0x10] ; push [rbx+r14*8] ; push [rip+0x10] ; push [0x30]
    assert_eq!(pushed(&[0x41, 0xff, 0xf6]), Some(0x77));
    assert_eq!(pushed(&[0xff, 0x73, 8]), Some(0x1009));
    assert_eq!(pushed(&[0xff, 0x74, 0x24, 0x10]), Some(0x2011));
    assert_eq!(
        pushed(&[0x42, 0xff, 0x34, 0xf3]),
        Some(0x1000 + 0x77 * 8 + 1)
    );
    assert_eq!(pushed(&[0xff, 0x35, 0x10, 0, 0, 0]), Some(0x40_0017));
    assert_eq!(pushed(&[0xff, 0x34, 0x25, 0x30, 0, 0, 0]), Some(0x31));
    // call [rbx], a nop, nothing: no such instruction.
    assert_eq!(pushed(&[0xff, 0x13]), None);
    assert_eq!(pushed(&[0x90]), None);
    assert_eq!(pushed(&[]), None);
}
