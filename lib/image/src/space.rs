//! The loaded address space of one image: which file bytes lie at which address.
//!
//! Is given the program and section headers; gives bytes by [`Svma`] and the ranges that hold code.
//! Every range is clipped to the file, sorted and disjoint. Knows nothing of what the bytes mean.

use goblin::elf::ProgramHeader;
use goblin::elf::program_header::{PF_W, PF_X, PT_LOAD};
use sptrace_addr::Svma;

use crate::sections::Section;

/// A loaded segment.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'data> {
    /// Where it is loaded.
    pub svma: Svma,
    /// Its size in memory; the part beyond `bytes` is zero.
    pub size_bytes: u64,
    /// What the file holds of it.
    pub bytes: &'data [u8],
    /// Mapped executable.
    pub executable: bool,
    /// Mapped writable, also if only until relocations are done.
    pub writable: bool,
}

/// A range of executable bytes.
#[derive(Debug, Clone, Copy)]
pub struct CodeRange<'data> {
    /// First byte.
    pub start: Svma,
    /// The bytes, never empty.
    pub bytes: &'data [u8],
    /// A section of PLT stubs.
    pub is_plt: bool,
}

impl CodeRange<'_> {
    /// End of the range, exclusive.
    pub fn end(&self) -> Svma {
        Svma(self.start.0 + self.bytes.len() as u64)
    }
}

/// Bytes by address.
#[derive(Debug, Clone, Default)]
pub struct Space<'data> {
    segments: Vec<Segment<'data>>,
}

impl<'data> Space<'data> {
    pub(crate) fn new(file: &'data [u8], headers: &[ProgramHeader]) -> Self {
        let mut segments: Vec<_> = headers
            .iter()
            .filter(|h| h.p_type == PT_LOAD && h.p_memsz > 0)
            .filter_map(|h| segment(file, h))
            .collect();
        segments.sort_by_key(|s| s.svma);
        segments.dedup_by(|later, earlier| {
            later.svma.0 < earlier.svma.0.saturating_add(earlier.size_bytes)
        });
        Self { segments }
    }

    /// Loaded segments, sorted, disjoint.
    pub fn segments(&self) -> &[Segment<'data>] {
        &self.segments
    }

    /// The segment that holds `svma`.
    pub fn segment_at(&self, svma: Svma) -> Option<&Segment<'data>> {
        let after = self.segments.partition_point(|s| s.svma <= svma);
        let segment = &self.segments[after.checked_sub(1)?];
        (svma.0 - segment.svma.0 < segment.size_bytes).then_some(segment)
    }

    /// File bytes from `svma` to the end of its segment.
    pub fn bytes_from(&self, svma: Svma) -> Option<&'data [u8]> {
        let segment = self.segment_at(svma)?;
        segment
            .bytes
            .get(usize::try_from(svma.0 - segment.svma.0).ok()?..)
    }

    /// `length_bytes` file bytes at `svma`.
    pub fn bytes_at(&self, svma: Svma, length_bytes: u64) -> Option<&'data [u8]> {
        self.bytes_from(svma)?
            .get(..usize::try_from(length_bytes).ok()?)
    }

    /// The little-endian word at `svma`.
    pub fn read_u64(&self, svma: Svma) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes_at(svma, 8)?.try_into().ok()?))
    }

    /// The little-endian signed half word at `svma`.
    pub fn read_i32(&self, svma: Svma) -> Option<i32> {
        Some(i32::from_le_bytes(self.bytes_at(svma, 4)?.try_into().ok()?))
    }

    pub(crate) fn code_ranges(&self, sections: &[Section<'data>]) -> Vec<CodeRange<'data>> {
        let mut ranges: Vec<_> = sections
            .iter()
            .filter(|s| s.is_code())
            .filter_map(|s| {
                let bytes = self
                    .bytes_at(s.svma, s.size_bytes)
                    .filter(|b| !b.is_empty())?;
                let executable = self.segment_at(s.svma).is_some_and(|g| g.executable);
                let is_plt = matches!(s.name, ".plt" | ".plt.sec" | ".plt.got" | ".iplt");
                executable.then_some(CodeRange {
                    start: s.svma,
                    bytes,
                    is_plt,
                })
            })
            .collect();
        if ranges.is_empty() {
            ranges.extend(
                self.segments
                    .iter()
                    .filter(|s| s.executable && !s.bytes.is_empty())
                    .map(|s| CodeRange {
                        start: s.svma,
                        bytes: s.bytes,
                        is_plt: false,
                    }),
            );
        }
        ranges.sort_by_key(|r| r.start);
        ranges.dedup_by(|later, earlier| later.start < earlier.end());
        ranges
    }
}

/// A truncated file keeps the part of the segment that is there.
fn segment<'data>(file: &'data [u8], header: &ProgramHeader) -> Option<Segment<'data>> {
    header.p_vaddr.checked_add(header.p_memsz)?;
    let start = usize::try_from(header.p_offset).ok()?.min(file.len());
    let size = header
        .p_filesz
        .min(header.p_memsz)
        .min((file.len() - start) as u64) as usize;
    Some(Segment {
        svma: Svma(header.p_vaddr),
        size_bytes: header.p_memsz,
        bytes: &file[start..start + size],
        executable: header.p_flags & PF_X != 0,
        writable: header.p_flags & PF_W != 0,
    })
}
