//! What a first pass has added up, kept beside the trace: the second one need not read it again.
//!
//! Given a trace's [`Survey`], whose digest is over the checksums of all sections; gives [`Stats`]
//! and [`Snapshots`] that were kept for just that content, or says why not. A file that is torn, of
//! another trace, or of another sptrace is not used; one that was made to mislead may say what a
//! trace could say too, and nothing else. Written to a new file that then takes the place of the
//! old one.
//!
//! ```text
//! file = magic, version, digest u64, length of the rest u32, its crc32, stats, snapshots
//! ```

use crate::error::Malformed;
use crate::format::Cursor;
use crate::reader::Survey;
use crate::replay::Snapshots;
use crate::stats::Stats;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"sptrindx";
/// Raised with every change of what stands in an index, or of what its numbers mean.
const VERSION: u32 = 3;
const HEAD_BYTES: usize = 28;
/// Longer ones are not read: half a million functions have some 50 MB.
const MAX_BYTES: u64 = 256 << 20;

/// Why there are no kept sums.
#[derive(Debug)]
pub enum NoIndex {
    /// None was written.
    Absent,
    /// It is of another trace, or of another sptrace.
    Foreign,
    /// It is torn, or damaged.
    Damaged(&'static str),
    /// It cannot be read.
    Read(io::Error),
}

/// Where the index of a trace is.
pub fn path_of(trace: &Path) -> PathBuf {
    let mut name = OsString::from(trace);
    name.push(".index");
    name.into()
}

/// The sums that were kept for this trace, and its snapshots.
///
/// # Errors
/// [`NoIndex`].
pub fn load(trace: &Path, survey: &Survey) -> Result<(Stats, Snapshots), NoIndex> {
    let path = path_of(trace);
    let file = match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(NoIndex::Absent),
        opened => opened.map_err(NoIndex::Read)?,
    };
    if !file.metadata().map_err(NoIndex::Read)?.is_file() {
        return Err(NoIndex::Damaged("it is no file"));
    }
    let mut bytes = Vec::new();
    let read = file.take(MAX_BYTES).read_to_end(&mut bytes);
    read.map_err(NoIndex::Read)?;
    self::read(&bytes, survey)
}

/// The same from the bytes of an index.
///
/// # Errors
/// [`NoIndex::Foreign`] and [`NoIndex::Damaged`].
pub fn read(bytes: &[u8], survey: &Survey) -> Result<(Stats, Snapshots), NoIndex> {
    let (head, payload) = bytes
        .split_at_checked(HEAD_BYTES)
        .ok_or(NoIndex::Damaged("it is too short"))?;
    let number = |at: usize| {
        let mut number = [0; 8];
        number[..4].copy_from_slice(&head[at..at + 4]);
        u64::from_le_bytes(number)
    };
    let digest = number(12) | number(16) << 32;
    if !head.starts_with(&MAGIC) || number(8) != u64::from(VERSION) || digest != survey.digest {
        return Err(NoIndex::Foreign);
    }
    if number(20) != payload.len() as u64 || number(24) != u64::from(crc32fast::hash(payload)) {
        return Err(NoIndex::Damaged("its checksum is wrong"));
    }
    read_both(payload, survey).map_err(|Malformed(what)| NoIndex::Damaged(what))
}

fn read_both(payload: &[u8], survey: &Survey) -> Result<(Stats, Snapshots), Malformed> {
    let mut from = Cursor::new(payload);
    let stats = Stats::read(&mut from, &survey.dictionary)?;
    let snapshots = Snapshots::read(&mut from, &survey.dictionary)?;
    match from.is_empty() {
        true => Ok((stats, snapshots)),
        false => Err(Malformed("more bytes than sums")),
    }
}

/// Keeps sums of the whole of a trace, and its snapshots.
///
/// # Errors
/// Those of the file system; nothing is left behind then.
pub fn save(trace: &Path, survey: &Survey, stats: &Stats, snapshots: &Snapshots) -> io::Result<()> {
    let mut payload = Vec::new();
    stats.write(&mut payload);
    snapshots.write(&mut payload);
    let bytes = with_head(&payload, survey)?;
    let path = path_of(trace);
    let mut new = path.clone().into_os_string();
    new.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(new);
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(&new);
    let written = opened.and_then(|mut file| file.write_all(&bytes));
    let placed = written.and_then(|()| fs::rename(&new, &path));
    if placed.is_err() {
        // It may not be there.
        let _ = fs::remove_file(&new);
    }
    placed
}

/// The bytes of an index of this trace, in which `payload` stands behind the head.
///
/// # Errors
/// It is longer than the head can say.
pub fn with_head(payload: &[u8], survey: &Survey) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + payload.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&survey.digest.to_le_bytes());
    let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
    bytes.extend_from_slice(payload);
    Ok(bytes)
}
