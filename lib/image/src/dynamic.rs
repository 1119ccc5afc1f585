//! The dynamic segment: what the loader is told.
//!
//! Gives the entries as addresses; the tables themselves are read where they are needed.

use goblin::container::Ctx;
use goblin::elf::ProgramHeader;
use goblin::elf::dynamic::{
    DT_FINI, DT_FINI_ARRAY, DT_FINI_ARRAYSZ, DT_GNU_HASH, DT_HASH, DT_INIT, DT_INIT_ARRAY,
    DT_INIT_ARRAYSZ, DT_JMPREL, DT_NEEDED, DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_STRSZ, DT_STRTAB,
    DT_SYMTAB, Dynamic,
};
use sptrace_addr::Svma;

use crate::sections::string_at;
use crate::space::Space;

const DT_RELRSZ: u64 = 35;
const DT_RELR: u64 = 36;

/// Entries of the dynamic segment; absent ones are 0.
#[derive(Debug, Clone, Default)]
pub(crate) struct DynamicInfo<'data> {
    pub needed: Vec<&'data str>,
    pub init: Svma,
    pub fini: Svma,
    pub init_array: (Svma, u64),
    pub fini_array: (Svma, u64),
    pub rela: (Svma, u64),
    pub plt_rela: (Svma, u64),
    pub relr: (Svma, u64),
    pub strings: (Svma, u64),
    pub symbols: Svma,
    pub hash: Svma,
    pub gnu_hash: Svma,
}

pub(crate) fn read_dynamic<'data>(
    file: &[u8],
    headers: &[ProgramHeader],
    ctx: Ctx,
    space: &Space<'data>,
) -> DynamicInfo<'data> {
    let mut info = DynamicInfo::default();
    let Ok(Some(dynamic)) = Dynamic::parse(file, headers, ctx) else {
        return info;
    };
    let mut needed = Vec::new();
    for entry in &dynamic.dyns {
        let (value, svma) = (entry.d_val, Svma(entry.d_val));
        match entry.d_tag {
            DT_NEEDED => needed.push(value),
            DT_INIT => info.init = svma,
            DT_FINI => info.fini = svma,
            DT_INIT_ARRAY => info.init_array.0 = svma,
            DT_INIT_ARRAYSZ => info.init_array.1 = value,
            DT_FINI_ARRAY => info.fini_array.0 = svma,
            DT_FINI_ARRAYSZ => info.fini_array.1 = value,
            DT_RELA => info.rela.0 = svma,
            DT_RELASZ => info.rela.1 = value,
            DT_JMPREL => info.plt_rela.0 = svma,
            DT_PLTRELSZ => info.plt_rela.1 = value,
            DT_RELR => info.relr.0 = svma,
            DT_RELRSZ => info.relr.1 = value,
            DT_STRTAB => info.strings.0 = svma,
            DT_STRSZ => info.strings.1 = value,
            DT_SYMTAB => info.symbols = svma,
            DT_HASH => info.hash = svma,
            DT_GNU_HASH => info.gnu_hash = svma,
            _ => {}
        }
    }
    let strings = space
        .bytes_at(info.strings.0, info.strings.1)
        .unwrap_or(&[]);
    info.needed = needed
        .into_iter()
        .filter_map(|offset| string_at(strings, offset))
        .collect();
    info
}
