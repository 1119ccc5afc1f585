//! The cache of analyses: one file for each image, quickly read.
//!
//! Place: the user's own folder ([`Places`]), one file `<key>.analysis`, the key being a hash of
//! device, inode, size and modification time of the image and of both versions. A warm start
//! therefore reads no byte of the image (and looks whether its debug file is the one that gave
//! names); its build id and code are hashed into the module hash when the file is built. Equal
//! stamps do not prove equal bytes: who patches compares bytes first. What is not there may lie in
//! a folder of all users, by its build id (`cache/shared.rs`), and is copied from there.
//!
//! ```text
//! offset 0   Header (cache/layout.rs): magic, versions, stamp, hashes, sizes, summary
//!            NameRecord[name_count]      12 bytes each
//!            ImportRecord[import_count]   8 bytes each
//!            strings
//!            plan
//!            path of the image, to the end: for those who look into the folder
//! ```
//!
//! Nothing is packed: a program waits for its plan, and most of a file is never looked at.
//!
//! Little-endian. Addresses are 32-bit offsets from `Header::base_svma`. Functions and sites are in
//! the plan and nowhere else. A file is written under a temporary name and renamed, so that readers
//! see all of it or nothing; one that was torn by a crash of the system is found by its content
//! hash. Files and folders of other users, links, other versions and other stamps are never used;
//! those of root in its folder for all users are. No failure of the cache is an error: the analysis
//! is then done anew and kept in memory. Beside a file may lie what recordings have learned of its
//! image (`cache/beside.rs`).

mod beside;
mod cached;
mod files;
mod layout;
mod places;
mod plan;
mod shared;

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use sptrace_image::Object;

pub use beside::Beside;
pub use cached::Cached;
pub use files::{Kept, clear, list};
pub use places::{DEFAULT_LIMIT_BYTES, Places};
pub use plan::Plan;

use crate::analyze::analyze;
use crate::bytes::Bytes;
use crate::error::CodeError;
use crate::hash::hash_bytes;
use crate::model::Analysis;
use files::Readers;
use layout::{Stamp, encode};

/// Changes whenever the layout of the file or the meaning of an analysis does.
const FORMAT_VERSION: u32 = 15;

