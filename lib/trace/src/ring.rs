//! A trace file that keeps only the last part of a recording.
//!
//! ```text
//! file  = preamble, header section, ring section, region, tail
//! ring  = a section of fixed length, rewritten in place: where the live sections of the region lie
//! region= blocks and notes; the newest overwrite the oldest
//! tail  = dictionary sections as they come, last the end section
//! ```
//! [`RingFile`] is given whole sections by [`crate::TraceWriter`] and puts each where it belongs.
//! The ring section is written before anything is overwritten and again after: it never names bytes
//! that are not whole, so the file can be read whenever its writer is killed. Blocks need nothing
//! but the dictionary (the frames open at their start are in them), so any of them can be the
//! first. Memory does not grow with the ring: what is dropped is found by reading its section's
//! header.
//!
//! [`Snapshot`] copies a ring that is being written into a trace of its own.
//!
//! [`TraceFile`] reads such a file, or an ordinary one, as an ordinary trace: header, dictionary,
//! the live sections from the oldest on, end.

mod snapshot;

pub use snapshot::Snapshot;

use crate::error::Malformed;
use crate::format::{
    Cursor, PREAMBLE_BYTES, RING_PAYLOAD_BYTES, SECTION_HEADER_BYTES, SectionKind, header_check,
    put_section,
};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A ring must hold a few of the largest blocks.
pub const LEAST_RING_BYTES: u64 = 2 << 20;

const SECTION_HEADER: u64 = SECTION_HEADER_BYTES as u64;
const RING_SECTION_BYTES: u64 = SECTION_HEADER + RING_PAYLOAD_BYTES as u64;

/// What the ring section says. Offsets are in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    region_start: u64,
    region_end: u64,
    /// Oldest live section.
    first: u64,
    /// End of the live sections from `first` on.
    first_end: u64,
    /// Live sections from the start of the region that are newer than those, up to here.
    next: u64,
    dropped: Dropped,
}

/// What a ring has lost of the beginning of the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Events.
    pub events: u64,
    /// Blocks.
    pub blocks: u64,
}

impl State {
    fn bytes(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(RING_PAYLOAD_BYTES);
        for value in [
            self.region_start,
            self.region_end,
            self.first,
            self.first_end,
            self.next,
            self.dropped.events,
            self.dropped.blocks,
        ] {
            payload.extend(value.to_le_bytes());
        }
        let mut section = Vec::new();
        put_section(&mut section, SectionKind::Ring, &payload);
        section
    }

    fn read(section: &[u8]) -> Option<Self> {
        let (head, payload) = section.split_at_checked(SECTION_HEADER_BYTES)?;
        let crc = u32::from_le_bytes(head.get(8..12)?.try_into().ok()?);
        if payload.len() != RING_PAYLOAD_BYTES || crc32fast::hash(payload) != crc {
            return None;
        }
        let mut values = payload.chunks_exact(8).map(|b| {
            let bytes = <[u8; 8]>::try_from(b).unwrap_or_default();
            u64::from_le_bytes(bytes)
        });
        let mut next = || values.next().unwrap_or_default();
        let state = Self {
            region_start: next(),
            region_end: next(),
            first: next(),
            first_end: next(),
            next: next(),
            dropped: Dropped {
                events: next(),
                blocks: next(),
            },
        };
        let is_ordered = state.region_start <= state.next
            && state.next <= state.first
            && state.first <= state.first_end
            && state.first_end <= state.region_end;
        is_ordered.then_some(state)
    }

    /// The parts of the region in the order in which they were written.
    fn live(&self) -> [(u64, u64); 2] {
        [(self.first, self.first_end), (self.region_start, self.next)]
    }
}

/// Where the sections of a recording go that keeps its last `ring_bytes` only.
pub struct RingFile {
    file: File,
    ring_bytes: u64,
    ring_at: u64,
    state: State,
    tail_end: u64,
    dropped_events: Arc<AtomicU64>,
}

impl RingFile {
    /// An empty ring in an empty file, which must be open for reading, too.
    pub fn new(file: File, ring_bytes: u64) -> Self {
        Self {
            file,
            ring_bytes: ring_bytes.max(LEAST_RING_BYTES),
            ring_at: 0,
            state: State::default(),
            tail_end: 0,
            dropped_events: Arc::default(),
        }
    }

