//! Reads a trace, which is never trusted.
//!
//! [`TraceReader`] gives the sections of a seekable or streamed trace in file order and keeps the
//! dictionary. A file that stops inside a section (its writer was killed) ends quietly there and
//! says so by [`Ending`]; a section whose checksum is wrong is an error.

use crate::decoder::Block;
use crate::error::{Malformed, TraceError};
use crate::format::{
    Cursor, MAGIC, MAX_SECTION_BYTES, PREAMBLE_BYTES, SECTION_HEADER_BYTES, SectionKind, VERSION,
    header_check,
};
use crate::model::{Clock, Function, FunctionId, Header, Module, ModuleId, StreamId, StreamInfo};
use crate::note::Note;
use crate::ring::{Dropped, TraceFile};
use crate::summary::Summary;
use crate::writer::{
    TAG_DESCRIPTION, TAG_FUNCTION, TAG_KERNEL_SIDE, TAG_MODULE, TAG_NAME, TAG_STREAM,
};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the trace names, as far as it was read.
#[derive(Default, Debug, Clone)]
pub struct Dictionary {
    /// By [`ModuleId`].
    pub modules: Vec<Module>,
    /// By [`FunctionId`].
    pub functions: Vec<Function>,
    /// By [`StreamId`].
    pub streams: Vec<StreamInfo>,
    /// By [`crate::values::Values::number`]: what the values of functions mean.
    pub descriptions: Vec<String>,
    /// Streams of what the kernel did for a thread.
    pub kernel_sides: Vec<StreamId>,
}

impl Dictionary {
    /// A function, if the trace names it.
    pub fn function(&self, id: FunctionId) -> Option<&Function> {
        self.functions.get(id.0 as usize)
    }
    /// A module, if the trace names it.
    pub fn module(&self, id: ModuleId) -> Option<&Module> {
        self.modules.get(id.0 as usize)
    }
    /// A stream, if the trace names it.
    pub fn stream(&self, id: StreamId) -> Option<&StreamInfo> {
        self.streams.get(id.0 as usize)
    }

    fn read(&mut self, mut from: Cursor<'_>) -> Result<(), Malformed> {
        while !from.is_empty() {
            match from.u8()? {
                TAG_MODULE => self.modules.push(Module::read(&mut from)?),
                TAG_FUNCTION => {
                    let function = Function::read(&mut from)?;
                    if self.module(function.module).is_none() {
                        return Err(Malformed("a function of a module that is not named"));
                    }
                    self.functions.push(function);
                }
                TAG_STREAM => self.streams.push(StreamInfo::read(&mut from)?),
                TAG_DESCRIPTION => self.descriptions.push(from.string()?),
                TAG_KERNEL_SIDE => {
                    let stream = StreamId(from.v32()?);
                    if self.stream(stream).is_none() {
                        return Err(Malformed("the kernel's side of a thread that is not named"));
                    }
                    self.kernel_sides.push(stream);
                }
                TAG_NAME => {
                    let (function, symbol) = (from.v32()?, from.string()?);
                    let function = self.functions.get_mut(function as usize);
                    let function = function.ok_or(Malformed("a name of no function"))?;
                    function.symbol = symbol;
                }
                _ => return Err(Malformed("unknown kind of dictionary entry")),
            }
        }
        Ok(())
    }
}

/// How the file ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Not reached yet.
    Open,
    /// In order, with a summary.
    Complete(Summary),
    /// The writer did not finish: nothing after this byte can be read.
    Early {
        /// File offset of the first byte that is missing or torn.
        offset: u64,
    },
}

/// A section that concerns the time line.
pub enum Item {
    /// Events.
    Block(Block),
    /// A note.
    Note(Note),
}

/// A trace being read.
pub struct TraceReader<R> {
    input: R,
    offset: u64,
    header: Header,
    dictionary: Dictionary,
    ending: Ending,
    payload: Vec<u8>,
    spare: Vec<u8>,
    dropped: Option<Dropped>,
    /// Bytes of sections that were read, for who looks from another thread.
    passed: Arc<AtomicU64>,
}

impl TraceReader<BufReader<TraceFile>> {
    /// Opens a trace file, which may be a ring.
    ///
    /// # Errors
    /// [`TraceError::Read`], [`TraceError::NotAFile`], and those of [`TraceReader::new`].
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let metadata = std::fs::metadata(path).map_err(TraceError::Read)?;
        if !metadata.is_file() {
            return Err(TraceError::NotAFile);
        }
        let file = File::open(path).map_err(TraceError::Read)?;
        let file = TraceFile::new(file).map_err(TraceError::Read)?;
        let dropped = file.dropped();
        let mut reader = Self::new(BufReader::with_capacity(16 << 10, file))?;
        reader.dropped = dropped;
        Ok(reader)
    }
}

