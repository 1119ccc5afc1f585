//! The rows of a group of a Parquet file, column by column.
//!
//! Given rows; gives them to the library's writer in the order of the columns that `parquet.rs`
//! states. Names are numbers in a row, and texts only in the [`Texts`] of the file, so that a row
//! costs no memory of its own. Knows nothing of files.

use super::{Context, Row};
use crate::rows::RowSource;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedRowGroupWriter;
use sptrace_trace::FunctionId;
use std::io::Write;

/// Texts made at a time.
const TEXTS: usize = 16 << 10;
/// Stands for no function.
const NOBODY: u32 = u32::MAX;

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
struct RareTexts {
    known: Vec<ByteArray>,
    levels: Vec<i16>,
}

impl RareTexts {
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

/// The functions of a file by numbers of its own, as rows come.
#[derive(Default)]
pub struct Numbered {
    /// By function, one more than its number; 0: it has none yet.
    numbers: Vec<u32>,
    next: u32,
}

impl Numbered {
    /// The number of a function; `new` takes its module and name at the first time.
    fn number(&mut self, cx: &Context<'_>, id: FunctionId, new: &mut Vec<[ByteArray; 2]>) -> u32 {
        let index = id.0 as usize;
        if index >= self.numbers.len() {
            self.numbers.resize(index + 1, 0);
        }
        if self.numbers[index] == 0 {
            let texts = [cx.names.module(id), cx.names.name(id)];
            new.push(texts.map(ByteArray::from));
            self.next += 1;
            self.numbers[index] = self.next;
        }
        self.numbers[index] - 1
    }
}

/// Module and name of each function of a file, by the numbers of [`Numbered`].
#[derive(Default)]
pub struct Texts {
    functions: Vec<[ByteArray; 2]>,
    words: Vec<(&'static str, ByteArray)>,
}

impl Texts {
    /// There are few words, and each is one and the same text.
    fn word(&mut self, word: &'static str) -> ByteArray {
        let known = self
            .words
            .iter()
            .find(|(known, _)| std::ptr::eq(*known, word));
        match known {
            Some((_, text)) => text.clone(),
            None => {
                let text = ByteArray::from(word);
                self.words.push((word, text.clone()));
                text
            }
        }
    }
}

/// Rows that are not written yet.
#[derive(Default)]
pub struct Group {
    pids: Vec<i32>,
    tids: Vec<i32>,
    starts: Vec<i64>,
    durations: Numbers,
    depths: Vec<i32>,
    functions: Vec<u32>,
    callers: Vec<u32>,
    own: Numbers,
    begins: Vec<&'static str>,
    ends: Vec<&'static str>,
    calls: RareTexts,
    results: RareTexts,
    has_sources: bool,
    sources: RareTexts,
    call_sources: RareTexts,
    /// Texts of functions that no group before has, in the order of their numbers.
    new: Vec<[ByteArray; 2]>,
}

impl Group {
    /// How many rows it has.
    pub fn rows(&self) -> usize {
        self.pids.len()
    }

    /// Takes a row.
    pub fn put(&mut self, cx: &Context<'_>, numbered: &mut Numbered, row: &Row<'_>) {
        self.has_sources = cx.names.has_sources();
        self.pids.push(row.thread.pid as i32);
        self.tids.push(row.thread.tid as i32);
        self.starts.push(signed(row.start_ns));
        self.durations.put(row.duration_ns);
        self.depths.push(row.depth as i32);
        let function = numbered.number(cx, row.function, &mut self.new);
        self.functions.push(function);
        let number = |id| numbered.number(cx, id, &mut self.new);
        self.callers.push(row.caller.map_or(NOBODY, number));
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
        texts: &mut Texts,
        out: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        texts.functions.append(&mut self.new);
        column::<Int32Type, _>(out, &self.pids, None)?;
        column::<Int32Type, _>(out, &self.tids, None)?;
        column::<Int64Type, _>(out, &self.starts, None)?;
        column::<Int64Type, _>(out, &self.durations.known, Some(&self.durations.levels))?;
        column::<Int32Type, _>(out, &self.depths, None)?;
        let texts_of = |texts: &Texts, which: usize, number: u32| {
            texts
                .functions
                .get(number as usize)
                .map(|both| both[which].clone())
        };
        for which in [0, 1] {
            text_column(out, &self.functions, true, |number| {
                texts_of(texts, which, number)
            })?;
        }
        for which in [0, 1] {
            text_column(out, &self.callers, false, |number| {
                texts_of(texts, which, number)
            })?;
        }
        column::<Int64Type, _>(out, &self.own.known, Some(&self.own.levels))?;
        text_column(out, &self.begins, true, |word| Some(texts.word(word)))?;
        text_column(out, &self.ends, true, |word| Some(texts.word(word)))?;
        column::<ByteArrayType, _>(out, &self.calls.known, Some(&self.calls.levels))?;
        column::<ByteArrayType, _>(out, &self.results.known, Some(&self.results.levels))?;
        if self.has_sources {
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
        self.callers.clear();
        self.own.clear();
        self.begins.clear();
        self.ends.clear();
        self.calls.clear();
        self.results.clear();
        self.sources.clear();
        self.call_sources.clear();
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

/// A column of texts that many rows share; all are known, or it says which.
fn text_column<T: Copy, W: Write + Send>(
    out: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[T],
    all_known: bool,
    mut text: impl FnMut(T) -> Option<ByteArray>,
) -> Result<(), ParquetError> {
    let Some(mut writer) = out.next_column()? else {
        return Ok(());
    };
    let (mut known, mut levels) = (Vec::with_capacity(TEXTS), Vec::with_capacity(TEXTS));
    for rows in rows.chunks(TEXTS) {
        known.clear();
        levels.clear();
        for row in rows {
            let text = text(*row);
            levels.push(i16::from(text.is_some()));
            if let Some(text) = text {
                known.push(text);
            }
        }
        let levels = (!all_known).then_some(levels.as_slice());
        writer
            .typed::<ByteArrayType>()
            .write_batch(&known, levels, None)?;
    }
    writer.close()
}
