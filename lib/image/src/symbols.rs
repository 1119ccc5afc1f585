//! Symbols: .symtab and .dynsym, or the dynamic segment's table when there are no sections.
//!
//! Every symbol of the dynamic table is kept by index for the relocations; the list given out holds
//! only names for code.

use goblin::container::Ctx;
use goblin::elf::section_header::{SHT_DYNSYM, SHT_SYMTAB};
use goblin::elf::sym::{
    STB_GLOBAL, STB_GNU_UNIQUE, STB_WEAK, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, Sym, Symtab,
};
use sptrace_addr::Svma;

use crate::dynamic::DynamicInfo;
use crate::sections::{Section, string_at};
use crate::space::Space;

/// Size of an Elf64_Sym.
const SYMBOL_BYTES: usize = 24;

/// What a symbol stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymbolKind {
    /// STT_FUNC.
    Function,
    /// STT_GNU_IFUNC: the address is the resolver's.
    IndirectFunction,
    /// STT_NOTYPE inside code, such as assembler labels.
    Label,
}

/// A name for code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'data> {
    /// Where it is.
    pub svma: Svma,
    /// Size of what it names, 0 when not stated.
    pub size_bytes: u64,
    /// What it names.
    pub kind: SymbolKind,
    /// Global, weak or unique.
    pub is_global: bool,
    /// Its name, without version.
    pub name: &'data str,
}

/// Dynamic symbols by index: value (0 when undefined) and name.
pub(crate) type DynamicSymbols<'data> = Vec<(Svma, &'data str)>;

pub(crate) fn read_symbols<'data>(
    sections: &[Section<'data>],
    dynamic: &DynamicInfo<'data>,
    space: &Space<'data>,
    ctx: Ctx,
    is_code: &dyn Fn(Svma) -> bool,
) -> (Vec<Symbol<'data>>, DynamicSymbols<'data>) {
    let mut symbols = Vec::new();
    let mut by_index = Vec::new();
    let mut seen_dynamic = false;
    for section in sections
        .iter()
        .filter(|s| matches!(s.kind, SHT_SYMTAB | SHT_DYNSYM))
    {
        let strings = sections
            .get(section.link as usize)
            .map_or(&[][..], |s| s.bytes);
        let is_dynamic = section.kind == SHT_DYNSYM && !seen_dynamic;
        seen_dynamic |= is_dynamic;
        let by_index = is_dynamic.then_some(&mut by_index);
        read_table(section.bytes, strings, ctx, is_code, &mut symbols, by_index);
    }
    if !seen_dynamic && dynamic.symbols.0 != 0 {
        let strings = space
            .bytes_at(dynamic.strings.0, dynamic.strings.1)
            .unwrap_or(&[]);
        let table = dynamic_table(dynamic, space);
        read_table(
            table,
            strings,
            ctx,
            is_code,
            &mut symbols,
            Some(&mut by_index),
        );
    }
    add_symbols(&mut symbols, Vec::new());
    (symbols, by_index)
}

/// Adds more symbols to a list, which is sorted and has none twice afterwards.
pub(crate) fn add_symbols<'data>(symbols: &mut Vec<Symbol<'data>>, more: Vec<Symbol<'data>>) {
    symbols.extend(more);
    symbols.sort_by(|a, b| (a.svma, a.name).cmp(&(b.svma, b.name)));
    symbols.dedup_by(|later, earlier| later.svma == earlier.svma && later.name == earlier.name);
}

pub(crate) fn read_table<'data>(
    bytes: &[u8],
    strings: &'data [u8],
    ctx: Ctx,
    is_code: &dyn Fn(Svma) -> bool,
    symbols: &mut Vec<Symbol<'data>>,
    mut by_index: Option<&mut DynamicSymbols<'data>>,
) {
    let Ok(table) = Symtab::parse(bytes, 0, bytes.len() / SYMBOL_BYTES, ctx) else {
        return;
    };
    for raw in table.iter() {
        let code = code_symbol(&raw, strings, is_code);
        if let Some(by_index) = by_index.as_deref_mut() {
            let svma = if raw.st_shndx == 0 {
                Svma(0)
            } else {
                Svma(raw.st_value)
            };
            let name = match code {
                Some(symbol) => symbol.name,
                None => string_at(strings, raw.st_name as u64).unwrap_or(""),
            };
            by_index.push((svma, name));
        }
        symbols.extend(code);
    }
}

fn code_symbol<'data>(
    raw: &Sym,
    strings: &'data [u8],
    is_code: &dyn Fn(Svma) -> bool,
) -> Option<Symbol<'data>> {
    let kind = match raw.st_type() {
        STT_FUNC => SymbolKind::Function,
        STT_GNU_IFUNC => SymbolKind::IndirectFunction,
        STT_NOTYPE => SymbolKind::Label,
        _ => return None,
    };
    let svma = Svma(raw.st_value);
    if raw.st_shndx == 0 || !is_code(svma) {
        return None;
    }
    let name = string_at(strings, raw.st_name as u64).filter(|name| !name.is_empty())?;
    let is_global = matches!(raw.st_bind(), STB_GLOBAL | STB_WEAK | STB_GNU_UNIQUE);
    Some(Symbol {
        svma,
        size_bytes: raw.st_size,
        kind,
        is_global,
        name,
    })
}

/// The dynamic table has no stated size: DT_HASH counts it, else it ends where its strings begin,
/// which is how every known linker lays them out.
fn dynamic_table<'data>(dynamic: &DynamicInfo<'data>, space: &Space<'data>) -> &'data [u8] {
    let Some(tail) = space.bytes_from(dynamic.symbols) else {
        return &[];
    };
    let counted = (dynamic.hash.0 != 0)
        .then(|| space.bytes_at(Svma(dynamic.hash.0.wrapping_add(4)), 4))
        .flatten()
        .and_then(|b| b.try_into().ok())
        .map(|b| u32::from_le_bytes(b) as usize * SYMBOL_BYTES);
    let to_strings = dynamic.strings.0.0.checked_sub(dynamic.symbols.0);
    let size = counted
        .or(to_strings.and_then(|n| usize::try_from(n).ok()))
        .unwrap_or(0);
    &tail[..size.min(tail.len())]
}