impl<R: Read> TraceReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`TraceError::Empty`], [`TraceError::NotATrace`], [`TraceError::Version`],
    /// [`TraceError::Damaged`].
    pub fn new(input: R) -> Result<Self, TraceError> {
        let mut reader = Self {
            input,
            offset: 0,
            header: Header::default(),
            dictionary: Dictionary::default(),
            ending: Ending::Open,
            payload: Vec::new(),
            spare: Vec::new(),
            dropped: None,
            passed: Arc::default(),
        };
        reader.read_preamble()?;
        match reader.read_section_header()? {
            Some((SectionKind::Header, length)) if reader.read_payload(length)? => {
                let header = Header::read(Cursor::new(&reader.payload));
                reader.header = header.map_err(|what| what.at(PREAMBLE_BYTES as u64))?;
                reader.advance(length);
                Ok(reader)
            }
            _ => Err(Malformed("it has no header").at(PREAMBLE_BYTES as u64)),
        }
    }

    /// What was traced.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Makes ticks nanoseconds.
    pub fn clock(&self) -> Clock {
        Clock::of(&self.header)
    }

    /// What was named so far.
    pub fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// Bytes read of the file: the end of the last section given.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes of sections were read, which another thread may look at meanwhile.
    pub fn passed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.passed)
    }

    /// How the file ends, known when [`Self::next_item`] gave `None`.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// The next block or note in file order; `None` at the end.
    ///
    /// # Errors
    /// [`TraceError::Read`] and [`TraceError::Damaged`].
    pub fn next_item(&mut self) -> Result<Option<Item>, TraceError> {
        while self.ending == Ending::Open {
            let start = self.offset;
            let Some((kind, length)) = self.read_section_header()? else {
                break;
            };
            if !self.read_payload(length)? {
                break;
            }
            let item = self.interpret(kind).map_err(|what| what.at(start))?;
            self.advance(length);
            if item.is_some() {
                return Ok(item);
            }
        }
        Ok(None)
    }

    /// Takes a block back whose memory can serve the next one.
    pub fn recycle(&mut self, block: Block) {
        self.spare = block.into_buffer();
    }

    fn interpret(&mut self, kind: SectionKind) -> Result<Option<Item>, Malformed> {
        let from = Cursor::new(&self.payload);
        match kind {
            SectionKind::Header => Err(Malformed("a second header")),
            SectionKind::Dictionary => self.dictionary.read(from).map(|()| None),
            SectionKind::Note => {
                let note = Note::read(from)?;
                match note.names_functions_below(self.dictionary.functions.len()) {
                    true => Ok(Some(Item::Note(note))),
                    false => Err(Malformed("counts of functions that are not named")),
                }
            }
            SectionKind::Block => {
                let block = Block::unpack(&self.payload, std::mem::take(&mut self.spare))?;
                if self.dictionary.stream(block.stream).is_none() {
                    return Err(Malformed("a block of a stream that is not named"));
                }
                Ok(Some(Item::Block(block)))
            }
            SectionKind::Ring => Err(Malformed("a ring that is not in order")),
            SectionKind::End => {
                self.ending = Ending::Complete(Summary::read(from)?);
                Ok(None)
            }
        }
    }

    fn read_preamble(&mut self) -> Result<(), TraceError> {
        let mut preamble = [0; PREAMBLE_BYTES];
        let present = fill(&mut self.input, &mut preamble)?;
        if present == 0 {
            return Err(TraceError::Empty);
        }
        if !preamble.starts_with(&MAGIC) || present < PREAMBLE_BYTES {
            return Err(TraceError::NotATrace);
        }
        let found = u32::from_le_bytes([preamble[8], preamble[9], preamble[10], preamble[11]]);
        if found != VERSION {
            return Err(TraceError::Version {
                found,
                known: VERSION,
            });
        }
        self.offset = PREAMBLE_BYTES as u64;
        Ok(())
    }

    /// Kind, length; leaves the checksum in front of the payload. `None` where the file ends.
    fn read_section_header(&mut self) -> Result<Option<(SectionKind, u32)>, TraceError> {
        let mut bytes = [0; SECTION_HEADER_BYTES];
        let present = fill(&mut self.input, &mut bytes)?;
        // A file system that lost power may leave zeros where the end was.
        if present < SECTION_HEADER_BYTES || bytes == [0; SECTION_HEADER_BYTES] {
            self.ending = Ending::Early {
                offset: self.offset,
            };
            return Ok(None);
        }
        let length = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let check = u32::from_le_bytes([bytes[1], bytes[2], bytes[3], 0]);
        let damaged = |what| Malformed(what).at(self.offset);
        if check != header_check(bytes[0], length) {
            return Err(damaged("a section header's checksum is wrong"));
        }
        let kind = SectionKind::from_byte(bytes[0]);
        let kind = kind.ok_or_else(|| damaged("a section of an unknown kind"))?;
        if length > MAX_SECTION_BYTES {
            return Err(damaged("a section is too long"));
        }
        self.payload.clear();
        self.payload.extend_from_slice(&bytes[8..]);
        Ok(Some((kind, length)))
    }

    /// Reads and checks a payload; false where the file ends inside it.
    fn read_payload(&mut self, length: u32) -> Result<bool, TraceError> {
        let crc = self
            .payload
            .iter()
            .rev()
            .fold(0, |crc, &byte| crc << 8 | u32::from(byte));
        self.payload.clear();
        // `take` reads in steps, so a length beyond the end of the file allocates nothing.
        let mut limited = self.input.by_ref().take(u64::from(length));
        let present = limited
            .read_to_end(&mut self.payload)
            .map_err(TraceError::Read)?;
        if present < length as usize {
            self.ending = Ending::Early {
                offset: self.offset,
            };
            return Ok(false);
        }
        if crc32fast::hash(&self.payload) != crc {
            return Err(Malformed("a section's checksum is wrong").at(self.offset));
        }
        Ok(true)
    }

    fn advance(&mut self, length: u32) {
        self.offset += SECTION_HEADER_BYTES as u64 + u64::from(length);
        self.passed.fetch_add(u64::from(length), Ordering::Relaxed);
    }
}

