//! The rows with the greatest measure, and rows as they come.
//!
//! Must not know what is measured.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rhai::Dynamic;

use sptrace_payload::tables::MOST_ROWS as MOST_OF_THREAD;

use super::{Cell, Failure, Grid, MOST_ROWS, cells};

/// The rows with the greatest measure.
pub struct Slowest {
    most: usize,
    columns: Vec<String>,
    /// By measure; of equal ones the first come first.
    kept: BTreeMap<(Reverse<i64>, u64), Vec<Cell>>,
    added: u64,
    /// Additions of payloads that had no room.
    no_room: u64,
}

impl Slowest {
    /// So many; the first column is the measure.
    pub fn new(most: usize, columns: Vec<String>) -> Self {
        Self {
            most: most.clamp(1, MOST_ROWS),
            columns,
            kept: BTreeMap::new(),
            added: 0,
            no_room: 0,
        }
    }

    /// How many rows it has at most, and how many columns beside the measure.
    pub fn form(&self) -> (usize, usize) {
        (self.most, self.columns.len().saturating_sub(1))
    }

    /// Adds a row that payloads have kept.
    pub fn absorb(&mut self, measure: i64, cells: impl Iterator<Item = Cell>) {
        let row: Vec<Cell> = std::iter::once(Cell::Int(measure)).chain(cells).collect();
        if row.len() == self.columns.len() {
            self.keep(measure, row);
        }
    }

    /// So many additions had no room in the tables of payloads.
    pub fn leave_out(&mut self, count: u64) {
        self.no_room = self.no_room.saturating_add(count);
    }

    fn keep(&mut self, measure: i64, row: Vec<Cell>) {
        self.added += 1;
        self.kept.insert((Reverse(measure), self.added), row);
        if self.kept.len() > self.most {
            self.kept.pop_last();
        }
    }

    /// A measure that is not known is not among the greatest.
    pub fn add(&mut self, measure: Dynamic, rest: Dynamic) -> Result<(), Failure> {
        let Cell::Int(measure) = Cell::of(measure)? else {
            return Ok(());
        };
        let least = self.kept.last_key_value().map(|(key, _)| key.0.0);
        if self.kept.len() >= self.most && least.is_some_and(|least| measure <= least) {
            return Ok(());
        }
        let mut row = vec![Cell::Int(measure)];
        row.extend(cells(rest, self.columns.len().saturating_sub(1), "cells")?);
        self.keep(measure, row);
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.kept.len()
    }

    pub fn grid(&self) -> Grid {
        Grid {
            title: String::new(),
            columns: self.columns.clone(),
            rows: self.kept.values().cloned().collect(),
            remarks: match self.no_room {
                0 => Vec::new(),
                n => vec![format!(
                    "{n} additions of signal handlers had no room in the program"
                )],
            },
        }
    }
}

/// Rows in the order of their coming.
pub struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
    left_out: u64,
    /// Additions of payloads that had no room.
    no_room: u64,
}

impl Table {
    /// Without rows.
    pub fn new(columns: Vec<String>) -> Self {
        Self {
            columns,
            rows: Vec::new(),
            left_out: 0,
            no_room: 0,
        }
    }

    /// How many columns it has.
    pub fn width(&self) -> usize {
        self.columns.len()
    }

    /// Adds a row of payloads.
    pub fn absorb(&mut self, cells: impl Iterator<Item = Cell>) {
        let row: Vec<Cell> = cells.collect();
        if row.len() == self.columns.len() {
            self.keep(row);
        }
    }

    /// So many additions had no room in the tables of payloads.
    pub fn leave_out(&mut self, count: u64) {
        self.no_room = self.no_room.saturating_add(count);
    }

    fn keep(&mut self, row: Vec<Cell>) {
        match self.rows.len() < MOST_ROWS {
            true => self.rows.push(row),
            false => self.left_out += 1,
        }
    }

    pub fn add(&mut self, row: Dynamic) -> Result<(), Failure> {
        let row = cells(row, self.columns.len(), "cells")?;
        self.keep(row);
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn grid(&self) -> Grid {
        let mut remarks = Vec::new();
        if self.left_out > 0 {
            let n = self.left_out;
            remarks.push(format!("{n} rows left out: more than {MOST_ROWS}"));
        }
        if self.no_room > 0 {
            let n = self.no_room;
            remarks.push(format!(
                "{n} rows had no room in the program, where there are {MOST_OF_THREAD} of a thread"
            ));
        }
        Grid {
            title: String::new(),
            columns: self.columns.clone(),
            rows: self.rows.clone(),
            remarks,
        }
    }
}
