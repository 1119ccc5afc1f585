//! The cache of analyses: one file for each image, small and quickly read.
//!
//! Place: `$XDG_CACHE_HOME/sptrace` or `~/.cache/sptrace`, one file `<key>.analysis`, the key being
//! a hash of device, inode, size and modification time of the image and of both versions. A warm
//! start therefore reads no byte of the image (and looks whether its debug file is the one that
//! gave names); its build id and code are hashed into the module hash when the file is built. Equal
//! stamps do not prove equal bytes: who patches compares bytes first.
//!
//! ```text
//! offset 0   Header (cache/layout.rs): magic, versions, stamp, hashes, sizes, summary
//!            names, one block of LZ4: NameRecord[name_count]      12 bytes each
//!                                     ImportRecord[import_count]   8 bytes each
//!                                     strings, to the end
//!            plan, one block of LZ4
//! ```
//!
//! Little-endian. Addresses are 32-bit offsets from `Header::base_svma`. Functions and sites are in
//! the plan and nowhere else. A file is written under a temporary name and renamed, so that readers
//! see all of it or nothing; one that was torn by a crash of the system is found by its content
//! hash. Files and folders of other users, links, other versions and other stamps are never used.
//! No failure of the cache is an error: the analysis is then done anew and kept in memory.

mod cached;
mod layout;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use sptrace_image::Object;

pub use cached::Cached;

use crate::analyze::analyze;
use crate::bytes::Bytes;
use crate::error::CodeError;
use crate::hash::hash_bytes;
use crate::model::Analysis;
use layout::{Stamp, encode};

/// Changes whenever the layout of the file or the meaning of an analysis does.
const FORMAT_VERSION: u32 = 4;
/// Of open(2): do not follow a link. The value is that of x86-64.
const O_NOFOLLOW: i32 = 0o400_000;

/// The analysis of the image at `elf_path`, and the plan that `make_plan` makes of it: from the
/// cache, or built and put there. `plan_version` is part of the key. Without `cache_dir` the user's
/// own cache folder is used.
///
/// # Errors
/// [`CodeError`] when the file cannot be read or is no image; never because of the cache.
pub fn load_or_build(
    cache_dir: Option<&Path>,
    elf_path: &Path,
    plan_version: u32,
    make_plan: &dyn Fn(&Object<'_>, &Analysis) -> Vec<u8>,
) -> Result<Cached, CodeError> {
    let read_error = |source| CodeError::Read {
        path: elf_path.to_owned(),
        source,
    };
    let metadata = fs::metadata(elf_path).map_err(read_error)?;
    if !metadata.is_file() {
        return Err(CodeError::NotAFile(elf_path.to_owned()));
    }
    let stamp = Stamp::new(&metadata, FORMAT_VERSION, plan_version);
    let folder = cache_dir.map(Path::to_owned).or_else(default_folder);
    let owner = own_user();
    if let (Some(folder), Some(owner)) = (&folder, owner)
        && let Some(cached) = open(folder, owner, &stamp)
    {
        return Ok(cached);
    }
    let file = File::open(elf_path).map_err(read_error)?;
    let opened = Stamp::new(
        &file.metadata().map_err(read_error)?,
        FORMAT_VERSION,
        plan_version,
    );
    let image = Bytes::map(&file).map_err(read_error)?;
    let content = build(elf_path, &image, &opened, make_plan)?;
    // An image that changed while it was read is not kept.
    let unchanged = file
        .metadata()
        .is_ok_and(|now| Stamp::new(&now, FORMAT_VERSION, plan_version) == opened);
    if let (Some(folder), Some(owner), true) = (&folder, owner, unchanged)
        && store(folder, owner, &opened, content.bytes()).is_some()
        && let Some(cached) = open(folder, owner, &opened)
    {
        return Ok(cached);
    }
    Cached::new(content, &opened).ok_or_else(|| CodeError::TooLarge(elf_path.to_owned()))
}

fn build(
    path: &Path,
    image: &Bytes,
    stamp: &Stamp,
    make_plan: &dyn Fn(&Object<'_>, &Analysis) -> Vec<u8>,
) -> Result<Bytes, CodeError> {
    let object = Object::parse(image.bytes()).map_err(|source| CodeError::Image {
        path: path.to_owned(),
        source,
    })?;
    image.release_pages();
    let analysis = analyze(&object);
    image.release_pages();
    let plan = make_plan(&object, &analysis);
    let summary = analysis.summary;
    drop(analysis);
    let code = object.code_ranges.iter().map(|r| r.bytes);
    let module_hash = code.fold(hash_bytes(0, object.build_id), hash_bytes);
    let content = encode(&object, &summary, &plan, stamp, module_hash);
    content
        .map(Bytes::owned)
        .ok_or_else(|| CodeError::TooLarge(path.to_owned()))
}

fn open(folder: &Path, owner: u32, stamp: &Stamp) -> Option<Cached> {
    let path = folder.join(stamp.file_name());
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_NOFOLLOW)
        .open(path)
        .ok()?;
    let metadata = file.metadata().ok()?;
    let is_private = metadata.mode() & 0o022 == 0;
    if !metadata.is_file() || metadata.uid() != owner || !is_private {
        return None;
    }
    Cached::new(Bytes::map(&file).ok()?, stamp)
}

/// Written beside, then renamed; `None` when anything failed, and then nothing is left.
fn store(folder: &Path, owner: u32, stamp: &Stamp, content: &[u8]) -> Option<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    if !folder.is_dir() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .ok()?;
    }
    let there = fs::metadata(folder).ok()?;
    if there.uid() != owner {
        return None;
    }
    if there.mode() & 0o077 != 0 {
        // Made by hand, or by somebody else's version of us: which programs were looked at is
        // nobody's business.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).ok()?;
    }
    let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Relaxed));
    let temporary = folder.join(format!("{}.{process}.{number}.tmp", stamp.file_name()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&temporary, folder.join(stamp.file_name())));
    if written.is_err() {
        // Nothing more can be done about a file that cannot be removed.
        let _ = fs::remove_file(&temporary);
    }
    written.ok()
}

fn default_folder() -> Option<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("sptrace"))
}

/// Effective user id: the owner of our own entry in /proc.
fn own_user() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|m| m.uid())
}
