//! Analysis and plan of a file, made anew each time.

use std::path::Path;
use sptrace_addr::Svma;
use sptrace_code::{Analysis, Name};
use sptrace_image::Object;

/// Analysis results of one file.
pub struct Cached {
    plan: Vec<u8>,
    names: Vec<Name>,
    build_id: Vec<u8>,
}

impl Cached {
    /// The plan.
    pub fn plan(&self) -> &[u8] {
        &self.plan
    }
    /// The build id.
    pub fn build_id(&self) -> &[u8] {
        &self.build_id
    }
    /// Size and name of the function at `svma`.
    pub fn name_at(&self, svma: Svma) -> Option<(u64, &str)> {
        let i = self.names.binary_search_by_key(&svma, |n| n.svma).ok()?;
        self.names.get(i).map(|n| (n.size_bytes, n.name.as_str()))
    }
}

/// Analyses a file.
///
/// # Errors
/// It cannot be read or is no image.
pub fn load_or_build(
    _dir: Option<&Path>,
    path: &Path,
    _version: u32,
    make_plan: &dyn Fn(&Object<'_>, &Analysis) -> Vec<u8>,
) -> Result<Cached, std::io::Error> {
    let bytes = std::fs::read(path)?;
    let object = Object::parse(&bytes).map_err(std::io::Error::other)?;
    let analysis = sptrace_code::analyze(&object);
    Ok(Cached {
        plan: make_plan(&object, &analysis),
        names: sptrace_code::names(&object),
        build_id: object.build_id.to_vec(),
    })
}
