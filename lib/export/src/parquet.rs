//! One row a call, as Parquet: columns for DuckDB, ClickHouse, Spark, DataFusion.
//!
//! The columns are those of csv, with null for what is not known. Rows come in the order in which
//! calls ended, in groups of [`GROUP_ROWS`], so that a range of time is in few groups. Of a file
//! three groups are held at most: one takes rows while a thread packs another ([`encoder`]). What
//! is said of the trace (command, machine, start) is in its metadata. With a partition each process
//! has a file of its own, named as Hive does; a process that speaks again after its file was closed
//! for another has a second one.

mod encoder;
mod group;

use crate::output::Output;
use crate::rows::{Row, RowSink};
use crate::{Context, Partition};
use encoder::Encoder;
use group::{Group, Numbered};
use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Rows of a group: enough that columns pack well.
const GROUP_ROWS: usize = 256 << 10;
/// Rows held for all files together.
const HELD_ROWS: usize = 1 << 20;
/// Columns of texts.
const TEXT_COLUMNS: [&str; 8] = [
    "module",
    "function",
    "caller_module",
    "caller",
    "begin",
    "end",
    "call",
    "result",
];
/// Files open at a time.
const MAX_FILES: usize = 200;

/// The format.
#[derive(Default)]
pub struct Parquet<'p> {
    /// The one file, if there is no partition.
    file: Option<File>,
    partition: Option<Partition<'p>>,
    files: HashMap<u32, Part>,
    /// How many files a process has had.
    parts: HashMap<u32, u32>,
    held_rows: usize,
    /// Counts rows, to know which file was used last.
    now: u64,
}

struct Part {
    file: File,
    out: Output<Box<dyn Write + Send>>,
    used: u64,
}

impl<'p> Parquet<'p> {
    /// All in one file, or a file for each process.
    pub fn new(partition: Option<Partition<'p>>) -> Self {
        Self {
            partition,
            ..Self::default()
        }
    }

    /// The file of a process is there, and not too many others.
    fn open(&mut self, cx: &Context<'_>, pid: u32) -> io::Result<()> {
        let Some(partition) = &self.partition else {
            return Ok(());
        };
        if self.files.contains_key(&pid) {
            return Ok(());
        }
        if self.files.len() >= MAX_FILES {
            let oldest = self.files.iter().min_by_key(|(_, part)| part.used);
            let oldest = oldest.map(|(pid, _)| *pid);
            if let Some(part) = oldest.and_then(|pid| self.files.remove(&pid)) {
                self.held_rows -= part.file.group.rows();
                part.finish()?;
            }
        }
        let number = self.parts.entry(pid).or_default();
        *number += 1;
        let host = match cx.header.host.as_str() {
            "" => "unknown",
            host => host,
        };
        // What is read as a path must not lead out of the folder.
        let host = host.replace(|c: char| c.is_control() || "/=\\%".contains(c), "_");
        let host = if host.starts_with('.') { "_" } else { &host };
        let start = cx.header.start_unix_ns;
        let name = format!("host={host}/pid={pid}/{start}-{number}.parquet");
        let part = Part {
            file: File::new(cx, false)?,
            out: Output::new((partition)(&name)?),
            used: self.now,
        };
        self.files.insert(pid, part);
        Ok(())
    }

    fn put<W: Write>(
        &mut self,
        cx: &Context<'_>,
        row: &Row<'_>,
        out: &mut Output<W>,
    ) -> io::Result<()> {
        self.now += 1;
        if self.partition.is_none() {
            let file = match &mut self.file {
                Some(file) => file,
                None => self.file.insert(File::new(cx, true)?),
            };
            file.put(cx, row);
            return match file.group.rows() >= GROUP_ROWS {
                true => file.write_group(out),
                false => Ok(()),
            };
        }
        self.open(cx, row.thread.pid)?;
        let Some(part) = self.files.get_mut(&row.thread.pid) else {
            return Ok(());
        };
        part.used = self.now;
        part.file.put(cx, row);
        self.held_rows += 1;
        if part.file.group.rows() >= GROUP_ROWS {
            self.held_rows -= part.file.group.rows();
            part.file.write_group(&mut part.out)?;
        }
        if self.held_rows >= HELD_ROWS {
            let largest = self
                .files
                .values_mut()
                .max_by_key(|part| part.file.group.rows());
            if let Some(part) = largest {
                self.held_rows -= part.file.group.rows();
                part.file.write_group(&mut part.out)?;
            }
        }
        Ok(())
    }
}

impl Part {
    fn finish(mut self) -> io::Result<()> {
        self.file.finish(&mut self.out)?;
        self.out.finish()
    }
}

