//! The unwind tables of one mapped module: which row describes an address.
//!
//! Is given the sections ([`UnwindTables`]) and the load bias; all that takes time in proportion to
//! the tables happens in [`Tables::new`]. `.eh_frame_hdr` serves as the index if it is what it
//! should be; else one is made.

use std::ops::Range;

use gimli::{
    BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, EhFrameOffset, EndianSlice, LittleEndian,
    ParsedEhFrameHdr, UnwindContext, UnwindSection, UnwindTableRow,
};
use sptrace_addr::{Avma, Bias, Svma};
use sptrace_image::UnwindTables;

pub(crate) type Slice<'data> = EndianSlice<'data, LittleEndian>;
pub(crate) type Row = UnwindTableRow<usize>;

enum Index<'data> {
    Header(ParsedEhFrameHdr<Slice<'data>>),
    /// Start of each FDE and its offset in the section, sorted.
    Made(Vec<(u64, usize)>),
}

/// What an FDE says of an address.
pub(crate) struct Described<'c> {
    /// `None`: it cannot be read.
    pub row: Option<&'c Row>,
    pub is_signal_frame: bool,
    /// The address is the last that the FDE covers.
    pub is_last_byte: bool,
}

pub(crate) struct Tables<'data> {
    pub code: Vec<Range<Avma>>,
    pub entry: Avma,
    pub section: EhFrame<Slice<'data>>,
    bias: Bias,
    bases: BaseAddresses,
    index: Index<'data>,
}

impl<'data> Tables<'data> {
    pub fn new(tables: &UnwindTables<'data>, bias: Bias) -> Self {
        let (start, bytes) = tables
            .eh_frame
            .map_or((Svma(0), &[][..]), |table| (table.start, table.bytes));
        let section = EhFrame::new(bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(start.0);
        let (bases, index) = match header(tables) {
            Some((header_start, header)) => (
                bases.set_eh_frame_hdr(header_start.0),
                Index::Header(header),
            ),
            None => {
                let made = make_index(&section, &bases);
                (bases, Index::Made(made))
            }
        };
        let code = tables.code.iter();
        Self {
            code: code
                .map(|r| bias.to_avma(r.start)..bias.to_avma(r.end))
                .filter(|r| r.start < r.end)
                .collect(),
            entry: bias.to_avma(tables.entry),
            section,
            bias,
            bases,
            index,
        }
    }

    /// The header is good: framehop may use it as well.
    pub fn has_header(&self) -> bool {
        matches!(self.index, Index::Header(_))
    }

    /// The FDE that covers `avma`, and its row for it.
    pub fn described_at<'c>(
        &self,
        context: &'c mut UnwindContext<usize>,
        avma: u64,
    ) -> Option<Described<'c>> {
        let svma = self.bias.to_svma(Avma(avma)).0;
        let offset = self.fde_offset(svma)?;
        let fde = self
            .section
            .fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset)
            .ok()
            .filter(|fde| fde.contains(svma))?;
        let row = fde.unwind_info_for_address(&self.section, &self.bases, context, svma);
        Some(Described {
            row: row.ok(),
            is_signal_frame: fde.is_signal_trampoline(),
            is_last_byte: fde.end_address() == svma.wrapping_add(1),
        })
    }

    fn fde_offset(&self, svma: u64) -> Option<EhFrameOffset> {
        match &self.index {
            Index::Header(header) => {
                let table = header.table()?;
                let pointer = table.lookup(svma, &self.bases).ok()?;
                table.pointer_to_offset(pointer).ok()
            }
            Index::Made(index) => {
                let after = index.partition_point(|(start, _)| *start <= svma);
                Some(EhFrameOffset(index.get(after.checked_sub(1)?)?.1))
            }
        }
    }
}

/// `.eh_frame_hdr`, if it is sorted, whole, and speaks of this `.eh_frame`: the search in it does
/// not check what it reads.
fn header<'data>(tables: &UnwindTables<'data>) -> Option<(Svma, ParsedEhFrameHdr<Slice<'data>>)> {
    let (eh_frame, section) = (tables.eh_frame?, tables.eh_frame_hdr?);
    let bases = BaseAddresses::default().set_eh_frame_hdr(section.start.0);
    let header = EhFrameHdr::new(section.bytes, LittleEndian)
        .parse(&bases, 8)
        .ok()?;
    let table = header.table()?;
    let mut entries = table.iter(&bases);
    let mut last = None;
    while let Some((start, fde)) = entries.next().ok()? {
        let (start, fde) = (start.direct().ok()?, fde.direct().ok()?);
        if Some(start) < last || fde < eh_frame.start.0 {
            return None;
        }
        last = Some(start);
    }
    let is_this = header.eh_frame_ptr().direct().ok()? == eh_frame.start.0;
    (is_this && last.is_some()).then_some((section.start, header))
}

fn make_index(section: &EhFrame<Slice<'_>>, bases: &BaseAddresses) -> Vec<(u64, usize)> {
    let mut index = Vec::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        if let Ok(fde) = partial.parse(EhFrame::cie_from_offset) {
            index.push((fde.initial_address(), fde.offset()));
        }
    }
    index.sort_unstable();
    index
}
