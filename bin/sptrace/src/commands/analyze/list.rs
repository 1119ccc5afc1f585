//! Lists of rows, as aligned columns, CSV (RFC 4180) or JSON.
//!
//! Given rows; writes them. Knows nothing of what they say.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use clap::ValueEnum;
use tabled::builder::Builder;
use tabled::settings::{Alignment, Style, object::Columns};

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns; of a graph, block by block
    Text,
    /// RFC 4180, with a header line
    Csv,
    /// One array of objects for each list, in one object
    Json,
    /// Of a graph: graphviz's language
    Dot,
    /// Of a graph: a picture for browsers
    Svg,
}

/// A list of rows, all as long as the header.
pub struct List {
    /// Its name.
    pub title: &'static str,
    /// Names of its columns.
    pub header: Vec<&'static str>,
    /// Its rows.
    pub rows: Vec<Vec<Cell>>,
}

/// A field of a row.
pub enum Cell {
    /// Words.
    Text(String),
    /// A number.
    Count(u64),
}

impl Cell {
    fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Count(count) => Cow::Owned(count.to_string()),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

/// Writes lists.
///
/// # Errors
/// Those of `out`.
pub fn print(lists: &[List], format: Format, out: &mut impl Write) -> io::Result<()> {
    match format {
        Format::Text => lists.iter().enumerate().try_for_each(|(index, list)| {
            if index > 0 {
                writeln!(out)?;
            }
            print_text(list, out)
        }),
        Format::Csv => lists.iter().enumerate().try_for_each(|(index, list)| {
            if index > 0 {
                write!(out, "\r\n")?;
            }
            print_csv(list, out)
        }),
        Format::Json => print_json(lists, out),
        // Pictures are no lists: these are refused before.
        Format::Dot | Format::Svg => Ok(()),
    }
}

fn print_text(list: &List, out: &mut impl Write) -> io::Result<()> {
    let mut builder = Builder::default();
    builder.push_record(list.header.iter().copied());
    for row in &list.rows {
        builder.push_record(row.iter().map(Cell::text));
    }
    let mut table = builder.build();
    table.with(Style::blank());
    if list.title == "summary" {
        table.modify(Columns::last(), Alignment::right());
    }
    writeln!(out, "{table}")
}

fn print_csv(list: &List, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{}\r\n", list.header.join(","))?;
    for row in &list.rows {
        let cells: Vec<_> = row.iter().map(|cell| csv_field(cell.text())).collect();
        write!(out, "{}\r\n", cells.join(","))?;
    }
    Ok(())
}

/// Quoted only when it has to be.
fn csv_field(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.contains([',', '"', '\r', '\n']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        text
    }
}

fn print_json(lists: &[List], out: &mut impl Write) -> io::Result<()> {
    write!(out, "{{")?;
    for (index, list) in lists.iter().enumerate() {
        let separator = if index > 0 { "," } else { "" };
        write!(out, "{separator}\n\"{}\": [", list.title)?;
        for (number, row) in list.rows.iter().enumerate() {
            let separator = if number > 0 { "," } else { "" };
            let fields: Vec<String> = list
                .header
                .iter()
                .zip(row)
                .map(|(name, cell)| match cell {
                    Cell::Text(text) => format!("\"{name}\": {}", json_string(text)),
                    Cell::Count(count) => format!("\"{name}\": {count}"),
                })
                .collect();
            write!(out, "{separator}\n  {{{}}}", fields.join(", "))?;
        }
        write!(out, "\n]")?;
    }
    writeln!(out, "\n}}")
}

fn json_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c < ' ' => {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> List {
        List {
            title: "functions",
            header: vec!["name", "count"],
            rows: vec![vec![text.into(), 3u64.into()]],
        }
    }

    fn printed(text: &str, format: Format) -> String {
        let mut out = Vec::new();
        print(&[list(text)], format, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn csv_quotes_only_what_needs_it() {
        assert_eq!(
            printed("f(int, \"x\")", Format::Csv),
            "name,count\r\n\"f(int, \"\"x\"\")\",3\r\n"
        );
        assert_eq!(printed("main", Format::Csv), "name,count\r\nmain,3\r\n");
    }

    #[test]
    fn json_escapes_quotes_and_control_characters() {
        assert_eq!(
            printed("a\"b\\\n", Format::Json),
            "{\n\"functions\": [\n  {\"name\": \"a\\\"b\\\\\\u000a\", \"count\": 3}\n]\n}\n"
        );
    }

    #[test]
    fn text_has_one_line_a_row() {
        assert_eq!(printed("main", Format::Text).lines().count(), 2);
    }
}
