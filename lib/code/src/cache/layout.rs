//! The records of a cache file, and writing them.
//!
//! Every record is `repr(C)` without padding; see the head of `cache` for the order. Addresses are
//! offsets from the lowest loaded address.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sptrace_addr::Svma;
use sptrace_image::{Object, PltStub};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::files::name_of;
use crate::debug_file::{DebugStamp, names};
use crate::hash::hash_bytes;
use crate::model::Summary;
use crate::names::Name;

/// Of SHA-1, which all linkers default to, 20; of what `--build-id=0x...` gives more is not kept.
const LONGEST_BUILD_ID: usize = 32;
/// A debug file with a longer name is not noticed when it appears.
const LONGEST_LINK: usize = 64;
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

    /// True if a file that is so now may be the same one.
    pub fn is_of(&self, metadata: &Metadata) -> bool {
        Self::new(metadata, self.format_version, self.plan_version) == *self
    }

    /// The same wherever the image lies: what is left are size and versions.
    pub fn without_place(&self) -> Self {
        Self {
            device: 0,
            inode: 0,
            modified_ns: 0,
            ..*self
        }
    }

    pub fn file_name(&self) -> String {
        name_of(&format!("{:016x}", hash_bytes(0, self.as_bytes())))
    }
}

/// Head of a cache file.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Header {
    magic: [u8; 8],
    stamp: Stamp,
    /// Of the debug file that gave names.
    debug: DebugStamp,
    /// Filled up with zeros.
    build_id: [u8; LONGEST_BUILD_ID],
    build_id_bytes: u64,
    /// Name of the debug file that the image states, filled up with zeros.
    link: [u8; LONGEST_LINK],
    link_bytes: u64,
    /// Of build id and code.
    pub module_hash: u64,
    /// Of the plan.
    pub plan_hash: u64,
    /// Of that, and of every other byte after the header.
    content_hash: u64,
    pub base_svma: u64,
    pub name_count: u32,
    pub import_count: u32,
    /// Names, imports and strings.
    names_bytes: u64,
    plan_bytes: u64,
    /// Bytes of the image's path, behind the plan.
    path_bytes: u64,
    pub summary: [u64; 7],
}

/// Size of [`Header`].
pub(crate) const HEADER_BYTES: usize = size_of::<Header>();

impl Header {
    /// The header of `file`, if it is whole, of this version, and made for `stamp`.
    pub fn read(file: &[u8], stamp: &Stamp) -> Option<Self> {
        let header = Self::begun(file, stamp)?;
        let plan = file.get(header.plan())?;
        header.is_whole(file, plan).then_some(header)
    }

    /// The header of `file`, if it is of this version and made for `stamp`, and its parts are as
    /// long as it is.
    pub fn begun(file: &[u8], stamp: &Stamp) -> Option<Self> {
        let (header, content) = Self::read_from_prefix(file).ok()?;
        let path = header.path_in(content)?;
        let is_ours = header.magic == MAGIC
            && header.stamp == *stamp
            && header.debug == header.debug_now(path)?;
        let parts = [header.names_bytes, header.plan_bytes, header.path_bytes];
        let bytes = parts
            .iter()
            .try_fold(0u64, |sum, part| sum.checked_add(*part));
        (is_ours && bytes == Some(content.len() as u64)).then_some(header)
    }

    /// Whether this is what was written, given the plan once more.
    pub fn is_whole(&self, file: &[u8], plan: &[u8]) -> bool {
        let (names, path) = (file.get(self.names()), file.get(self.plan().end..));
        hash_bytes(0, plan) == self.plan_hash
            && self.hash_of(names.unwrap_or(&[]), path.unwrap_or(&[])) == self.content_hash
    }

    fn hash_of(&self, names: &[u8], path: &[u8]) -> u64 {
        hash_bytes(hash_bytes(self.plan_hash, names), path)
    }

    /// Where names, imports and strings lie in the file.
    pub fn names(&self) -> Range<usize> {
        let start = HEADER_BYTES;
        start..start.saturating_add(self.names_bytes as usize)
    }

    /// Where the plan lies.
    pub fn plan(&self) -> Range<usize> {
        let start = self.names().end;
        start..start.saturating_add(self.plan_bytes as usize)
    }
}

impl Header {
    /// The path of the image, behind all else.
    fn path_in<'a>(&self, content: &'a [u8]) -> Option<&'a Path> {
        let at = content
            .len()
            .checked_sub(usize::try_from(self.path_bytes).ok()?)?;
        Some(Path::new(OsStr::from_bytes(content.get(at..)?)))
    }

    /// The build id of the image, empty if it has none or one that is too long.
    pub fn build_id(&self) -> &[u8] {
        self.build_id
            .get(..self.build_id_bytes as usize)
            .unwrap_or(&[])
    }

    /// Which debug files there are for the image now.
    fn debug_now(&self, path: &Path) -> Option<DebugStamp> {
        let build_id = self.build_id.get(..self.build_id_bytes as usize)?;
        let link = self.link.get(..self.link_bytes as usize)?;
        let link = std::str::from_utf8(link).ok()?;
        let link = Some(link).filter(|link| !link.is_empty());
        Some(DebugStamp::now(path, build_id, link))
    }
}

