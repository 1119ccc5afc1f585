//! Tables that add up what payloads are given: where each lies in a thread's part of the shared
//! memory, and what has been written there.
//!
//! ```text
//! set      one a thread: the tables of all payloads, one behind the other
//! table    u64 left out; of the first: variables (u64 each); u64 by kind: bar, next row; of the
//!          first: u64 nanoseconds inside of calls; filling up to 128 bytes; rows
//! row      u64 state, keys (u64 each), what these stand for (u64 each), u64 count, then by kind:
//!          sum; least; greatest; buckets
//! row      of the rows with the greatest measure: u64 measure, keys, what these stand for
//! row      of rows in the order of their coming: u64 state, keys, what these stand for, u64 time
//!          stamp
//! ```
//!
//! Of the rows with the greatest measure there are some more than are asked for, so that none of
//! those is lost when a handler adds while a row is written, of which the measure is not known
//! ([`WRITING`]). The bar is the least measure kept and one more, so what is below need not look at
//! the rows; it is never higher than that, since measures of rows grow alone.
//!
//! A set belongs to one thread at a time, so nothing in it is locked. A signal handler may add to
//! the table that it has interrupted: a row is taken by one instruction, and one that is being
//! taken is passed over, so a key may stand in two rows. Who reads adds them up. Must not know what
//! is counted.

/// What is kept of the values of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// How many there were.
    Count,
    /// Their number and their sum.
    Sum,
    /// Their number and the least, with sign.
    Least,
    /// Their number and the greatest, with sign.
    Greatest,
    /// How many there were by power of two.
    Histogram,
    /// So many rows with the greatest measure, with sign; keys are what else stands in a row.
    Slowest(u8),
    /// The first rows in the order of their coming, each with a time stamp; nothing else is added.
    Rows,
}

impl Kind {
    /// True if rows are not added up: each stands for one addition.
    pub const fn has_single_rows(self) -> bool {
        matches!(self, Self::Slowest(_) | Self::Rows)
    }
}

/// Buckets of a histogram: 0 and less, then the powers of two.
pub const BUCKETS: usize = 65;
/// Keys of a row at most.
pub const MOST_KEYS: usize = 4;
/// Bytes before the first row.
pub const HEAD_BYTES: u32 = 128;
/// Variables of a thread: numbers that payloads set and ask for.
pub const MOST_VARIABLES: u8 = 7;
/// Where they are in a set: in the filling of the first table.
pub const VARIABLES_AT: u32 = 8;
const _: () = assert!(VARIABLES_AT + 8 * MOST_VARIABLES as u32 <= BAR_AT);
/// Where a table's bar is, or the number of its next row.
pub const BAR_AT: u32 = 64;
/// In a set: what calls have taken whose time without that inside is asked for
/// ([`crate::program::Source::Inside`]).
pub const INSIDE_AT: u32 = 72;
const _: () = assert!(INSIDE_AT + 8 <= HEAD_BYTES);
/// Rows with the greatest measure at most.
pub const MOST_SLOWEST: u8 = 64;
/// How many more there are: so many may be written at the same time, by handlers in handlers.
pub const SPARE_ROWS: u8 = 4;
/// Rows of a table that keeps them in the order of their coming.
pub const MOST_ROWS: u32 = 1_000;
/// In the place of a row's measure: it is being written.
pub const WRITING: u64 = u64::MAX;
/// How many rows are looked at for a key.
pub const PROBES: u32 = 8;
/// [`Row`]'s state: it has a key.
pub const TAKEN: u64 = 1;
/// The same: it is being taken.
pub const BEING_TAKEN: u64 = 2;
/// log2 of the rows of a table with keys.
const ROW_BITS: u32 = 10;
/// The same of a histogram, whose rows are long.
const HISTOGRAM_ROW_BITS: u32 = 7;
/// The product of a key and this spreads keys over the rows (Knuth, The Art of Computer
/// Programming, vol. 3, 6.4: the golden ratio).
pub const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// A table of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// What it keeps.
    pub kind: Kind,
    /// How many keys its rows have.
    pub keys: u8,
    /// Words of a row that tell what each of the keys stands for, if it is more than a number.
    pub told: [u8; MOST_KEYS],
    /// Where it begins in a set.
    pub at: u32,
}

impl Table {
    /// log2 of the rows that a key may hash to.
    pub const fn row_bits(&self) -> u32 {
        match (self.keys, self.kind) {
            (0, _) => 0,
            (_, Kind::Histogram) => HISTOGRAM_ROW_BITS,
            _ => ROW_BITS,
        }
    }

    /// Rows that somebody may ask for.
    pub const fn most_rows(&self) -> u32 {
        match self.kind {
            Kind::Slowest(rows) => rows as u32,
            Kind::Rows => MOST_ROWS,
            _ => 1 << self.row_bits(),
        }
    }

    /// Rows that there are: the last key has as many behind it as the others.
    pub const fn rows(&self) -> u32 {
        match (self.keys, self.kind) {
            (_, Kind::Slowest(rows)) => rows as u32 + SPARE_ROWS as u32,
            (_, Kind::Rows) => MOST_ROWS,
            (0, _) => 1,
            _ => (1 << self.row_bits()) + PROBES - 1,
        }
    }

