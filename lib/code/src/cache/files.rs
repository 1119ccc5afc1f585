//! The files of a folder of analyses: opening, writing, looking through, making room.
//!
//! Given folders and content; gives files that may be trusted as far as their owner. Must not know
//! what an analysis is.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// Of open(2): do not follow a link. The value is that of x86-64.
const O_NOFOLLOW: i32 = 0o400_000;
/// How a file of an analysis ends.
const ENDING: &str = "analysis";
/// How a file ends that says what was learned of an image ([`super::beside`]).
pub(super) const LEARNED: &str = "learned";
/// A file that is being written, and whose writer is gone after so long.
const ABANDONED: Duration = Duration::from_secs(3600);
/// The time of the last use is written down this often, so that a warm start writes nothing.
const USES_APART: Duration = Duration::from_secs(3600);

/// Whose folder it is, and hence who may read what is written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readers {
    /// Its owner alone: which programs were looked at is nobody's business.
    Owner,
    /// Everybody: it is the system's.
    All,
}

/// A file of a folder of analyses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Where it lies.
    pub path: PathBuf,
    /// Its size, with what lies beside it.
    pub bytes: u64,
    /// When it was made, or used last.
    pub used: SystemTime,
}

/// Opens a file that `owner` has written and nobody else may write.
pub(super) fn open(path: &Path, owner: u32) -> Option<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_NOFOLLOW)
        .open(path)
        .ok()?;
    let metadata = file.metadata().ok()?;
    let is_private = metadata.mode() & 0o022 == 0;
    (metadata.is_file() && metadata.uid() == owner && is_private).then_some(file)
}

/// Writes down that the file is used now.
pub(super) fn touch(file: &File) {
    let now = SystemTime::now();
    let last = file.metadata().and_then(|m| m.modified());
    if last.is_ok_and(|last| now.duration_since(last).is_ok_and(|d| d > USES_APART)) {
        // A file system that is read only forgets which file is in use; nothing else follows.
        let _ = file.set_modified(now);
    }
}

/// Written beside, then renamed; `None` when anything failed, and then nothing is left.
pub(super) fn store(
    folder: &Path,
    owner: u32,
    name: &str,
    content: &[u8],
    readers: Readers,
) -> Option<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let (folder_mode, file_mode) = match readers {
        Readers::Owner => (0o700, 0o600),
        Readers::All => (0o755, 0o644),
    };
    if !folder.is_dir() {
        DirBuilder::new()
            .recursive(true)
            .mode(folder_mode)
            .create(folder)
            .ok()?;
    }
    let there = fs::metadata(folder).ok()?;
    if there.uid() != owner {
        return None;
    }
    if there.mode() & 0o777 & !folder_mode != 0 {
        // Made by hand, or by somebody else's version of us.
        fs::set_permissions(folder, fs::Permissions::from_mode(folder_mode)).ok()?;
    }
    let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Relaxed));
    let temporary = folder.join(format!("{name}.{process}.{number}.tmp"));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(file_mode)
        .open(&temporary)
        .and_then(|mut file| {
            // Whatever umask says.
            file.set_permissions(fs::Permissions::from_mode(file_mode))?;
            file.write_all(content)
        })
        .and_then(|()| fs::rename(&temporary, folder.join(name)));
    if written.is_err() {
        // Nothing more can be done about a file that cannot be removed.
        let _ = fs::remove_file(&temporary);
    }
    written.ok()
}

/// The name of a file, without its folder.
pub(super) fn name_of(key: &str) -> String {
    format!("{key}.{ENDING}")
}

/// The analyses in a folder, the one that was used last first; empty if there is no such folder.
/// What was learned of an image counts with its analysis.
pub fn list(folder: &Path) -> Vec<Kept> {
    let mut all = with_ending(folder, ENDING);
    for kept in &mut all {
        let learned = fs::metadata(kept.path.with_extension(LEARNED));
        kept.bytes += learned.map_or(0, |metadata| metadata.len());
    }
    all.sort_by(|a, b| (b.used, &b.path).cmp(&(a.used, &a.path)));
    all
}

/// Removes what was not used for longest until at most `limit_bytes` are left; `spared` stays.
/// Gives how many files and bytes are gone.
pub(super) fn make_room(folder: &Path, limit_bytes: u64, spared: &str) -> (usize, u64) {
    abandoned(folder);
    let all = list(folder);
    let mut bytes: u64 = all.iter().map(|kept| kept.bytes).sum();
    let mut gone = (0, 0);
    for kept in all.iter().rev() {
        if bytes <= limit_bytes {
            break;
        }
        let is_spared = kept.path.file_name().is_some_and(|name| name == spared);
        if !is_spared && remove(&kept.path).is_ok() {
            bytes -= kept.bytes;
            gone = (gone.0 + 1, gone.1 + kept.bytes);
        }
    }
    gone
}

/// Removes an analysis, and what was learned of its image.
pub(super) fn remove(analysis: &Path) -> std::io::Result<()> {
    // There may be none.
    let _ = fs::remove_file(analysis.with_extension(LEARNED));
    fs::remove_file(analysis)
}

/// Removes all analyses of a folder, and nothing else in it. Gives how many files and bytes.
///
/// # Errors
/// The first file that cannot be removed.
pub fn clear(folder: &Path) -> std::io::Result<(usize, u64)> {
    abandoned(folder);
    let mut gone = (0, 0);
    for kept in list(folder) {
        match fs::remove_file(&kept.path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                let why = format!("{}: {e}", kept.path.display());
                return Err(std::io::Error::new(e.kind(), why));
            }
            _ => gone = (gone.0 + 1, gone.1 + kept.bytes),
        }
    }
    for learned in with_ending(folder, LEARNED) {
        let _ = fs::remove_file(&learned.path);
    }
    Ok(gone)
}

/// Removes files whose writers were killed.
fn abandoned(folder: &Path) {
    for kept in with_ending(folder, "tmp") {
        let age = SystemTime::now().duration_since(kept.used);
        if age.is_ok_and(|age| age > ABANDONED) {
            let _ = fs::remove_file(&kept.path);
        }
    }
}

fn with_ending(folder: &Path, ending: &str) -> Vec<Kept> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let kept = |entry: fs::DirEntry| {
        let path = entry.path();
        let metadata = entry.metadata().ok()?;
        let is_one = metadata.is_file() && path.extension().is_some_and(|e| e == ending);
        is_one.then(|| {
            Some(Kept {
                bytes: metadata.len(),
                used: metadata.modified().ok()?,
                path,
            })
        })?
    };
    entries.filter_map(kept).collect()
}