impl<R: Read + Seek> TraceReader<R> {
    /// The next block or note of a file that grows; `None` if it is not whole yet, or at the end.
    pub(crate) fn next_written(&mut self) -> Result<Option<Item>, TraceError> {
        let item = self.next_item()?;
        if let Ending::Early { offset } = self.ending {
            let seek = SeekFrom::Start(offset);
            self.input.seek(seek).map_err(TraceError::Read)?;
            self.ending = Ending::Open;
        }
        Ok(item)
    }

    /// Reads everything but the blocks, for what must be known before the first event is shown
    /// (names, streams, how the trace ends), then goes back to where it was.
    ///
    /// # Errors
    /// As [`Self::next_item`].
    pub fn survey(&mut self) -> Result<Survey, TraceError> {
        let start = self.offset;
        let mut survey = Survey {
            dropped: self.dropped,
            ..Survey::default()
        };
        let known = self.dictionary.clone();
        while self.ending == Ending::Open {
            let at = self.offset;
            let Some((kind, length)) = self.read_section_header()? else {
                break;
            };
            survey.digest = digest(survey.digest, kind as u8, length, &self.payload);
            if kind == SectionKind::Block {
                let Some(place) = self.place_of_block(length)? else {
                    break;
                };
                survey.blocks.push(place);
            } else if self.read_payload(length)? {
                match self.interpret(kind).map_err(|what| what.at(at))? {
                    Some(Item::Note(Note::ModuleMap { .. })) | None => {}
                    Some(Item::Note(note)) => survey.notes.push(note),
                    Some(Item::Block(_)) => {}
                }
            }
            self.advance(length);
        }
        survey.bytes = self
            .input
            .seek(SeekFrom::End(0))
            .map_err(TraceError::Read)?;
        self.input
            .seek(SeekFrom::Start(start))
            .map_err(TraceError::Read)?;
        self.offset = start;
        survey.ending = std::mem::replace(&mut self.ending, Ending::Open);
        survey.dictionary = std::mem::replace(&mut self.dictionary, known);
        Ok(survey)
    }