    /// Offset of the count in a row.
    pub const fn count_at(&self) -> u32 {
        self.told_at(MOST_KEYS)
    }

    /// Offset in a row of what tells about a key.
    pub const fn told_at(&self, key: usize) -> u32 {
        let (mut at, mut before) = (8 + 8 * self.keys as u32, 0);
        while before < key && before < MOST_KEYS {
            at += 8 * self.told[before] as u32;
            before += 1;
        }
        at
    }

    /// Bytes of a row.
    pub const fn row_bytes(&self) -> u32 {
        let values = match self.kind {
            Kind::Count => 1,
            Kind::Sum | Kind::Least | Kind::Greatest => 2,
            Kind::Histogram => 1 + BUCKETS as u32,
            Kind::Slowest(_) => 0,
            Kind::Rows => 1,
        };
        self.count_at() + 8 * values
    }

    /// Its bytes up to where rows have been taken, given its bar or the number of its next row.
    pub const fn used_bytes(&self, next: u64) -> u32 {
        match self.kind {
            Kind::Rows if next < MOST_ROWS as u64 => HEAD_BYTES + next as u32 * self.row_bytes(),
            _ => self.bytes(),
        }
    }

    /// All of its bytes.
    pub const fn bytes(&self) -> u32 {
        HEAD_BYTES + self.rows() * self.row_bytes()
    }
}

/// The tables of all payloads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// By number.
    pub all: Vec<Table>,
    /// Bytes of a set.
    pub set_bytes: u32,
}

impl Tables {
    /// Puts tables behind each other.
    pub fn of(forms: impl IntoIterator<Item = (Kind, u8)>) -> Self {
        let plain = forms.into_iter();
        Self::telling(plain.map(|(kind, keys)| (kind, keys, [0; MOST_KEYS])))
    }

    /// The same, with words of each key's own in every row.
    pub fn telling(forms: impl IntoIterator<Item = (Kind, u8, [u8; MOST_KEYS])>) -> Self {
        let mut tables = Self::default();
        for (kind, keys, told) in forms {
            let at = tables.set_bytes;
            let table = Table {
                kind,
                keys,
                told,
                at,
            };
            tables.set_bytes = (at + table.bytes()).next_multiple_of(64);
            tables.all.push(table);
        }
        tables
    }

    /// With room for what does not lie in a table, if there is none.
    pub fn with_variables(self) -> Self {
        Self {
            set_bytes: self.set_bytes.max(HEAD_BYTES),
            ..self
        }
    }
}

/// What stands in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its keys.
    pub keys: Vec<u64>,
    /// What tells about them, one behind the other.
    pub told: Vec<u64>,
    /// How often something was added.
    pub count: u64,
    /// The sum, the least, the greatest, or the buckets.
    pub values: Vec<u64>,
}

impl Row {
    /// Adds what another row of the same key has.
    pub fn merge(&mut self, other: &Self, kind: Kind) {
        let pairs = self.values.iter_mut().zip(&other.values);
        for (mine, its) in pairs {
            *mine = match kind {
                _ if self.count == 0 => *its,
                _ if other.count == 0 => *mine,
                Kind::Least => (*mine as i64).min(*its as i64) as u64,
                Kind::Greatest => (*mine as i64).max(*its as i64) as u64,
                _ => mine.wrapping_add(*its),
            };
        }
        self.count = self.count.wrapping_add(other.count);
    }
}

/// A measure as a row has it: without sign, and neither of what stands for none. The least number
/// of all is never among the greatest.
pub const fn measure_word(measure: u64) -> u64 {
    match measure ^ 1 << 63 {
        WRITING => WRITING - 1,
        word => word,
    }
}

/// Of rows with a measure those with the greatest; of equal ones the first.
pub fn keep_greatest(rows: &mut Vec<Row>, most: u8) {
    let measure = |row: &Row| row.values.first().map_or(i64::MIN, |word| *word as i64);
    rows.sort_by_key(|row| std::cmp::Reverse(measure(row)));
    rows.truncate(usize::from(most));
}

/// The same of rows with a measure; one that was being written when nobody could write any more is
/// left out, and so is one that somebody writes just now.
fn read_slowest(table: &Table, word: &dyn Fn(u32) -> u64) -> (Vec<Row>, u64) {
    let (mut left_out, mut rows) = (word(table.at), Vec::new());
    for i in 0..table.rows() {
        let at = table.at + HEAD_BYTES + i * table.row_bytes();
        let measure = match word(at) {
            0 => continue,
            WRITING => {
                left_out = left_out.saturating_add(1);
                continue;
            }
            measure => measure ^ 1 << 63,
        };
        let keys = (0..u32::from(table.keys)).map(|k| word(at + 8 + 8 * k));
        let told = (table.told_at(0)..table.count_at()).step_by(8);
        let row = Row {
            keys: keys.collect(),
            told: told.map(|t| word(at + t)).collect(),
            count: 1,
            values: vec![measure],
        };
        match word(at) ^ 1 << 63 == measure {
            true => rows.push(row),
            false => left_out = left_out.saturating_add(1),
        }
    }
    (rows, left_out)
}

