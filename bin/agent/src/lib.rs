//! The image put into the traced program: an entry point around `sptrace-agent`, and the few
//! symbols that a freestanding image must bring itself. Its own workspace, because it needs
//! panic=abort and the command does not.
#![no_std]

use core::arch::asm;

use sptrace_agent::memory::live;

/// Called by the bootstrap stub. `arena`: the mapped arena; `entry`: where the program begins;
/// `loader_entry`: where ld.so begins, or 0; `stack_top`: the program's first stack pointer.
///
/// # Safety
/// Called once, before the program runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sptrace_start(
    arena: *mut u8,
    entry: u64,
    loader_entry: u64,
    stack_top: u64,
) {
    // SAFETY: the stub's duty.
    unsafe { sptrace_agent::life::start::start(arena, entry, loader_entry, stack_top) }
}

/// Bytes of the stack on which commands run.
const STACK_BYTES: usize = 64 << 10;

#[repr(C, align(64))]
struct Stack([u8; STACK_BYTES]);

static mut STACK: Stack = Stack([0; STACK_BYTES]);

/// Where the carrier comes in, in the middle of the program: `arena` in rdi, the command's offset
/// in rsi, and in r14 where it goes on. Changes no stack but its own, and keeps x87 and xmm;
/// general registers are the carrier's to restore.
///
/// # Safety
/// The carrier's duty: signals are blocked, one at a time.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn sptrace_command() {
    core::arch::naked_asm!(
        "cld",
        "lea rsp, [rip+{stack}+{bytes}-512]",
        "fxsave64 [rsp]",
        "call {command}",
        "fxrstor64 [rsp]",
        "jmp r14",
        stack = sym STACK,
        bytes = const STACK_BYTES,
        command = sym command,
    )
}

unsafe extern "C" fn command(arena: *mut u8, block: *mut sptrace_wire::attach::AttachBlock) {
    // SAFETY: the carrier's duty.
    unsafe { sptrace_agent::life::attach::command(arena, block) }
}

/// No panic can be reached; should one be, the thread must not run on in an unknown state.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        // SAFETY: an illegal instruction on purpose.
        unsafe { asm!("ud2") };
    }
}

#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Copies from the first byte on: what is copied to may begin before what is copied from ends.
///
/// # Safety
/// Both ranges are there.
unsafe fn copy_forward(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's ranges.
    unsafe {
        asm!("rep movsb", inout("rcx") n => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack, preserves_flags));
    }
}

/// # Safety
/// memcpy(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the caller's ranges.
    unsafe {
        match n {
            // The instruction is slow to begin, and most of what the agent copies is short.
            ..=live::SHORT => live::copy_short(from as u64, to, n),
            _ => copy_forward(to, from, n),
        }
    }
    to
}

/// # Safety
/// memset(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memset(to: *mut u8, value: i32, n: usize) -> *mut u8 {
    // SAFETY: the caller's range.
    unsafe {
        asm!("rep stosb", inout("rcx") n => _, inout("rdi") to => _, in("al") value as u8, options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// memmove(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the caller's ranges; backwards when they overlap that way.
    unsafe {
        if (to as usize).wrapping_sub(from as usize) >= n {
            copy_forward(to, from, n);
            return to;
        }
        let mut i = n;
        while i > 0 {
            i -= 1;
            to.add(i).write_volatile(from.add(i).read_volatile());
        }
    }
    to
}

/// # Safety
/// memcmp(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: the caller's ranges.
    unsafe {
        for i in 0..n {
            let (x, y) = (a.add(i).read_volatile(), b.add(i).read_volatile());
            if x != y {
                return x as i32 - y as i32;
            }
        }
    }
    0
}

/// # Safety
/// bcmp(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: the caller's ranges.
    unsafe { memcmp(a, b, n) }
}
