//! How two runs differ, as text or csv: functions that are new, gone, called more or less often, or
//! took longer or shorter, and where the order of calls parts.
//!
//! Given what each function did in the old runs and in the new one. A time differs if the median of
//! a function's own times does, by much and in so many calls that chance does not explain it; of
//! several old runs what lies between them is chance. Knows nothing of traces.

use crate::csv::field;
use crate::style::Style;
use crate::units::{Count, Duration};
use std::io::{self, Write};

/// Fewer timed calls than this say nothing about a time.
const LEAST_TIMED: u64 = 30;
/// A time differs by a half at least ...
const LEAST_PERCENT: u64 = 50;
/// ... and by this much, which is more than recording itself varies by.
const LEAST_NS: u64 = 40;
/// ... and all calls together by this part (of a hundred) of all that the run took.
const LEAST_SHARE_PERCENT: u64 = 1;

/// What a function did in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Did {
    /// Calls.
    pub calls: u64,
    /// Calls whose own time is known.
    pub timed: u64,
    /// The median of these.
    pub median_ns: u64,
    /// Their sum.
    pub self_ns: u64,
}

/// A function in all runs.
#[derive(Clone, Debug)]
pub struct Compared {
    /// Its module.
    pub module: String,
    /// Its name.
    pub name: String,
    /// In each of the old runs.
    pub old: Vec<Did>,
    /// In the new one.
    pub new: Did,
}

/// In what way a function differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Only the new run calls it.
    New,
    /// Only old runs call it.
    Gone,
    /// Called more often.
    More,
    /// Called less often.
    Less,
    /// Its own time is longer.
    Slower,
    /// Its own time is shorter.
    Faster,
}

impl Kind {
    const ALL: [(Self, &str); 6] = [
        (Self::New, "new"),
        (Self::Gone, "gone"),
        (Self::More, "called more"),
        (Self::Less, "called less"),
        (Self::Slower, "slower"),
        (Self::Faster, "faster"),
    ];

    fn word(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|(kind, _)| *kind == self)
            .map_or("", |(_, word)| word)
    }
}

/// In which ways a function differs; `run_ns`: what the new run took in all functions.
pub fn kinds(function: &Compared, run_ns: u64) -> Vec<Kind> {
    let calls = function.old.iter().map(|did| did.calls);
    let (least, most) = (calls.clone().min().unwrap_or(0), calls.max().unwrap_or(0));
    let new = function.new.calls;
    if most == 0 {
        return if new > 0 { vec![Kind::New] } else { Vec::new() };
    }
    if new == 0 {
        return if least > 0 {
            vec![Kind::Gone]
        } else {
            Vec::new()
        };
    }
    let mut kinds = Vec::new();
    let spread = most - least;
    if new > most.saturating_add(spread) {
        kinds.push(Kind::More);
    }
    if new < least.saturating_sub(spread) {
        kinds.push(Kind::Less);
    }
    kinds.extend(time_kind(function, run_ns));
    kinds
}

fn time_kind(function: &Compared, run_ns: u64) -> Option<Kind> {
    let timed = function.old.iter().map(|did| did.timed).min()?;
    if timed.min(function.new.timed) < LEAST_TIMED {
        return None;
    }
    let medians = function.old.iter().map(|did| did.median_ns);
    let (least, most) = (medians.clone().min()?, medians.max()?);
    let spread = most - least;
    let is_apart = |short_ns: u64, long_ns: u64| {
        let by = long_ns.saturating_sub(short_ns);
        let all_ns = by.saturating_mul(function.new.timed);
        by >= LEAST_NS
            && by > spread
            && by.saturating_mul(100) >= short_ns.saturating_mul(LEAST_PERCENT)
            && all_ns.saturating_mul(100) >= run_ns.saturating_mul(LEAST_SHARE_PERCENT)
    };
    match function.new.median_ns {
        new if is_apart(most, new) => Some(Kind::Slower),
        new if is_apart(new, least) => Some(Kind::Faster),
        _ => None,
    }
}

/// The mean over the old runs.
fn mean(function: &Compared, number: fn(&Did) -> u64) -> u64 {
    let sum = function.old.iter().map(number).fold(0, u64::saturating_add);
    sum / (function.old.len() as u64).max(1)
}

