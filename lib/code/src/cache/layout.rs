//! The records of a cache file, and writing them.
//!
//! Every record is `repr(C)` without padding; see the head of `cache` for the order. Addresses are
//! offsets from the base, which lies one below the lowest loaded address, so that 0 means none.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use sptrace_addr::Svma;
use sptrace_image::Object;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::hash::hash_bytes;
use crate::model::{Analysis, Function, Site, SiteKind, Summary};
use crate::names::names;

const MAGIC: [u8; 8] = *b"SPTCODE\0";

/// Identity of an image as the file system tells it, with the versions of what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified_ns: u64,
    format_version: u32,
    plan_version: u32,
}

impl Stamp {
    pub fn new(metadata: &Metadata, format_version: u32, plan_version: u32) -> Self {
        let seconds_ns = metadata.mtime().wrapping_mul(1_000_000_000);
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size_bytes: metadata.size(),
            modified_ns: seconds_ns.wrapping_add(metadata.mtime_nsec()) as u64,
            format_version,
            plan_version,
        }
    }

    pub fn file_name(&self) -> String {
        format!("{:016x}.analysis", hash_bytes(0, self.as_bytes()))
    }
}

/// Head of a cache file.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Header {
    magic: [u8; 8],
    stamp: Stamp,
    /// Of build id and code.
    pub module_hash: u64,
    /// Of every byte after the header.
    content_hash: u64,
    pub base_svma: u64,
    pub plan_bytes: u64,
    pub function_count: u32,
    pub site_count: u32,
    pub link_count: u32,
    pub stub_count: u32,
    pub name_count: u32,
    pub string_bytes: u32,
    pub summary: [u64; 7],
}

/// Size of [`Header`].
pub(crate) const HEADER_BYTES: usize = size_of::<Header>();

impl Header {
    /// The header of `file`, if it is whole, of this version, and made for `stamp`.
    pub fn read(file: &[u8], stamp: &Stamp) -> Option<Self> {
        let (header, content) = Self::read_from_prefix(file).ok()?;
        let is_ours = header.magic == MAGIC && header.stamp == *stamp;
        let is_whole = header.content_bytes() == Some(content.len() as u64);
        (is_ours && is_whole && header.content_hash == hash_bytes(0, content)).then_some(header)
    }

    fn content_bytes(&self) -> Option<u64> {
        self.part_bytes()?
            .into_iter()
            .try_fold(0u64, |sum, part| sum.checked_add(part))
    }

    /// Sizes of the parts after the header, each with its padding.
    pub fn part_bytes(&self) -> Option<[u64; 7]> {
        let padded = |count: u32, size: usize| (u64::from(count) * size as u64).next_multiple_of(8);
        Some([
            padded(self.function_count, size_of::<FunctionRecord>()),
            padded(self.site_count, size_of::<SiteRecord>()),
            padded(self.link_count, size_of::<u32>()),
            padded(self.stub_count, size_of::<StubRecord>()),
            padded(self.name_count, size_of::<NameRecord>()),
            padded(self.string_bytes, 1),
            self.plan_bytes.checked_next_multiple_of(8)?,
        ])
    }
}

/// A [`Function`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FunctionRecord {
    /// Offset of the entry.
    pub entry: u32,
    /// Size of the range.
    pub size_bytes: u32,
    /// As in [`Function`].
    pub first_site: u32,
    /// As in [`Function`].
    pub site_count: u32,
    /// As in [`Function`].
    pub first_link: u32,
    /// As in [`Function`].
    pub link_count: u16,
    /// Bits of `FunctionFlags`.
    pub flags: u16,
}

/// A [`Site`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SiteRecord {
    /// Offset of the instruction.
    pub address: u32,
    /// Offset of the direct target, or of an indirect site's GOT slot, or 0.
    pub operand: u32,
    /// Length of the instruction.
    pub length: u8,
    /// A `SiteKind`.
    pub kind: u8,
    /// How many bytes before the instruction its window starts.
    pub window_bytes_before: u8,
    /// Bits of `SiteFlags`.
    pub flags: u8,
}

/// A PLT stub and the GOT slot that it jumps through.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct StubRecord {
    /// Offset of the stub.
    pub stub: u32,
    /// Offset of the slot.
    pub got_slot: u32,
}

