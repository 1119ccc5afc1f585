//! Where a report goes: stdout, or a file that `-o` names.
//!
//! Given the path, or `-`; gives something to write to. Refuses to write over the trace that is
//! read. Knows nothing of what is written.

use super::pager::{self, Paged};
use anyhow::{Context, anyhow, bail};
use sptrace_trace::TraceError;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const BUFFER_BYTES: usize = 64 << 10;

/// Does it go to stdout?
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Does it go to a terminal?
pub fn is_terminal(path: &Path) -> bool {
    is_stdout(path) && io::stdout().is_terminal()
}

/// Opens a file of several in a folder; folders are made.
///
/// # Errors
/// Those of the file system, with the file's name.
pub fn open_part(folder: &Path, name: &str) -> io::Result<Box<dyn Write + Send>> {
    let path = folder.join(name);
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(named)?;
    }
    let file = File::create(&path).map_err(named)?;
    Ok(Box::new(BufWriter::with_capacity(BUFFER_BYTES, file)))
}

/// Opens the output; a file is emptied. What somebody reads (`is_read`) goes through a pager, where
/// standard output is a terminal.
///
/// # Errors
/// A sentence for the user, if it cannot be written or is the trace.
pub fn open(path: &Path, trace: &Path, is_read: bool) -> anyhow::Result<Box<dyn Write + Send>> {
    if is_stdout(path) {
        let pager = if is_read && is_terminal(path) {
            pager::named()
        } else {
            None
        };
        return Ok(Box::new(Paged::new(pager)));
    }
    let is_same = |a: &Metadata, b: &Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    if let (Ok(old), Ok(trace)) = (fs::metadata(path), fs::metadata(trace))
        && is_same(&old, &trace)
    {
        bail!(
            "-o {} is the trace itself; name another file",
            path.display()
        );
    }
    let file = File::create(path).map_err(|error| anyhow::anyhow!("{error}"));
    let file = file.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Box::new(BufWriter::with_capacity(BUFFER_BYTES, file)))
}

/// A sentence about a trace that cannot be read, with a hint where there is one.
pub(crate) fn explain(path: &Path, error: TraceError) -> anyhow::Error {
    let path = path.display();
    match error {
        TraceError::Read(error) if error.kind() == ErrorKind::NotFound => {
            anyhow!("cannot open {path}: no such file (record one with `sptrace run -- COMMAND`)")
        }
        TraceError::Read(error) => anyhow!("cannot read {path}: {error}"),
        error @ TraceError::Version { .. } => {
            anyhow!("cannot read {path}: {error} (use the sptrace that recorded it)")
        }
        error @ TraceError::Damaged { .. } => {
            anyhow!("cannot read {path}: {error} (record it again)")
        }
        error => anyhow!("cannot read {path}: {error} (`sptrace run` writes sptrace.data)"),
    }
}

/// Nobody reads what is written any more.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}
