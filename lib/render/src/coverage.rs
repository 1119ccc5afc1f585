//! What was traced of what could have been, and what was lost: the summary's rows by section.

use crate::csv::field;
use crate::style::Style;
use crate::units::{Count, clean};
use sptrace_trace::{Summary, SummaryRow};
use std::io::{self, Write};
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Style as TableStyle};

/// The sections of a summary in order of appearance.
pub(crate) fn sections(summary: &Summary) -> Vec<&str> {
    let mut sections: Vec<&str> = Vec::new();
    for row in &summary.rows {
        if !sections.contains(&row.section.as_str()) {
            sections.push(&row.section);
        }
    }
    sections
}

/// Writes a table a section.
///
/// # Errors
/// Those of `out`.
pub fn write_coverage(out: &mut impl Write, summary: &Summary, style: Style) -> io::Result<()> {
    for (at, section) in sections(summary).into_iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}", style.heading(&clean(section)))?;
        let rows = summary.rows.iter().filter(|row| row.section == section);
        writeln!(out, "{}", table(rows, summary.total(section)))?;
    }
    Ok(())
}

fn table<'a>(rows: impl Iterator<Item = &'a SummaryRow>, total: u64) -> String {
    let mut table = Builder::default();
    for row in rows {
        let share = row.count as f64 * 100.0 / total.max(1) as f64;
        table.push_record([
            Count(row.count).to_string(),
            format!("{share:.2} %"),
            clean(&row.key),
        ]);
    }
    let mut table = table.build();
    table
        .with(TableStyle::blank())
        .modify(Columns::new(..2), Alignment::right());
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}

/// Writes the rows as csv.
///
/// # Errors
/// Those of `out`.
pub fn write_coverage_csv(out: &mut impl Write, summary: &Summary) -> io::Result<()> {
    write!(out, "section,key,count\r\n")?;
    for row in &summary.rows {
        write!(
            out,
            "{},{},{}\r\n",
            field(&row.section),
            field(&row.key),
            row.count
        )?;
    }
    Ok(())
}
