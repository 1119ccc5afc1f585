//! Writes a trace as an append-only stream, to a file or a pipe.
//!
//! Dictionary entries are collected and written before the next block or note that may use them.
//! Each call writes whole sections, so a reader of an interrupted trace loses at most the last.

use crate::encoder::{Packed, StreamEncoder, check_function};
use crate::error::TraceError;
use crate::format::{MAGIC, SectionKind, VERSION, put_section, put_string, put_v};
use crate::model::{Function, FunctionId, Header, Module, ModuleId, StreamId, StreamInfo};
use crate::note::Note;
use crate::step::Step;
use crate::summary::Summary;
use std::io::Write;

/// Dictionary bytes that are collected before a section is written.
const DICTIONARY_BYTES: usize = 64 << 10;

/// Tags of dictionary entries.
pub(crate) const TAG_MODULE: u8 = 1;
pub(crate) const TAG_FUNCTION: u8 = 2;
pub(crate) const TAG_STREAM: u8 = 3;
pub(crate) const TAG_DESCRIPTION: u8 = 4;
pub(crate) const TAG_KERNEL_SIDE: u8 = 5;
pub(crate) const TAG_NAME: u8 = 6;

/// What [`TraceWriter::classify`] is given.
pub type Classifier = Box<dyn Fn(&Function) -> u64 + Send>;

/// A trace being written.
pub struct TraceWriter<W: Write> {
    out: W,
    modules: u32,
    functions: u32,
    descriptions: u32,
    stream_starts: Vec<u64>,
    dictionary: Vec<u8>,
    scratch: Vec<u8>,
    /// The step of the clock that the last encoder found, so that short streams begin with it.
    step: Step,
    written_bytes: u64,
    events: u64,
    /// See [`Self::classify`].
    classifier: Option<Classifier>,
    classes: Vec<u64>,
    /// errno of a failed write: later sections would refer to lost ones, so none is written any
    /// more.
    broken: Option<i32>,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace: the header is written at once.
    ///
    /// # Errors
    /// As every method here: [`TraceError::Write`] if `out` refuses the bytes.
    pub fn create(out: W, header: &Header) -> Result<Self, TraceError> {
        let mut writer = Self {
            out,
            modules: 0,
            functions: 0,
            descriptions: 0,
            stream_starts: Vec::new(),
            dictionary: Vec::new(),
            scratch: Vec::new(),
            step: Step::default(),
            written_bytes: 0,
            events: 0,
            classifier: None,
            classes: Vec::new(),
            broken: None,
        };
        writer.scratch.extend_from_slice(&MAGIC);
        writer.scratch.extend_from_slice(&VERSION.to_le_bytes());
        writer.scratch.extend_from_slice(&[0; 4]);
        let mut payload = Vec::new();
        header.write(&mut payload);
        put_section(&mut writer.scratch, SectionKind::Header, &payload);
        writer.write_scratch()?;
        writer.out.flush().map_err(TraceError::Write)?;
        Ok(writer)
    }

    /// Names a module.
    ///
    /// # Errors
    /// [`TraceError::TooMany`] beyond 2^32.
    pub fn module(&mut self, module: &Module) -> Result<ModuleId, TraceError> {
        let id = self.modules;
        self.modules = id.checked_add(1).ok_or(TraceError::TooMany("modules"))?;
        self.dictionary.push(TAG_MODULE);
        module.write(&mut self.dictionary);
        self.bound_dictionary()?;
        Ok(ModuleId(id))
    }

    /// Names a function; call it once each, before the first event that enters it.
    ///
    /// # Errors
    /// [`TraceError::TooMany`] beyond 2^30.
    pub fn function(&mut self, function: &Function) -> Result<FunctionId, TraceError> {
        let id = self.functions;
        check_function(id)?;
        self.functions = id + 1;
        if let Some(classifier) = &self.classifier {
            self.classes.push(classifier(function));
        }
        self.dictionary.push(TAG_FUNCTION);
        function.write(&mut self.dictionary);
        self.bound_dictionary()?;
        Ok(FunctionId(id))
    }

    /// Gives the description of what calls bring with them ([`crate::values`]) a number.
    ///
    /// # Errors
    /// [`TraceError::TooMany`] beyond 2^32.
    pub fn description(&mut self, text: &str) -> Result<u32, TraceError> {
        let id = self.descriptions;
        let next = id.checked_add(1);
        self.descriptions = next.ok_or(TraceError::TooMany("descriptions"))?;
        self.dictionary.push(TAG_DESCRIPTION);
        put_string(&mut self.dictionary, text);
        self.bound_dictionary()?;
        Ok(id)
    }

