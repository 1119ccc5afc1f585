//! From when to when the calls of functions were counted and not recorded, or recorded in order.
//!
//! Given a trace's notes; gives a line for each such time, with how often the function was called
//! in all of them of its process. Aligned text, or csv.

use std::collections::HashMap;
use std::io::{self, Write};

use sptrace_trace::{Clock, Ending, FunctionId, Level, Names, Note};

use crate::budget::budget_text;
use crate::csv::field;
use crate::style::Style;
use crate::units::{Count, Duration};

/// A time in which the calls of a function were counted, or recorded in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedTime {
    /// The process.
    pub pid: u32,
    /// The function.
    pub function: FunctionId,
    /// TSC of its start.
    pub start_tsc: u64,
    /// TSC of its end; `None`: it lasted to the process's end, or the recording's.
    pub end_tsc: Option<u64>,
    /// Counted, or in order.
    pub level: Level,
}

/// Those of a trace in which calls were counted, in the order in which they began.
pub fn counted_times(notes: &[Note]) -> Vec<CountedTime> {
    let mut times = leveled_times(notes);
    times.retain(|time| time.level == Level::Counted);
    times
}

/// All of a trace, in the order in which they began.
fn leveled_times(notes: &[Note]) -> Vec<CountedTime> {
    let mut times: Vec<CountedTime> = Vec::new();
    for note in notes {
        let Note::Level {
            pid,
            tsc,
            function,
            level,
        } = *note
        else {
            continue;
        };
        let mut open = times.iter_mut().rev();
        let open = open.find(|t| (t.pid, t.function) == (pid, function) && t.end_tsc.is_none());
        match (level, open) {
            (Level::Recorded, Some(open)) => open.end_tsc = Some(tsc),
            (Level::Recorded, None) => {}
            (_, Some(open)) if open.level == level => {}
            (_, open) => {
                if let Some(open) = open {
                    open.end_tsc = Some(tsc);
                }
                times.push(CountedTime {
                    pid,
                    function,
                    start_tsc: tsc,
                    end_tsc: None,
                    level,
                });
            }
        }
    }
    times.sort_by_key(|time| time.start_tsc);
    times
}

/// How often each function of each process was called and counted.
fn counted_calls(notes: &[Note]) -> HashMap<(u32, FunctionId), u64> {
    let mut all = HashMap::new();
    for note in notes {
        if let Note::Counts { pid, edges, .. } = note {
            for edge in edges {
                let calls: &mut u64 = all.entry((*pid, edge.callee)).or_default();
                *calls = calls.saturating_add(edge.calls);
            }
        }
    }
    all
}

/// Writes them, and in a text what was spent of a budget. Times count from `start_tsc`.
///
/// # Errors
/// Those of `out`.
pub fn write_levels(
    out: &mut impl Write,
    (notes, ending): (&[Note], &Ending),
    (names, clock, start_tsc): (&Names<'_>, Clock, u64),
    (is_csv, style): (bool, Style),
) -> io::Result<()> {
    let calls = counted_calls(notes);
    let ns = |tsc: u64| clock.ns(tsc.saturating_sub(start_tsc));
    if is_csv {
        write!(
            out,
            "pid,module,function,from_ns,to_ns,counted_calls,level\r\n"
        )?;
    } else {
        if let Ending::Complete(summary) = ending
            && let Some(budget) = budget_text(summary)
        {
            writeln!(out, "budget: {budget}")?;
        }
        let heading = format!(
            "{:>9} {:>8} {:>11} {:>11} {:>15}  function (module)",
            "pid", "level", "from", "to", "counted calls"
        );
        writeln!(out, "{}", style.heading(&heading))?;
    }
    for time in leveled_times(notes) {
        let level = match time.level {
            Level::Counted => "count",
            Level::InOrder => "order",
            Level::Recorded => "stamp",
            Level::Off => "off",
            Level::Plain => "record",
        };
        let calls = calls.get(&(time.pid, time.function)).copied().unwrap_or(0);
        let (module, function) = (names.module(time.function), names.name(time.function));
        let (from, to) = (ns(time.start_tsc), time.end_tsc.map(ns));
        if is_csv {
            let to = to.map_or_else(String::new, |to| to.to_string());
            let (module, function) = (field(module), field(function));
            write!(
                out,
                "{},{module},{function},{from},{to},{calls},{level}\r\n",
                time.pid
            )?;
        } else {
            let to = to.map_or_else(|| "the end".to_owned(), |to| Duration(to).to_string());
            writeln!(
                out,
                "{:>9} {level:>8} {:>11} {to:>11} {:>15}  {function} ({module})",
                time.pid,
                Duration(from).to_string(),
                Count(calls).to_string(),
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(tsc: u64, function: u32, level: Level) -> Note {
        Note::Level {
            pid: 7,
            tsc,
            function: FunctionId(function),
            level,
        }
    }

    #[test]
    fn a_time_ends_with_the_next_change_of_its_function() {
        let notes = [
            level(10, 1, Level::Counted),
            level(20, 2, Level::Counted),
            level(30, 1, Level::Recorded),
            level(40, 1, Level::Counted),
        ];
        let times = counted_times(&notes);
        let times: Vec<_> = times
            .iter()
            .map(|t| (t.function.0, t.start_tsc, t.end_tsc))
            .collect();
        assert_eq!(times, [(1, 10, Some(30)), (2, 20, None), (1, 40, None)]);
    }
}