/// Makes of an image and its analysis what is kept beside them: the plan.
pub type MakePlan<'a> = &'a dyn Fn(&Object<'_>, &Analysis) -> Vec<u8>;

/// The analysis of the image at `elf_path`, and the plan that `make_plan` makes of it: from the
/// cache, or built and put there. `plan_version` is part of the key.
///
/// # Errors
/// [`CodeError`] when the file cannot be read or is no image; never because of the cache.
pub fn load_or_build(
    places: &Places,
    elf_path: &Path,
    plan_version: u32,
    make_plan: MakePlan<'_>,
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
    let own = places.own.as_deref().zip(own_user());
    if let Some((folder, owner)) = own
        && let Some(cached) = open(folder, owner, &stamp)
    {
        log::debug!("analysis of {} was kept", elf_path.display());
        return Ok(cached);
    }
    let began = Instant::now();
    let image = Image::open(elf_path, plan_version)?;
    let object = image.object(elf_path)?;
    let (content, how) = match shared::find(&places.shared, &object, &image.stamp) {
        Some(content) => (Bytes::owned(content), "taken from those of all users"),
        None => (image.build(elf_path, &object, make_plan)?, "made"),
    };
    let elapsed_ms = began.elapsed().as_millis();
    log::info!(
        "analysis of {} {how} in {elapsed_ms} ms",
        elf_path.display()
    );
    if let (Some((folder, owner)), true) = (own, image.is_unchanged()) {
        let name = image.stamp.file_name();
        if files::store(folder, owner, &name, content.bytes(), Readers::Owner).is_some() {
            files::make_room(folder, places.limit_bytes, &name);
            if let Some(cached) = open(folder, owner, &image.stamp) {
                return Ok(cached);
            }
        }
    }
    Cached::new(content, &image.stamp).ok_or_else(|| CodeError::TooLarge(elf_path.to_owned()))
}

/// What the user's own folder has of the image at `elf_path`, if it has it.
pub fn kept(places: &Places, elf_path: &Path, plan_version: u32) -> Option<Cached> {
    let metadata = fs::metadata(elf_path).ok().filter(fs::Metadata::is_file)?;
    let stamp = Stamp::new(&metadata, FORMAT_VERSION, plan_version);
    open(places.own.as_deref()?, own_user()?, &stamp)
}

/// Analyses the image at `elf_path` and puts that into `folder` for all users, who must be able to
/// trust its owner. False: what is there is this image's already.
///
/// # Errors
/// [`CodeError`] when the file cannot be read or is no image, has no build id, or when the folder
/// cannot be written.
pub fn fill(
    folder: &Path,
    elf_path: &Path,
    plan_version: u32,
    make_plan: MakePlan<'_>,
) -> Result<bool, CodeError> {
    let image = Image::open(elf_path, plan_version)?;
    let object = image.object(elf_path)?;
    if object.build_id.is_empty() {
        return Err(CodeError::NoBuildId(elf_path.to_owned()));
    }
    if shared::find(&[folder], &object, &image.stamp).is_some() {
        return Ok(false);
    }
    let content = image.build(elf_path, &object, make_plan)?;
    let put = |owner| shared::put(folder, owner, &object, &image.stamp, content.bytes());
    match own_user().and_then(put) {
        Some(()) => Ok(true),
        None => Err(CodeError::NotWritten(folder.to_owned())),
    }
}

/// The image of which a file is: its path, as it was when the analysis was made. None: the file is
/// none of this version.
pub fn image_of(kept: &Kept) -> Option<std::path::PathBuf> {
    let bytes = Bytes::open(&kept.path).ok()?;
    layout::origin(bytes.bytes(), FORMAT_VERSION)
}

/// An image that is being read.
struct Image {
    file: File,
    bytes: Bytes,
    /// As it was when it was opened.
    stamp: Stamp,
}

impl Image {
    fn open(path: &Path, plan_version: u32) -> Result<Self, CodeError> {
        let read_error = |source| CodeError::Read {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(read_error)?;
        let metadata = file.metadata().map_err(read_error)?;
        if !metadata.is_file() {
            return Err(CodeError::NotAFile(path.to_owned()));
        }
        Ok(Self {
            bytes: Bytes::map(&file).map_err(read_error)?,
            stamp: Stamp::new(&metadata, FORMAT_VERSION, plan_version),
            file,
        })
    }

    fn object(&self, path: &Path) -> Result<Object<'_>, CodeError> {
        Object::parse(self.bytes.bytes()).map_err(|source| CodeError::Image {
            path: path.to_owned(),
            source,
        })
    }

    /// An image that changed while it was read is not kept.
    fn is_unchanged(&self) -> bool {
        let now = self.file.metadata();
        now.is_ok_and(|now| self.stamp.is_of(&now))
    }

    fn build(
        &self,
        path: &Path,
        object: &Object<'_>,
        make_plan: MakePlan<'_>,
    ) -> Result<Bytes, CodeError> {
        self.bytes.release_pages();
        let analysis = analyze(object);
        self.bytes.release_pages();
        let plan = make_plan(object, &analysis);
        let summary = analysis.summary;
        drop(analysis);
        let hash = module_hash(object);
        let content = encode((object, path), &summary, &plan, &self.stamp, hash);
        content
            .map(Bytes::owned)
            .ok_or_else(|| CodeError::TooLarge(path.to_owned()))
    }
}

/// A number of an image by its build id and code.
pub fn module_hash(object: &Object<'_>) -> u64 {
    let code = object.code_ranges.iter().map(|r| r.bytes);
    code.fold(hash_bytes(0, object.build_id), hash_bytes)
}

fn open(folder: &Path, owner: u32, stamp: &Stamp) -> Option<Cached> {
    let file = files::open(&folder.join(stamp.file_name()), owner)?;
    let cached = Cached::open(&file, stamp)?;
    files::touch(&file);
    let beside = Beside::of(folder, owner, &stamp.file_name());
    Some(cached.with(beside))
}

/// Effective user id: the owner of our own entry in /proc.
fn own_user() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|m| m.uid())
}
