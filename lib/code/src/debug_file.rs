//! The names that the debug file of an image adds.
//!
//! Where it lies the crate `symbols` says. Only names are taken from it: what is patched must not
//! depend on whether it is installed.

use std::path::Path;

use sptrace_image::{Object, debug_symbols};
use sptrace_symbols::{Image, places};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::names::{self, Name};

/// The names of an image, its own and those of its debug file, sorted by address, one for each
/// address. `path` is where it lies.
pub fn names(object: &Object<'_>, path: &Path) -> Vec<Name> {
    let found = places().debug_file(Image {
        path,
        build_id: object.build_id,
        link: object.debug_link,
    });
    for why in &found.refused {
        log::warn!("{why}");
    }
    let symbols = found
        .file
        .as_ref()
        .map_or(Vec::new(), |(_, bytes)| debug_symbols(bytes, object));
    names::names(object, &symbols)
}

/// Which debug files there were: 0 for none.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub(crate) struct DebugStamp(u64);

impl DebugStamp {
    /// Of an image, now; `link`: the name of its debug file, if it states one.
    pub fn now(path: &Path, build_id: &[u8], link: Option<&str>) -> Self {
        Self(places().stamp(Image {
            path,
            build_id,
            link: link.map(|name| (name, 0)),
        }))
    }
}
