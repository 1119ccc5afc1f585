//! What was traced of what could have been, and what was lost: the summary's rows by section.

use crate::csv::field;
use crate::notes::early_end_text;
use crate::style::Style;
use crate::units::{Count, clean};
use sptrace_trace::{Section, Summary};
use std::io::{self, Write};
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Style as TableStyle};

/// Stands as a section of its own behind the others.
const ENDED_EARLY: &str = "ended early";

/// The sections of a summary in order of appearance.
pub(crate) fn sections(summary: &Summary) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for row in &summary.rows {
        if !sections.contains(&row.section) {
            sections.push(row.section);
        }
    }
    sections
}

/// Writes a table a section.
///
/// # Errors
/// Those of `out`.
pub fn write_coverage(out: &mut impl Write, summary: &Summary, style: Style) -> io::Result<()> {
    let mut between = "";
    for section in sections(summary) {
        writeln!(out, "{between}{}", style.heading(section.name()))?;
        let rows = summary.rows_of(section);
        let rows = rows.map(|row| (row.key.as_str(), row.count));
        let all = match section {
            // Its rows are shares already.
            Section::Budget => 1_000_000,
            _ => summary.total(section),
        };
        writeln!(out, "{}", table(rows, all))?;
        between = "\n";
    }
    if let Some(why) = &summary.ended_early {
        writeln!(out, "{between}{}", style.heading(ENDED_EARLY))?;
        let why = early_end_text(why);
        writeln!(out, "{}", table([(why.as_str(), 1)].into_iter(), 1))?;
    }
    Ok(())
}

fn table<'a>(rows: impl Iterator<Item = (&'a str, u64)>, total: u64) -> String {
    let mut table = Builder::default();
    for (key, count) in rows {
        let share = count as f64 * 100.0 / total.max(1) as f64;
        table.push_record([
            Count(count).to_string(),
            format!("{share:.2} %"),
            clean(key),
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
            field(row.section.name()),
            field(&row.key),
            row.count
        )?;
    }
    if let Some(why) = &summary.ended_early {
        write!(out, "{ENDED_EARLY},{},1\r\n", field(&early_end_text(why)))?;
    }
    Ok(())
}
