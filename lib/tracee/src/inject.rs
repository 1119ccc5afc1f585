//! Putting the agent into a process that stands at its exec stop.
//!
//! The stub is written into the vdso ([`crate::inside`]), a signal frame with the present registers
//! below the stack pointer, and one SETREGS points the process at the stub. It maps the arena and
//! the image, calls the agent and returns by rt_sigreturn (kernel: arch/x86/kernel/signal_64.c,
//! `struct rt_sigframe`), whatever failed on the way.

use crate::arena::{ARENA_AVMA, Arena};
use crate::entry::Entries;
use crate::error::TraceeError;
use crate::image::{AgentImage, IMAGE_AVMA};
use crate::inside::{self, Place, map_inside};
use crate::kill_point;
use crate::maps;
use crate::memory;
use crate::offer;
use crate::ptrace;
use sptrace_wire::control::IMAGE_BYTES;
use std::arch::global_asm;

global_asm!(
    map_inside!(),
    r#"
    .section .rodata.sptrace_stub,"a",@progbits
    .globl sptrace_stub_start, sptrace_stub_end
    .hidden sptrace_stub_start, sptrace_stub_end
    .p2align 3
sptrace_stub_start:
    MAP_INSIDE 9f, 1f
    cmp r14d, 2
    jne 5f
    mov rdi, [rip+1f]
    mov rsi, [rip+8f]
    mov rdx, [rip+8f+8]
    mov rcx, [rsp+160]  /* uc_mcontext.rsp */
    call [rip+7f]
5:  mov eax, 15
    syscall
    ud2
    .p2align 3
1:  .fill 14, 8, 0
7:  .quad 0
8:  .quad 0, 0
9:
sptrace_stub_end:
    .globl sptrace_stub_data
    .hidden sptrace_stub_data
    .set sptrace_stub_data, 1b
    .text
    .purgem MAP_INSIDE
    "#
);

unsafe extern "C" {
    static sptrace_stub_start: u8;
    static sptrace_stub_end: u8;
    static sptrace_stub_data: u8;
}

/// Words of data before the path: what is mapped, start, entries (2).
const DATA_WORDS: usize = inside::WORDS + 3;

fn stub(arena: &Arena, image: &AgentImage, entries: Entries) -> Vec<u8> {
    let start = &raw const sptrace_stub_start;
    let bytes = &raw const sptrace_stub_end as usize - start as usize;
    // SAFETY: the symbols delimit bytes of our own image.
    let mut code = unsafe { std::slice::from_raw_parts(start, bytes) }.to_vec();
    let data = &raw const sptrace_stub_data as usize - start as usize;
    let mut words = inside::words(arena, image);
    let loader = entries.loader_avma.unwrap_or(0);
    words.extend([image.start_avma, entries.program_avma, loader]);
    assert!(words.len() == DATA_WORDS && code.len() == data + DATA_WORDS * 8);
    code.truncate(data);
    code.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    code.extend(arena.path().as_bytes());
    code.push(0);
    code
}

/// The `ucontext` of a signal frame that restores `regs` and `mask`.
fn signal_frame(regs: &libc::user_regs_struct, mask: u64) -> Vec<u8> {
    const SS_DISABLE: u64 = 2;
    const STRICT_SS: u64 = 6;
    let r = regs;
    let selectors = r.cs & 0xffff | (r.ss & 0xffff) << 48;
    let mut words = vec![STRICT_SS, 0, 0, SS_DISABLE, 0];
    words.extend([r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15]);
    words.extend([
        r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, r.rax, r.rcx, r.rsp, r.rip, r.eflags,
    ]);
    words.extend([selectors, 0, 0, 0, 0, 0]);
    words.extend([0; 8]);
    words.push(mask);
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Injects into the stopped process `pid`, and lets it go.
/// On an error the process is untouched and still stopped.
///
/// # Errors
/// No room, or the process is gone.
pub fn inject(
    pid: u32,
    arena: &Arena,
    image: &AgentImage,
    entries: Entries,
) -> Result<(), TraceeError> {
    let maps = maps::read(pid)?;
    if !maps::is_free(&maps, IMAGE_AVMA, IMAGE_BYTES)
        || !maps::is_free(&maps, ARENA_AVMA, arena.bytes())
    {
        return Err(TraceeError::NoRoom("the arena's place is taken"));
    }
    let memory = memory::open_to_write(pid)?;
    let mut regs = ptrace::registers(pid)?;
    let frame = signal_frame(&regs, ptrace::signal_mask(pid)?);
    let code = stub(arena, image, entries);
    let place = Place::find(&memory, &maps, code.len())?;
    if !place.is_unused {
        return Err(TraceeError::NoRoom("the vdso has no unused end"));
    }
    // Below the red zone, aligned so that the stub may call.
    let frame_at = (regs.rsp - 128 - frame.len() as u64) & !63;
    inside::write(&memory, &code, place.start)?;
    inside::write(&memory, &frame, frame_at)?;
    regs.rsp = frame_at;
    regs.rip = place.start;
    regs.orig_rax = u64::MAX;
    ptrace::set_registers(pid, &regs)?;
    // From here on it goes on by itself, whatever becomes of us.
    offer::give(pid, pid, &memory, arena)?;
    kill_point::through_stub(pid)?;
    ptrace::detach(pid, 0)
}
