//! What payloads have added up: tables, what their keys are, and their bytes.
//!
//! Part of [`crate::note`], one of whose kinds tells them. Must not know what was counted.

use crate::error::Malformed;
use crate::format::{Cursor, put_string, put_v};

/// A table of payloads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableSums {
    /// Of the sheet that they add to.
    pub title: String,
    /// Additions that had no room.
    pub left_out: u64,
    /// What each of the words of a key is; those behind the last are numbers.
    pub columns: Vec<KeyColumn>,
    /// What words of keys stand for that are stacks or texts.
    pub told: Vec<KeyTold>,
    /// One for each key.
    pub rows: Vec<TableRow>,
}

/// What a word of a key is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KeyColumn {
    /// A number, with sign.
    #[default]
    Number,
    /// One more than the number of a function; 0: one that is not known.
    Function,
    /// One more than the place in [`TableSums::told`] of a stack; 0: one that is not known.
    Stack,
    /// The same of a text.
    Text,
}

/// What a word of a key stands for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum KeyTold {
    /// Functions, the innermost first, as [`KeyColumn::Function`] has them.
    Stack(Vec<u64>),
    /// A text, or as much of it as there was room for.
    Text(String),
}

impl KeyTold {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Stack(functions) => {
                out.push(0);
                put_words(out, functions);
            }
            Self::Text(text) => {
                out.push(1);
                put_string(out, text);
            }
        }
    }

    fn read(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        match from.u8()? {
            0 => Ok(Self::Stack(words(from)?)),
            1 => Ok(Self::Text(from.string()?)),
            _ => Err(Malformed("unknown kind of what a key stands for")),
        }
    }
}

impl KeyColumn {
    fn read(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        match from.u8()? {
            0 => Ok(Self::Number),
            1 => Ok(Self::Function),
            2 => Ok(Self::Stack),
            3 => Ok(Self::Text),
            _ => Err(Malformed("unknown kind of a key")),
        }
    }
}

/// What was added for a key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableRow {
    /// The key, of so many words as the sheet has columns.
    pub keys: Vec<u64>,
    /// How often something was added.
    pub count: u64,
    /// By the kind of the sheet: the sum, the least, the greatest, how many lie in each power of
    /// two, the measure of one of the rows with the greatest, or the time stamp and the thread of
    /// one of the rows in the order of their coming.
    pub values: Vec<u64>,
}

fn put_words(out: &mut Vec<u8>, words: &[u64]) {
    put_v(out, words.len() as u64);
    words.iter().for_each(|word| put_v(out, *word));
}

fn words(from: &mut Cursor<'_>) -> Result<Vec<u64>, Malformed> {
    let mut words = Vec::new();
    for _ in 0..from.v()? {
        words.push(from.v()?);
    }
    Ok(words)
}

impl TableSums {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put_string(out, &self.title);
        put_v(out, self.left_out);
        put_v(out, self.columns.len() as u64);
        out.extend(self.columns.iter().map(|column| *column as u8));
        put_v(out, self.told.len() as u64);
        for told in &self.told {
            told.write(out);
        }
        put_v(out, self.rows.len() as u64);
        for row in &self.rows {
            put_words(out, &row.keys);
            put_v(out, row.count);
            put_words(out, &row.values);
        }
    }

    pub(crate) fn read(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (title, left_out) = (from.string()?, from.v()?);
        let (mut columns, mut told, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..from.v()? {
            columns.push(KeyColumn::read(from)?);
        }
        for _ in 0..from.v()? {
            told.push(KeyTold::read(from)?);
        }
        for _ in 0..from.v()? {
            rows.push(TableRow {
                keys: words(from)?,
                count: from.v()?,
                values: words(from)?,
            });
        }
        Ok(Self {
            title,
            left_out,
            columns,
            told,
            rows,
        })
    }
}
