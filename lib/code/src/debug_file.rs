//! Where the debug file of an image lies, and the names that it adds.
//!
//! Debian's `-dbgsym` packages put it at `/usr/lib/debug/.build-id/xx/yyyy.debug`, xx being the
//! first byte of the build id (GDB manual, "Separate Debug Files"). Only names are taken from it:
//! what is patched must not depend on whether it is installed.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use sptrace_image::{Object, debug_symbols};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::bytes::Bytes;
use crate::names::{self, Name};

const FOLDER: &str = "/usr/lib/debug/.build-id";

/// The names of an image, its own and those of its debug file, sorted by address, one for each
/// address.
pub fn names(object: &Object<'_>) -> Vec<Name> {
    let bytes = path(object.build_id).and_then(|path| Bytes::open(&path).ok());
    let symbols = bytes
        .as_ref()
        .map_or(Vec::new(), |b| debug_symbols(b.bytes(), object));
    names::names(object, &symbols)
}

/// Which debug file there was: all zero for none.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub(crate) struct DebugStamp {
    size_bytes: u64,
    modified_s: u64,
}

impl DebugStamp {
    /// Of the image with this build id, now.
    pub fn now(build_id: &[u8]) -> Self {
        let metadata = path(build_id).and_then(|path| std::fs::metadata(path).ok());
        metadata.map_or(Self::default(), |m: Metadata| Self {
            size_bytes: m.size(),
            modified_s: m.mtime() as u64,
        })
    }
}

/// Where the debug file of the image with this build id would be.
pub fn path(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
    let name = format!("{}.debug", hex(rest));
    Some([FOLDER, &hex(&[*first]), &name].iter().collect())
}
