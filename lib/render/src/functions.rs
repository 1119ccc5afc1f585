//! The list of functions: calls and times, as aligned text or csv.

use crate::csv::field;
use crate::style::Style;
use crate::units::{Count, Duration};
use sptrace_trace::{Clock, FunctionId, FunctionStats, Names, Stats};
use std::cmp::Reverse;
use std::io::{self, Write};

/// What the list is ordered by, largest first (names: A first).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SortKey {
    /// Time in the function and what it calls.
    Total,
    /// Time in the function alone.
    SelfTime,
    /// Number of calls.
    Calls,
    /// Shortest call.
    Min,
    /// Mean call.
    Mean,
    /// Longest call.
    Max,
    /// What 99 % of the calls do not exceed.
    P99,
    /// Module, then name.
    Name,
}

/// What may be said of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of the columns, see `ALL`")]
pub enum FunctionColumn {
    Calls,
    Untimed,
    Earlier,
    Total,
    SelfTime,
    Min,
    Mean,
    P50,
    P99,
    Max,
    Module,
    Function,
    Address,
    Symbol,
    Source,
}

impl FunctionColumn {
    /// All of them: what they are chosen by, and what csv calls them.
    pub const ALL: [(Self, &str, &str); 15] = [
        (Self::Calls, "calls", "calls"),
        (Self::Untimed, "untimed", "untimed_calls"),
        (Self::Earlier, "earlier", "earlier"),
        (Self::Total, "total", "total_ns"),
        (Self::SelfTime, "self", "self_ns"),
        (Self::Min, "min", "min_ns"),
        (Self::Mean, "mean", "mean_ns"),
        (Self::P50, "p50", "p50_ns"),
        (Self::P99, "p99", "p99_ns"),
        (Self::Max, "max", "max_ns"),
        (Self::Module, "module", "module"),
        (Self::Function, "function", "function"),
        (Self::Address, "address", "address"),
        (Self::Symbol, "symbol", "symbol"),
        (Self::Source, "source", "source"),
    ];

    /// The column of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter();
        all.find(|(_, known, _)| *known == name)
            .map(|found| found.0)
    }

    fn names(self) -> (&'static str, &'static str) {
        let found = Self::ALL.iter().find(|(column, ..)| *column == self);
        found.map_or(("", ""), |(_, text, csv)| (text, csv))
    }

    fn is_text(self) -> bool {
        matches!(
            self,
            Self::Module | Self::Function | Self::Address | Self::Symbol | Self::Source
        )
    }

    fn value(self, (id, stats): Row<'_>, (names, clock): (&Names<'_>, Clock)) -> Value {
        let time = |ticks: Option<u64>| Value::Ns(ticks.map(|ticks| clock.ns(ticks)));
        let about = |estimate: Option<u64>, ticks: Option<u64>| match estimate {
            Some(estimate) => Value::About(clock.ns(estimate)),
            None => time(ticks),
        };
        let function = names.dictionary().function(id);
        match self {
            Self::Calls => Value::Count(stats.calls),
            Self::Untimed => Value::Count(stats.calls - stats.timed),
            Self::Earlier => Value::Count(stats.earlier),
            Self::Total => about(stats.total_estimate(), stats.total_ticks()),
            Self::SelfTime => about(stats.self_estimate(), stats.self_ticks()),
            Self::Min => time(stats.min_ticks()),
            Self::Mean => about(stats.mean_estimate(), stats.mean_ticks()),
            Self::P50 => time(stats.p50_ticks()),
            Self::P99 => time(stats.p99_ticks()),
            Self::Max => time(stats.max_ticks()),
            Self::Module => Value::Text(names.module(id).to_owned()),
            Self::Function => Value::Text(names.name(id).to_owned()),
            Self::Address => Value::Text(format!("{:#x}", function.map_or(0, |f| f.svma.0))),
            Self::Symbol => {
                let symbol = function.map_or("", |f| &f.symbol);
                Value::Text(crate::units::clean(symbol))
            }
            Self::Source => {
                let line = names.source(id).map(ToString::to_string);
                Value::Text(crate::units::clean(&line.unwrap_or_default()))
            }
        }
    }
}

enum Value {
    Count(u64),
    Ns(Option<u64>),
    /// An estimate, which csv has in columns of its own.
    About(u64),
    Text(String),
}

