//! A ring as it is at one moment, made an ordinary ring file.
//!
//! Given the file of a ring between two writes; gives a trace in the same format whose region is
//! just filled by what the ring held and what was added since. The ring is only read. Must not
//! know: why the copy is made, or where it is kept.

use super::{Dropped, SECTION_HEADER, State, TraceFile};
use crate::error::TraceError;
use crate::format::{SectionKind, put_section};
use crate::note::Note;
use crate::summary::Summary;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// What a ring held.
pub struct Snapshot {
    head: Vec<u8>,
    region: Vec<u8>,
    names: Vec<u8>,
    dropped: Dropped,
}

impl Snapshot {
    /// Copies the ring in `file`.
    ///
    /// # Errors
    /// It cannot be read, or is no ring.
    pub fn of(file: &File) -> io::Result<Self> {
        let ring = TraceFile::new(file.try_clone()?)?;
        let &[head, names, older, newer, _end] = &ring.parts[..] else {
            return Err(io::Error::other("it is not a ring"));
        };
        let read = |(start, end): (u64, u64)| {
            let mut bytes = vec![0; end.saturating_sub(start) as usize];
            file.read_exact_at(&mut bytes, start).map(|()| bytes)
        };
        let mut region = read(older)?;
        region.append(&mut read(newer)?);
        Ok(Self {
            head: read(head)?,
            region,
            names: read(names)?,
            dropped: ring.dropped.unwrap_or_default(),
        })
    }

    /// Adds blocks, as [`crate::TraceWriter::pack`] gives them.
    pub fn add_blocks(&mut self, sections: &[u8]) {
        self.region.extend_from_slice(sections);
    }

    /// Adds a note.
    pub fn add_note(&mut self, note: &Note) {
        let mut payload = Vec::new();
        note.write(&mut payload);
        put_section(&mut self.region, SectionKind::Note, &payload);
    }

    /// What the ring had dropped.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Writes it all as a trace that ended in order.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn write(&self, mut out: impl Write, summary: &Summary) -> Result<(), TraceError> {
        let start =
            self.head.len() as u64 + SECTION_HEADER + crate::format::RING_PAYLOAD_BYTES as u64;
        let end = start + self.region.len() as u64;
        let ring = State {
            region_start: start,
            region_end: end,
            first: start,
            first_end: end,
            next: start,
            dropped: self.dropped,
        };
        let mut payload = Vec::new();
        summary.write(&mut payload);
        let mut last = Vec::new();
        put_section(&mut last, SectionKind::End, &payload);
        for part in [&self.head, &ring.bytes(), &self.region, &self.names, &last] {
            out.write_all(part).map_err(TraceError::Write)?;
        }
        out.flush().map_err(TraceError::Write)
    }
}