    /// Gives a function the name that was found out for it.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn name(&mut self, function: FunctionId, symbol: &str) -> Result<(), TraceError> {
        self.dictionary.push(TAG_NAME);
        put_v(&mut self.dictionary, u64::from(function.0));
        put_string(&mut self.dictionary, symbol);
        self.bound_dictionary()
    }

    /// Gives each function that is named from here on a class. To be called before the first.
    pub fn classify(&mut self, classifier: Classifier) {
        self.classifier = Some(classifier);
    }

    /// The class of a function; 0 without [`Self::classify`].
    #[inline]
    pub fn class(&self, function: FunctionId) -> u64 {
        self.classes
            .get(function.0 as usize)
            .copied()
            .unwrap_or_default()
    }

    /// The same of all functions, by number; those that are not there have class 0.
    pub fn classes(&self) -> &[u64] {
        &self.classes
    }

    /// Begins a stream.
    ///
    /// # Errors
    /// [`TraceError::TooMany`] beyond 2^32.
    pub fn stream(&mut self, info: &StreamInfo) -> Result<StreamId, TraceError> {
        let id = u32::try_from(self.stream_starts.len());
        let id = id.map_err(|_| TraceError::TooMany("streams"))?;
        self.stream_starts.push(info.start_tsc);
        self.dictionary.push(TAG_STREAM);
        info.write(&mut self.dictionary);
        self.bound_dictionary()?;
        Ok(StreamId(id))
    }

    /// Begins a stream of what the kernel does for a thread: readers show it inside of what the
    /// thread's other streams say that it ran.
    ///
    /// # Errors
    /// As [`Self::stream`].
    pub fn kernel_side(&mut self, info: &StreamInfo) -> Result<StreamId, TraceError> {
        let id = self.stream(info)?;
        self.dictionary.push(TAG_KERNEL_SIDE);
        put_v(&mut self.dictionary, u64::from(id.0));
        self.bound_dictionary()?;
        Ok(id)
    }

    /// An encoder for a stream, to be owned by whoever drains its records.
    pub fn encoder(&self, stream: StreamId) -> StreamEncoder {
        let start_tsc = self.stream_starts.get(stream.0 as usize).copied();
        StreamEncoder::new(stream, start_tsc.unwrap_or_default(), self.step)
    }

    /// Writes all that `encoder` holds.
    ///
    /// # Errors
    /// [`TraceError::Write`]; what the encoder held is gone then.
    pub fn write_block(&mut self, encoder: &mut StreamEncoder) -> Result<(), TraceError> {
        self.put_dictionary()?;
        let sections = encoder.take_sections();
        self.write_sections(sections)
    }

    /// Writes the full blocks that `encoder` holds. The longer a block, the less an event takes:
    /// what is known of the functions' order begins anew in each.
    ///
    /// # Errors
    /// As [`Self::write_block`].
    pub fn write_full(&mut self, encoder: &mut StreamEncoder) -> Result<(), TraceError> {
        self.put_dictionary()?;
        let sections = encoder.take_full();
        self.write_sections(sections)
    }

    fn write_sections(&mut self, packed: Packed<'_>) -> Result<(), TraceError> {
        self.step = packed.step;
        let result = put(&mut self.out, &mut self.broken, packed.sections);
        self.written_bytes += packed.sections.len() as u64;
        self.events += std::mem::take(packed.events);
        packed.sections.clear();
        result
    }

    /// The sections of all that `encoder` holds, which are not written, and how many events they
    /// are; what they name is written.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn pack(&mut self, mut encoder: StreamEncoder) -> Result<(Vec<u8>, u64), TraceError> {
        self.put_dictionary()?;
        let packed = encoder.take_sections();
        Ok((std::mem::take(packed.sections), *packed.events))
    }

    /// Writes what is named and was not written yet.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn write_names(&mut self) -> Result<(), TraceError> {
        self.put_dictionary()
    }

    /// Writes a note.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn event_note(&mut self, note: &Note) -> Result<(), TraceError> {
        self.put_dictionary()?;
        let mut payload = Vec::new();
        note.write(&mut payload);
        put_section(&mut self.scratch, SectionKind::Note, &payload);
        self.write_scratch()
    }

    /// Events written so far: those that a reader of the trace counts.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Bytes written so far.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Has the output write what it has taken.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn flush(&mut self) -> Result<(), TraceError> {
        self.out.flush().map_err(TraceError::Write)
    }

    /// Ends the trace in order and gives the output back. After a failed write this fails too: what
    /// was written never looks whole.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn finish(mut self, summary: &Summary) -> Result<W, TraceError> {
        self.put_dictionary()?;
        let mut payload = Vec::new();
        summary.write(&mut payload);
        put_section(&mut self.scratch, SectionKind::End, &payload);
        self.write_scratch()?;
        self.out.flush().map_err(TraceError::Write)?;
        Ok(self.out)
    }

    fn bound_dictionary(&mut self) -> Result<(), TraceError> {
        if self.dictionary.len() < DICTIONARY_BYTES {
            return Ok(());
        }
        self.put_dictionary()
    }

    fn put_dictionary(&mut self) -> Result<(), TraceError> {
        if self.dictionary.is_empty() {
            return Ok(());
        }
        put_section(&mut self.scratch, SectionKind::Dictionary, &self.dictionary);
        self.dictionary.clear();
        self.write_scratch()
    }

    fn write_scratch(&mut self) -> Result<(), TraceError> {
        let result = put(&mut self.out, &mut self.broken, &self.scratch);
        self.written_bytes += self.scratch.len() as u64;
        self.scratch.clear();
        result
    }
}

/// Writes whole sections, unless an earlier write failed: then fails as that did.
fn put(out: &mut impl Write, broken: &mut Option<i32>, sections: &[u8]) -> Result<(), TraceError> {
    const EIO: i32 = 5;
    if let Some(errno) = *broken {
        return Err(TraceError::Write(std::io::Error::from_raw_os_error(errno)));
    }
    out.write_all(sections).map_err(|e| {
        *broken = Some(e.raw_os_error().unwrap_or(EIO));
        TraceError::Write(e)
    })
}
