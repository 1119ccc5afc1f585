//! Only the unwind tables of an image, and the addresses that they speak of.
//!
//! For a stack walker, that needs the tables of every module of a process at once and nothing else:
//! reading them costs microseconds, where [`crate::Object::parse`] reads the whole file. Is given
//! the bytes of a file, or of an image in memory that lies as in its file (the vdso). Gives
//! sections as bytes; entries are not looked at. Knows nothing of registers.

use std::ops::Range;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::ProgramHeader;
use goblin::elf::program_header::PT_GNU_EH_FRAME;
use sptrace_addr::Svma;

use crate::error::ImageError;
use crate::headers::{read_header, read_program_headers};
use crate::sections::{Section, read_sections};
use crate::space::Space;

/// A section and where it is stated to lie.
#[derive(Debug, Clone, Copy)]
pub struct Table<'data> {
    /// First byte.
    pub start: Svma,
    /// The bytes, never empty.
    pub bytes: &'data [u8],
}

/// The unwind tables of one image.
#[derive(Debug, Clone)]
pub struct UnwindTables<'data> {
    /// Where execution begins; 0 for most libraries.
    pub entry: Svma,
    /// Start of the first loaded page: what lies at offset 0 of the file, in all that linkers make.
    pub base: Svma,
    /// Executable segments, sorted, disjoint.
    pub code: Vec<Range<Svma>>,
    /// `.eh_frame`; without a section header up to the end of its segment.
    pub eh_frame: Option<Table<'data>>,
    /// `.eh_frame_hdr`.
    pub eh_frame_hdr: Option<Table<'data>>,
}

impl<'data> UnwindTables<'data> {
    /// Finds the tables in the bytes of an ELF file.
    ///
    /// # Errors
    /// See [`ImageError`]: not an x86-64 executable or shared object, or headers outside the file.
    pub fn read(bytes: &'data [u8]) -> Result<Self, ImageError> {
        let (header, _) = read_header(bytes)?;
        let ctx = Ctx::new(Container::Big, Endian::Little);
        let headers = read_program_headers(bytes, &header, ctx)?;
        let space = Space::new(bytes, &headers);
        let code = space.segments().iter().filter(|s| s.executable);
        Ok(Self {
            entry: Svma(header.e_entry),
            base: Svma(space.segments().first().map_or(0, |s| s.svma.0 & !0xfff)),
            code: code
                .map(|s| s.svma..Svma(s.svma.0 + s.size_bytes))
                .collect(),
            eh_frame: eh_frame(&read_sections(bytes, &header, ctx), &headers, &space),
            eh_frame_hdr: eh_frame_hdr(&headers, &space),
        })
    }
}

/// `.eh_frame` by its section header, or by what `.eh_frame_hdr` says.
pub(crate) fn eh_frame<'data>(
    sections: &[Section<'data>],
    headers: &[ProgramHeader],
    space: &Space<'data>,
) -> Option<Table<'data>> {
    let by_section = sections
        .iter()
        .find(|s| s.name == ".eh_frame" && s.is_loaded() && !s.bytes.is_empty())
        .map(|s| (s.svma, s.bytes));
    let by_header = || {
        let table = eh_frame_hdr(headers, space)?;
        let bases = gimli::BaseAddresses::default().set_eh_frame_hdr(table.start.0);
        let parsed = gimli::EhFrameHdr::new(table.bytes, gimli::LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        let start = Svma(parsed.eh_frame_ptr().pointer());
        Some((start, space.bytes_from(start)?))
    };
    let (start, bytes) = by_section.or_else(by_header)?;
    (!bytes.is_empty()).then_some(Table { start, bytes })
}

/// Up to the end of its segment: the table's own count bounds it.
fn eh_frame_hdr<'data>(headers: &[ProgramHeader], space: &Space<'data>) -> Option<Table<'data>> {
    let header = headers.iter().find(|h| h.p_type == PT_GNU_EH_FRAME)?;
    let start = Svma(header.p_vaddr);
    let bytes = space.bytes_from(start).filter(|b| !b.is_empty())?;
    Some(Table { start, bytes })
}
