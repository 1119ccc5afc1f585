//! What a script collects: counts, sums, least and greatest values, histograms, the slowest, rows.
//!
//! Given keys and values; gives a [`Grid`], which [`print`] writes. Bounded: what does not fit is
//! counted and shown. Must not know events.

mod groups;
mod print;
mod slowest;
mod store;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rhai::{Array, Dynamic, EvalAltResult, ImmutableString};

use crate::error::refuse;
pub use groups::{CellKey, Groups, Mode};
pub use print::Form;
pub use slowest::{Slowest, Table};
pub use store::Stored;

/// Keys or rows of a sheet.
pub const MOST_ROWS: usize = 100_000;
/// Characters of a text.
const MOST_TEXT: usize = 4096;

pub type Failure = Box<EvalAltResult>;

/// A value.
#[derive(Clone, Debug)]
pub enum Cell {
    Nothing,
    Int(i64),
    Float(f64),
    Text(ImmutableString),
}

impl PartialEq for Cell {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Cell {}

impl PartialOrd for Cell {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Cell {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let rank = |cell: &Self| match cell {
            Self::Nothing => 0,
            Self::Int(_) => 1,
            Self::Float(_) => 2,
            Self::Text(_) => 3,
        };
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

impl Cell {
    /// From a script's value.
    pub fn of(value: Dynamic) -> Result<Self, Failure> {
        if value.is_unit() {
            return Ok(Self::Nothing);
        }
        if let Ok(n) = value.as_int() {
            return Ok(Self::Int(n));
        }
        if let Ok(n) = value.as_float() {
            return Ok(Self::Float(n));
        }
        if let Some(list) = value.clone().try_cast::<Array>() {
            let parts: Result<Vec<_>, _> = list.into_iter().map(Self::of).collect();
            let parts: Vec<_> = parts?.iter().map(Self::text).collect();
            return Ok(Self::Text(cut(&parts.join(" > "))));
        }
        match value.type_name() {
            "map" | "Fn" => refuse("a cell is a number, a text or a list of them", ""),
            _ => Ok(Self::Text(cut(&value.to_string()))),
        }
    }

    /// As csv has it.
    pub fn text(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Int(n) => n.to_string(),
            Self::Float(n) => format!("{n:.3}"),
            Self::Text(text) => text.to_string(),
        }
    }
}

fn cut(text: &str) -> ImmutableString {
    match text.char_indices().nth(MOST_TEXT) {
        Some((at, _)) => text.get(..at).unwrap_or(text).into(),
        None => text.into(),
    }
}

/// One value or a list of them, so many.
pub fn cells(value: Dynamic, wanted: usize, what: &str) -> Result<Vec<Cell>, Failure> {
    let list = match value.clone().try_cast::<Array>() {
        // One key that is a list is a list of one key, unless it has another length: a stack.
        Some(list) if wanted != 1 || list.len() == 1 => list,
        _ => vec![value],
    };
    if list.len() != wanted {
        return refuse(
            &format!("{} {what} for {wanted} columns", list.len()),
            "give a list with one for each column",
        );
    }
    list.into_iter().map(Cell::of).collect()
}

/// Rows as they are to be shown.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
    /// What did not fit, or is not shown.
    pub remarks: Vec<String>,
}

/// One of the kinds.
pub enum Body {
    Groups(Groups),
    Slowest(Slowest),
    Table(Table),
}

/// A sheet with what all have.
pub struct Sheet {
    pub title: String,
    pub body: Body,
    /// Shown rows.
    pub most: Option<usize>,
    /// Column, and whether the greatest comes first.
    pub order: Option<(String, bool)>,
    pub has_printed: bool,
}

/// Shared by the script and the end of its run.
#[derive(Clone)]
pub struct Printable(pub Arc<Mutex<Sheet>>);

impl Printable {
    /// An empty one.
    pub fn new(title: &str, body: Body) -> Self {
        Self(Arc::new(Mutex::new(Sheet {
            title: title.to_owned(),
            body,
            most: None,
            order: None,
            has_printed: false,
        })))
    }

    pub fn lock(&self) -> MutexGuard<'_, Sheet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sheet {
    /// As it is to be shown.
    pub fn grid(&self) -> Grid {
        let mut grid = match &self.body {
            Body::Groups(groups) => groups.grid(),
            Body::Slowest(slowest) => slowest.grid(),
            Body::Table(table) => table.grid(),
        };
        grid.title = self.title.clone();
        if let Some((column, is_falling)) = &self.order
            && let Some(at) = grid.columns.iter().position(|c| c == column)
        {
            grid.rows.sort_by(|a, b| match (a.get(at), b.get(at)) {
                (Some(a), Some(b)) if *is_falling => b.cmp(a),
                (Some(a), Some(b)) => a.cmp(b),
                _ => std::cmp::Ordering::Equal,
            });
        }
        if let Some(most) = self.most
            && grid.rows.len() > most
        {
            let more = grid.rows.len() - most;
            grid.rows.truncate(most);
            grid.remarks.push(format!("{more} more rows"));
        }
        grid
    }
}
