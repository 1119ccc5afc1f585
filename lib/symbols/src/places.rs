//! Which file has the debug information of an image.
//!
//! Looked for as debuggers do (GDB manual, "Separate Debug Files"): by build id below each folder's
//! `.build-id`, then by the name in `.gnu_debuglink` beside the image, in `.debug` beside it, and
//! below each folder under the image's own path; at last from a server, if that is asked for. What
//! is found by build id must have it; what is found by name must have it, or the checksum if the
//! image has none. Given paths and ids; gives bytes, and sentences about what was refused.

use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use sptrace_image::DebugLinks;

use crate::debuginfod::Servers;

/// Where distributions put debug files.
const OF_DISTRIBUTION: &str = "/usr/lib/debug";
/// A debug file that is larger is not read: the largest known ones have some six GB.
const MOST_BYTES: u64 = 16 << 30;

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Folders that count before that of the distribution.
    pub folders: Vec<PathBuf>,
    /// Asked if no folder has it.
    pub servers: Option<Servers>,
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// Where the image lies, or lay.
    pub path: &'a Path,
    /// Empty: it has none.
    pub build_id: &'a [u8],
    /// What it says in `.gnu_debuglink`.
    pub link: Option<(&'a str, u32)>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The file, and its bytes.
    pub file: Option<(PathBuf, Vec<u8>)>,
    /// The file that it refers to by `.gnu_debugaltlink`.
    pub supplement: Option<Vec<u8>>,
    /// What was there and is not the image's, in a sentence each.
    pub refused: Vec<String>,
}

static PLACES: OnceLock<Places> = OnceLock::new();

/// Says where is looked from now on, once, before anything is looked for. False: too late.
pub fn set_places(places: Places) -> bool {
    PLACES.set(places).is_ok()
}

/// Where is looked: what was said, or the distribution's folder alone.
pub fn places() -> &'static Places {
    PLACES.get_or_init(Places::default)
}

impl Places {
    /// The debug information of an image: its own, or that of its debug file, with what that refers
    /// to.
    pub fn debug_information(&self, image: &[u8], path: &Path) -> Found {
        let links = DebugLinks::of(image);
        let mut found = match links.has_debug_information {
            true => Found {
                file: Some((path.to_owned(), image.to_vec())),
                ..Found::default()
            },
            false => self.debug_file(Image {
                path,
                build_id: links.build_id,
                link: links.link,
            }),
        };
        self.supply(&mut found);
        found
    }

    /// The same of an image that is not there any more.
    pub fn without_image(&self, image: Image<'_>) -> Found {
        let mut found = self.debug_file(image);
        self.supply(&mut found);
        found
    }

    /// The debug file of an image, without what that refers to.
    pub fn debug_file(&self, image: Image<'_>) -> Found {
        let mut found = Found::default();
        for (path, is_by_id) in self.candidates(image) {
            let Ok(bytes) = read(&path) else { continue };
            match refusal(&path, &bytes, image, is_by_id) {
                None => {
                    found.file = Some((path, bytes));
                    return found;
                }
                Some(why) => found.refused.push(why),
            }
        }
        if let Some(servers) = &self.servers
            && !image.build_id.is_empty()
        {
            match servers.debug_file(image.build_id) {
                Ok(Some((path, bytes))) => match refusal(&path, &bytes, image, true) {
                    None => found.file = Some((path, bytes)),
                    Some(why) => found.refused.push(why),
                },
                Ok(None) => {}
                Err(why) => found.refused.push(why),
            }
        }
        found
    }

    /// With what its debug information refers to.
    fn supply(&self, found: &mut Found) {
        let Some((path, bytes)) = &found.file else {
            return;
        };
        let Some((name, id)) = DebugLinks::of(bytes).alternate else {
            return;
        };
        let beside = path.parent().unwrap_or(Path::new("/")).join(name);
        let by_id = self.roots().filter_map(|folder| by_build_id(folder, id));
        let mut refused = Vec::new();
        for candidate in std::iter::once(beside).chain(by_id) {
            let Ok(bytes) = read(&candidate) else {
                continue;
            };
            if DebugLinks::of(&bytes).build_id == id {
                found.supplement = Some(bytes);
                return;
            }
            refused.push(format!(
                "{} is not used: its build id is not the one that {} refers to",
                candidate.display(),
                path.display()
            ));
        }
        if refused.is_empty() {
            refused.push(format!(
                "{} refers to {name}, which is not there: some names and types are missing (install it beside)",
                path.display()
            ));
        }
        found.refused.append(&mut refused);
    }

