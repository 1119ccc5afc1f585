//! Signal frames: what the kernel leaves on the stack when it runs a handler.
//!
//! A handler returns to the restorer, which is two instructions long: rt_sigreturn, number 15. It
//! is known by its bytes, since musl's has no unwind table. `struct rt_sigframe` is the address of
//! the restorer, which the handler's `ret` takes off, then `struct ucontext` (kernel,
//! arch/x86/include/asm/sigframe.h, uapi/asm/sigcontext.h).

use crate::memory::{Memory, Unreadable};
use crate::registers::Registers;

/// glibc and Go; musl. Each ends in `syscall`, two bytes long.
const RESTORERS: [&[u8]; 2] = [
    b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05",
    b"\xb8\x0f\x00\x00\x00\x0f\x05",
];
const SYSCALL_BYTES: u64 = 2;
/// Offset of the saved registers in `struct ucontext`.
const REGISTERS_BYTES: usize = 40;
/// Places of the general registers in DWARF order: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to
/// r15.
const PLACES: [usize; 16] = [13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7];
const RIP: usize = 16;
const CS: usize = 18;
/// Selector of 64-bit user code.
const USER_CS: u16 = 0x33;

/// Whether control at `pc` is in a restorer; `exact`: `pc` is no return address.
pub(crate) fn is_restorer(memory: &mut dyn Memory, pc: u64, exact: bool) -> bool {
    RESTORERS.iter().any(|bytes| {
        let before_syscall = bytes.len() as u64 - SYSCALL_BYTES;
        holds(memory, pc, bytes) || exact && holds(memory, pc.wrapping_sub(before_syscall), bytes)
    })
}

/// Whether the bytes at `avma` are these.
fn holds(memory: &mut dyn Memory, avma: u64, bytes: &[u8]) -> bool {
    let mut found = [0; 16];
    let found = &mut found[..bytes.len().min(16)];
    memory.read(avma, found).is_ok() && found == bytes
}

/// The interrupted registers, with the stack pointer as in the restorer; `None` if these are not
/// registers of 64-bit user code.
pub(crate) fn interrupted(
    memory: &mut dyn Memory,
    rsp: u64,
) -> Result<Option<Registers>, Unreadable> {
    let mut bytes = [0; REGISTERS_BYTES + 8 * (CS + 1)];
    memory.read(rsp, &mut bytes)?;
    let word = |place: usize| {
        let at = REGISTERS_BYTES + 8 * place;
        bytes[at..at + 8]
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    let is_user = word(CS) as u16 == USER_CS;
    Ok(is_user.then(|| Registers::all(word(RIP), PLACES.map(word))))
}
