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
        SortKey::Total => stats.total_ticks(),
        SortKey::SelfTime => stats.self_ticks(),
        SortKey::Calls => Some(stats.calls),
        SortKey::Min => stats.min_ticks(),
        SortKey::Mean => stats.mean_ticks(),
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

/// Writes the list as aligned text. A time that is not known is `?`; where calls have none, a
/// column counts them.
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
        for ticks in times(stats) {
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
        writeln!(out, "  {:width$}  {}", names.module(id), names.name(id))?;
    }
    Ok(())
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

/// Writes the list as csv; the first seven columns never change. A time that is not known is an
/// empty field. The times are those of `timed_calls` of the calls.
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
    write!(out, "{columns}\r\n")?;
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
        write!(out, ",{min},{mean},{max},{p99},{}\r\n", stats.timed)?;
    }
    Ok(())
}