    /// Events dropped so far.
    pub fn dropped_events(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.dropped_events)
    }

    /// The preamble and the header section: what a trace begins with.
    fn begin(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, 0)?;
        self.ring_at = bytes.len() as u64;
        let start = self.ring_at + RING_SECTION_BYTES;
        self.state = State {
            region_start: start,
            region_end: start + self.ring_bytes,
            first: start,
            first_end: start,
            next: start,
            dropped: Dropped::default(),
        };
        self.tail_end = self.state.region_end;
        self.write_state()
    }

    fn write_state(&self) -> io::Result<()> {
        self.file.write_all_at(&self.state.bytes(), self.ring_at)
    }

    fn section(&mut self, kind: u8, bytes: &[u8]) -> io::Result<()> {
        if kind == SectionKind::Block as u8 || kind == SectionKind::Note as u8 {
            return self.keep(bytes);
        }
        if kind == SectionKind::End as u8 {
            self.shorten()?;
        }
        self.file.write_all_at(bytes, self.tail_end)?;
        self.tail_end += bytes.len() as u64;
        Ok(())
    }

    /// Writes a section over the oldest ones.
    fn keep(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        let s = self.state;
        if s.next == s.region_start && s.first_end + length <= s.region_end {
            // Nothing was overwritten since the start of the region was: go on at the end.
            self.file.write_all_at(bytes, s.first_end)?;
            self.state.first_end += length;
            return self.write_state();
        }
        if length > s.region_end - s.region_start {
            return Err(io::Error::other("a block is larger than the ring"));
        }
        if s.next + length > s.region_end {
            self.turn()?;
        }
        while self.state.next + length > self.state.first && self.state.first < self.state.first_end
        {
            self.drop_first()?;
        }
        if self.state.first == self.state.first_end {
            // Only the newer part is left: it is the whole now, and the section follows it.
            let end = self.state.next;
            self.state.first = self.state.region_start;
            self.state.first_end = end;
            self.state.next = self.state.region_start;
            return self.keep(bytes);
        }
        self.write_state()?;
        self.file.write_all_at(bytes, self.state.next)?;
        self.state.next += length;
        self.write_state()
    }

    /// The newer part has reached the end of the region: what is left of the older part goes, and
    /// the newer one becomes the older.
    fn turn(&mut self) -> io::Result<()> {
        while self.state.first < self.state.first_end {
            self.drop_first()?;
        }
        self.state.first = self.state.region_start;
        self.state.first_end = self.state.next;
        self.state.next = self.state.region_start;
        Ok(())
    }

    fn drop_first(&mut self) -> io::Result<()> {
        // The longest that stands before the number of events: three numbers of ten bytes.
        let mut bytes = [0; SECTION_HEADER_BYTES + 40];
        let present = (self.state.first_end - self.state.first).min(bytes.len() as u64) as usize;
        self.file
            .read_exact_at(&mut bytes[..present], self.state.first)?;
        let (head, payload) = bytes[..present].split_at(SECTION_HEADER_BYTES.min(present));
        let Some((kind, length)) = section_header(head) else {
            return Err(io::Error::other("the ring was changed by somebody else"));
        };
        if kind == SectionKind::Block as u8 {
            self.state.dropped.blocks += 1;
            self.state.dropped.events += events_of(payload).unwrap_or(0);
            self.dropped_events
                .store(self.state.dropped.events, Ordering::Relaxed);
        }
        self.state.first += SECTION_HEADER + u64::from(length);
        Ok(())
    }

    /// A recording that did not fill its ring leaves a file without a hole.
    fn shorten(&mut self) -> io::Result<()> {
        let s = self.state;
        let tail = self.tail_end - s.region_end;
        if s.next > s.region_start || s.first_end + tail > s.region_end {
            return Ok(());
        }
        let mut bytes = vec![0; tail as usize];
        self.file.read_exact_at(&mut bytes, s.region_end)?;
        self.file.write_all_at(&bytes, s.first_end)?;
        self.state.region_end = s.first_end;
        self.write_state()?;
        self.tail_end = s.first_end + tail;
        self.file.set_len(self.tail_end)
    }
}

