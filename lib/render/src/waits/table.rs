//! `report waits` as text and as csv.
//!
//! Given sums; writes them. Must not know how they were added up.

use super::{AT_LAST_BEHIND, BEHIND, Cause, PREEMPTED, Split, WOKEN, Waits, Way, Whose};
use crate::csv::field;
use crate::style::Style;
use crate::units::{Count, Duration, clean};
use sptrace_trace::{Clock, FunctionId, Names};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

impl Waits<'_> {
    /// Writes three tables: of programs, of functions, of causes; those with most time first, at
    /// most so many rows each.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(
        &self,
        out: &mut impl Write,
        (names, clock): (&Names<'_>, Clock),
        limit: Option<usize>,
        style: Style,
    ) -> io::Result<()> {
        let limit = limit.unwrap_or(usize::MAX);
        let mut of_programs: BTreeMap<usize, Split> = BTreeMap::new();
        for (whose, split) in &self.splits {
            let sum = of_programs.entry(whose.program).or_default();
            for way in Way::ALL {
                sum.add(way, split.0[way as usize]);
            }
        }
        let mut rows: Vec<_> = of_programs.into_iter().collect();
        rows.sort_by_key(|(program, split)| (Reverse(split.total()), *program));
        writeln!(out, "{}", style.heading(&split_heading("program")))?;
        for (program, split) in rows.iter().take(limit) {
            write_split(out, split, clock, style)?;
            writeln!(out, "  {}", self.program_name(*program))?;
        }
        let mut rows: Vec<_> = self.splits.iter().collect();
        rows.sort_by_key(|(whose, split)| (Reverse(split.total()), **whose));
        let heading = split_heading("program          function");
        writeln!(out, "\n{}", style.heading(&heading))?;
        for (whose, split) in rows.into_iter().take(limit) {
            write_split(out, split, clock, style)?;
            let (program, name) = self.whose(whose, names);
            writeln!(out, "  {program:16} {name}")?;
        }
        self.write_causes(out, (names, clock), limit, style)
    }

    fn write_causes(
        &self,
        out: &mut impl Write,
        (names, clock): (&Names<'_>, Clock),
        limit: usize,
        style: Style,
    ) -> io::Result<()> {
        let rows = self.causes_in_order();
        let texts = |cause: &Cause| (inside(cause, names), by(cause, names));
        let width = |pick: fn(&(&str, &str)) -> usize| {
            let widths = rows.iter().take(limit).map(|(c, _)| pick(&texts(c)));
            widths.max().unwrap_or(0)
        };
        let in_width = width(|(inside, _)| inside.chars().count()).max("in".len());
        let by_width = width(|(_, by)| by.chars().count()).max("cause".len());
        let heading = format!(
            "{:>9} {:>11} {:>11}  {:9}  {:in_width$}  {:by_width$}  {:16} function",
            "times", "total", "longest", "", "in", "cause", "program"
        );
        writeln!(out, "\n{}", style.heading(&heading))?;
        for (cause, sum) in rows.iter().take(limit) {
            write!(out, "{:>9}", Count(sum.times))?;
            for ticks in [sum.ticks, sum.longest_ticks] {
                match sum.untimed < sum.times {
                    true => write_time(out, ticks, clock, style)?,
                    false => write!(out, " {:>11}", "?")?,
                }
            }
            let ((inside, by), way) = (texts(cause), cause.way.name());
            let (program, name) = self.whose(&cause.whose, names);
            writeln!(
                out,
                "  {way:9}  {inside:in_width$}  {by:by_width$}  {program:16} {name}"
            )?;
        }
        Ok(())
    }

    fn causes_in_order(&self) -> Vec<(&Cause, &super::Sum)> {
        let mut rows: Vec<_> = self.causes.iter().collect();
        rows.sort_by_key(|(cause, sum)| (Reverse((sum.ticks, sum.times)), **cause));
        rows
    }

    /// Writes a row for each cause, and one for each function's time of its own and the kernel's,
    /// of which it is not said how often.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_csv(
        &self,
        out: &mut impl Write,
        (names, clock): (&Names<'_>, Clock),
    ) -> io::Result<()> {
        writeln!(
            out,
            "program,function,module,what,in,cause,times,untimed,total_ns,longest_ns"
        )?;
        for (whose, split) in &self.splits {
            let start = self.csv_start(whose, names);
            for way in [Way::Own, Way::Kernel] {
                let ns = clock.ns(split.0[way as usize]);
                writeln!(out, "{start},{},,,,,{ns},", way.name())?;
            }
        }
        for (cause, sum) in self.causes_in_order() {
            writeln!(
                out,
                "{},{},{},{},{},{},{},{}",
                self.csv_start(&cause.whose, names),
                cause.way.name(),
                cause.inside.map_or("".into(), |id| field(names.name(id))),
                cause.by.map_or("".into(), |_| field(by(cause, names))),
                sum.times,
                sum.untimed,
                clock.ns(sum.ticks),
                clock.ns(sum.longest_ticks)
            )?;
        }
        Ok(())
    }

    fn csv_start(&self, whose: &Whose, names: &Names<'_>) -> String {
        let name = |id: FunctionId| field(names.name(id)).into_owned();
        format!(
            "{},{},{}",
            field(&self.program_name(whose.program)),
            whose.function.map_or(String::new(), name),
            field(whose.function.map_or("", |id| names.module(id)))
        )
    }

    fn whose(&self, whose: &Whose, names: &Names<'_>) -> (String, String) {
        let name = whose.function.map_or("-", |id| names.name(id));
        (self.program_name(whose.program), name.to_owned())
    }

    fn program_name(&self, program: usize) -> String {
        clean(self.programs.get(program).map_or("?", String::as_str))
    }
}

