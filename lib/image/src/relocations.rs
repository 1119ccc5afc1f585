//! Relocations that put code pointers into data, and those that fill GOT slots.
//!
//! Source: x86-64 psABI, "Relocation"; RELR: generic ABI proposal "SHT_RELR". RELA from loaded
//! sections (a static executable has IRELATIVE ones and no dynamic segment), else from DT_RELA and
//! DT_JMPREL.

use std::collections::HashMap;

use goblin::container::Ctx;
use goblin::elf::RelocSection;
use goblin::elf::reloc::{
    R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_IRELATIVE, R_X86_64_JUMP_SLOT, R_X86_64_RELATIVE,
    R_X86_64_TLSDESC,
};
use goblin::elf::section_header::SHT_RELA;
use sptrace_addr::Svma;

use crate::dynamic::DynamicInfo;
use crate::sections::Section;
use crate::space::Space;
use crate::symbols::DynamicSymbols;

const SHT_RELR: u32 = 19;

/// A word of data that will hold an address of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodePointer {
    /// The word.
    pub slot: Svma,
    /// What it will point at (of an IFUNC: the resolver).
    pub target: Svma,
}

/// What fills a GOT slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotContent<'data> {
    Named(&'data str),
    Resolver(Svma),
}

#[derive(Debug, Default)]
pub(crate) struct Relocations<'data> {
    /// Sorted by slot.
    pub code_pointers: Vec<CodePointer>,
    pub slots: HashMap<Svma, SlotContent<'data>>,
    /// Some fill descriptors of thread-local storage.
    pub has_tls_descriptors: bool,
}

impl<'data> Relocations<'data> {
    /// Slots filled by a named symbol, sorted by slot.
    pub fn slot_names(&self) -> Vec<(Svma, &'data str)> {
        let mut names: Vec<_> = self
            .slots
            .iter()
            .filter_map(|(slot, content)| match content {
                SlotContent::Named(name) if !name.is_empty() => Some((*slot, *name)),
                _ => None,
            })
            .collect();
        names.sort_unstable();
        names
    }
}

pub(crate) fn read_relocations<'data>(
    sections: &[Section<'data>],
    dynamic: &DynamicInfo<'data>,
    space: &Space<'data>,
    symbols: &DynamicSymbols<'data>,
    ctx: Ctx,
    is_code: &dyn Fn(Svma) -> bool,
) -> Relocations<'data> {
    let mut out = Relocations::default();
    let mut tables: Vec<&[u8]> = sections
        .iter()
        .filter(|s| s.kind == SHT_RELA && s.is_loaded())
        .map(|s| s.bytes)
        .collect();
    if tables.is_empty() {
        for (svma, size_bytes) in [dynamic.rela, dynamic.plt_rela] {
            tables.extend(space.bytes_at(svma, size_bytes));
        }
    }
    for table in tables {
        read_rela(table, symbols, ctx, is_code, &mut out);
    }
    let relr = sections
        .iter()
        .find(|s| s.kind == SHT_RELR && s.is_loaded())
        .map(|s| s.bytes)
        .or_else(|| space.bytes_at(dynamic.relr.0, dynamic.relr.1));
    read_relr(relr.unwrap_or(&[]), space, is_code, &mut out.code_pointers);
    out.code_pointers.sort_unstable();
    out.code_pointers.dedup();
    out
}

fn read_rela<'data>(
    table: &[u8],
    symbols: &DynamicSymbols<'data>,
    ctx: Ctx,
    is_code: &dyn Fn(Svma) -> bool,
    out: &mut Relocations<'data>,
) {
    let whole_bytes = table.len() / 24 * 24;
    let Ok(relocations) = RelocSection::parse(table, 0, whole_bytes, true, ctx) else {
        return;
    };
    for relocation in relocations.iter() {
        let slot = Svma(relocation.r_offset);
        let addend = relocation.r_addend.unwrap_or(0) as u64;
        let symbol = symbols.get(relocation.r_sym).copied();
        let target = match relocation.r_type {
            R_X86_64_RELATIVE => addend,
            R_X86_64_IRELATIVE => {
                out.slots.insert(slot, SlotContent::Resolver(Svma(addend)));
                addend
            }
            R_X86_64_64 | R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT => {
                let Some((value, name)) = symbol else {
                    continue;
                };
                if relocation.r_type != R_X86_64_64 {
                    out.slots.insert(slot, SlotContent::Named(name));
                }
                match value {
                    Svma(0) => continue,
                    value => value.0.wrapping_add(addend),
                }
            }
            R_X86_64_TLSDESC => {
                out.has_tls_descriptors = true;
                continue;
            }
            _ => continue,
        };
        if is_code(Svma(target)) {
            out.code_pointers.push(CodePointer {
                slot,
                target: Svma(target),
            });
        }
    }
}

/// An even word is an address to relocate; an odd one is a bitmap over the next 63 words.
fn read_relr(
    table: &[u8],
    space: &Space<'_>,
    is_code: &dyn Fn(Svma) -> bool,
    out: &mut Vec<CodePointer>,
) {
    let mut take = |slot: u64| {
        let target = space.read_u64(Svma(slot)).map(Svma);
        if let Some(target) = target.filter(|t| is_code(*t)) {
            out.push(CodePointer {
                slot: Svma(slot),
                target,
            });
        }
    };
    let mut next = 0u64;
    for entry in table
        .chunks_exact(8)
        .filter_map(|c| Some(u64::from_le_bytes(c.try_into().ok()?)))
    {
        if entry & 1 == 0 {
            take(entry);
            next = entry.wrapping_add(8);
        } else {
            for bit in (0..63u64).filter(|bit| entry >> (bit + 1) & 1 == 1) {
                take(next.wrapping_add(8 * bit));
            }
            next = next.wrapping_add(63 * 8);
        }
    }
}
