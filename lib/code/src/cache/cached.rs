//! Using a cache file.
//!
//! The header, the sizes of all parts and the hashes are checked once, when it is opened; what is
//! read is checked again at each use, so that no file can cause a panic.

use std::fs::File;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use sptrace_addr::Svma;
use zerocopy::FromBytes;

use super::beside::Beside;
use super::layout::{Header, ImportRecord, NameRecord, Stamp};
use super::plan::Plan;
use crate::bytes::{Bytes, OwnBytes};
use crate::model::Summary;
use crate::names::unnamed;

/// What is kept of one image, borrowed from a mapped file or from memory.
#[derive(Debug)]
pub struct Cached {
    content: Bytes,
    header: Header,
    /// The plan once more, for who asks for it first.
    plan: Mutex<Option<OwnBytes>>,
    beside: Option<Beside>,
}

impl Cached {
    /// `None` unless the content is whole and was made for `stamp`.
    pub(crate) fn new(content: Bytes, stamp: &Stamp) -> Option<Self> {
        let header = Header::read(content.bytes(), stamp)?;
        Some(Self {
            content,
            header,
            plan: Mutex::new(None),
            beside: None,
        })
    }

    /// The same of a cache file.
    pub(crate) fn open(file: &File, stamp: &Stamp) -> Option<Self> {
        let content = Bytes::map(file).ok()?;
        let header = Header::begun(content.bytes(), stamp)?;
        // Where the plan is copied from, so that its pages are mapped once.
        let plan = OwnBytes::map(file, header.plan()).ok()?;
        header.is_whole(content.bytes(), &plan).then_some(Self {
            content,
            header,
            plan: Mutex::new(Some(plan)),
            beside: None,
        })
    }

    /// With a place for what is learned of the image.
    pub(super) fn with(self, beside: Beside) -> Self {
        Self {
            beside: Some(beside),
            ..self
        }
    }

    /// Where what is learned of the image is kept. `None`: nothing is.
    pub fn beside(&self) -> Option<&Beside> {
        self.beside.as_ref()
    }

    fn part(&self, part: Range<usize>) -> &[u8] {
        self.content.bytes().get(part).unwrap_or(&[])
    }

    /// The image's build id, empty if it has none or one of more than 32 bytes.
    pub fn build_id(&self) -> &[u8] {
        self.header.build_id()
    }

    /// Hash of the image's build id and code.
    pub fn module_hash(&self) -> u64 {
        self.header.module_hash
    }

    /// What the maker of the plan gave.
    pub fn plan(&self) -> Plan {
        let mapped = self
            .plan
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let bytes = mapped.unwrap_or_else(|| self.plan_bytes().to_vec().into());
        Plan::kept(bytes, self.header.plan_hash)
    }

    /// The same, to be looked at.
    pub fn plan_bytes(&self) -> &[u8] {
        self.part(self.header.plan())
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
        let bytes = self.part(self.header.names());
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
