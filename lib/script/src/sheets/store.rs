//! What a script keeps by key from one event to another: open locks, live blocks, sums.
//!
//! Given keys and values; gives them back. The engine's own maps are measured whole at each change,
//! which a million keys do not bear. Bounded: what does not fit is counted. Must not know events.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rhai::{Array, Dynamic};

use super::groups::CellKey;
use super::{Cell, Failure};
use crate::error::refuse;

/// Keys of a store.
const MOST_KEYS: usize = 2_000_000;

/// Values by key.
#[derive(Default)]
pub struct Store {
    pub title: String,
    kept: HashMap<Box<[CellKey]>, Dynamic>,
    /// Values that had no room.
    pub left_out: u64,
}

/// Shared by the script and the end of its run.
#[derive(Clone)]
pub struct Stored(pub Arc<Mutex<Store>>);

impl Stored {
    /// An empty one.
    pub fn new(title: &str) -> Self {
        Self(Arc::new(Mutex::new(Store {
            title: title.to_owned(),
            ..Store::default()
        })))
    }

    pub fn lock(&self) -> MutexGuard<'_, Store> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One value, or each of a list.
fn key_of(key: Dynamic) -> Result<Box<[CellKey]>, Failure> {
    let list = match key.clone().try_cast::<Array>() {
        Some(list) => list,
        None => vec![key],
    };
    let cells = list.into_iter().map(|one| Ok(CellKey::of(Cell::of(one)?)));
    cells.collect()
}

fn numbers_of(value: &Dynamic) -> Option<Vec<i64>> {
    match value.as_int() {
        Ok(one) => Some(vec![one]),
        Err(_) => {
            let list = value.clone().try_cast::<Array>()?;
            list.iter().map(|one| one.as_int().ok()).collect()
        }
    }
}

impl Store {
    /// The value of a key; `()`: there is none.
    pub fn get(&self, key: Dynamic) -> Result<Dynamic, Failure> {
        let found = self.kept.get(&key_of(key)?).cloned();
        Ok(found.unwrap_or(Dynamic::UNIT))
    }

    /// The same, which it keeps no longer.
    pub fn take(&mut self, key: Dynamic) -> Result<Dynamic, Failure> {
        let found = self.kept.remove(&key_of(key)?);
        Ok(found.unwrap_or(Dynamic::UNIT))
    }

    pub fn set(&mut self, key: Dynamic, value: Dynamic) -> Result<(), Failure> {
        let key = key_of(key)?;
        if self.kept.len() >= MOST_KEYS && !self.kept.contains_key(&key) {
            self.left_out += 1;
            return Ok(());
        }
        self.kept.insert(key, value);
        Ok(())
    }

    /// Adds numbers to those of a key, one by one; gives the sums.
    pub fn add(&mut self, key: Dynamic, by: &Dynamic) -> Result<Dynamic, Failure> {
        let Some(by) = numbers_of(by) else {
            return refuse("whole numbers are wanted here", "as s.add(key, [1, bytes])");
        };
        let key = key_of(key)?;
        let known = self.kept.get(&key).and_then(numbers_of).unwrap_or_default();
        let of = |at: usize| known.get(at).copied().unwrap_or(0);
        let sums = by
            .iter()
            .enumerate()
            .map(|(at, n)| of(at).saturating_add(*n));
        let sums: Array = sums.map(Dynamic::from).collect();
        let sums = match <[Dynamic; 1]>::try_from(sums) {
            Ok([one]) => one,
            Err(several) => Dynamic::from(several),
        };
        if self.kept.len() >= MOST_KEYS && !self.kept.contains_key(&key) {
            self.left_out += 1;
            return Ok(sums);
        }
        self.kept.insert(key, sums.clone());
        Ok(sums)
    }

    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Its keys, in their order; those of several cells are lists.
    pub fn keys(&self) -> Array {
        let cells = |key: &[CellKey]| key.iter().map(CellKey::cell).collect::<Vec<_>>();
        let mut all: Vec<Vec<Cell>> = self.kept.keys().map(|key| cells(key)).collect();
        all.sort();
        let value = |cell: Cell| match cell {
            Cell::Nothing => Dynamic::UNIT,
            Cell::Int(n) => Dynamic::from(n),
            Cell::Float(n) => Dynamic::from(n),
            Cell::Text(text) => Dynamic::from(text),
        };
        let key = |cells: Vec<Cell>| {
            let values: Array = cells.into_iter().map(value).collect();
            match <[Dynamic; 1]>::try_from(values) {
                Ok([one]) => one,
                Err(several) => Dynamic::from(several),
            }
        };
        all.into_iter().map(key).collect()
    }
}
