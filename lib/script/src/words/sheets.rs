//! Sheets: what a script collects.
//!
//! Must not know events.

use rhai::{Array, Dynamic};

use super::Vocabulary;
use crate::draft::Shared;
use crate::error::refuse;
use crate::sheets::{Body, Failure, Groups, Mode, Printable, Slowest, Table};

/// Sheets of a script, at most.
const MOST_SHEETS: usize = 100;

fn names(list: Array) -> Result<Vec<String>, Failure> {
    let name = |one: Dynamic| match one.into_string() {
        Ok(name) => Ok(name),
        Err(kind) => refuse(&format!("a column is named by a text, not by {kind}"), ""),
    };
    list.into_iter().map(name).collect()
}

fn keep(shared: &Shared, title: &str, body: Body) -> Result<Printable, Failure> {
    let sheet = Printable::new(title, body);
    let mut draft = shared.lock();
    if draft.sheets.len() >= MOST_SHEETS {
        return refuse(
            &format!("more than {MOST_SHEETS} tables"),
            "make one at the top level, with more keys",
        );
    }
    draft.sheets.push(sheet.clone());
    Ok(sheet)
}

/// Prints a sheet where the script prints to.
pub fn print(shared: &Shared, sheet: &Printable) {
    let grid = {
        let mut sheet = sheet.lock();
        sheet.has_printed = true;
        sheet.grid()
    };
    let mut draft = shared.lock();
    let is_first = !draft.has_printed;
    let text = draft.form.write(&grid, is_first);
    draft.has_printed = true;
    draft.write(&text);
}

/// Adds them.
pub fn add(all: &mut Vocabulary<'_>) {
    all.type_name::<Printable>("sheet");
    all.section("What is collected: sheets");
    let shared = all.shared.clone();
    all.function(
        "count(TITLE, [key, ...])",
        "how often each key was added; keys are named here",
        move |title: &str, keys: Array| {
            let groups = Groups::new(Mode::Count, names(keys)?, Vec::new());
            keep(&shared, title, Body::Groups(groups))
        },
    );
    let shared = all.shared.clone();
    all.function(
        "sum(TITLE, [key, ...], [field, ...])",
        "sums by key. Fields whose names end in _ns are shown as durations, and those in _bytes as \
         sizes; csv and json have the numbers",
        move |title: &str, keys: Array, fields: Array| {
            let groups = Groups::new(Mode::Sum, names(keys)?, names(fields)?);
            keep(&shared, title, Body::Groups(groups))
        },
    );
    let modes: [(&str, &str, Mode); 4] = [
        (
            "min(TITLE, [key, ...], field)",
            "the least value of each key",
            Mode::Min,
        ),
        (
            "max(TITLE, [key, ...], field)",
            "the greatest value of each key",
            Mode::Max,
        ),
        (
            "stats(TITLE, [key, ...], field)",
            "calls, total, mean, least, median, 99th percentile and greatest value of each key",
            Mode::Stats,
        ),
        (
            "histogram(TITLE, [key, ...], field)",
            "how many values lie in each power of two, by key",
            Mode::Histogram,
        ),
    ];
    for (form, text, mode) in modes {
        let shared = all.shared.clone();
        all.function(form, text, move |title: &str, keys: Array, field: &str| {
            let groups = Groups::new(mode, names(keys)?, vec![field.to_owned()]);
            keep(&shared, title, Body::Groups(groups))
        });
    }
    add_rows(all);
    add_methods(all);
    add_showing(all);
}

fn add_rows(all: &mut Vocabulary<'_>) {
    let shared = all.shared.clone();
    all.function(
        "slowest(TITLE, N, [measure, column, ...])",
        "the N rows with the greatest measure; payloads keep them in the program, with N up to 64, four columns \
         beside the measure, and whole numbers, c.caller, c.stack(N) and c.str(N) in these: \
         worst.add(c.elapsed, [c.arg1, c.caller])",
        move |title: &str, n: i64, columns: Array| {
            let most = usize::try_from(n).unwrap_or(0);
            let slowest = Slowest::new(most, names(columns)?);
            keep(&shared, title, Body::Slowest(slowest))
        },
    );
    let shared = all.shared.clone();
    all.function(
        "table(TITLE, [column, ...])",
        "rows in the order in which they are added; of payloads with up to four columns, by time, 1,000 of a \
         thread",
        move |title: &str, columns: Array| {
            keep(&shared, title, Body::Table(Table::new(names(columns)?)))
        },
    );
}

fn add_methods(all: &mut Vocabulary<'_>) {
    all.function(
        "sheet.add(key)",
        "of count; of others without keys: add(value); of table: add([cell, ...]). A key is one \
         value, or a list with one for each key column",
        |sheet: &mut Printable, what: Dynamic| match &mut sheet.lock().body {
            Body::Groups(groups) => groups.add_one(what),
            Body::Table(table) => table.add(what),
            Body::Slowest(_) => refuse("a measure and a row are wanted here", "as s.add(n, [...])"),
        },
    );
    all.function(
        "sheet.add(key, value)",
        "a value of (), as times that are not known, is counted and nothing else; of sum with \
         several fields a list; of slowest: add(measure, [cell, ...])",
        |sheet: &mut Printable, key: Dynamic, value: Dynamic| match &mut sheet.lock().body {
            Body::Groups(groups) => groups.add(key, value),
            Body::Slowest(slowest) => slowest.add(key, value),
            Body::Table(_) => refuse("a table takes one list", "as t.add([a, b])"),
        },
    );
}

fn add_showing(all: &mut Vocabulary<'_>) {
    all.function(
        "sheet.limit(N)",
        "show so many rows only; the rest is counted",
        |sheet: &mut Printable, n: i64| {
            sheet.lock().most = usize::try_from(n).ok();
            sheet.clone()
        },
    );
    all.function(
        "sheet.order(COLUMN)",
        "rows by this column, the greatest first; COLUMN with a - before it: the least first",
        |sheet: &mut Printable, column: &str| {
            let order = match column.strip_prefix('-') {
                Some(column) => (column.to_owned(), false),
                None => (column.to_owned(), true),
            };
            sheet.lock().order = Some(order);
            sheet.clone()
        },
    );
    all.function(
        "sheet.size()",
        "how many keys or rows it has",
        |sheet: &mut Printable| {
            let size = match &sheet.lock().body {
                Body::Groups(groups) => groups.len(),
                Body::Slowest(slowest) => slowest.len(),
                Body::Table(table) => table.len(),
            };
            size as i64
        },
    );
    let shared = all.shared.clone();
    all.function(
        "sheet.show()",
        "print it now; a sheet that is not shown by the script is printed at the end, if it holds \
         something",
        move |sheet: &mut Printable| print(&shared, sheet),
    );
}