/// The same of rows in the order of their coming, with the time stamp of each as its value.
fn read_rows(table: &Table, word: &dyn Fn(u32) -> u64) -> (Vec<Row>, u64) {
    let next = word(table.at + BAR_AT);
    let used = next.min(table.rows().into()) as u32;
    let (mut left_out, mut rows) = (next - u64::from(used), Vec::new());
    for i in 0..used {
        let at = table.at + HEAD_BYTES + i * table.row_bytes();
        if word(at) != TAKEN {
            left_out = left_out.saturating_add(1);
            continue;
        }
        let keys = (0..u32::from(table.keys)).map(|k| word(at + 8 + 8 * k));
        let told = (table.told_at(0)..table.count_at()).step_by(8);
        rows.push(Row {
            keys: keys.collect(),
            told: told.map(|t| word(at + t)).collect(),
            count: 1,
            values: vec![word(at + table.count_at())],
        });
    }
    (rows, left_out)
}

/// What stands in a table of a set: `word` reads a word of it by its offset. Gives how often
/// something was left out, too. Of rows with the greatest measure it gives more than are asked for.
pub fn read(table: &Table, word: &dyn Fn(u32) -> u64) -> (Vec<Row>, u64) {
    match table.kind {
        Kind::Slowest(_) => return read_slowest(table, word),
        Kind::Rows => return read_rows(table, word),
        _ => {}
    }
    let left_out = word(table.at);
    let mut rows = Vec::new();
    for i in 0..table.rows() {
        let at = table.at + HEAD_BYTES + i * table.row_bytes();
        let count = word(at + table.count_at());
        if count == 0 || table.keys > 0 && word(at) != TAKEN {
            continue;
        }
        let keys = (0..u32::from(table.keys)).map(|k| word(at + 8 + 8 * k));
        let values = (table.count_at() + 8..table.row_bytes()).step_by(8);
        let told = (table.told_at(0)..table.count_at()).step_by(8);
        rows.push(Row {
            keys: keys.collect(),
            told: told.map(|t| word(at + t)).collect(),
            count,
            values: values.map(|v| word(at + v)).collect(),
        });
    }
    (rows, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_lie_behind_each_other() {
        let tables = Tables::of([(Kind::Count, 1), (Kind::Histogram, 0), (Kind::Least, 2)]);
        let [first, second, third] = tables.all[..] else {
            panic!("three were asked for");
        };
        assert_eq!((first.at, first.row_bytes()), (0, 24));
        assert!(second.at >= first.bytes() && second.at.is_multiple_of(64));
        assert_eq!(second.bytes(), HEAD_BYTES + 8 + 8 + 65 * 8);
        assert!(third.at >= second.at + second.bytes());
        assert!(tables.set_bytes >= third.at + third.bytes());
    }

    #[test]
    fn the_greatest_measures_are_kept() {
        let row = |measure: i64, key| Row {
            keys: vec![key],
            told: Vec::new(),
            count: 1,
            values: vec![measure as u64],
        };
        let mut rows = [(3, 0), (-7, 1), (9, 2), (3, 3)]
            .map(|(n, key)| row(n, key))
            .to_vec();
        keep_greatest(&mut rows, 2);
        assert_eq!(rows, [row(9, 2), row(3, 0)]);
        let words = [i64::MIN, -1, 0, 1, i64::MAX - 1].map(|n| measure_word(n as u64));
        assert!(words.is_sorted_by(|a, b| a < b) && words[0] == 0);
        assert_ne!(measure_word(i64::MAX as u64), WRITING);
    }

    #[test]
    fn a_row_that_is_written_while_it_is_read_is_left_out() {
        let tables = Tables::of([(Kind::Slowest(1), 1)]);
        let first = HEAD_BYTES;
        let reads = std::cell::Cell::new(0);
        let word = |at: u32| match at {
            // Another measure each time.
            _ if at == first => {
                reads.set(reads.get() + 1);
                measure_word(reads.get())
            }
            _ if at == first + tables.all[0].row_bytes() => measure_word(9),
            _ => 0,
        };
        let (rows, left_out) = read(&tables.all[0], &word);
        let measures: Vec<_> = rows.iter().map(|row| row.values[0]).collect();
        assert_eq!((measures, left_out), (vec![9], 1));
    }

    #[test]
    fn rows_of_the_same_key_are_one() {
        let row = |count, value: i64| Row {
            told: Vec::new(),
            keys: vec![1],
            count,
            values: vec![value as u64],
        };
        let merged = |kind| {
            let mut one = row(2, -5);
            one.merge(&row(3, 4), kind);
            (one.count, one.values[0] as i64)
        };
        assert_eq!(merged(Kind::Sum), (5, -1));
        assert_eq!(merged(Kind::Least), (5, -5));
        assert_eq!(merged(Kind::Greatest), (5, 4));
    }
}