fn inside<'n>(cause: &Cause, names: &'n Names<'_>) -> &'n str {
    cause.inside.map_or("-", |id| names.name(id))
}

/// Who it was. What happened stands beside it.
fn by<'n>(cause: &Cause, names: &'n Names<'_>) -> &'n str {
    who(cause.by.map_or("-", |id| names.name(id)))
}

/// Whose name stands in that of a frame.
pub(super) fn who(name: &str) -> &str {
    let who = [PREEMPTED, WOKEN].iter().find_map(|done| {
        let by = name.strip_prefix(done)?;
        by.strip_prefix("by ")
    });
    who.or_else(|| behind(name).map(|(_, who)| who))
        .unwrap_or(name)
}

/// Of a frame whose name says who had the processor before a thread ran: since when it is known to
/// have had it, and who it was.
pub(super) fn behind(name: &str) -> Option<(&'static str, &str)> {
    let first = name.strip_prefix(BEHIND).map(|who| ("behind", who));
    let last = || name.strip_prefix(AT_LAST_BEHIND);
    first.or_else(|| last().map(|who| ("at last behind", who)))
}

fn split_heading(last: &str) -> String {
    let columns = Way::ALL.map(|way| format!(" {:>11}", way.name())).concat();
    format!("{:>11}{columns}  {last}", "time")
}

fn write_split(out: &mut impl Write, split: &Split, clock: Clock, style: Style) -> io::Result<()> {
    let ns = clock.ns(split.total());
    let text = format!("{:>11}", Duration(ns));
    write!(out, "{}", style.duration(ns, &text))?;
    for ticks in split.0 {
        match ticks {
            0 => write!(out, " {:>11}", "-")?,
            _ => write_time(out, ticks, clock, style)?,
        }
    }
    Ok(())
}

fn write_time(out: &mut impl Write, ticks: u64, clock: Clock, style: Style) -> io::Result<()> {
    let ns = clock.ns(ticks);
    let text = format!("{:>11}", Duration(ns));
    write!(out, " {}", style.duration(ns, &text))
}
