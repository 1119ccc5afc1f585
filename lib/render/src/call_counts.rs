//! Sums of system calls, as `strace -c` prints them.
//!
//! Given calls; gives a table: time, calls, errors of each. Times are from before a call to after
//! it, so those that wait take long. Must not know where calls come from.

use std::collections::BTreeMap;
use std::io::{self, Write};

use sptrace_trace::{Clock, ExitStatus};
use sptrace_types::calls::Selection;

use crate::listener::{Call, Listener};
use crate::system_calls::name_of;

/// What a table is ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountKey {
    /// Time.
    Time,
    /// Number of calls.
    Calls,
    /// Number of errors.
    Errors,
    /// Name.
    Name,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    calls: u64,
    errors: u64,
    ticks: u64,
}

/// Adds up.
#[derive(Default)]
pub struct CallCounts {
    sums: BTreeMap<u32, Sum>,
    /// Only these calls.
    wanted: Option<Selection>,
}

impl CallCounts {
    /// Of these calls, or of all.
    pub fn of(wanted: Option<Selection>) -> Self {
        Self {
            wanted,
            ..Self::default()
        }
    }

    /// Writes the table.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(
        &self,
        out: &mut impl Write,
        clock: Clock,
        key: CountKey,
        limit: Option<usize>,
    ) -> io::Result<()> {
        let total = self.sums.values().fold(Sum::default(), |total, sum| Sum {
            calls: total.calls + sum.calls,
            errors: total.errors + sum.errors,
            ticks: total.ticks + sum.ticks,
        });
        let named = self
            .sums
            .iter()
            .map(|(number, sum)| (name_of(*number), *sum));
        let mut rows: Vec<_> = named.collect();
        rows.sort_by(|(a, x), (b, y)| {
            let order = match key {
                CountKey::Time => y.ticks.cmp(&x.ticks),
                CountKey::Calls => y.calls.cmp(&x.calls),
                CountKey::Errors => y.errors.cmp(&x.errors),
                CountKey::Name => std::cmp::Ordering::Equal,
            };
            order.then_with(|| a.cmp(b))
        });
        rows.truncate(limit.unwrap_or(usize::MAX));
        let rule = "------ ----------- ----------- --------- --------- ----------------";
        writeln!(
            out,
            "% time     seconds  usecs/call     calls    errors syscall"
        )?;
        writeln!(out, "{rule}")?;
        for (name, sum) in &rows {
            let share = sum.ticks as f64 * 100.0 / total.ticks.max(1) as f64;
            row(out, share, sum, clock, name)?;
        }
        writeln!(out, "{rule}")?;
        row(out, 100.0, &total, clock, "total")
    }
}

fn row(out: &mut impl Write, share: f64, sum: &Sum, clock: Clock, name: &str) -> io::Result<()> {
    let ns = clock.ns(sum.ticks);
    let seconds = ns as f64 / 1e9;
    let each = ns / 1000 / sum.calls.max(1);
    let errors = match sum.errors {
        0 => String::new(),
        errors => errors.to_string(),
    };
    let calls = sum.calls;
    writeln!(
        out,
        "{share:6.2} {seconds:11.6} {each:11} {calls:9} {errors:>9} {name}"
    )
}

impl Listener for CallCounts {
    fn begins(&mut self, _: &Call) {}

    fn ended(&mut self, call: &Call) {
        let wanted = self.wanted.as_ref();
        if wanted.is_some_and(|wanted| !wanted.contains(call.number)) {
            return;
        }
        let sum = self.sums.entry(call.number).or_default();
        sum.calls += 1;
        sum.errors += u64::from(call.result.is_some_and(|r| (-4095..0).contains(&r)));
        sum.ticks += call
            .end_tsc
            .map_or(0, |end| end.saturating_sub(call.start_tsc));
    }

    fn exited(&mut self, _: u64, _: u32, _: ExitStatus) {}

    fn is_finished(&self) -> bool {
        false
    }
}