/// Functions by the way in which they differ, those with most calls and time first.
pub fn select(functions: &[Compared]) -> Vec<(Kind, &Compared)> {
    let run_ns = functions.iter().map(|function| function.new.self_ns);
    let run_ns = run_ns.fold(0, u64::saturating_add);
    let mut rows: Vec<(Kind, &Compared)> = Vec::new();
    for function in functions {
        rows.extend(
            kinds(function, run_ns)
                .into_iter()
                .map(|kind| (kind, function)),
        );
    }
    rows.sort_by_cached_key(|(kind, function)| {
        let weight = mean(function, |did| did.self_ns).max(function.new.self_ns);
        let names = (function.module.clone(), function.name.clone());
        (*kind, std::cmp::Reverse(weight), names)
    });
    rows
}

/// Writes what differs as text; each way shows at most `limit` functions.
///
/// # Errors
/// Those of `out`.
pub fn write_diff(
    out: &mut impl Write,
    rows: &[(Kind, &Compared)],
    limit: usize,
    style: Style,
) -> io::Result<()> {
    for (kind, word) in Kind::ALL {
        let of_kind: Vec<_> = rows.iter().filter(|(of, _)| *of == kind).collect();
        if of_kind.is_empty() {
            continue;
        }
        let heading = format!(
            "{:>13} {:>13} {:>12} {:>12}  {word}",
            "old calls", "new calls", "old median", "new median"
        );
        writeln!(out, "{}", style.heading(&heading))?;
        for (_, function) in of_kind.iter().take(limit) {
            let old_ns = median(
                mean(function, |did| did.median_ns),
                mean(function, |d| d.timed),
            );
            let new_ns = median(function.new.median_ns, function.new.timed);
            writeln!(
                out,
                "{:>13} {:>13} {old_ns:>12} {new_ns:>12}  {} ({})",
                Count(mean(function, |did| did.calls)),
                Count(function.new.calls),
                function.name,
                function.module
            )?;
        }
        if of_kind.len() > limit {
            writeln!(
                out,
                "{:>54}  and {} more (--limit)",
                "",
                of_kind.len() - limit
            )?;
        }
    }
    Ok(())
}

fn median(ns: u64, timed: u64) -> String {
    match timed {
        0 => "-".to_owned(),
        _ => Duration(ns).to_string(),
    }
}

/// Writes what differs as csv.
///
/// # Errors
/// Those of `out`.
pub fn write_diff_csv(out: &mut impl Write, rows: &[(Kind, &Compared)]) -> io::Result<()> {
    let columns = "kind,module,function,old_calls,new_calls,old_median_ns,new_median_ns,old_self_ns,new_self_ns";
    write!(out, "{columns}\r\n")?;
    for (kind, function) in rows {
        write!(
            out,
            "{},{},{},{},{},{},{},{},{}\r\n",
            kind.word(),
            field(&function.module),
            field(&function.name),
            mean(function, |did| did.calls),
            function.new.calls,
            mean(function, |did| did.median_ns),
            function.new.median_ns,
            mean(function, |did| did.self_ns),
            function.new.self_ns
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn did(calls: u64, median_ns: u64) -> Did {
        let self_ns = calls * median_ns;
        Did {
            calls,
            timed: calls,
            median_ns,
            self_ns,
        }
    }

    fn kinds_of(old: &[Did], new: Did) -> Vec<Kind> {
        let function = Compared {
            module: "prog".into(),
            name: "f".into(),
            old: old.to_vec(),
            new,
        };
        kinds(&function, 1_000_000)
    }

    #[test]
    fn functions_differ_by_calls_and_by_clear_times() {
        for (old, new, wanted) in [
            (did(0, 0), did(3, 10), vec![Kind::New]),
            (did(3, 10), did(0, 0), vec![Kind::Gone]),
            (did(100, 900), did(101, 900), vec![Kind::More]),
            (did(100, 900), did(99, 900), vec![Kind::Less]),
            (did(100, 900), did(100, 1900), vec![Kind::Slower]),
            (did(100, 1900), did(100, 900), vec![Kind::Faster]),
            // Too little, too few, too short to matter.
            (did(100, 900), did(100, 1000), vec![]),
            (did(9, 900), did(9, 9000), vec![]),
            (did(100, 10), did(100, 60), vec![]),
        ] {
            assert_eq!(kinds_of(&[old], new), wanted, "{old:?} {new:?}");
        }
    }

    #[test]
    fn what_lies_between_old_runs_is_chance() {
        let old = [did(100, 900), did(120, 2000)];
        assert_eq!(kinds_of(&old, did(110, 2900)), []);
        assert_eq!(kinds_of(&old, did(110, 3500)), [Kind::Slower]);
        assert_eq!(kinds_of(&[did(0, 0), did(5, 9)], did(0, 0)), []);
    }
}
