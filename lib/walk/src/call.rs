//! The call instruction that has led a thread to a function's entry.
//!
//! Given its registers and memory. The thread may be put back to that instruction: it would do once
//! more what it has done, and nothing was executed since. So it is told only if it leads there as
//! things stand now, and if no other instruction that could end there does.

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

use crate::code::decode;
use crate::memory::{Memory, read_u64};
use crate::registers::{RSP, Registers};

/// DWARF numbers (System V ABI, figure 3.36) in the order of the instruction set.
const DWARF: [usize; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
/// Direct: 5. Through a register or memory: opcode FF, then 1 to 6 bytes; one prefix more.
const CALL_BYTES: std::ops::RangeInclusive<u64> = 2..=8;

/// Where the call lies that has led to the function at whose entry `registers` stand. `None`: none
/// has, or that cannot be told.
pub fn call_that_led_to(memory: &mut dyn Memory, registers: &Registers) -> Option<u64> {
    let rsp = registers.general[RSP]?;
    let return_address = read_u64(memory, rsp).ok()?;
    let mut before = *registers;
    before.general[RSP] = Some(rsp.wrapping_add(8));
    let mut found = None;
    for length in CALL_BYTES {
        let start = return_address.wrapping_sub(length);
        let Some(i) = decode(memory, start) else {
            continue;
        };
        let is_call = i.mnemonic() == Mnemonic::Call && i.next_ip() == return_address;
        if is_call && leads_to(memory, &i, &before) == Some(registers.rip) {
            // With a prefix, or behind the end of another instruction.
            if found.is_some() {
                return None;
            }
            found = Some(start);
        }
    }
    found
}

/// Where a call leads, over a PLT stub that is bound, too.
fn leads_to(memory: &mut dyn Memory, call: &Instruction, registers: &Registers) -> Option<u64> {
    if call.op0_kind() != OpKind::NearBranch64 {
        return operand(memory, call, registers);
    }
    let target = call.near_branch_target();
    let first = decode(memory, target);
    let is_marked = first.is_some_and(|i| i.code() == Code::Endbr64);
    let jump = if is_marked {
        decode(memory, target.wrapping_add(4))
    } else {
        first
    };
    let through = jump.filter(|i| i.code() == Code::Jmp_rm64 && i.is_ip_rel_memory_operand());
    match through {
        // What is not bound leads behind itself first, to be bound; or nowhere.
        Some(jump) => operand(memory, &jump, registers),
        None => Some(target),
    }
}

/// The address in a register, or in memory, that an instruction leads to.
fn operand(memory: &mut dyn Memory, i: &Instruction, registers: &Registers) -> Option<u64> {
    let get = |register: Register| match register {
        // The segments that begin at 0.
        Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
        r if r.is_gpr64() => registers.general[*DWARF.get(r.number())?],
        _ => None,
    };
    match i.op0_kind() {
        OpKind::Register => get(i.op0_register()),
        OpKind::Memory => {
            let at = i.virtual_address(0, 0, |register, _, _| get(register))?;
            read_u64(memory, at).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Unreadable;

    const STACK: u64 = 0x7000;
    const TEXT: u64 = 0x1000;
    const ENTRY: u64 = 0x1100;

    /// What is found if these bytes end where the call returns to; rax leads to the entry, rbx to a
    /// word with it.
    fn found(before: &[u8]) -> Option<u64> {
        let mut text = [0x90u8; 0x200];
        let end = 0x40;
        text[end - before.len()..end].copy_from_slice(before);
        // A stub that is bound, one that is marked, one that is not bound.
        text[0x80..0x86].copy_from_slice(&[0xff, 0x25, 0x7a, 0, 0, 0]);
        text[0x90..0x9b]
            .copy_from_slice(&[0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x65, 0, 0, 0]);
        text[0xa0..0xa6].copy_from_slice(&[0xff, 0x25, 0x62, 0, 0, 0]);
        text[0x100..0x108].copy_from_slice(&ENTRY.to_le_bytes());
        text[0x108..0x110].copy_from_slice(&(TEXT + 0xa6).to_le_bytes());
        let mut memory = |avma: u64, into: &mut [u8]| {
            if avma == STACK && into.len() == 8 {
                into.copy_from_slice(&(TEXT + end as u64).to_le_bytes());
                return Ok(());
            }
            let at = avma.checked_sub(TEXT).ok_or(Unreadable)? as usize;
            into.copy_from_slice(text.get(at..at + into.len()).ok_or(Unreadable)?);
            Ok(())
        };
        let mut general = [0x55; 16];
        general[0] = ENTRY;
        general[3] = TEXT + 0x100;
        general[7] = STACK;
        general[12] = ENTRY;
        let registers = Registers::all(ENTRY, general);
        call_that_led_to(&mut memory, &registers)
    }

    #[test]
    fn calls_that_lead_there_are_found_whatever_their_form() {
        let direct = |to: u64| {
            let mut call = vec![0xe8];
            call.extend((to.wrapping_sub(TEXT + 0x40) as u32).to_le_bytes());
            call
        };
        let end = TEXT + 0x40;
        assert_eq!(found(&direct(ENTRY)), Some(end - 5));
        assert_eq!(found(&direct(TEXT + 0x80)), Some(end - 5), "over a stub");
        assert_eq!(
            found(&direct(TEXT + 0x90)),
            Some(end - 5),
            "over a marked one"
        );
        assert_eq!(found(&[0xff, 0xd0]), Some(end - 2), "call rax");
        assert_eq!(found(&[0x41, 0xff, 0xd4]), Some(end - 3), "call r12");
        assert_eq!(found(&[0xff, 0x13]), Some(end - 2), "call [rbx]");
        assert_eq!(found(&[0xff, 0x53, 0]), Some(end - 3), "call [rbx + 0]");
        assert_eq!(
            found(&[0xff, 0x15, 0xc0, 0, 0, 0]),
            Some(end - 6),
            "call [rip + x]"
        );
    }

    #[test]
    fn what_leads_elsewhere_or_may_be_another_is_not() {
        assert_eq!(
            found(&[0xe8, 0, 0, 0, 0]),
            None,
            "a call of what follows it"
        );
        assert_eq!(
            found(&[0xe8, 0x60, 0, 0, 0]),
            None,
            "over a stub that is not bound"
        );
        assert_eq!(
            found(&[0xff, 0xd1]),
            None,
            "call rcx, which is another address"
        );
        assert_eq!(found(&[0xff, 0xe0]), None, "a jump");
        assert_eq!(found(&[0x64, 0xff, 0x11]), None, "through a segment");
        assert_eq!(found(&[0x90, 0x90]), None);
        let prefixed = [0x48, 0xe8, 0xc0, 0, 0, 0];
        assert_eq!(found(&prefixed[1..]), Some(TEXT + 0x3b));
        assert_eq!(found(&prefixed), None, "its prefix or not");
    }
}
