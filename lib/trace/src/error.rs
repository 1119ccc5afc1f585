//! What can go wrong with a trace file, as data; the binary makes it a sentence for the user.

use std::io;

/// Why a trace could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The output refused bytes (disk full, closed pipe).
    #[error("cannot write the trace: {0}")]
    Write(#[source] io::Error),
    /// The input could not be read.
    #[error("cannot read the trace: {0}")]
    Read(#[source] io::Error),
    /// The path names a directory or a device, or the input cannot be sought in.
    #[error("not a regular file")]
    NotAFile,
    /// No bytes at all.
    #[error("the file is empty")]
    Empty,
    /// The magic at the beginning is missing.
    #[error("not an sptrace trace")]
    NotATrace,
    /// Written by another version of the format.
    #[error("trace format {found}, this sptrace reads format {known}")]
    Version {
        /// Version stated in the file.
        found: u32,
        /// The only version this library reads.
        known: u32,
    },
    /// The bytes contradict the format or their checksum.
    #[error("the trace is damaged at byte {offset}: {what}")]
    Damaged {
        /// File offset of the damaged section.
        offset: u64,
        /// Which rule is broken.
        what: &'static str,
    },
    /// More modules, functions or streams than the format can number.
    #[error("too many {0} for one trace")]
    TooMany(&'static str),
}

/// A rule of the format that a section's bytes break; the reader adds the offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl Malformed {
    /// The error for a section that begins at `offset`.
    pub fn at(self, offset: u64) -> TraceError {
        TraceError::Damaged {
            offset,
            what: self.0,
        }
    }
}
