//! Values by key: counts, sums, least and greatest, statistics, histograms.
//!
//! Must not know what is counted.

use std::collections::HashMap;

use rhai::Dynamic;
use sptrace_payload::tables::Kind;
use sptrace_trace::Histogram;

use super::{Cell, Failure, Grid, MOST_ROWS, cells};
use crate::error::refuse;

/// What is kept of the values of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Count,
    Sum,
    Min,
    Max,
    Stats,
    Histogram,
}

/// Of one key.
#[derive(Clone, Debug, Default)]
struct Kept {
    count: u64,
    /// Values that were not known.
    unknown: u64,
    sums: Vec<i64>,
    least: Option<i64>,
    greatest: Option<i64>,
    quantiles: Histogram,
    /// By power of two.
    powers: Vec<u64>,
}

/// Values by key.
pub struct Groups {
    mode: Mode,
    keys: Vec<String>,
    fields: Vec<String>,
    kept: HashMap<Box<[CellKey]>, Kept>,
    /// Additions whose key did not fit.
    left_out: u64,
    /// Additions of payloads that had no room.
    no_room: u64,
}

/// A cell that can be looked up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CellKey {
    Nothing,
    Int(i64),
    Float(u64),
    Text(rhai::ImmutableString),
}

impl CellKey {
    /// Of a cell.
    pub fn of(cell: Cell) -> Self {
        match cell {
            Cell::Nothing => Self::Nothing,
            Cell::Int(n) => Self::Int(n),
            Cell::Float(n) => Self::Float(n.to_bits()),
            Cell::Text(text) => Self::Text(text),
        }
    }

    /// The cell.
    pub fn cell(&self) -> Cell {
        match self {
            Self::Nothing => Cell::Nothing,
            Self::Int(n) => Cell::Int(*n),
            Self::Float(bits) => Cell::Float(f64::from_bits(*bits)),
            Self::Text(text) => Cell::Text(text.clone()),
        }
    }
}

impl Groups {
    /// Nothing yet.
    pub fn new(mode: Mode, keys: Vec<String>, fields: Vec<String>) -> Self {
        Self {
            mode,
            keys,
            fields,
            kept: HashMap::new(),
            left_out: 0,
            no_room: 0,
        }
    }

    /// What payloads can add to it: the kind of their table, and how many keys it has. None: they
    /// cannot.
    pub fn form(&self) -> Option<(Kind, Mode, usize)> {
        let kind = match (self.mode, self.fields.len()) {
            (Mode::Count, _) => Kind::Count,
            (Mode::Sum, 1) => Kind::Sum,
            (Mode::Min, _) => Kind::Least,
            (Mode::Max, _) => Kind::Greatest,
            (Mode::Histogram, _) => Kind::Histogram,
            (Mode::Stats | Mode::Sum, _) => return None,
        };
        Some((kind, self.mode, self.keys.len()))
    }

    /// Adds what payloads have added up: a row of their table, of this kind of sheet.
    pub fn absorb(&mut self, keys: Box<[CellKey]>, count: u64, values: &[u64]) {
        if keys.len() != self.keys.len() {
            return;
        }
        if self.kept.len() >= MOST_ROWS && !self.kept.contains_key(&keys) {
            self.left_out = self.left_out.saturating_add(count);
            return;
        }
        let kept = self.kept.entry(keys).or_default();
        kept.count = kept.count.saturating_add(count);
        let first = values.first().map(|value| *value as i64);
        match self.mode {
            Mode::Count | Mode::Stats => {}
            Mode::Sum => {
                kept.sums.resize(1, 0);
                if let (Some(sum), Some(first)) = (kept.sums.first_mut(), first) {
                    *sum = sum.saturating_add(first);
                }
            }
            Mode::Min => kept.least = kept.least.into_iter().chain(first).min(),
            Mode::Max => kept.greatest = kept.greatest.into_iter().chain(first).max(),
            Mode::Histogram => {
                kept.powers.resize(kept.powers.len().max(values.len()), 0);
                for (power, value) in kept.powers.iter_mut().zip(values) {
                    *power = power.saturating_add(*value);
                }
            }
        }
    }