/// Each call brings whole sections, the first one the preamble and the header.
impl Write for RingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.ring_at == 0 {
            self.begin(bytes)?;
            return Ok(bytes.len());
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let (kind, length) = section_header(rest).ok_or_else(torn)?;
            let section = rest.split_at_checked(SECTION_HEADER_BYTES + length as usize);
            let (section, after) = section.ok_or_else(torn)?;
            self.section(kind, section)?;
            rest = after;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn torn() -> io::Error {
    io::Error::other("sections must be written whole")
}

/// Kind and length of the section that begins here.
fn section_header(bytes: &[u8]) -> Option<(u8, u32)> {
    let head = bytes.get(..SECTION_HEADER_BYTES)?;
    let length = u32::from_le_bytes(head.get(4..8)?.try_into().ok()?);
    let check = u32::from_le_bytes([head[1], head[2], head[3], 0]);
    (check == header_check(head[0], length)).then_some((head[0], length))
}

/// The number of events that a block's payload states.
fn events_of(payload: &[u8]) -> Result<u64, Malformed> {
    let mut from = Cursor::new(payload);
    for _stream_first_ticks in 0..3 {
        from.v()?;
    }
    from.v()
}

/// A trace file, read as an ordinary trace whether it is a ring or not.
pub struct TraceFile {
    file: File,
    /// Start and end in the file of each part, in the order in which they are read.
    parts: Vec<(u64, u64)>,
    at: u64,
    dropped: Option<Dropped>,
}

impl TraceFile {
    /// Looks whether `file` is a ring.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn new(file: File) -> io::Result<Self> {
        let end = file.metadata()?.len();
        let mut this = Self {
            file,
            parts: vec![(0, end)],
            at: 0,
            dropped: None,
        };
        let header_at = PREAMBLE_BYTES as u64;
        let Some((_, length)) = this.header_at(header_at)? else {
            return Ok(this);
        };
        let ring_at = header_at + SECTION_HEADER + u64::from(length);
        match this.header_at(ring_at)? {
            Some((kind, _)) if kind == SectionKind::Ring as u8 => {}
            _ => return Ok(this),
        }
        let mut section = vec![0; RING_SECTION_BYTES as usize];
        if this.file.read_exact_at(&mut section, ring_at).is_err() {
            return Ok(this);
        }
        // A ring that makes no sense is left to the reader, which will refuse the section.
        if let Some(state) = State::read(&section).filter(|s| s.first_end.max(s.next) <= end) {
            let (names_end, tail_end) = this.tail(state.region_end, end)?;
            let [older, newer] = state.live();
            this.parts = vec![
                (0, ring_at),
                (state.region_end.min(end), names_end),
                older,
                newer,
                (names_end, tail_end),
            ];
            this.dropped = Some(state.dropped).filter(|d| d.blocks > 0);
        }
        Ok(this)
    }

    /// What a ring has dropped, if it has.
    pub fn dropped(&self) -> Option<Dropped> {
        self.dropped
    }

    fn header_at(&self, at: u64) -> io::Result<Option<(u8, u32)>> {
        let mut bytes = [0; SECTION_HEADER_BYTES];
        match self.file.read_exact_at(&mut bytes, at) {
            Ok(()) => Ok(section_header(&bytes)),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Ends of the dictionary and of the whole tail.
    fn tail(&self, start: u64, end: u64) -> io::Result<(u64, u64)> {
        let mut at = start.min(end);
        while let Some((kind, length)) = self.header_at(at)? {
            if kind == SectionKind::End as u8 {
                return Ok((at, end));
            }
            let after = at + SECTION_HEADER + u64::from(length);
            if after > end {
                break;
            }
            at = after;
        }
        // The writer was killed: what it had begun last is not read.
        Ok((at, at))
    }

    fn length(&self) -> u64 {
        self.parts.iter().map(|(start, end)| end - start).sum()
    }
}

impl Read for TraceFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut at = self.at;
        for &(start, end) in &self.parts {
            let length = end - start;
            if at < length {
                let wanted = (length - at).min(buffer.len() as u64) as usize;
                let got = self.file.read_at(&mut buffer[..wanted], start + at)?;
                self.at += got as u64;
                return Ok(got);
            }
            at -= length;
        }
        Ok(0)
    }
}

impl Seek for TraceFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (from, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(by) => (self.at, by),
            SeekFrom::End(by) => (self.length(), by),
        };
        self.at = from
            .checked_add_signed(by)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}
