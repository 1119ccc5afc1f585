//! Section headers, where a file has them.
//!
//! A file without section headers, or with headers that lie outside it, has no sections: the other
//! readers then go by the dynamic segment.

use goblin::container::Ctx;
use goblin::elf::Header;
use goblin::elf::section_header::{
    SHF_ALLOC, SHF_EXECINSTR, SHN_XINDEX, SHT_NOBITS, SHT_PROGBITS, SectionHeader,
};
use sptrace_addr::Svma;

/// One section.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section<'data> {
    pub name: &'data str,
    pub kind: u32,
    pub flags: u64,
    pub svma: Svma,
    pub size_bytes: u64,
    pub link: u32,
    /// File bytes; empty when they lie outside the file or the section has none.
    pub bytes: &'data [u8],
}

impl Section<'_> {
    pub fn is_loaded(&self) -> bool {
        self.flags & u64::from(SHF_ALLOC) != 0
    }

    pub fn is_code(&self) -> bool {
        let wanted = u64::from(SHF_ALLOC | SHF_EXECINSTR);
        self.kind == SHT_PROGBITS && self.flags & wanted == wanted
    }
}

pub(crate) fn read_sections<'data>(
    file: &'data [u8],
    header: &Header,
    ctx: Ctx,
) -> Vec<Section<'data>> {
    let Ok(offset) = usize::try_from(header.e_shoff) else {
        return Vec::new();
    };
    if offset == 0 || offset >= file.len() {
        return Vec::new();
    }
    let count = usize::from(header.e_shnum);
    let Ok(headers) = SectionHeader::parse(file, offset, count, ctx) else {
        return Vec::new();
    };
    let names_index = match u32::from(header.e_shstrndx) {
        SHN_XINDEX => headers.first().map_or(0, |h| h.sh_link),
        index => index,
    };
    let names = headers
        .get(names_index as usize)
        .map_or(&[][..], |h| section_bytes(file, h));
    headers
        .iter()
        .map(|h| Section {
            name: string_at(names, h.sh_name as u64).unwrap_or(""),
            kind: h.sh_type,
            flags: h.sh_flags,
            svma: Svma(h.sh_addr),
            size_bytes: h.sh_size,
            link: h.sh_link,
            bytes: section_bytes(file, h),
        })
        .collect()
}

fn section_bytes<'data>(file: &'data [u8], header: &SectionHeader) -> &'data [u8] {
    if header.sh_type == SHT_NOBITS {
        return &[];
    }
    let range = usize::try_from(header.sh_offset)
        .ok()
        .zip(usize::try_from(header.sh_size).ok())
        .and_then(|(start, size)| Some(start..start.checked_add(size)?));
    range.and_then(|r| file.get(r)).unwrap_or(&[])
}

/// The longest name that is read: a table without terminators must not cost its size per name.
const LONGEST_NAME_BYTES: usize = 8 * 1024;

/// The NUL-terminated string at `offset` of a string table.
pub(crate) fn string_at(table: &[u8], offset: u64) -> Option<&str> {
    let tail = table.get(usize::try_from(offset).ok()?..)?;
    let tail = &tail[..tail.len().min(LONGEST_NAME_BYTES)];
    let end = tail.iter().position(|&b| b == 0)?;
    std::str::from_utf8(&tail[..end]).ok()
}