impl Value {
    fn cell(&self, is_csv: bool) -> String {
        match self {
            Self::Count(count) if is_csv => count.to_string(),
            Self::Count(count) => Count(*count).to_string(),
            Self::Ns(None) => if is_csv { "" } else { "?" }.to_owned(),
            Self::Ns(Some(ns)) if is_csv => ns.to_string(),
            Self::Ns(Some(ns)) => Duration(*ns).to_string(),
            Self::About(_) if is_csv => String::new(),
            Self::About(ns) => about(*ns),
            Self::Text(text) if is_csv => field(text).into_owned(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// Writes chosen columns, as aligned text or as csv. A time that is not known is `?`, or an empty
/// field.
///
/// # Errors
/// Those of `out`.
pub fn write_function_columns(
    out: &mut impl Write,
    rows: &[Row<'_>],
    columns: &[FunctionColumn],
    (names, clock): (&Names<'_>, Clock),
    (is_csv, style): (bool, Style),
) -> io::Result<()> {
    if is_csv {
        let heads: Vec<_> = columns.iter().map(|column| column.names().1).collect();
        write!(out, "{}\r\n", heads.join(","))?;
        for &row in rows {
            let cells = columns
                .iter()
                .map(|c| c.value(row, (names, clock)).cell(true));
            write!(out, "{}\r\n", cells.collect::<Vec<_>>().join(","))?;
        }
        return Ok(());
    }
    let cells = |&row: &Row<'_>| -> Vec<String> {
        let values = columns.iter().map(|c| c.value(row, (names, clock)));
        values.map(|value| value.cell(false)).collect()
    };
    let mut widths: Vec<usize> = columns.iter().map(|c| c.names().0.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(cells(row)) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(columns).zip(&widths);
        let padded = padded.map(|((cell, column), &width)| match column.is_text() {
            true => format!("{cell:width$}"),
            false => format!("{cell:>width$}"),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let heads: Vec<_> = columns.iter().map(|c| c.names().0.to_owned()).collect();
    writeln!(out, "{}", style.heading(&line(&heads)))?;
    rows.iter()
        .try_for_each(|row| writeln!(out, "{}", line(&cells(row))))
}

/// One function of the list.
pub type Row<'a> = (FunctionId, &'a FunctionStats);

/// The functions in the order of `key`, at most `limit`.
pub fn select_functions<'a>(
    stats: &'a Stats,
    names: &Names<'_>,
    key: SortKey,
    limit: Option<usize>,
) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = stats.functions().collect();
    // What is not known has no rank: it comes last.
    let value = |stats: &FunctionStats| match key {
        SortKey::Total => stats.total_estimate().or(stats.total_ticks()),
        SortKey::SelfTime => stats.self_estimate().or(stats.self_ticks()),
        SortKey::Calls => Some(stats.calls),
        SortKey::Min => stats.min_ticks(),
        SortKey::Mean => stats.mean_estimate().or(stats.mean_ticks()),
        SortKey::Max => stats.max_ticks(),
        SortKey::P99 => stats.p99_ticks(),
        SortKey::Name => None,
    };
    if key == SortKey::Name {
        rows.sort_by_key(|&(id, _)| (names.module(id), names.name(id)));
    } else {
        rows.sort_by_cached_key(|&(id, stats)| (Reverse(value(stats)), id));
    }
    rows.truncate(limit.unwrap_or(usize::MAX));
    rows
}

/// Writes the list as aligned text. A time that is not known is `?`, and one that was not measured
/// has `~` before it; where calls have no measured ones, a column counts them.
///
/// # Errors
/// Those of `out`.
pub fn write_functions(
    out: &mut impl Write,
    rows: &[Row<'_>],
    names: &Names<'_>,
    clock: Clock,
    style: Style,
) -> io::Result<()> {
    let modules = rows.iter().map(|&(id, _)| names.module(id).chars().count());
    let width = modules.max().unwrap_or(0).max("module".len());
    let has_untimed = rows.iter().any(|(_, stats)| stats.calls > stats.timed);
    let untimed = |text: String| match has_untimed {
        true => format!(" {text:>11}"),
        false => String::new(),
    };
    let heading = format!(
        "{:>13}{} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11}  {:width$}  function",
        "calls",
        untimed("untimed".to_owned()),
        "total",
        "self",
        "min",
        "mean",
        "max",
        "p99",
        "module"
    );
    writeln!(out, "{}", style.heading(&heading))?;
    for &(id, stats) in rows {
        let without_time = untimed(Count(stats.calls - stats.timed).to_string());
        write!(out, "{:>13}{without_time}", Count(stats.calls))?;
        for (ticks, estimate) in times(stats).into_iter().zip(estimates(stats)) {
            if let Some(ticks) = estimate {
                write!(out, " {:>11}", about(clock.ns(ticks)))?;
                continue;
            }
            let Some(ns) = ticks.map(|ticks| clock.ns(ticks)) else {
                let unknown = if stats.calls > 0 { "?" } else { "-" };
                write!(out, " {unknown:>11}")?;
                continue;
            };
            write!(
                out,
                " {}",
                style.duration(ns, &format!("{:>11}", Duration(ns)))
            )?;
        }
        write!(out, "  {:width$}  {}", names.module(id), names.name(id))?;
        match names.source(id) {
            Some(line) => writeln!(out, "  {}", crate::units::clean(&line.to_string()))?,
            None => writeln!(out)?,
        }
    }
    Ok(())
}

/// An estimated duration.
pub fn about(ns: u64) -> String {
    format!("~{}", Duration(ns))
}

/// Of [`times`], those that are estimates.
fn estimates(stats: &FunctionStats) -> [Option<u64>; 6] {
    let (total, own) = (stats.total_estimate(), stats.self_estimate());
    [total, own, None, stats.mean_estimate(), None, None]
}

/// Total, self, min, mean, max, p99; the last four only of calls whose beginning was seen.
fn times(stats: &FunctionStats) -> [Option<u64>; 6] {
    [
        stats.total_ticks(),
        stats.self_ticks(),
        stats.min_ticks(),
        stats.mean_ticks(),
        stats.max_ticks(),
        stats.p99_ticks(),
    ]
}

const ESTIMATES: &str =
    ",estimated_calls,total_estimate_ns,self_estimate_ns,total_min_ns,total_max_ns";

/// Writes the list as csv; the first seven columns never change. A time that is not known is an
/// empty field, as is one that was not measured. The times are those of `timed_calls` of the calls.
/// If there are estimates, columns follow with them and with what the total is at least and at
/// most. With lines of the source a last column has them.
///
/// # Errors
/// Those of `out`.
pub fn write_functions_csv(
    out: &mut impl Write,
    rows: &[Row<'_>],
    names: &Names<'_>,
    clock: Clock,
) -> io::Result<()> {
    let columns = "module,function,calls,total_ns,self_ns,address,symbol,min_ns,mean_ns,max_ns,p99_ns,timed_calls";
    let with_source = names.has_sources();
    let source = if with_source { ",source" } else { "" };
    let has_estimates = rows
        .iter()
        .any(|(_, stats)| stats.total_estimate().is_some());
    let estimated = if has_estimates { ESTIMATES } else { "" };
    write!(out, "{columns}{estimated}{source}\r\n")?;
    for &(id, stats) in rows {
        let cell = |ticks: u64| clock.ns(ticks).to_string();
        let [total, own, min, mean, max, p99] =
            times(stats).map(|ticks| ticks.map_or_else(String::new, cell));
        let function = names.dictionary().function(id);
        let svma = function.map_or(0, |function| function.svma.0);
        let symbol = function.map_or("", |function| &function.symbol);
        let (module, name, symbol) = (
            field(names.module(id)),
            field(names.name(id)),
            field(symbol),
        );
        let calls = stats.calls;
        write!(
            out,
            "{module},{name},{calls},{total},{own},{svma:#x},{symbol}"
        )?;
        write!(out, ",{min},{mean},{max},{p99},{}", stats.timed)?;
        if has_estimates {
            let [least, most] = stats.total_bounds().map_or([None; 2], |b| b.map(Some));
            let times = [stats.total_estimate(), stats.self_estimate(), least, most];
            let [total, own, least, most] = times.map(|ticks| ticks.map_or_else(String::new, cell));
            write!(out, ",{},{total},{own},{least},{most}", stats.estimated)?;
        }
        if with_source {
            let line = names.source(id).map(ToString::to_string);
            write!(out, ",{}", field(&line.unwrap_or_default()))?;
        }
        write!(out, "\r\n")?;
    }
    Ok(())
}
