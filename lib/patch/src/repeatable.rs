//! Which runs of moved instructions may be begun again after any part of them has been executed: a
//! signal handler may have interrupted one, and the agent then lets it begin anew in the text.
//!
//! Given a range of plain instructions; true if nothing that the run reads before writing it is
//! changed by the run: no register, no flag, no memory.

use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess, Register};
use sptrace_addr::Svma;
use sptrace_image::Object;

/// A set of registers, whose numbers are bytes.
#[derive(Clone, Copy, Default)]
struct Registers([u64; 4]);

impl Registers {
    fn insert(&mut self, register: Register) {
        self.0[register as usize / 64] |= 1 << (register as usize % 64);
    }

    fn contains(&self, register: Register) -> bool {
        self.0[register as usize / 64] >> (register as usize % 64) & 1 != 0
    }

    fn is_disjoint(&self, other: &Self) -> bool {
        self.0
            .iter()
            .zip(&other.0)
            .all(|(own, other)| own & other == 0)
    }
}

#[derive(Default)]
struct Run {
    /// Read before anything in the run has written all of it.
    inputs: Registers,
    outputs: Registers,
    /// Written whole by an instruction before the present one.
    defined: Registers,
    input_flags: u32,
    output_flags: u32,
    reads_memory: bool,
    writes_memory: bool,
}

/// True if the instructions in `[start, end)` may be begun again at any time.
pub fn repeatable(object: &Object<'_>, start: Svma, end: Svma) -> bool {
    let Some(code) = object
        .code_from(start)
        .and_then(|c| c.get(..(end.0.checked_sub(start.0)? as usize)))
    else {
        return false;
    };
    let mut run = Run::default();
    let mut factory = InstructionInfoFactory::new();
    for i in Decoder::with_ip(64, code, start.0, DecoderOptions::NONE).iter() {
        if i.is_invalid() {
            return false;
        }
        run.add(&i, &mut factory);
    }
    run.repeatable()
}

impl Run {
    fn repeatable(&self) -> bool {
        self.inputs.is_disjoint(&self.outputs)
            && self.input_flags & self.output_flags == 0
            && !(self.reads_memory && self.writes_memory)
            && !self.outputs.contains(Register::RSP)
    }

    fn add(&mut self, i: &Instruction, factory: &mut InstructionInfoFactory) {
        let info = factory.info(i);
        let mut whole = self.defined;
        for used in info.used_registers() {
            let (register, access) = (used.register().full_register(), used.access());
            if access != OpAccess::Write
                && access != OpAccess::NoMemAccess
                && !self.defined.contains(register)
            {
                self.inputs.insert(register);
            }
            if !matches!(
                access,
                OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
            ) {
                self.outputs.insert(register);
            }
            if access == OpAccess::Write && used.register().is_gpr() && used.register().size() >= 4
            {
                whole.insert(register);
            }
        }
        self.input_flags |= i.rflags_read();
        self.output_flags |= i.rflags_modified();
        for used in info.used_memory() {
            let access = used.access();
            self.reads_memory |= !matches!(access, OpAccess::Write | OpAccess::NoMemAccess);
            self.writes_memory |= !matches!(
                access,
                OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
            );
        }
        self.defined = whole;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(code: &[u8]) -> bool {
        let mut run = Run::default();
        let mut factory = InstructionInfoFactory::new();
        for i in Decoder::with_ip(64, code, 0, DecoderOptions::NONE).iter() {
            run.add(&i, &mut factory);
        }
        run.repeatable()
    }

    #[test]
    fn loads_and_moves_are() {
        // mov rdi, rbx ; mov rax, [rbp+8] ; lea rsi, [rax+4]
        let code = [
            0x48, 0x89, 0xdf, 0x48, 0x8b, 0x45, 0x08, 0x48, 0x8d, 0x70, 0x04,
        ];
        assert!(run(&code));
        // mov [rsp], rdi
        assert!(run(&[0x48, 0x89, 0x3c, 0x24]));
    }

    #[test]
    fn what_changes_its_own_input_is_not() {
        assert!(!run(&[0x48, 0x83, 0xc0, 0x01]), "add rax, 1");
        assert!(!run(&[0x50]), "push rax");
        // mov rax, rbx ; mov rbx, rcx
        assert!(!run(&[0x48, 0x89, 0xd8, 0x48, 0x89, 0xcb]));
        // mov rax, [rdi] ; mov [rsi], rcx
        assert!(!run(&[0x48, 0x8b, 0x07, 0x48, 0x89, 0x0e]));
        assert!(!run(&[0x48, 0xff, 0x00]), "inc qword ptr [rax]");
        // sete al ; test ecx, ecx
        assert!(!run(&[0x0f, 0x94, 0xc0, 0x85, 0xc9]));
        assert!(!run(&[0x48, 0x8b, 0x00]), "mov rax, [rax]");
        assert!(
            !run(&[0xb0, 0x01, 0x48, 0x89, 0xc7, 0xb0, 0x02]),
            "al is a part"
        );
    }
}
