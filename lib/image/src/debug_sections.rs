//! Sections with debug information, as they stand in a file.
//!
//! Given the bytes of an image or of a debug file; gives names and bytes. Must not know what is in
//! them, nor how to inflate those that are compressed.

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::section_header::SHF_COMPRESSED;

use crate::headers::read_any_header;
use crate::sections::read_sections;

/// A section.
#[derive(Clone, Copy, Debug)]
pub struct DebugSection<'data> {
    /// Its name.
    pub name: &'data str,
    /// Its bytes; if it is compressed, an Elf64_Chdr stands before them.
    pub bytes: &'data [u8],
    /// SHF_COMPRESSED.
    pub is_compressed: bool,
}

/// The sections `.debug_*` of a file; none if it is no such file.
pub fn debug_sections(file: &[u8]) -> Vec<DebugSection<'_>> {
    let Ok(header) = read_any_header(file) else {
        return Vec::new();
    };
    let ctx = Ctx::new(Container::Big, Endian::Little);
    let wanted = |name: &str| name.starts_with(".debug_");
    let sections = read_sections(file, &header, ctx).into_iter();
    let chosen = sections.filter(|s| wanted(s.name) && !s.bytes.is_empty());
    chosen
        .map(|s| DebugSection {
            name: s.name,
            bytes: s.bytes,
            is_compressed: s.flags & u64::from(SHF_COMPRESSED) != 0,
        })
        .collect()
}
