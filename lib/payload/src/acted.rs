//! What the acts of a payload mean, one step after the other: slow, and plain to see. Compiled code
//! must do the same.
//!
//! Given acts and the words of a call; gives what they come to, and what they leave in tables. Must
//! not know where tables lie.

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::acts::{Acts, MOST_COUNTERS, MOST_LOCALS, Step};
use crate::callers;
use crate::interpret::{Call, Memory, word_of};
use crate::program::{Expression, Source};
use crate::tables::{self, BUCKETS, Kind, Row};
use crate::text;

/// Rows by table and keys.
pub type Sums = BTreeMap<(u8, Vec<u64>), Row>;

/// Does what acts say, and gives whether the call is recorded. Counters begin at nothing.
pub fn interpret(
    acts: &Acts,
    call: &Call,
    memory: &dyn Memory,
    kinds: &[Kind],
    sums: &mut Sums,
) -> bool {
    interpret_active(acts, call, memory, (kinds, sums)).is_recorded
}

/// What acts have come to at a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CameTo {
    /// The call is recorded.
    pub is_recorded: bool,
    /// What is done to it, by the numbers of [`crate::acts::Act`].
    pub done: [Option<u64>; 4],
    /// What the host is bidden do: bits by numbers.
    pub bids: u32,
}

/// The same, with all that the acts have come to.
pub fn interpret_active(
    acts: &Acts,
    call: &Call,
    memory: &dyn Memory,
    (kinds, sums): (&[Kind], &mut Sums),
) -> CameTo {
    let mut run = Run {
        word: Box::new(|e, locals| word_of(e, call, memory, locals)),
        told: Box::new(|key| told(key, call, memory)),
        locals: [0; MOST_LOCALS as usize],
        came: CameTo {
            is_recorded: acts.records,
            ..CameTo::default()
        },
        counters: [0; MOST_COUNTERS as usize],
        variables: &call.variables,
        kinds,
        sums,
    };
    run.all(&acts.steps);
    if let Some(kept) = acts.self_time() {
        let before_ns = call.kept.get(usize::from(kept)).copied().unwrap_or(0);
        let inside_ns = before_ns.wrapping_add(call.elapsed_ns);
        call.inside_ns.set(inside_ns);
    }
    run.came
}

/// What an expression gives, with locals.
type Word<'a> = dyn Fn(&Expression, &[u64]) -> u64 + 'a;
/// What a row tells of a key.
type Tells<'a> = dyn Fn(&Expression) -> Vec<u64> + 'a;

struct Run<'a> {
    word: Box<Word<'a>>,
    told: Box<Tells<'a>>,
    locals: [u64; MOST_LOCALS as usize],
    came: CameTo,
    counters: [u64; MOST_COUNTERS as usize],
    variables: &'a [Cell<u64>],
    kinds: &'a [Kind],
    sums: &'a mut Sums,
}

