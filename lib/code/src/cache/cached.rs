//! Using a cache file in place.
//!
//! The header, the sizes of all parts and the content hash are checked once, when it is opened;
//! indexes inside records are checked at each use, so that no file can cause a panic.

use std::ops::Range;

use sptrace_addr::Svma;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::layout::{
    FunctionRecord, HEADER_BYTES, Header, NameRecord, SiteRecord, Stamp, StubRecord,
};
use super::map::Bytes;
use crate::model::{Function, FunctionFlags, Site, SiteFlags, SiteKind, Summary};
use crate::names::unnamed;

/// An analysis with its plan, borrowed from a mapped file or from memory.
#[derive(Debug)]
pub struct Cached {
    content: Bytes,
    header: Header,
    parts: [Range<usize>; 7],
}

impl Cached {
    /// `None` unless the content is whole and was made for `stamp`.
    pub(crate) fn new(content: Bytes, stamp: &Stamp) -> Option<Self> {
        let header = Header::read(content.bytes(), stamp)?;
        let mut at = HEADER_BYTES;
        let mut parts: [Range<usize>; 7] = std::array::from_fn(|_| 0..0);
        for (part, size) in parts.iter_mut().zip(header.part_bytes()?) {
            *part = at..at.checked_add(usize::try_from(size).ok()?)?;
            at = part.end;
        }
        Some(Self {
            content,
            header,
            parts,
        })
    }

    fn part(&self, part: usize) -> &[u8] {
        self.content
            .bytes()
            .get(self.parts[part].clone())
            .unwrap_or(&[])
    }

    fn records<T: FromBytes + KnownLayout + Immutable>(&self, part: usize, count: u32) -> &[T] {
        <[T]>::ref_from_prefix_with_elems(self.part(part), count as usize)
            .map_or(&[], |(records, _)| records)
    }

    /// Hash of the image's build id and code.
    pub fn module_hash(&self) -> u64 {
        self.header.module_hash
    }

    /// What the 32-bit offsets in records are added to; an offset of 0 means none.
    pub fn base_svma(&self) -> Svma {
        Svma(self.header.base_svma)
    }

    /// The functions as they are kept, sorted by entry.
    pub fn functions(&self) -> &[FunctionRecord] {
        self.records(0, self.header.function_count)
    }

    /// The sites as they are kept, grouped by function.
    pub fn sites(&self) -> &[SiteRecord] {
        self.records(1, self.header.site_count)
    }

    /// Indexes of functions, grouped by the function that links.
    pub fn links(&self) -> &[u32] {
        self.records(2, self.header.link_count)
    }

    /// PLT stubs with their slots, sorted by stub.
    pub fn stubs(&self) -> &[StubRecord] {
        self.records(3, self.header.stub_count)
    }

    /// Names, sorted by address.
    pub fn names(&self) -> &[NameRecord] {
        self.records(4, self.header.name_count)
    }

    /// What the maker of the plan gave.
    pub fn plan(&self) -> &[u8] {
        let length = usize::try_from(self.header.plan_bytes).unwrap_or(0);
        self.part(6).get(..length).unwrap_or(&[])
    }

    /// Size of the cache file.
    pub fn size_bytes(&self) -> u64 {
        self.content.bytes().len() as u64
    }

    /// Counts over the whole image.
    pub fn summary(&self) -> Summary {
        let [
            text_bytes,
            instructions,
            blocks,
            jump_tables,
            unresolved_jumps,
            overlapped,
            broken,
        ] = self.header.summary;
        Summary {
            text_bytes,
            instructions,
            blocks,
            jump_tables,
            unresolved_jumps,
            overlapped_sites: overlapped,
            broken_paths: broken,
        }
    }

    fn svma(&self, offset: u32) -> Svma {
        match offset {
            0 => Svma(0),
            _ => Svma(self.header.base_svma.wrapping_add(u64::from(offset))),
        }
    }

    fn offset(&self, svma: Svma) -> Option<u32> {
        u32::try_from(svma.0.wrapping_sub(self.header.base_svma)).ok()
    }

