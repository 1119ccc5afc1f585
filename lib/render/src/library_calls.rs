//! Sums of calls from one module into another, as `ltrace -c` prints them: what a program asks of
//! its libraries, and these of each other.
//!
//! Given what a replay tells; gives a table. A call is counted if the frame around it is of another
//! module; what is outermost is called by nobody that was seen, and is not. Times are those of the
//! whole call. Must not know where frames come from.

use rustc_hash::FxHashMap as HashMap;
use std::io::{self, Write};

use sptrace_trace::{
    Clock, Dictionary, Frame, FunctionId, FunctionStats, ModuleId, Names, Stats, StreamId, Visitor,
};

use crate::call_counts::CountKey;

/// Adds up.
pub struct LibraryCalls<'a> {
    dictionary: &'a Dictionary,
    /// Of each thread: the modules of its open frames, and whether they were called from another.
    open: HashMap<StreamId, Vec<(ModuleId, bool)>>,
    stats: Stats,
}

impl<'a> LibraryCalls<'a> {
    /// Nothing counted yet.
    pub fn new(dictionary: &'a Dictionary) -> Self {
        Self {
            dictionary,
            open: HashMap::default(),
            stats: Stats::new(),
        }
    }

    fn module(&self, function: FunctionId) -> ModuleId {
        let function = self.dictionary.functions.get(function.0 as usize);
        function.map_or(ModuleId(u32::MAX), |f| f.module)
    }

    /// Writes the table.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(
        &self,
        out: &mut impl Write,
        names: &Names<'_>,
        clock: Clock,
        (key, limit): (CountKey, Option<usize>),
    ) -> io::Result<()> {
        let time = |stats: &FunctionStats| stats.total_ticks().unwrap_or(0);
        let mut rows: Vec<_> = self.stats.functions().collect();
        rows.sort_by(|(a, x), (b, y)| {
            let order = match key {
                CountKey::Calls => y.calls.cmp(&x.calls),
                CountKey::Name => names.name(*a).cmp(names.name(*b)),
                CountKey::Time | CountKey::Errors => time(y).cmp(&time(x)),
            };
            order.then_with(|| a.cmp(b))
        });
        let total: u64 = rows.iter().map(|(_, stats)| time(stats)).sum();
        let calls: u64 = rows.iter().map(|(_, stats)| stats.calls).sum();
        rows.truncate(limit.unwrap_or(usize::MAX));
        let rule =
            "------ ----------- ----------- ----------- ----------- --------- --------------------";
        writeln!(
            out,
            "% time     seconds  usecs/call    p50 usec    p99 usec     calls function"
        )?;
        writeln!(out, "{rule}")?;
        let us = |ticks: Option<u64>| match ticks {
            Some(ticks) => format!("{:.1}", clock.ns(ticks) as f64 / 1e3),
            None => "?".to_owned(),
        };
        for (id, stats) in rows {
            let share = time(stats) as f64 * 100.0 / total.max(1) as f64;
            let seconds = clock.ns(time(stats)) as f64 / 1e9;
            let (mean, p50) = (us(stats.mean_ticks()), us(stats.p50_ticks()));
            let (p99, calls) = (us(stats.p99_ticks()), stats.calls);
            let (name, module) = (names.name(id), names.module(id));
            let module = module.rsplit('/').next().unwrap_or(module);
            writeln!(
                out,
                "{share:6.2} {seconds:11.6} {mean:>11} {p50:>11} {p99:>11} {calls:9} {name} ({module})"
            )?;
        }
        writeln!(out, "{rule}")?;
        let seconds = clock.ns(total) as f64 / 1e9;
        let blank = "";
        writeln!(
            out,
            "100.00 {seconds:11.6} {blank:11} {blank:11} {blank:11} {calls:9} total"
        )
    }
}

impl Visitor for LibraryCalls<'_> {
    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        let module = self.module(frame.function);
        let open = self.open.entry(stream).or_default();
        let is_across = open.last().is_some_and(|(caller, _)| *caller != module);
        open.push((module, is_across));
        if is_across {
            self.stats.enter(stream, frame);
        }
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        let open = self.open.get_mut(&stream).and_then(Vec::pop);
        if open.is_some_and(|(_, is_across)| is_across) {
            self.stats.leave(stream, frame);
        }
    }

    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame) {
        let open = self.open.get_mut(&stream).and_then(Vec::pop);
        if open.is_some_and(|(_, is_across)| is_across) {
            self.stats.leave_hidden(stream, frame);
        }
    }
}
