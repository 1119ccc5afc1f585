//! Reads a trace while it is being written.
//!
//! Given its path; gives what is whole by now, and later what has been added. Rings, which are
//! written over, are refused by their section.

use crate::error::TraceError;
use crate::model::{Clock, Header};
use crate::reader::{Dictionary, Ending, Item, TraceReader};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// A trace that grows.
pub struct Follower {
    reader: TraceReader<BufReader<File>>,
}

impl Follower {
    /// Opens a trace of which the header at least is written.
    ///
    /// # Errors
    /// Those of [`TraceReader::open`].
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let metadata = std::fs::metadata(path).map_err(TraceError::Read)?;
        if !metadata.is_file() {
            return Err(TraceError::NotAFile);
        }
        let file = File::open(path).map_err(TraceError::Read)?;
        let reader = TraceReader::new(BufReader::with_capacity(64 << 10, file))?;
        Ok(Self { reader })
    }

    /// What comes next, if it is written by now.
    ///
    /// # Errors
    /// [`TraceError::Read`] and [`TraceError::Damaged`].
    pub fn next_item(&mut self) -> Result<Option<Item>, TraceError> {
        self.reader.next_written()
    }

    /// Has the recording ended, and all of it been given?
    pub fn is_complete(&self) -> bool {
        matches!(self.reader.ending(), Ending::Complete(_))
    }

    /// What was traced.
    pub fn header(&self) -> &Header {
        self.reader.header()
    }

    /// Makes ticks nanoseconds.
    pub fn clock(&self) -> Clock {
        self.reader.clock()
    }

    /// What is named by now.
    pub fn dictionary(&self) -> &Dictionary {
        self.reader.dictionary()
    }
}
