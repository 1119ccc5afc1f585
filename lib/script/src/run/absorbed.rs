//! What payloads have left in a trace: sheets get it, and lines of it are printed.
//!
//! Given the notes of a trace; functions have the names of that. Lines of all payloads are in the
//! order of time. Must not know how it came into the trace.

use rhai::ImmutableString;
use sptrace_payload::tables::MOST_ROWS;
use sptrace_render::units::Duration;
use sptrace_trace::{FunctionId, KeyColumn, KeyTold, TableSums};

use super::Run;
use crate::policy::Shows;
use crate::sheets::{Body, CellKey};

/// What was printed, by its time stamp.
#[derive(Default)]
struct Lines {
    all: Vec<(u64, u64, String)>,
    left_out: u64,
}

impl Lines {
    /// Of one place where something is printed.
    fn add(&mut self, run: &Run<'_>, around: &[String], sums: &TableSums) {
        self.left_out = self.left_out.saturating_add(sums.left_out);
        for row in &sums.rows {
            let mut text = String::new();
            let cells = run.cells_of(sums, &row.keys);
            let cells = cells.iter().map(|cell| cell.cell().text());
            let values = cells.map(Some).chain(std::iter::repeat(None));
            for (before, value) in around.iter().zip(values) {
                text.push_str(before);
                text.push_str(&value.unwrap_or_default());
            }
            let word = |n: usize| row.values.get(n).copied().unwrap_or(0);
            self.all.push((word(0), word(1), text));
        }
    }

    fn print(mut self, run: &Run<'_>) {
        let is_shown = run.script.shared.lock().form.has_lines();
        if !is_shown {
            return;
        }
        self.all.sort_by_key(|(tsc, ..)| *tsc);
        for (tsc, tid, text) in self.all {
            let at = Duration(run.clock.since_start_ns(tsc)).to_string();
            let text = text.replace(char::is_control, "\u{fffd}");
            run.script
                .shared
                .print(&format!("{at:>12}  {tid:>7}  {text}\n"));
        }
        if self.left_out > 0 {
            run.script.shared.print(&format!(
                "({} more lines had no room: {MOST_ROWS} of a thread are kept for each c.print)\n",
                self.left_out
            ));
        }
    }
}

impl Run<'_> {
    /// The cells of a key of payloads.
    fn cells_of(&self, sums: &TableSums, keys: &[u64]) -> Box<[CellKey]> {
        let columns = sums.columns.iter().copied();
        let columns = columns.chain(std::iter::repeat(KeyColumn::Number));
        let cells = keys.iter().zip(columns).map(|(key, column)| match column {
            KeyColumn::Number => CellKey::Int(*key as i64),
            KeyColumn::Function => CellKey::Text(self.caller_name(*key)),
            KeyColumn::Stack | KeyColumn::Text => CellKey::Text(self.told(sums, *key)),
        });
        cells.collect()
    }

    /// What a word of a key stands for; callers as `e.callers(N)` shows them.
    fn told(&self, sums: &TableSums, key: u64) -> ImmutableString {
        let place = usize::try_from(key).ok().and_then(|key| key.checked_sub(1));
        match place.and_then(|place| sums.told.get(place)) {
            Some(KeyTold::Stack(functions)) => {
                let names = functions.iter().rev().map(|key| self.caller_name(*key));
                names.collect::<Vec<_>>().join(" > ").into()
            }
            Some(KeyTold::Text(text)) => text.into(),
            None => "?".into(),
        }
    }

    /// The name of a function of which one more than its number is given.
    fn caller_name(&self, key: u64) -> ImmutableString {
        let id = u32::try_from(key).ok().and_then(|id| id.checked_sub(1));
        let (name, _) = self.names_of(id.map(FunctionId));
        match name.is_empty() {
            true => "?".into(),
            false => name,
        }
    }

    /// Puts what payloads have added up into the sheets of the same name.
    pub(super) fn absorb(&self, tables: &[TableSums]) {
        let sheets = self.script.shared.lock().sheets.clone();
        let mut lines = Lines::default();
        for (known, sums) in self.script.policy.tables.iter().zip(tables) {
            if known.title != sums.title {
                continue;
            }
            let sheet = match &known.shows {
                Shows::Lines(around) => {
                    lines.add(self, around, sums);
                    continue;
                }
                Shows::Sheet(number) => sheets.get(*number),
            };
            let Some(sheet) = sheet else {
                continue;
            };
            match &mut sheet.lock().body {
                Body::Groups(groups) => {
                    groups.leave_out(sums.left_out);
                    for row in &sums.rows {
                        let Some(keys) = self.keys_of(known, &row.keys) else {
                            continue;
                        };
                        groups.absorb(self.cells_of(sums, keys), row.count, &row.values);
                    }
                }
                Body::Slowest(slowest) => {
                    slowest.leave_out(sums.left_out);
                    for row in &sums.rows {
                        let cells = self.cells_of(sums, &row.keys);
                        let measure = row.values.first().map_or(0, |word| *word as i64);
                        slowest.absorb(measure, cells.iter().map(CellKey::cell));
                    }
                }
                Body::Table(table) => {
                    table.leave_out(sums.left_out);
                    for row in &sums.rows {
                        table.absorb(self.cells_of(sums, &row.keys).iter().map(CellKey::cell));
                    }
                }
            }
        }
        lines.print(self);
    }
}
