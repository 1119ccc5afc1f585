//! PLT stubs: which GOT slot each jumps through, and whose slot that is.
//!
//! A stub is `[endbr64] [bnd] jmp [rip+slot]`, at a multiple of 8 (.plt.got of old linkers) or 16.
//! Without section headers stubs are looked for in all code, and only those are taken whose slot a
//! JUMP_SLOT, GLOB_DAT or IRELATIVE relocation fills.

use std::collections::HashMap;

use sptrace_addr::Svma;

use crate::relocations::SlotContent;
use crate::space::CodeRange;
use crate::symbols::Symbol;

/// One PLT stub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PltStub<'data> {
    /// The stub.
    pub stub: Svma,
    /// Bytes from the stub's start to the end of its jump.
    pub size_bytes: u8,
    /// The GOT slot it jumps through.
    pub got_slot: Svma,
    /// Symbol that fills the slot (of an IRELATIVE one: a symbol at its resolver).
    pub name: Option<&'data str>,
}

pub(crate) fn find_stubs<'data>(
    ranges: &[CodeRange<'data>],
    slots: &HashMap<Svma, SlotContent<'data>>,
    symbols: &[Symbol<'data>],
) -> Vec<PltStub<'data>> {
    let has_plt = ranges.iter().any(|r| r.is_plt);
    let mut stubs = Vec::new();
    for range in ranges.iter().filter(|r| r.is_plt || !has_plt) {
        let mut offset = (range.start.0.next_multiple_of(8) - range.start.0) as usize;
        while offset < range.bytes.len() {
            let svma = Svma(range.start.0 + offset as u64);
            offset += 8;
            let Some((got_slot, size_bytes)) = decode_stub(&range.bytes[offset - 8..], svma) else {
                continue;
            };
            let content = slots.get(&got_slot);
            if content.is_none() && !range.is_plt {
                continue;
            }
            let name = content.and_then(|content| slot_name(*content, symbols));
            stubs.push(PltStub {
                stub: svma,
                size_bytes,
                got_slot,
                name,
            });
            offset += if size_bytes > 8 { 8 } else { 0 };
        }
    }
    stubs
}

fn decode_stub(bytes: &[u8], svma: Svma) -> Option<(Svma, u8)> {
    let after_endbr = bytes
        .strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa])
        .unwrap_or(bytes);
    let after_bnd = after_endbr.strip_prefix(&[0xf2]).unwrap_or(after_endbr);
    let displacement = after_bnd.strip_prefix(&[0xff, 0x25])?.get(..4)?;
    let displacement = i32::from_le_bytes(displacement.try_into().ok()?);
    let size = (bytes.len() - after_bnd.len() + 6) as u64;
    let slot = svma
        .0
        .wrapping_add(size)
        .wrapping_add_signed(i64::from(displacement));
    Some((Svma(slot), size as u8))
}

fn slot_name<'data>(content: SlotContent<'data>, symbols: &[Symbol<'data>]) -> Option<&'data str> {
    match content {
        SlotContent::Named(name) => Some(name).filter(|name| !name.is_empty()),
        SlotContent::Resolver(svma) => {
            let first = symbols.partition_point(|s| s.svma < svma);
            symbols
                .get(first)
                .filter(|s| s.svma == svma)
                .map(|s| s.name)
        }
    }
}