    /// A number that changes if another file would be found: 0 if none would be.
    pub fn stamp(&self, image: Image<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        let mut is_any = false;
        let of_server = self
            .servers
            .as_ref()
            .map(|servers| servers.kept_at(image.build_id));
        let all = self.candidates(image).into_iter().map(|(path, _)| path);
        for path in all.chain(of_server) {
            let Ok(metadata) = fs::metadata(&path) else {
                continue;
            };
            is_any = true;
            path.hash(&mut hasher);
            same_file(&metadata).hash(&mut hasher);
        }
        // Whoever asks servers for the first time has not looked everywhere yet.
        if self.servers.is_some() {
            is_any = true;
            "servers".hash(&mut hasher);
        }
        if is_any { hasher.finish().max(1) } else { 0 }
    }

    fn roots(&self) -> impl Iterator<Item = &Path> {
        let own = self.folders.iter().map(PathBuf::as_path);
        own.chain(std::iter::once(Path::new(OF_DISTRIBUTION)))
    }

    /// Where the file may lie, and whether it is the build id by which it lies there.
    fn candidates(&self, image: Image<'_>) -> Vec<(PathBuf, bool)> {
        let mut all: Vec<(PathBuf, bool)> = Vec::new();
        if !image.build_id.is_empty() {
            let by_id = self
                .roots()
                .filter_map(|root| by_build_id(root, image.build_id));
            all.extend(by_id.map(|path| (path, true)));
        }
        let Some((name, _)) = image.link else {
            return all;
        };
        let Some(folder) = image.path.parent().filter(|_| is_plain(name)) else {
            return all;
        };
        all.push((folder.join(name), false));
        all.push((folder.join(".debug").join(name), false));
        if let Ok(below) = folder.strip_prefix("/") {
            let roots = self
                .roots()
                .map(|root| (root.join(below).join(name), false));
            all.extend(roots);
        }
        let flat = self.folders.iter().map(|root| (root.join(name), false));
        all.extend(flat);
        all.retain(|(path, _)| path != image.path);
        all
    }
}

/// A name, not a way into other folders.
fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!(parts.next(), Some(Component::Normal(_))) && parts.next().is_none()
}

/// `FOLDER/.build-id/xx/yyyy.debug`.
fn by_build_id(folder: &Path, build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let hex = crate::debuginfod::hex;
    let name = format!("{}.debug", hex(rest));
    Some(folder.join(".build-id").join(hex(&[*first])).join(name))
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() || metadata.len() > MOST_BYTES {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    fs::read(path)
}

/// Why a file is not the image's.
fn refusal(path: &Path, bytes: &[u8], image: Image<'_>, is_by_id: bool) -> Option<String> {
    let (shown, of) = (path.display(), image.path.display());
    let own = DebugLinks::of(bytes);
    if !image.build_id.is_empty() && !own.build_id.is_empty() {
        return (own.build_id != image.build_id).then(|| {
            format!("{shown} is not used: its build id is not that of {of} (install the one of this build)")
        });
    }
    match image.link {
        Some((_, crc)) if !is_by_id => (crc32fast::hash(bytes) != crc).then(|| {
            format!("{shown} is not used: its checksum is not the one that {of} states (install the one of this build)")
        }),
        _ => Some(format!("{shown} is not used: it has no build id to compare with that of {of}")),
    }
}

fn same_file(metadata: &Metadata) -> [u64; 3] {
    [
        metadata.size(),
        metadata.mtime() as u64,
        metadata.mtime_nsec() as u64,
    ]
}
