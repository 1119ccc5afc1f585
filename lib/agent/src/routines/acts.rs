//! How the slow path runs the code of a payload, which is made for the middle of a common routine.
//!
//! Given the code and the registers of the call; calls it with the stack and the registers that a
//! routine would give it. Must not know what the code does.

use core::arch::global_asm;

/// The registers of a call, as the code sees them.
#[repr(C)]
pub struct Registers {
    /// rdi, rsi, rdx, rcx, r8, r9.
    pub arguments: [u64; 6],
    /// The stack pointer before the call.
    pub rsp: u64,
    /// rax, at a return.
    pub result: u64,
    /// Lower halves of xmm0 to xmm7.
    pub vectors: [u64; 8],
    /// The number of the place that makes the call.
    pub caller: u64,
}

global_asm!(
    r#"
    .text
    .globl sptrace_run_acts
    .hidden sptrace_run_acts
    .p2align 4
sptrace_run_acts:
    mov rax, rdi
    mov r10, rsi
    push [r10+128]
    push [r10+56]
    push 0
    push [r10+24]
    push [r10+16]
    push 0
    mov rdi, [r10]
    mov rsi, [r10+8]
    mov r8, [r10+32]
    mov r9, [r10+40]
    mov rdx, [r10+48]
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7
    movq xmm\n, [r10 + 64 + 8 * \n]
    .endr
    call rax
    add rsp, 48
    ret
"#
);

unsafe extern "C" {
    fn sptrace_run_acts(code: u64, registers: *const Registers) -> u32;
}

/// Runs the code at `code`; gives what it gives.
///
/// # Safety
/// It is the part of a payload that decides, or that of a return, as `sptrace-payload` makes it; gs
/// points at the block of this thread, and signals are blocked.
pub unsafe fn run(code: u64, registers: &Registers) -> u32 {
    // SAFETY: the caller's; the code keeps to the contract of `sptrace-payload`, and changes no
    // register that a function must keep.
    unsafe { sptrace_run_acts(code, registers) }
}