impl Run<'_> {
    fn all(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Set(local, value) => {
                    let word = (self.word)(value, &self.locals);
                    if let Some(local) = self.locals.get_mut(usize::from(*local)) {
                        *local = word;
                    }
                }
                Step::If(condition, then, or) => match (self.word)(condition, &self.locals) {
                    0 => self.all(or),
                    _ => self.all(then),
                },
                Step::Add { table, keys, value } => {
                    let told = keys.iter().flat_map(|key| (self.told)(key)).collect();
                    let keys = keys.iter().map(|k| (self.word)(k, &self.locals)).collect();
                    let value = (self.word)(value, &self.locals);
                    self.add(*table, (keys, told), value);
                }
                Step::Record => self.came.is_recorded = true,
                Step::Bid(number) => {
                    self.came.is_recorded = true;
                    self.came.bids |= 1u32.checked_shl((*number).into()).unwrap_or(0);
                }
                Step::Keep(variable, value) => {
                    let word = (self.word)(value, &self.locals);
                    self.keep(*variable, |_| word);
                }
                Step::Increase(variable, value) => {
                    let word = (self.word)(value, &self.locals);
                    self.keep(*variable, |known| known.wrapping_add(word));
                }
                Step::Next(local, counter) => {
                    let counter = self.counters.get_mut(usize::from(*counter));
                    let local = self.locals.get_mut(usize::from(*local));
                    if let (Some(counter), Some(local)) = (counter, local) {
                        *counter += 1;
                        *local = *counter;
                    }
                }
                Step::Act(act, value) => {
                    let word = (self.word)(value, &self.locals);
                    self.came.is_recorded = true;
                    if let Some(done) = self.came.done.get_mut(usize::from(act.number())) {
                        *done = Some(word);
                    }
                }
            }
        }
    }

    fn keep(&self, variable: u8, of: impl Fn(u64) -> u64) {
        if let Some(variable) = self.variables.get(usize::from(variable)) {
            variable.set(of(variable.get()));
        }
    }

    fn add(&mut self, table: u8, (keys, told): (Vec<u64>, Vec<u64>), value: u64) {
        let Some(kind) = self.kinds.get(usize::from(table)).copied() else {
            return;
        };
        let one = Row {
            keys: keys.clone(),
            told,
            count: if kind == Kind::Count { value } else { 1 },
            values: match kind {
                Kind::Count | Kind::Rows => Vec::new(),
                Kind::Sum | Kind::Least | Kind::Greatest | Kind::Slowest(_) => vec![value],
                Kind::Histogram => {
                    let mut buckets = vec![0; BUCKETS];
                    if let Some(bucket) = buckets.get_mut(bucket_of(value)) {
                        *bucket = 1;
                    }
                    buckets
                }
            },
        };
        if let Kind::Slowest(rows) = kind {
            return self.add_greatest(table, rows, one);
        }
        if kind == Kind::Rows {
            return self.append(table, one);
        }
        match self.sums.entry((table, keys)) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(one);
            }
            std::collections::btree_map::Entry::Occupied(mut place) => {
                place.get_mut().merge(&one, kind);
            }
        }
    }
}

impl Run<'_> {
    /// Such rows stand by their places, too, as long as there is room.
    fn append(&mut self, table: u8, row: Row) {
        let known = self
            .sums
            .range((table, Vec::new())..=(table, vec![u64::MAX]));
        let next = known.count() as u64;
        if next < u64::from(tables::MOST_ROWS) {
            self.sums.insert((table, vec![next]), row);
        }
    }

    /// Such rows stand by their places: the first one with the least measure gives way.
    fn add_greatest(&mut self, table: u8, rows: u8, row: Row) {
        let word_of = |row: &Row| row.values.first().map_or(0, |n| tables::measure_word(*n));
        let places = 0..u64::from(rows) + u64::from(tables::SPARE_ROWS);
        let least = places
            .map(|place| (table, vec![place]))
            .min_by_key(|place| self.sums.get(place).map_or(0, word_of));
        let Some(least) = least else {
            return;
        };
        let given = word_of(&row);
        if given > self.sums.get(&least).map_or(0, word_of) {
            let values = vec![given ^ 1 << 63];
            self.sums.insert(least, Row { values, ..row });
        }
    }
}

/// What a row tells of a key.
fn told(key: &Expression, call: &Call, memory: &dyn Memory) -> Vec<u64> {
    let Expression::Source(source) = key else {
        return Vec::new();
    };
    let at = match source {
        Source::Text(n, text::TOLD) => call.arguments.get(usize::from(*n)).copied(),
        Source::KeptText(n, text::TOLD) => call.kept.get(usize::from(*n)).copied(),
        Source::ResultText(text::TOLD) => Some(call.result),
        _ => None,
    };
    if let Some(at) = at {
        return told_text(at, memory);
    }
    let (places, words) = (call.stack(*source), source.told_words());
    places.map_or_else(Vec::new, |places| callers::told(&places, words))
}

/// The same of a text, as much of it as can be read.
fn told_text(address: u64, memory: &dyn Memory) -> Vec<u64> {
    let mut bytes = Vec::new();
    for at in 0..text::TOLD_BYTES as u64 {
        let mut byte = [0];
        if memory.read(address.wrapping_add(at), &mut byte) == 0 || byte == [0] {
            break;
        }
        bytes.extend(byte);
    }
    text::words(&bytes)
}

/// The bucket of a value: 0 up to zero, n from 2^(n-1) on.
pub const fn bucket_of(value: u64) -> usize {
    match value as i64 {
        1.. => 64 - value.leading_zeros() as usize,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_begin_at_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 4].map(bucket_of), [0, 1, 2, 2, 3]);
        assert_eq!((bucket_of(u64::MAX), bucket_of(i64::MAX as u64)), (0, 63));
    }
}
