//! Putting the agent into a process that stands at its exec stop.
//!
//! The stub is written into the unused end of the vdso's last page (private to the process once
//! written, executable, never looked at), a signal frame with the present registers below the
//! stack pointer, and one SETREGS points the process at the stub. It maps the arena and the image,
//! calls the agent and returns by rt_sigreturn (kernel: arch/x86/kernel/signal_64.c,
//! `struct rt_sigframe`), whatever failed on the way.

use crate::arena::{ARENA_AVMA, Arena};
use crate::error::TraceeError;
use crate::image::{AgentImage, IMAGE_AVMA};
use crate::kill_point;
use crate::maps::{self, Mapping};
use crate::ptrace;
use sptrace_wire::control::{ARENA_BYTES, IMAGE_BYTES, IMAGE_OFFSET};
use std::arch::global_asm;
use std::os::unix::fs::FileExt;

global_asm!(
    r#"
    .section .rodata.sptrace_stub,"a",@progbits
    .globl sptrace_stub_start, sptrace_stub_end
    .hidden sptrace_stub_start, sptrace_stub_end
    .p2align 3
sptrace_stub_start:
    lea rdi, [rip+9f]
    mov esi, 0x80002
    xor edx, edx
    mov eax, 2
    syscall
    test eax, eax
    js 5f
    mov r15d, eax
    xor r14d, r14d
    mov rdi, [rip+1f]
    mov rsi, [rip+1f+8]
    mov edx, 3
    mov r10d, 0x104001
    mov r8d, r15d
    xor r9d, r9d
    mov eax, 9
    syscall
    cmp rax, [rip+1f]
    jne 4f
    lea rbx, [rip+2f]
    mov ebp, 3
3:  mov rdi, [rbx]
    mov rsi, [rbx+8]
    mov rdx, [rbx+16]
    mov r9, [rbx+24]
    mov r10d, 0x100002
    mov r8d, r15d
    mov eax, 9
    syscall
    cmp rax, [rbx]
    jne 4f
    add rbx, 32
    dec ebp
    jnz 3b
    inc r14d
4:  mov edi, r15d
    mov eax, 3
    syscall
    test r14d, r14d
    jz 5f
    mov rdi, [rip+1f]
    mov rsi, [rip+8f]
    mov rdx, [rip+8f+8]
    mov rcx, [rsp+160]  /* uc_mcontext.rsp */
    call [rip+7f]
5:  mov eax, 15
    syscall
    ud2
    .p2align 3
1:  .quad 0, 0
2:  .fill 12, 8, 0
7:  .quad 0
8:  .quad 0, 0
9:
sptrace_stub_end:
    .globl sptrace_stub_data
    .hidden sptrace_stub_data
    .set sptrace_stub_data, 1b
    .text
    "#
);

unsafe extern "C" {
    static sptrace_stub_start: u8;
    static sptrace_stub_end: u8;
    static sptrace_stub_data: u8;
}

/// Words of data before the path: arena (2), segments (12), start, entries (2).
const DATA_WORDS: usize = 17;

fn stub(arena: &Arena, image: &AgentImage, entries: [u64; 2]) -> Vec<u8> {
    let start = &raw const sptrace_stub_start;
    let bytes = &raw const sptrace_stub_end as usize - start as usize;
    // SAFETY: the symbols delimit bytes of our own image.
    let mut code = unsafe { std::slice::from_raw_parts(start, bytes) }.to_vec();
    let data = &raw const sptrace_stub_data as usize - start as usize;
    let mut words = vec![ARENA_AVMA, ARENA_BYTES];
    for s in &image.segments {
        words.extend([
            IMAGE_AVMA + s.offset,
            s.bytes,
            s.prot,
            IMAGE_OFFSET + s.offset,
        ]);
    }
    words.extend([image.start_avma, entries[0], entries[1]]);
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

/// A place for `bytes` of stub at the end of the vdso.
fn place_for_stub(
    memory: &std::fs::File,
    maps: &[Mapping],
    bytes: usize,
) -> Result<u64, TraceeError> {
    let vdso = maps
        .iter()
        .find(|m| m.path == "[vdso]")
        .ok_or(TraceeError::NoRoom("no vdso"))?;
    let at = (vdso.end - bytes as u64) & !15;
    let mut there = vec![0u8; (vdso.end - at) as usize];
    kill_point::around("reading the vdso", || memory.read_exact_at(&mut there, at)).map_err(
        |source| TraceeError::System {
            what: "reading the vdso",
            source,
        },
    )?;
    if there.iter().any(|b| *b != 0) {
        return Err(TraceeError::NoRoom("the vdso has no unused end"));
    }
    Ok(at)
}

/// Injects into the stopped process `pid`, and lets it go. `entries`: where its program will begin,
/// and where ld.so begins or 0.
/// On an error the process is untouched and still stopped.
///
/// # Errors
/// No room, or the process is gone.
pub fn inject(
    pid: u32,
    arena: &Arena,
    image: &AgentImage,
    entries: [u64; 2],
) -> Result<(), TraceeError> {
    let maps = maps::read(pid)?;
    if !maps::is_free(&maps, IMAGE_AVMA, IMAGE_BYTES)
        || !maps::is_free(&maps, ARENA_AVMA, ARENA_BYTES)
    {
        return Err(TraceeError::NoRoom("the arena's place is taken"));
    }
    let mut how = std::fs::OpenOptions::new();
    how.read(true).write(true);
    let memory = kill_point::around("opening memory", || how.open(format!("/proc/{pid}/mem")))
        .map_err(|source| TraceeError::System {
            what: "opening /proc/PID/mem",
            source,
        })?;
    let write = |bytes: &[u8], at: u64| {
        kill_point::around("writing memory", || memory.write_all_at(bytes, at)).map_err(|source| {
            TraceeError::System {
                what: "writing the process's memory",
                source,
            }
        })
    };
    let mut regs = ptrace::registers(pid)?;
    let frame = signal_frame(&regs, ptrace::signal_mask(pid)?);
    let code = stub(arena, image, entries);
    let at = place_for_stub(&memory, &maps, code.len())?;
    // Below the red zone, aligned so that the stub may call.
    let frame_at = (regs.rsp - 128 - frame.len() as u64) & !63;
    write(&code, at)?;
    write(&frame, frame_at)?;
    regs.rsp = frame_at;
    regs.rip = at;
    regs.orig_rax = u64::MAX;
    ptrace::set_registers(pid, &regs)?;
    kill_point::through_stub(pid)?;
    ptrace::detach(pid, 0)
}