    /// Function number `index`.
    pub fn function(&self, index: usize) -> Option<Function> {
        let record = self.functions().get(index)?;
        let entry = self.svma(record.entry);
        Some(Function {
            entry,
            end: Svma(entry.0.wrapping_add(u64::from(record.size_bytes))),
            first_site: record.first_site,
            site_count: record.site_count,
            first_link: record.first_link,
            link_count: record.link_count,
            flags: FunctionFlags(record.flags),
        })
    }

    /// Index of the function whose range holds `svma`.
    pub fn function_at(&self, svma: Svma) -> Option<usize> {
        let offset = self.offset(svma)?;
        let index = self
            .functions()
            .partition_point(|f| f.entry <= offset)
            .checked_sub(1)?;
        let record = &self.functions()[index];
        (offset - record.entry < record.size_bytes).then_some(index)
    }

    /// Site number `index`.
    pub fn site(&self, index: usize) -> Option<Site> {
        let record = self.sites().get(index)?;
        let kind = site_kind(record.kind)?;
        let operand = self.svma(record.operand);
        let is_indirect = matches!(kind, SiteKind::CallIndirect | SiteKind::TailIndirect);
        let (target, got_slot) = if is_indirect {
            (Svma(0), operand)
        } else {
            (operand, self.slot_of_stub(record.operand))
        };
        let address = self.svma(record.address);
        let before = u64::from(record.window_bytes_before);
        Some(Site {
            // Needed to build a plan only, and the plan is kept beside.
            way_in: Svma(0),
            room: Svma(0),
            room_bytes: 0,
            address,
            length: record.length,
            kind,
            target,
            got_slot,
            window_start: Svma(address.0.wrapping_sub(before)),
            flags: SiteFlags(record.flags),
        })
    }

    fn slot_of_stub(&self, stub: u32) -> Svma {
        match self.stubs().binary_search_by_key(&stub, |s| s.stub) {
            Ok(index) => self.svma(self.stubs()[index].got_slot),
            Err(_) => Svma(0),
        }
    }

    /// The sites of a function, with the number of each.
    pub fn sites_of(&self, function: &Function) -> impl Iterator<Item = (usize, Site)> + '_ {
        let first = function.first_site as usize;
        let last = first.saturating_add(function.site_count as usize);
        (first..last.min(self.sites().len())).filter_map(|i| Some((i, self.site(i)?)))
    }

    /// Indexes of the functions whose code `function` reaches by plain jumps.
    pub fn links_of(&self, function: &Function) -> &[u32] {
        let first = function.first_link as usize;
        let last = first.saturating_add(usize::from(function.link_count));
        self.links().get(first..last).unwrap_or(&[])
    }

    /// Bytes of name number `index`.
    pub fn name(&self, index: usize) -> Option<&str> {
        let names = self.names();
        let start = names.get(index)?.string_offset as usize;
        let end = names
            .get(index + 1)
            .map_or(self.header.string_bytes, |n| n.string_offset);
        std::str::from_utf8(self.part(5).get(start..end as usize)?).ok()
    }

    /// Size and symbol of what begins at `svma`, if it has one.
    pub fn named_at(&self, svma: Svma) -> Option<(u64, &str)> {
        let offset = self.offset(svma)?;
        let index = self
            .names()
            .binary_search_by_key(&offset, |n| n.address)
            .ok()?;
        Some((
            u64::from(self.names().get(index)?.size_bytes),
            self.name(index)?,
        ))
    }

    /// The name of what begins at `svma`: its own, or `sub_<hex svma>`.
    pub fn name_of(&self, svma: Svma) -> String {
        self.offset(svma)
            .and_then(|offset| {
                self.names()
                    .binary_search_by_key(&offset, |n| n.address)
                    .ok()
            })
            .and_then(|index| self.name(index))
            .map_or_else(|| unnamed(svma), str::to_owned)
    }
}

fn site_kind(kind: u8) -> Option<SiteKind> {
    [
        SiteKind::CallDirect,
        SiteKind::CallIndirect,
        SiteKind::TailDirect,
        SiteKind::TailConditional,
        SiteKind::TailIndirect,
    ]
    .into_iter()
    .find(|k| *k as u8 == kind)
}
