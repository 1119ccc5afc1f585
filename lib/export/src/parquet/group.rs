//! The rows of a group of a Parquet file, column by column.
//!
//! Given rows; gives them to the library's writer in the order of the columns that `parquet.rs`
//! states. Knows nothing of files.

use super::{Context, Row};
use crate::rows::RowSource;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedRowGroupWriter;
use sptrace_trace::{FunctionId, Names};
use std::collections::HashMap;
use std::io::Write;

/// Texts made at a time.
const TEXTS: usize = 16 << 10;

/// Numbers of which some are not known.
#[derive(Default)]
struct Numbers {
    known: Vec<i64>,
    levels: Vec<i16>,
}

impl Numbers {
    fn put(&mut self, number: Option<u64>) {
        self.levels.push(i16::from(number.is_some()));
        self.known.extend(number.map(signed));
    }

    fn clear(&mut self) {
        self.known.clear();
        self.levels.clear();
    }
}

/// Texts of which most are not there.
#[derive(Default)]
struct Texts {
    known: Vec<ByteArray>,
    levels: Vec<i16>,
}

impl Texts {
    fn put(&mut self, text: Option<&str>) {
        self.levels.push(i16::from(text.is_some()));
        self.known.extend(text.map(ByteArray::from));
    }

    fn clear(&mut self) {
        self.known.clear();
        self.levels.clear();
    }
}

/// Readers of Parquet count nanoseconds with a sign.
fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Rows that are not written yet.
#[derive(Default)]
pub struct Group {
    pids: Vec<i32>,
    tids: Vec<i32>,
    starts: Vec<i64>,
    durations: Numbers,
    depths: Vec<i32>,
    functions: Vec<FunctionId>,
    callers: Vec<Option<FunctionId>>,
    own: Numbers,
    begins: Vec<&'static str>,
    ends: Vec<&'static str>,
    calls: Texts,
    results: Texts,
    sources: Texts,
    call_sources: Texts,
    texts: HashMap<(bool, FunctionId), ByteArray>,
}

impl Group {
    /// How many rows it has.
    pub fn rows(&self) -> usize {
        self.pids.len()
    }

    /// Takes a row.
    pub fn put(&mut self, cx: &Context<'_>, row: &Row<'_>) {
        self.pids.push(row.thread.pid as i32);
        self.tids.push(row.thread.tid as i32);
        self.starts.push(signed(row.start_ns));
        self.durations.put(row.duration_ns);
        self.depths.push(row.depth as i32);
        self.functions.push(row.function);
        self.callers.push(row.caller);
        self.own.put(row.self_ns);
        self.begins.push(row.begin_word);
        self.ends.push(row.end_word);
        let line = row.line.as_ref();
        self.calls.put(line.map(|line| line.call.as_str()));
        self.results
            .put(line.and_then(|line| line.result.strip_prefix("= ")));
        if let Some(source) = RowSource::of(cx, row) {
            self.sources.put(source.function.as_deref());
            self.call_sources.put(source.call.as_deref());
        }
    }

    /// Writes all rows, and has none any more.
    ///
    /// # Errors
    /// Those of the library.
    pub fn write<W: Write + Send>(
        &mut self,
        cx: &Context<'_>,
        out: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        column::<Int32Type, _>(out, &self.pids, None)?;
        column::<Int32Type, _>(out, &self.tids, None)?;
        column::<Int64Type, _>(out, &self.starts, None)?;
        column::<Int64Type, _>(out, &self.durations.known, Some(&self.durations.levels))?;
        column::<Int32Type, _>(out, &self.depths, None)?;
        let all: Vec<_> = self.functions.iter().copied().map(Some).collect();
        self.names(out, cx.names, &all, (true, true))?;
        self.names(out, cx.names, &all, (false, true))?;
        let callers = std::mem::take(&mut self.callers);
        self.names(out, cx.names, &callers, (true, false))?;
        self.names(out, cx.names, &callers, (false, false))?;
        column::<Int64Type, _>(out, &self.own.known, Some(&self.own.levels))?;
        words(out, &self.begins)?;
        words(out, &self.ends)?;
        column::<ByteArrayType, _>(out, &self.calls.known, Some(&self.calls.levels))?;
        column::<ByteArrayType, _>(out, &self.results.known, Some(&self.results.levels))?;
        if cx.names.has_sources() {
            for texts in [&self.sources, &self.call_sources] {
                column::<ByteArrayType, _>(out, &texts.known, Some(&texts.levels))?;
            }
        }
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        self.pids.clear();
        self.tids.clear();
        self.starts.clear();
        self.durations.clear();
        self.depths.clear();
        self.functions.clear();
        self.own.clear();
        self.begins.clear();
        self.ends.clear();
        self.calls.clear();
        self.results.clear();
        self.sources.clear();
        self.call_sources.clear();
    }

    /// Names of functions, or of their modules; all known, or with levels.
    fn names<W: Write + Send>(
        &mut self,
        out: &mut SerializedRowGroupWriter<'_, W>,
        names: &Names<'_>,
        ids: &[Option<FunctionId>],
        (of_module, all_known): (bool, bool),
    ) -> Result<(), ParquetError> {
        let Some(mut writer) = out.next_column()? else {
            return Ok(());
        };
        for ids in ids.chunks(TEXTS) {
            let text = |id: &FunctionId| {
                let made = self.texts.entry((of_module, *id));
                let make = || match of_module {
                    true => ByteArray::from(names.module(*id)),
                    false => ByteArray::from(names.name(*id)),
                };
                made.or_insert_with(make).clone()
            };
            let known: Vec<_> = ids.iter().flatten().map(text).collect();
            let levels: Vec<_> = ids.iter().map(|id| i16::from(id.is_some())).collect();
            let levels = (!all_known).then_some(levels.as_slice());
            writer
                .typed::<ByteArrayType>()
                .write_batch(&known, levels, None)?;
        }
        writer.close()
    }
}

fn column<T: DataType, W: Write + Send>(
    out: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut writer) = out.next_column()? else {
        return Ok(());
    };
    writer.typed::<T>().write_batch(values, levels, None)?;
    writer.close()
}

fn words<W: Write + Send>(
    out: &mut SerializedRowGroupWriter<'_, W>,
    words: &[&'static str],
) -> Result<(), ParquetError> {
    let Some(mut writer) = out.next_column()? else {
        return Ok(());
    };
    for words in words.chunks(TEXTS) {
        let texts: Vec<_> = words.iter().map(|word| ByteArray::from(*word)).collect();
        writer
            .typed::<ByteArrayType>()
            .write_batch(&texts, None, None)?;
    }
    writer.close()
}
