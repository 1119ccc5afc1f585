//! Analyses for all users of a machine, which root has made, or a package brings along.
//!
//! Their key is the build id, not where the image lies: a file that was made elsewhere serves here.
//! A build id proves nothing about the bytes, so one is used only if the hash of the image's code
//! is that of the image that was analysed. Given folders and an image; gives content for the
//! user's own folder. Must not know how an analysis is made.

use std::path::Path;

use sptrace_image::Object;

use super::files::{self, Readers};
use super::layout::{Stamp, restamp};
use super::module_hash;
use crate::bytes::Bytes;

/// root owns what all users trust.
const ROOT: u32 = 0;

/// The file's name, without an ending; None: the image has no build id.
fn key(object: &Object<'_>) -> Option<String> {
    let hex = |byte: &u8| format!("{byte:02x}");
    let is_usable = !object.build_id.is_empty();
    is_usable.then(|| object.build_id.iter().map(hex).collect())
}

/// Content for `stamp` from one of the folders.
pub(super) fn find(
    folders: &[impl AsRef<Path>],
    object: &Object<'_>,
    stamp: &Stamp,
) -> Option<Vec<u8>> {
    let name = files::name_of(&key(object)?);
    let of_folder = |folder: &Path| {
        let file = files::open(&folder.join(&name), ROOT)?;
        let content = Bytes::map(&file).ok()?;
        restamp(content.bytes(), stamp, module_hash(object))
    };
    folders.iter().find_map(|folder| of_folder(folder.as_ref()))
}

/// Puts content into a folder for all users; None: the image has no build id, or the folder cannot
/// be written.
pub(super) fn put(
    folder: &Path,
    owner: u32,
    object: &Object<'_>,
    stamp: &Stamp,
    content: &[u8],
) -> Option<()> {
    let name = files::name_of(&key(object)?);
    let content = restamp(content, &stamp.without_place(), module_hash(object))?;
    files::store(folder, owner, &name, &content, Readers::All)
}
