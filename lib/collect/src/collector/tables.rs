//! What payloads have added up, of all threads.
//!
//! Part of the [`Collector`]. Given the tables that payloads add to; gives a note with their sums
//! when nothing is recorded any more. A place that calls is a number that has a meaning in one
//! image of one process: such a table is read when the thread's stream ends, while its process is
//! known, and made empty for the next thread of the stream. Rows of one function are one row.
//! So it is with stacks, of which a row has the places beside it. Rows that are not added up are
//! kept with their thread. Must not know what is added up.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::Ordering;

use sptrace_payload::callers;
use sptrace_payload::tables::{
    BAR_AT, INSIDE_AT, Kind, MOST_VARIABLES, Row, Table, VARIABLES_AT, keep_greatest, read,
};
use sptrace_payload::text;
use sptrace_trace::{KeyColumn, KeyTold, Note, TableRow, TableSums};
use sptrace_tracee::arena::Arena;
use sptrace_wire::control::STREAMS;

use super::feed::Feed;
use super::{Collector, StreamState};
use crate::acts::Payloads;
use crate::decode::book::CalledFrom;

/// The tables, and what was in them.
#[derive(Debug, Default)]
pub(super) struct Added(Vec<Sums>);

#[derive(Clone, Debug)]
struct Sums {
    title: String,
    table: Table,
    columns: Vec<KeyColumn>,
    rows: BTreeMap<Vec<u64>, Row>,
    /// Of a kind whose rows are not added up.
    single: Vec<Row>,
    /// What words of keys stand for, each once, with one more than its place.
    told: BTreeMap<KeyTold, u64>,
    left_out: u64,
}

/// Rows of a table of single ones that are kept, of all threads.
const MOST_SINGLE: usize = 100_000;

impl Sums {
    /// It is read when a thread ends, and then made empty for the next one.
    fn is_of_thread(&self) -> bool {
        self.names_places() || self.table.kind == Kind::Rows
    }

    fn names_places(&self) -> bool {
        let is_place = |column| matches!(column, &KeyColumn::Function | &KeyColumn::Stack);
        self.columns.iter().any(is_place)
    }

    /// The word that stands for this.
    fn word_for(&mut self, told: KeyTold) -> u64 {
        let next = self.told.len() as u64 + 1;
        *self.told.entry(told).or_insert(next)
    }

    /// Of what a set has that which counts: of the greatest measures those of all sets so far.
    fn chosen(&self, mut rows: Vec<Row>) -> Vec<Row> {
        if let Kind::Slowest(most) = self.table.kind {
            let known = self.single.iter().filter_map(|row| row.values.first());
            let least = known.map(|word| *word as i64).min();
            let is_full = self.single.len() >= usize::from(most);
            let is_greater = |row: &Row| row.values.first().map(|word| *word as i64) > least;
            rows.retain(|row| !is_full || is_greater(row));
            keep_greatest(&mut rows, most);
        }
        rows
    }

    fn add(&mut self, mut rows: Vec<Row>, left_out: u64) {
        self.left_out = self.left_out.wrapping_add(left_out);
        if self.table.kind.has_single_rows() {
            self.single.append(&mut rows);
        }
        if let Kind::Slowest(most) = self.table.kind {
            keep_greatest(&mut self.single, most);
        }
        let more = self.single.len().saturating_sub(MOST_SINGLE);
        self.single.truncate(MOST_SINGLE);
        self.left_out = self.left_out.wrapping_add(more as u64);
        for row in rows {
            match self.rows.get_mut(&row.keys) {
                Some(known) => known.merge(&row, self.table.kind),
                None => {
                    self.rows.insert(row.keys.clone(), row);
                }
            }
        }
    }

    fn told(mut self) -> TableSums {
        if self.table.kind == Kind::Rows {
            self.single.sort_by_key(|row| row.values.first().copied());
        }
        let told = self.told.into_iter().map(|(told, place)| (place, told));
        let told: BTreeMap<u64, KeyTold> = told.collect();
        let rows = self.rows.into_values().chain(self.single);
        let rows = rows.map(|row| TableRow {
            keys: row.keys,
            count: row.count,
            values: row.values,
        });
        TableSums {
            title: self.title,
            left_out: self.left_out,
            columns: self.columns,
            told: told.into_values().collect(),
            rows: rows.collect(),
        }
    }
}

impl<W: Write> Collector<W> {
    /// Payloads add to tables: what these have in the end is told.
    pub(crate) fn add_up(&mut self, payloads: &Payloads) {
        let titles = payloads.titles.iter().zip(&payloads.columns);
        let all = payloads.tables.all.iter().zip(titles);
        let all = all.map(|(table, (title, columns))| Sums {
            title: title.clone(),
            table: *table,
            columns: columns.clone(),
            rows: BTreeMap::new(),
            single: Vec::new(),
            told: BTreeMap::new(),
            left_out: 0,
        });
        self.added = Added(all.collect());
    }