    /// Where the block is whose payload comes next; skips it. `None` where the file ends inside it.
    fn place_of_block(&mut self, length: u32) -> Result<Option<BlockPlace>, TraceError> {
        let mut start = [0; BLOCK_START_BYTES];
        let start = &mut start[..BLOCK_START_BYTES.min(length as usize)];
        let mut present = fill(&mut self.input, start)?;
        let (stream, first_tsc) =
            Block::begins(&start[..present]).unwrap_or((StreamId(u32::MAX), 0));
        // One byte is read to learn whether the file reaches so far; seeking alone cannot tell.
        let rest = length as usize - start.len();
        if let Some(before_last) = rest.checked_sub(1) {
            let seek = SeekFrom::Current(before_last as i64);
            self.input.seek(seek).map_err(TraceError::Read)?;
            present += before_last + fill(&mut self.input, &mut [0])?;
        }
        let offset = self.offset;
        if present < length as usize {
            self.ending = Ending::Early { offset };
            return Ok(None);
        }
        Ok(Some(BlockPlace {
            offset,
            stream,
            first_tsc,
        }))
    }

    /// A block that the survey has found. What is read in order goes on after it.
    pub(crate) fn block_at(&mut self, place: &BlockPlace) -> Result<Block, TraceError> {
        let damaged = |what| Malformed(what).at(place.offset);
        let seek = SeekFrom::Start(place.offset);
        self.input.seek(seek).map_err(TraceError::Read)?;
        self.offset = place.offset;
        let Some((SectionKind::Block, length)) = self.read_section_header()? else {
            return Err(damaged("a block is not where it was"));
        };
        if !self.read_payload(length)? {
            return Err(damaged("a block is cut where it was whole"));
        }
        self.advance(length);
        let block = Block::unpack(&self.payload, std::mem::take(&mut self.spare));
        let block = block.map_err(|what| what.at(place.offset))?;
        if block.stream != place.stream || block.first_tsc != place.first_tsc {
            return Err(damaged("a block is not the one that it was"));
        }
        Ok(block)
    }
}

/// The longest that stands at the start of a block: stream and first time.
const BLOCK_START_BYTES: usize = 15;

/// Where a block of events lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockPlace {
    /// Of its section, in the file.
    pub offset: u64,
    /// Whose events these are.
    pub stream: StreamId,
    /// None of them is before this.
    pub first_tsc: u64,
}

/// A whole trace without its events.
#[derive(Clone, Debug)]
pub struct Survey {
    /// All names.
    pub dictionary: Dictionary,
    /// How the file ends.
    pub ending: Ending,
    /// The blocks in the file, in its order. One that is malformed is found so when it is read.
    pub blocks: Vec<BlockPlace>,
    /// Length of the file.
    pub bytes: u64,
    /// Of the checksums of all sections: what is in the file.
    pub digest: u64,
    /// What a ring has dropped of the beginning, if it has.
    pub dropped: Option<Dropped>,
    /// What happened to processes and to the recording, as the file has it: events of before a note
    /// may come after it.
    pub notes: Vec<Note>,
}

impl Survey {
    /// True if calls were recorded in order, or some of them: their times are estimates.
    pub fn is_in_order(&self) -> bool {
        let mut notes = self.notes.iter();
        notes.any(|note| matches!(note, Note::InOrder { .. }))
    }

    /// True if some of the calls were recorded in order, and others with stamps.
    pub fn is_in_order_in_part(&self) -> bool {
        let in_part = |note: &Note| {
            matches!(
                note,
                Note::InOrder {
                    is_in_part: true,
                    ..
                }
            )
        };
        self.notes.iter().any(in_part)
    }

    /// How many calls were counted and not recorded; `None`: calls were recorded.
    pub fn counted_calls(&self) -> Option<u64> {
        let counts = self.notes.iter().filter_map(|note| match note {
            Note::Counts { edges, .. } => Some(edges),
            _ => None,
        });
        let calls = counts.map(|edges| {
            edges
                .iter()
                .fold(0, |sum: u64, e| sum.saturating_add(e.calls))
        });
        calls.reduce(u64::saturating_add)
    }
}

impl Default for Survey {
    fn default() -> Self {
        Self {
            dictionary: Dictionary::default(),
            ending: Ending::Open,
            blocks: Vec::new(),
            bytes: 0,
            digest: DIGEST_START,
            dropped: None,
            notes: Vec::new(),
        }
    }
}

const DIGEST_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, over a section's kind, length and checksum.
fn digest(before: u64, kind: u8, length: u32, checksum: &[u8]) -> u64 {
    let bytes = [kind].into_iter().chain(length.to_le_bytes());
    let bytes = bytes.chain(checksum.iter().copied());
    bytes.fold(before, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Reads until `buffer` is full or the input ends; gives the bytes read.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize, TraceError> {
    let mut present = 0;
    while present < buffer.len() {
        match input.read(&mut buffer[present..]) {
            Ok(0) => break,
            Ok(count) => present += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(TraceError::Read(error)),
        }
    }
    Ok(present)
}