    /// So many additions had no room in the tables of payloads.
    pub fn leave_out(&mut self, count: u64) {
        self.no_room = self.no_room.saturating_add(count);
    }

    /// Without keys, what stands for a key is a value.
    pub fn add_one(&mut self, what: Dynamic) -> Result<(), Failure> {
        match (self.mode, self.keys.is_empty()) {
            (Mode::Count, _) => self.add(what, Dynamic::UNIT),
            (_, true) => self.add(Dynamic::from(rhai::Array::new()), what),
            _ => refuse(
                "a key and a value are wanted here",
                "as t.add(e.name, e.elapsed)",
            ),
        }
    }

    /// Adds a value, or several, for a key.
    pub fn add(&mut self, key: Dynamic, value: Dynamic) -> Result<(), Failure> {
        let keys = cells(key, self.keys.len(), "keys")?;
        let keys: Box<[CellKey]> = keys.into_iter().map(CellKey::of).collect();
        let values = match self.mode {
            Mode::Count if value.is_unit() => Vec::new(),
            Mode::Count => vec![Cell::of(value)?],
            _ => cells(value, self.fields.len(), "values")?,
        };
        let mut numbers = Vec::with_capacity(values.len());
        for value in values {
            numbers.push(match value {
                Cell::Int(n) => Some(n),
                Cell::Float(n) => Some(n.round() as i64),
                Cell::Nothing => None,
                Cell::Text(text) => {
                    return refuse(&format!("'{text}' is no number"), "the key comes first");
                }
            });
        }
        if self.kept.len() >= MOST_ROWS && !self.kept.contains_key(&keys) {
            self.left_out += 1;
            return Ok(());
        }
        let kept = self.kept.entry(keys).or_default();
        kept.add(self.mode, &numbers);
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// As rows, the greatest first.
    pub fn grid(&self) -> Grid {
        let field = self.fields.first().map_or("value", String::as_str);
        let (stem, unit) = split_unit(field);
        let with = |word: &str| format!("{word}{unit}");
        let mut columns = self.keys.clone();
        let own: Vec<String> = match self.mode {
            Mode::Count => vec!["count".to_owned()],
            Mode::Sum => {
                let fields = self.fields.iter().cloned();
                std::iter::once("count".to_owned()).chain(fields).collect()
            }
            Mode::Min => vec!["count".to_owned(), with(&format!("min_{stem}"))],
            Mode::Max => vec!["count".to_owned(), with(&format!("max_{stem}"))],
            Mode::Stats => {
                let words = ["total", "mean", "min", "p50", "p99", "max"];
                std::iter::once("count".to_owned())
                    .chain(words.map(with))
                    .collect()
            }
            Mode::Histogram => vec![with("from"), with("below"), "count".to_owned()],
        };
        columns.extend(own);
        let mut rows: Vec<(&Box<[CellKey]>, &Kept)> = self.kept.iter().collect();
        rows.sort_by(|(a, x), (b, y)| {
            let cells = |key: &[CellKey]| key.iter().map(CellKey::cell).collect::<Vec<_>>();
            let order = y.weight(self.mode).cmp(&x.weight(self.mode));
            order.then_with(|| cells(a).cmp(&cells(b)))
        });
        let mut remarks = Vec::new();
        let unknown: u64 = rows.iter().map(|(_, kept)| kept.unknown).sum();
        if unknown > 0 && self.mode != Mode::Count {
            remarks.push(format!("{unknown} of the values are not known"));
        }
        if self.left_out > 0 {
            remarks.push(format!(
                "{} additions left out: more than {MOST_ROWS} keys",
                self.left_out
            ));
        }
        if self.no_room > 0 {
            remarks.push(format!(
                "{} additions had no room in the program: too many keys",
                self.no_room
            ));
        }
        let mut shown = Vec::new();
        for (key, kept) in rows {
            for own in kept.rows(self.mode) {
                let cells = key.iter().map(CellKey::cell);
                shown.push(cells.chain(own).collect());
            }
        }
        Grid {
            title: String::new(),
            columns,
            rows: shown,
            remarks,
        }
    }
}

/// The name of a field, and its unit with the stroke before it.
fn split_unit(field: &str) -> (&str, &str) {
    let unit = ["_ns", "_bytes"].into_iter().find(|u| field.ends_with(u));
    unit.map_or((field, ""), |unit| field.split_at(field.len() - unit.len()))
}

impl Kept {
    fn add(&mut self, mode: Mode, numbers: &[Option<i64>]) {
        let by = match (mode, numbers) {
            (Mode::Count, [Some(n)]) => u64::try_from(*n).unwrap_or(0),
            _ => 1,
        };
        self.count = self.count.saturating_add(by);
        if mode == Mode::Count {
            return;
        }
        self.sums.resize(numbers.len(), 0);
        for (sum, number) in self.sums.iter_mut().zip(numbers) {
            *sum = sum.saturating_add(number.unwrap_or(0));
        }
        self.unknown += numbers.iter().filter(|n| n.is_none()).count() as u64;
        let Some(Some(first)) = numbers.first().copied() else {
            return;
        };
        self.least = Some(self.least.map_or(first, |least| least.min(first)));
        self.greatest = Some(self.greatest.map_or(first, |most| most.max(first)));
        let positive = first.max(0) as u64;
        match mode {
            Mode::Stats => self.quantiles.add(positive),
            Mode::Histogram => {
                let power = 64 - positive.leading_zeros() as usize;
                self.powers.resize(self.powers.len().max(power + 1), 0);
                if let Some(place) = self.powers.get_mut(power) {
                    *place += 1;
                }
            }
            _ => {}
        }
    }