/// A GOT slot and the PLT stub that jumps through it.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ImportRecord {
    /// Offset of the slot.
    pub got_slot: U32,
    /// Offset of the stub.
    pub stub: U32,
}

/// A name; its bytes end where those of the next begin.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NameRecord {
    /// Offset of what is named.
    pub address: U32,
    /// Its size, 0 when not known.
    pub size_bytes: U32,
    /// Where the name begins in the strings.
    pub string_offset: U32,
}

/// The content of a file as it is kept under another stamp, if it is whole, of this version, and
/// of an image whose build id and code have this hash.
pub(crate) fn restamp(file: &[u8], stamp: &Stamp, module_hash: u64) -> Option<Vec<u8>> {
    let own = Header::read_from_prefix(file).ok()?.0.stamp;
    if own.without_place() != stamp.without_place() {
        return None;
    }
    let mut header = Header::read(file, &own)?;
    if header.module_hash != module_hash {
        return None;
    }
    header.stamp = *stamp;
    let mut content = file.to_vec();
    content
        .get_mut(..HEADER_BYTES)?
        .copy_from_slice(header.as_bytes());
    Some(content)
}

/// The path of the image of which a file is, if it is one of this version.
pub(crate) fn origin(file: &[u8], format_version: u32) -> Option<PathBuf> {
    let (header, content) = Header::read_from_prefix(file).ok()?;
    let is_ours = header.magic == MAGIC && header.stamp.format_version == format_version;
    let path = header.path_in(content)?;
    is_ours.then(|| path.to_owned())
}

/// The whole content of a cache file, for an image and its path; `None` when something does not
/// fit.
pub(crate) fn encode(
    (object, path): (&Object<'_>, &Path),
    summary: &Summary,
    plan: &[u8],
    stamp: &Stamp,
    module_hash: u64,
) -> Option<Vec<u8>> {
    let base_svma = object.lowest_svma().0;
    let offset = |svma: Svma| u32::try_from(svma.0.wrapping_sub(base_svma)).ok();
    let import = |stub: &PltStub<'_>| {
        Some(ImportRecord {
            got_slot: offset(stub.got_slot)?.into(),
            stub: offset(stub.stub)?.into(),
        })
    };
    let mut imports: Vec<ImportRecord> = object.plt_stubs.iter().filter_map(import).collect();
    imports.sort_by_key(|i| (i.got_slot.get(), i.stub.get()));
    let (names, strings) = name_records(object, path, &offset)?;
    let mut header = Header {
        magic: MAGIC,
        stamp: *stamp,
        debug: DebugStamp::default(),
        build_id: [0; LONGEST_BUILD_ID],
        build_id_bytes: 0,
        link: [0; LONGEST_LINK],
        link_bytes: 0,
        module_hash,
        plan_hash: hash_bytes(0, plan),
        content_hash: 0,
        base_svma,
        name_count: u32::try_from(names.len()).ok()?,
        import_count: u32::try_from(imports.len()).ok()?,
        names_bytes: 0,
        plan_bytes: plan.len() as u64,
        path_bytes: path.as_os_str().len() as u64,
        summary: summary_words(summary),
    };
    if let Some(place) = header.build_id.get_mut(..object.build_id.len()) {
        place.copy_from_slice(object.build_id);
        header.build_id_bytes = object.build_id.len() as u64;
    }
    if let Some((name, _)) = object.debug_link
        && let Some(place) = header.link.get_mut(..name.len())
    {
        place.copy_from_slice(name.as_bytes());
        header.link_bytes = name.len() as u64;
    }
    header.debug = header.debug_now(path)?;
    let named = [names.as_bytes(), imports.as_bytes(), strings.as_bytes()].concat();
    let path = path.as_os_str().as_bytes();
    header.names_bytes = named.len() as u64;
    header.content_hash = header.hash_of(&named, path);
    Some([header.as_bytes(), &named, plan, path].concat())
}

fn name_records(
    object: &Object<'_>,
    path: &Path,
    offset: &dyn Fn(Svma) -> Option<u32>,
) -> Option<(Vec<NameRecord>, String)> {
    let mut strings = String::new();
    let mut record = |name: &Name| {
        let string_offset = u32::try_from(strings.len()).ok()?;
        strings.push_str(&name.name);
        Some(NameRecord {
            address: offset(name.svma)?.into(),
            size_bytes: u32::try_from(name.size_bytes).unwrap_or(u32::MAX).into(),
            string_offset: string_offset.into(),
        })
    };
    let names: Option<Vec<_>> = names(object, path).iter().map(&mut record).collect();
    Some((names?, strings))
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