/// A name; its bytes end where those of the next begin.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NameRecord {
    /// Offset of what is named.
    pub address: u32,
    /// Its size, 0 when not known.
    pub size_bytes: u32,
    /// Where the name begins in the strings.
    pub string_offset: u32,
}

/// The whole content of a cache file; `None` when something does not fit.
pub(crate) fn encode(
    object: &Object<'_>,
    analysis: &Analysis,
    plan: &[u8],
    stamp: &Stamp,
    module_hash: u64,
) -> Option<Vec<u64>> {
    let base_svma = object.lowest_svma().0.wrapping_sub(1);
    let offset = |svma: Svma| u32::try_from(svma.0.wrapping_sub(base_svma)).ok();
    let functions = collect(&analysis.functions, |f| {
        function_record(f, offset(f.entry)?)
    })?;
    let sites = collect(&analysis.sites, |s| site_record(s, &offset))?;
    let stubs = collect(&object.plt_stubs, |s| {
        Some(StubRecord {
            stub: offset(s.stub)?,
            got_slot: offset(s.got_slot).unwrap_or(0),
        })
    })?;
    let mut strings = String::new();
    let names = collect(&names(object), |name| {
        let string_offset = u32::try_from(strings.len()).ok()?;
        strings.push_str(&name.name);
        let size_bytes = u32::try_from(name.size_bytes).unwrap_or(u32::MAX);
        Some(NameRecord {
            address: offset(name.svma)?,
            size_bytes,
            string_offset,
        })
    })?;
    let count = |length: usize| u32::try_from(length).ok();
    let mut header = Header {
        magic: MAGIC,
        stamp: *stamp,
        module_hash,
        content_hash: 0,
        base_svma,
        plan_bytes: plan.len() as u64,
        function_count: count(functions.len())?,
        site_count: count(sites.len())?,
        link_count: count(analysis.links.len())?,
        stub_count: count(stubs.len())?,
        name_count: count(names.len())?,
        string_bytes: count(strings.len())?,
        summary: summary_words(&analysis.summary),
    };
    let parts = [
        functions.as_bytes(),
        sites.as_bytes(),
        analysis.links.as_bytes(),
        stubs.as_bytes(),
        names.as_bytes(),
        strings.as_bytes(),
        plan,
    ];
    let total_bytes = HEADER_BYTES as u64 + header.content_bytes()?;
    let mut words = vec![0u64; usize::try_from(total_bytes / 8).ok()?];
    let out = words.as_mut_bytes();
    let mut at = HEADER_BYTES;
    for part in parts {
        out[at..at + part.len()].copy_from_slice(part);
        at = (at + part.len()).next_multiple_of(8);
    }
    header.content_hash = hash_bytes(0, &out[HEADER_BYTES..]);
    out[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    Some(words)
}

fn collect<T, R>(items: &[T], record: impl FnMut(&T) -> Option<R>) -> Option<Vec<R>> {
    items.iter().map(record).collect()
}

fn function_record(function: &Function, entry: u32) -> Option<FunctionRecord> {
    Some(FunctionRecord {
        entry,
        size_bytes: u32::try_from(function.end.0 - function.entry.0).ok()?,
        first_site: function.first_site,
        site_count: function.site_count,
        first_link: function.first_link,
        link_count: function.link_count,
        flags: function.flags.0,
    })
}

/// A wild target, which lies outside the image, is kept as none.
fn site_record(site: &Site, offset: &dyn Fn(Svma) -> Option<u32>) -> Option<SiteRecord> {
    let operand = match site.kind {
        SiteKind::CallIndirect | SiteKind::TailIndirect => site.got_slot,
        _ => site.target,
    };
    let operand = if operand == Svma(0) {
        0
    } else {
        offset(operand).unwrap_or(0)
    };
    Some(SiteRecord {
        address: offset(site.address)?,
        operand,
        length: site.length,
        kind: site.kind as u8,
        window_bytes_before: (site.address.0 - site.window_start.0) as u8,
        flags: site.flags.0,
    })
}

fn summary_words(summary: &Summary) -> [u64; 7] {
    [
        summary.text_bytes,
        summary.instructions,
        summary.blocks,
        summary.jump_tables,
        summary.unresolved_jumps,
        summary.overlapped_sites,
        summary.broken_paths,
    ]
}