    /// What rows are ordered by, the greatest first.
    fn weight(&self, mode: Mode) -> i64 {
        let count = i64::try_from(self.count).unwrap_or(i64::MAX);
        match mode {
            Mode::Count | Mode::Histogram => count,
            Mode::Sum | Mode::Stats => self.sums.first().copied().unwrap_or(0),
            Mode::Min => self.least.map_or(i64::MIN, i64::saturating_neg),
            Mode::Max => self.greatest.unwrap_or(i64::MIN),
        }
    }

    fn rows(&self, mode: Mode) -> Vec<Vec<Cell>> {
        let int = |n: u64| Cell::Int(i64::try_from(n).unwrap_or(i64::MAX));
        let known = |n: Option<i64>| n.map_or(Cell::Nothing, Cell::Int);
        let count = int(self.count);
        let row = match mode {
            Mode::Count => vec![count],
            Mode::Sum => {
                let sums = self.sums.iter().map(|sum| Cell::Int(*sum));
                std::iter::once(count).chain(sums).collect()
            }
            Mode::Min => vec![count, known(self.least)],
            Mode::Max => vec![count, known(self.greatest)],
            Mode::Stats => self.statistics(count),
            Mode::Histogram => {
                let powers = self.powers.iter().enumerate().filter(|(_, n)| **n > 0);
                let row = |(power, n): (usize, &u64)| {
                    let from = if power == 0 { 0 } else { 1 << (power - 1) };
                    let below = 1u64.checked_shl(power as u32).unwrap_or(u64::MAX);
                    vec![int(from), int(below), int(*n)]
                };
                return powers.map(row).collect();
            }
        };
        vec![row]
    }

    fn statistics(&self, count: Cell) -> Vec<Cell> {
        let seen = self.count.saturating_sub(self.unknown);
        let Some((least, greatest)) = self.least.zip(self.greatest) else {
            return std::iter::once(count)
                .chain(std::iter::repeat_n(Cell::Nothing, 6))
                .collect();
        };
        let total = self.sums.first().copied().unwrap_or(0);
        let mean = total / i64::try_from(seen.max(1)).unwrap_or(i64::MAX);
        let quantile = |percent| {
            let value = i64::try_from(self.quantiles.percentile(percent)).unwrap_or(i64::MAX);
            Cell::Int(value.clamp(least, greatest))
        };
        vec![
            count,
            Cell::Int(total),
            Cell::Int(mean),
            Cell::Int(least),
            quantile(50),
            quantile(99),
            Cell::Int(greatest),
        ]
    }
}
