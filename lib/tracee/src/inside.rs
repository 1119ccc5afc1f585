//! What code of ours that a process runs needs: a place, and the way from there to arena and image.
//!
//! The place is the unused end of the vdso's last page: private to the process once written,
//! executable, never looked at. There the code finds where everything goes, takes the arena from a
//! socket and maps it. Must not know who runs the code, and what it does then.

use crate::arena::{ARENA_AVMA, Arena};
use crate::error::TraceeError;
use crate::image::{AgentImage, IMAGE_AVMA};
use crate::kill_point;
use crate::maps::Mapping;
use sptrace_wire::control::IMAGE_OFFSET;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The assembler macro MAP_INSIDE. Who uses it takes it away again (`.purgem`).
macro_rules! map_inside {
    () => {
        r#"
    /* Maps what [`words`] at `data` say. The arena comes through a socket of the process's own, of which the host
       takes the other end ([`crate::offer`]); nobody waits for it. Without, the file at `path` is opened.
       r14d: 0 nothing, 1 the arena, 2 all is mapped. */
    .macro MAP_INSIDE path, data
    xor r14d, r14d
    or r15d, -1
    xor edi, edi
    mov esi, 4096
    mov edx, 3
    mov r10d, 0x22
    or r8, -1
    xor r9d, r9d
    mov eax, 9
    syscall
    mov r13, rax        /* a page, or an error: then no address, which the next call refuses */
    mov edi, 1
    mov esi, 0x80801
    xor edx, edx
    mov r10, rax
    mov eax, 53
    syscall
    test eax, eax
    jnz .Lby_path\@
    mov edi, [r13+4]    /* the host has its own of this end */
    mov eax, 3
    syscall
    lea rax, [r13+160]  /* struct msghdr at 64, iovec at 128, a byte at 160, control data at 192 */
    mov [r13+128], rax
    inc dword ptr [r13+136]
    lea rax, [r13+128]
    mov [r13+80], rax
    inc dword ptr [r13+88]
    lea rax, [r13+192]
    mov [r13+96], rax
    mov byte ptr [r13+104], 24
    mov edi, [r13]
    lea rsi, [r13+64]
    mov edx, 0x40000040
    mov eax, 47
    syscall
    cmp eax, 1
    jne .Lclose_end\@
    cmp dword ptr [r13+192], 20
    jne .Lclose_end\@
    mov r15d, [r13+208]
.Lclose_end\@:
    mov edi, [r13]
    mov eax, 3
    syscall
.Lby_path\@:
    mov rdi, r13
    mov esi, 4096
    mov eax, 11
    syscall
    test r15d, r15d
    jns .Lmap\@
    lea rdi, [rip+\path]
    mov esi, 0x80002
    xor edx, edx
    mov eax, 2
    syscall
    test eax, eax
    js .Lmapped\@
    mov r15d, eax
.Lmap\@:
    mov rdi, [rip+\data]
    mov rsi, [rip+\data+8]
    mov edx, 3
    mov r10d, 0x104001
    mov r8d, r15d
    xor r9d, r9d
    mov eax, 9
    syscall
    cmp rax, rdi
    jne .Lclose\@
    inc r14d
    lea rbx, [rip+\data+16]
    mov ebp, 3
.Lsegment\@:
    mov rdi, [rbx]
    mov rsi, [rbx+8]
    mov rdx, [rbx+16]
    mov r9, [rbx+24]
    mov r10d, 0x100002
    mov r8d, r15d
    mov eax, 9
    syscall
    cmp rax, [rbx]
    jne .Lclose\@
    add rbx, 32
    dec ebp
    jnz .Lsegment\@
    inc r14d
.Lclose\@:
    mov edi, r15d
    mov eax, 3
    syscall
.Lmapped\@:
    .endm
"#
    };
}
pub(crate) use map_inside;

/// Of [`words`].
pub const WORDS: usize = 14;

/// The arena (place, bytes), and the image's segments (place, bytes, protection, offset in the
/// arena's file).
pub fn words(arena: &Arena, image: &AgentImage) -> Vec<u64> {
    let mut words = vec![ARENA_AVMA, arena.bytes()];
    for s in &image.segments {
        let (place, offset) = (IMAGE_AVMA + s.offset, IMAGE_OFFSET + s.offset);
        words.extend([place, s.bytes, s.prot, offset]);
    }
    words
}

/// Writes code of ours, or what it needs.
///
/// # Errors
/// The process is gone.
pub fn write(memory: &File, bytes: &[u8], at: u64) -> Result<(), TraceeError> {
    let result = kill_point::around("writing memory", || memory.write_all_at(bytes, at));
    result.map_err(|source| TraceeError::System {
        what: "writing the process's memory",
        source,
    })
}

/// Where code of so many bytes goes, from where to where.
pub struct Place {
    /// Its first byte.
    pub start: u64,
    /// Behind its last.
    pub end: u64,
    /// Nothing is there.
    pub is_unused: bool,
}

impl Place {
    /// Finds it.
    ///
    /// # Errors
    /// There is no vdso, or the process is gone.
    pub fn find(memory: &File, maps: &[Mapping], bytes: usize) -> Result<Self, TraceeError> {
        let vdso = maps.iter().find(|m| m.path == "[vdso]");
        let end = vdso.ok_or(TraceeError::NoRoom("no vdso"))?.end;
        let start = (end - bytes as u64) & !15;
        let mut there = vec![0u8; (end - start) as usize];
        kill_point::around("reading the vdso", || {
            memory.read_exact_at(&mut there, start)
        })
        .map_err(|source| TraceeError::System {
            what: "reading the vdso",
            source,
        })?;
        Ok(Self {
            start,
            end,
            is_unused: there.iter().all(|b| *b == 0),
        })
    }
}
