//! The agent's image: parsed, relocated for its fixed place, and laid out in the arena.
//!
//! Given the bytes of the cdylib built from bin/agent. Only R_X86_64_RELATIVE relocations, no
//! NEEDED, no TLS: anything else is our own build's mistake and refused.

use crate::arena::{ARENA_AVMA, Arena};
use crate::error::TraceeError;
use sptrace_wire::control::{IMAGE_BEFORE_BYTES, IMAGE_BYTES, IMAGE_OFFSET};

/// Where the image lies in every tracee.
pub const IMAGE_AVMA: u64 = ARENA_AVMA - IMAGE_BEFORE_BYTES;

/// One mapping of the image.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segment {
    /// Page-aligned offset in the image (and, plus IMAGE_OFFSET, in the arena).
    pub offset: u64,
    /// Bytes, page-aligned.
    pub bytes: u64,
    /// PROT_* bits.
    pub prot: u64,
}

/// What the stub needs to know.
#[derive(Clone, Debug)]
pub struct AgentImage {
    /// Exactly three mappings: read-only, executable, writable.
    pub segments: [Segment; 3],
    /// Address of `sptrace_start`.
    pub start_avma: u64,
    /// Address of `sptrace_command`.
    pub command_avma: u64,
}

fn u16_at(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u16::from_le_bytes(
        b.get(at..at + 2)?.try_into().ok()?,
    )))
}
fn u32_at(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u32::from_le_bytes(
        b.get(at..at + 4)?.try_into().ok()?,
    )))
}
fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(b.get(at..at + 8)?.try_into().ok()?))
}

/// Relocates `elf` and writes it into the arena.
///
/// # Errors
/// The image is not of the form that our build makes.
pub fn load(arena: &Arena, elf: &[u8]) -> Result<AgentImage, TraceeError> {
    load_checked(arena, elf).ok_or(TraceeError::Image("unexpected ELF structure"))
}

fn load_checked(arena: &Arena, elf: &[u8]) -> Option<AgentImage> {
    let mut memory = vec![0u8; IMAGE_BYTES as usize];
    let (segments, dynamic_at) = lay_out(elf, &mut memory)?;
    let dynamic = Dynamic::read(&memory, dynamic_at)?;
    dynamic.relocate(&mut memory)?;
    let start = dynamic.find(&memory, b"sptrace_start\0")?;
    let command = dynamic.find(&memory, b"sptrace_command\0")?;
    // What lies behind the segments is zero in the arena, too, and is not touched.
    let ends = segments.iter().map(|s| s.offset + s.bytes);
    arena.write(IMAGE_OFFSET, memory.get(..ends.max()? as usize)?);
    Some(AgentImage {
        segments: segments.try_into().ok()?,
        start_avma: IMAGE_AVMA + start,
        command_avma: IMAGE_AVMA + command,
    })
}

/// Puts the segments to load where they belong; gives them, and where the dynamic section is.
fn lay_out(elf: &[u8], memory: &mut [u8]) -> Option<(Vec<Segment>, usize)> {
    const PT_LOAD: u64 = 1;
    const PT_DYNAMIC: u64 = 2;
    let (phoff, phnum) = (u64_at(elf, 32)? as usize, u16_at(elf, 56)? as usize);
    let mut segments = Vec::new();
    let mut dynamic_at = None;
    for i in 0..phnum {
        let p = phoff + i * 56;
        let (kind, flags) = (u32_at(elf, p)?, u32_at(elf, p + 4)?);
        let (offset, vaddr) = (u64_at(elf, p + 8)? as usize, u64_at(elf, p + 16)?);
        let (filesz, memsz) = (u64_at(elf, p + 32)? as usize, u64_at(elf, p + 40)?);
        if kind == PT_LOAD {
            let to = memory.get_mut(vaddr as usize..vaddr as usize + filesz)?;
            to.copy_from_slice(elf.get(offset..offset + filesz)?);
            let start = vaddr & !4095;
            let end = (vaddr + memsz + 4095) & !4095;
            let prot = (flags >> 2 & 1) | (flags & 2) | (flags & 1) << 2;
            segments.push(Segment {
                offset: start,
                bytes: end - start,
                prot,
            });
        } else if kind == PT_DYNAMIC {
            dynamic_at = Some(vaddr as usize);
        }
    }
    Some((segments, dynamic_at?))
}

/// What the dynamic section says: where in the image its tables lie.
#[derive(Default)]
struct Dynamic {
    rela: usize,
    rela_bytes: usize,
    symtab: usize,
    strtab: usize,
    hash: usize,
}

impl Dynamic {
    fn read(memory: &[u8], mut at: usize) -> Option<Self> {
        let mut found = Self::default();
        loop {
            let (tag, value) = (u64_at(memory, at)?, u64_at(memory, at + 8)? as usize);
            match tag {
                0 => return Some(found),
                // DT_NEEDED
                1 => return None,
                4 => found.hash = value,
                5 => found.strtab = value,
                6 => found.symtab = value,
                7 => found.rela = value,
                8 => found.rela_bytes = value,
                _ => {}
            }
            at += 16;
        }
    }

    /// Makes the image what it is at its place.
    fn relocate(&self, memory: &mut [u8]) -> Option<()> {
        const R_X86_64_RELATIVE: u64 = 8;
        for at in (self.rela..self.rela + self.rela_bytes).step_by(24) {
            let (offset, info) = (u64_at(memory, at)? as usize, u64_at(memory, at + 8)?);
            let addend = u64_at(memory, at + 16)?;
            if info & 0xffff_ffff != R_X86_64_RELATIVE {
                return None;
            }
            let value = (IMAGE_AVMA + addend).to_le_bytes();
            memory.get_mut(offset..offset + 8)?.copy_from_slice(&value);
        }
        Some(())
    }

    /// Where the symbol of this name (with its final NUL) lies.
    fn find(&self, memory: &[u8], wanted: &[u8]) -> Option<u64> {
        let symbols = u32_at(memory, self.hash + 4)? as usize;
        (0..symbols).find_map(|i| {
            let s = self.symtab + i * 24;
            let name = self.strtab + u32_at(memory, s)? as usize;
            let found = memory.get(name..)?.starts_with(wanted);
            found.then(|| u64_at(memory, s + 8)).flatten()
        })
    }
}