impl RowSink for Parquet<'_> {
    fn row<W: Write>(&mut self, cx: &Context<'_>, row: &Row<'_>, out: &mut Output<W>) {
        if let Err(error) = self.put(cx, row, out) {
            out.fail(error);
        }
    }

    fn end<W: Write>(&mut self, cx: &Context<'_>, out: &mut Output<W>) {
        let mut files: Vec<_> = self.files.drain().collect();
        files.sort_by_key(|(pid, _)| *pid);
        let parts = files.into_iter().try_for_each(|(_, part)| part.finish());
        let written = parts.and_then(|()| match (&self.partition, self.file.take()) {
            (Some(_), _) => Ok(()),
            // A trace without calls is a file without rows.
            (None, file) => file.map_or_else(|| File::new(cx, false), Ok)?.finish(out),
        });
        if let Err(error) = written {
            out.fail(error);
        }
    }
}

/// Bytes that the library has written and that are not passed on yet.
#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Bytes {
    fn pass<W: Write>(&self, out: &mut Output<W>) {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        out.bytes(&bytes);
        bytes.clear();
        out.pass();
    }
}

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file on its way.
struct File {
    encoder: Encoder,
    bytes: Bytes,
    group: Group,
    numbered: Numbered,
}

impl File {
    /// `has_thread`: groups are packed by a thread, while the next takes rows.
    fn new(cx: &Context<'_>, has_thread: bool) -> io::Result<Self> {
        let bytes = Bytes::default();
        let schema = schema(cx.names.has_sources()).map_err(failed)?;
        let properties = Arc::new(properties(cx));
        let writer = SerializedFileWriter::new(bytes.clone(), schema, properties);
        Ok(Self {
            encoder: Encoder::new(writer.map_err(failed)?, has_thread)?,
            bytes,
            group: Group::default(),
            numbered: Numbered::default(),
        })
    }

    fn put(&mut self, cx: &Context<'_>, row: &Row<'_>) {
        self.group.put(cx, &mut self.numbered, row);
    }

    fn write_group<W: Write>(&mut self, out: &mut Output<W>) -> io::Result<()> {
        self.group = self.encoder.write(std::mem::take(&mut self.group))?;
        self.bytes.pass(out);
        Ok(())
    }

    fn finish<W: Write>(mut self, out: &mut Output<W>) -> io::Result<()> {
        if self.group.rows() > 0 {
            self.write_group(out)?;
        }
        self.encoder.finish()?;
        self.bytes.pass(out);
        Ok(())
    }
}

/// How columns are written: numbers that repeat little as they are, and no smallest and largest
/// text, which choose no group.
fn properties(cx: &Context<'_>) -> WriterProperties {
    let header = cx.header;
    let said = [
        ("sptrace.command", header.command.join(" ")),
        ("sptrace.host", header.host.clone()),
        ("sptrace.start_unix_ns", header.start_unix_ns.to_string()),
    ];
    let said = said.map(|(key, value)| KeyValue::new(key.to_owned(), value));
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(format!("sptrace {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(said.to_vec()))
        .set_column_dictionary_enabled("start_ns".into(), false);
    for text in TEXT_COLUMNS {
        builder = builder.set_column_statistics_enabled(text.into(), EnabledStatistics::None);
    }
    builder.build()
}

fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => io::Error::other(error),
        error => io::Error::other(error.to_string()),
    }
}

/// The columns in their order; `group.rs` writes them in the same.
fn schema(with_sources: bool) -> Result<Arc<Type>, ParquetError> {
    let number = |name: &str, physical, kind, is_known| {
        let repetition = if is_known {
            Repetition::REQUIRED
        } else {
            Repetition::OPTIONAL
        };
        let column = Type::primitive_type_builder(name, physical);
        column
            .with_repetition(repetition)
            .with_converted_type(kind)
            .build()
    };
    let text = |name: &str, is_known| {
        let repetition = if is_known {
            Repetition::REQUIRED
        } else {
            Repetition::OPTIONAL
        };
        let column = Type::primitive_type_builder(name, Physical::BYTE_ARRAY);
        column
            .with_repetition(repetition)
            .with_logical_type(Some(LogicalType::String))
            .build()
    };
    let (unsigned, plain) = (ConvertedType::UINT_32, ConvertedType::NONE);
    let mut columns = vec![
        number("pid", Physical::INT32, unsigned, true)?,
        number("tid", Physical::INT32, unsigned, true)?,
        number("start_ns", Physical::INT64, plain, true)?,
        number("duration_ns", Physical::INT64, plain, false)?,
        number("depth", Physical::INT32, unsigned, true)?,
        text("module", true)?,
        text("function", true)?,
        text("caller_module", false)?,
        text("caller", false)?,
        number("self_ns", Physical::INT64, plain, false)?,
        text("begin", true)?,
        text("end", true)?,
        text("call", false)?,
        text("result", false)?,
    ];
    if with_sources {
        columns.extend([text("source", false)?, text("call_source", false)?]);
    }
    let columns = columns.into_iter().map(Arc::new).collect();
    let schema = Type::group_type_builder("call")
        .with_fields(columns)
        .build()?;
    Ok(Arc::new(schema))
}