    /// The thread of a stream is gone: takes what it has added by places.
    pub(super) fn take_tables(&mut self, arena: &Arena, i: usize) {
        // The next thread of the stream begins with variables that are zero.
        arena.clear_table_words(i as u32, VARIABLES_AT, 8 * u32::from(MOST_VARIABLES));
        arena.clear_table_words(i as u32, INSIDE_AT, 8);
        if !self.added.0.iter().any(Sums::is_of_thread) {
            return;
        }
        // Its process may have written nothing else.
        let epoch = arena.stream(i).epoch.load(Ordering::Relaxed);
        self.begin_stream(arena, i, epoch);
        self.add_tables(arena, i, &Sums::is_of_thread);
        for sums in self.added.0.iter().filter(|sums| sums.is_of_thread()) {
            let next = arena.table_word(i as u32, sums.table.at + BAR_AT);
            arena.clear_table_words(i as u32, sums.table.at, sums.table.used_bytes(next));
        }
    }

    /// Tells what all threads have added.
    pub(crate) fn note_tables(&mut self, arena: &Arena) {
        if self.added.0.is_empty() {
            return;
        }
        self.adopt_streams(arena);
        let control = arena.control();
        let used = control.streams_used.load(Ordering::Acquire);
        let sets = control.tables_sets.min(STREAMS as u32).min(used);
        for set in 0..sets {
            self.add_tables(arena, set as usize, &|_| true);
        }
        let all = std::mem::take(&mut self.added.0).into_iter();
        let note = Note::Tables {
            pid: 0,
            tsc: crate::clock::tsc(),
            tables: all.map(Sums::told).collect(),
        };
        self.note(&note);
    }

    /// Adds what a stream's set has in the tables that are wanted.
    fn add_tables(&mut self, arena: &Arena, i: usize, is_wanted: &dyn Fn(&Sums) -> bool) {
        let mut added = std::mem::take(&mut self.added);
        let mut state = self.streams[i].take();
        for sums in added.0.iter_mut().filter(|sums| is_wanted(sums)) {
            let (rows, left_out) = read(&sums.table, &|at| arena.table_word(i as u32, at));
            let mut rows = sums.chosen(rows);
            let tid = state.as_deref().map_or(0, |state| state.lane.tid);
            for row in &mut rows {
                if sums.table.kind == Kind::Rows {
                    row.values.push(tid.into());
                }
                self.name_keys(row, sums, state.as_deref_mut());
            }
            sums.add(rows, left_out);
        }
        self.streams[i] = state;
        self.added = added;
    }

    /// Puts what a row's keys stand for into the place of what they are in its process.
    fn name_keys(&mut self, row: &mut Row, sums: &mut Sums, mut state: Option<&mut StreamState>) {
        let mut told = std::mem::take(&mut row.told).into_iter();
        let columns = sums.columns.clone();
        let widths = sums.table.told.into_iter();
        for ((key, column), words) in row.keys.iter_mut().zip(columns).zip(widths) {
            let words: Vec<u64> = told.by_ref().take(usize::from(words)).collect();
            match column {
                KeyColumn::Number => {}
                // It could not be read.
                KeyColumn::Text if *key == 0 => {}
                KeyColumn::Text => {
                    let (mut text, is_cut) = text::told(&words);
                    text.push_str(if is_cut { "..." } else { "" });
                    *key = sums.word_for(KeyTold::Text(text));
                }
                KeyColumn::Function => *key = self.site_function(state.as_deref_mut(), *key),
                KeyColumn::Stack => {
                    let places = callers::places(&words).into_iter();
                    let functions = places
                        .map(|place| self.site_function(state.as_deref_mut(), place.into()))
                        .collect();
                    *key = sums.word_for(KeyTold::Stack(functions));
                }
            }
        }
    }

    /// One more than the number of the function that the place lies in; 0: it is not known.
    fn site_function(&mut self, state: Option<&mut StreamState>, id: u64) -> u64 {
        let Some(state) = state else {
            return 0;
        };
        let areas = self.areas_of(state);
        let mut feed = Feed {
            recorder: &mut self.recorder,
            lane: &mut state.lane,
        };
        let caller = areas.find(id as u32).and_then(|(area, offset)| {
            let module = area.module;
            self.book
                .site_caller(CalledFrom { module, offset }, &mut feed)
        });
        caller.map_or(0, |function| u64::from(function.0) + 1)
    }
}
