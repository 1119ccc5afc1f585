//! Using a cache file.
//!
//! The header, the sizes of all parts and the content hash are checked once, when it is opened;
//! what is unpacked is checked again at each use, so that no file can cause a panic. Names are
//! unpacked when the first one is asked for and kept; the plan is unpacked at each call.

use std::sync::OnceLock;

use sptrace_addr::Svma;
use zerocopy::FromBytes;

use super::layout::{HEADER_BYTES, Header, ImportRecord, NameRecord, Part, Stamp};
use crate::bytes::Bytes;
use crate::model::Summary;
use crate::names::unnamed;

/// What is kept of one image, borrowed from a mapped file or from memory.
#[derive(Debug)]
pub struct Cached {
    content: Bytes,
    header: Header,
    names: OnceLock<Vec<u8>>,
}

impl Cached {
    /// `None` unless the content is whole and was made for `stamp`.
    pub(crate) fn new(content: Bytes, stamp: &Stamp) -> Option<Self> {
        let header = Header::read(content.bytes(), stamp)?;
        Some(Self {
            content,
            header,
            names: OnceLock::new(),
        })
    }

    fn unpack(&self, before_bytes: u32, part: Part) -> Option<Vec<u8>> {
        let start = HEADER_BYTES.checked_add(before_bytes as usize)?;
        let end = start.checked_add(part.packed_bytes as usize)?;
        part.unpack(self.content.bytes().get(start..end)?)
    }

    /// The image's build id, empty if it has none or one of more than 32 bytes.
    pub fn build_id(&self) -> &[u8] {
        self.header.build_id()
    }

    /// Hash of the image's build id and code.
    pub fn module_hash(&self) -> u64 {
        self.header.module_hash
    }

    /// What the maker of the plan gave; `None`: the file is damaged in spite of its hash.
    pub fn plan(&self) -> Option<Vec<u8>> {
        self.unpack(self.header.names.packed_bytes, self.header.plan)
    }

    /// The first bytes of that.
    pub fn plan_head(&self) -> &[u8] {
        &self.header.plan_head
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

    /// Names, imports, strings.
    fn named(&self) -> Option<(&[NameRecord], &[ImportRecord], &[u8])> {
        let part = || self.unpack(0, self.header.names).unwrap_or_default();
        let bytes = self.names.get_or_init(part);
        let (names, rest) =
            <[NameRecord]>::ref_from_prefix_with_elems(bytes, self.header.name_count as usize)
                .ok()?;
        let (imports, strings) =
            <[ImportRecord]>::ref_from_prefix_with_elems(rest, self.header.import_count as usize)
                .ok()?;
        Some((names, imports, strings))
    }

    fn offset(&self, svma: Svma) -> Option<u32> {
        u32::try_from(svma.0.wrapping_sub(self.header.base_svma)).ok()
    }

    /// Size and symbol of what begins at `svma`, if it has one.
    pub fn named_at(&self, svma: Svma) -> Option<(u64, &str)> {
        self.named_at_offset(self.offset(svma)?)
    }

    fn named_at_offset(&self, offset: u32) -> Option<(u64, &str)> {
        let (names, _, strings) = self.named()?;
        let index = names
            .binary_search_by_key(&offset, |n| n.address.get())
            .ok()?;
        let name = names.get(index)?;
        let end = names
            .get(index + 1)
            .map_or(strings.len(), |next| next.string_offset.get() as usize);
        let text = strings.get(name.string_offset.get() as usize..end)?;
        Some((
            u64::from(name.size_bytes.get()),
            std::str::from_utf8(text).ok()?,
        ))
    }

    /// The name of the PLT stub (`symbol@plt`) that jumps through the GOT slot at `slot`.
    pub fn import_at(&self, slot: Svma) -> Option<&str> {
        let offset = self.offset(slot)?;
        let (_, imports, _) = self.named()?;
        let first = imports.partition_point(|i| i.got_slot.get() < offset);
        let import = imports.get(first).filter(|i| i.got_slot.get() == offset)?;
        Some(self.named_at_offset(import.stub.get())?.1)
    }

    /// The name of what begins at `svma`: its own, or `sub_<hex svma>`.
    pub fn name_of(&self, svma: Svma) -> String {
        self.named_at(svma)
            .map_or_else(|| unnamed(svma), |(_, name)| name.to_owned())
    }
}
