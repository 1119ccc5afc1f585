//! A grid as text, csv or json.
//!
//! In text, columns whose names end in `_ns` show durations, and those in `_bytes` sizes; csv and
//! json have the numbers. Must not know what made the grid.

use std::fmt::Write;

use sptrace_render::units::{Count, Duration, size_text};
use tabled::builder::Builder;
use tabled::settings::object::{Columns, Rows};
use tabled::settings::{Alignment, Modify, Padding, Style};

use super::{Cell, Grid};

/// How sheets are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// For people.
    #[default]
    Text,
    /// RFC 4180; an empty line between sheets.
    Csv,
    /// A line with an object for each sheet.
    Json,
}

/// Characters of a cell in text.
const MOST_COLUMNS: usize = 100;
/// Characters of a bar.
const BAR: u64 = 40;

impl Form {
    /// Are lines that a script prints shown?
    pub fn has_lines(self) -> bool {
        self == Self::Text
    }

    /// The text of a grid; `is_first`: nothing was written before.
    pub fn write(self, grid: &Grid, is_first: bool) -> String {
        let gap = if is_first || self == Self::Json {
            ""
        } else {
            "\n"
        };
        let text = match self {
            Self::Text => text(grid),
            Self::Csv => csv(grid),
            Self::Json => json(grid),
        };
        format!("{gap}{text}")
    }
}

fn shown(column: &str, cell: &Cell) -> String {
    let positive = |n: i64| u64::try_from(n).ok();
    let text = match cell {
        Cell::Nothing => "?".to_owned(),
        Cell::Int(n) => match (column, positive(*n)) {
            (column, Some(n)) if column.ends_with("_ns") => Duration(n).to_string(),
            (column, Some(n)) if column.ends_with("_bytes") => size_text(n),
            // Identifiers are no counts.
            ("pid" | "tid" | "ppid" | "fd" | "status", _) => n.to_string(),
            (_, Some(n)) => Count(n).to_string(),
            (_, None) => n.to_string(),
        },
        other => other.text(),
    };
    let text = text.replace(char::is_control, "\u{fffd}");
    // The end tells most of a long path or stack.
    match text.chars().count().checked_sub(MOST_COLUMNS) {
        Some(more @ 1..) => format!("...{}", text.chars().skip(more + 3).collect::<String>()),
        _ => text,
    }
}

fn text(grid: &Grid) -> String {
    let mut out = String::new();
    if !grid.title.is_empty() {
        let _ = writeln!(out, "{}", grid.title);
    }
    if grid.rows.is_empty() {
        out.push_str("  (nothing)\n");
    } else {
        out.push_str(&table(grid));
    }
    for remark in &grid.remarks {
        let _ = writeln!(out, "  ({remark})");
    }
    out
}

fn table(grid: &Grid) -> String {
    let is_histogram = grid.columns.iter().any(|c| c.starts_with("below"));
    let counts: Vec<u64> = grid
        .rows
        .iter()
        .map(|row| match row.last() {
            Some(Cell::Int(n)) if is_histogram => u64::try_from(*n).unwrap_or(0),
            _ => 0,
        })
        .collect();
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let mut builder = Builder::default();
    let heads = grid.columns.iter().map(|column| {
        let stem = column.strip_suffix("_ns");
        let stem = stem.or_else(|| column.strip_suffix("_bytes"));
        stem.unwrap_or(column).replace('_', " ")
    });
    let bar_head = is_histogram.then(String::new);
    builder.push_record(heads.chain(bar_head));
    for (row, count) in grid.rows.iter().zip(counts) {
        let cells = grid.columns.iter().zip(row);
        let cells = cells.map(|(column, cell)| shown(column, cell));
        let bar = is_histogram.then(|| "#".repeat((count * BAR).div_ceil(most) as usize));
        builder.push_record(cells.chain(bar));
    }
    let mut table = builder.build();
    table.with(Style::empty());
    table.with(Modify::new(Rows::new(..)).with(Padding::new(2, 0, 0, 0)));
    for (at, column) in grid.columns.iter().enumerate() {
        let numbers = grid.rows.iter().filter_map(|row| row.get(at));
        let is_number = numbers.clone().all(|c| !matches!(c, Cell::Text(_)))
            && numbers.into_iter().any(|c| !matches!(c, Cell::Nothing));
        if is_number || column.ends_with("_ns") {
            table.with(Modify::new(Columns::one(at)).with(Alignment::right()));
        }
    }
    let text = table.to_string();
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    lines.join("\n") + "\n"
}

fn csv(grid: &Grid) -> String {
    let field = |text: &str| match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    let heads: Vec<_> = grid.columns.iter().map(|c| field(c)).collect();
    let mut out = heads.join(",") + "\r\n";
    for row in &grid.rows {
        let cells: Vec<_> = row.iter().map(|cell| field(&cell.text())).collect();
        out += &(cells.join(",") + "\r\n");
    }
    out
}

fn json_text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => drop(write!(out, "\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn json(grid: &Grid) -> String {
    let value = |cell: &Cell| match cell {
        Cell::Nothing => "null".to_owned(),
        Cell::Text(text) => json_text(text),
        Cell::Float(n) if !n.is_finite() => "null".to_owned(),
        other => other.text(),
    };
    let row = |row: &Vec<Cell>| {
        let columns = grid.columns.iter().zip(row);
        let fields = columns.map(|(column, cell)| format!("{}:{}", json_text(column), value(cell)));
        format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
    };
    let rows: Vec<_> = grid.rows.iter().map(row).collect();
    let remarks: Vec<_> = grid.remarks.iter().map(|r| json_text(r)).collect();
    format!(
        "{{\"title\":{},\"rows\":[{}],\"remarks\":[{}]}}\n",
        json_text(&grid.title),
        rows.join(","),
        remarks.join(",")
    )
}
