//! `report waits --laps` as text and as csv.
//!
//! Given laps; writes those that took long, and why. Must not know how time was told apart.

use super::super::table::{behind, who};
use super::{Cause, Excess, Lap, Laps, Parts, Thread, Way, Where, excesses};
use crate::csv::field;
use crate::style::Style;
use crate::units::{Count, Duration, clean};
use sptrace_trace::{Clock, FunctionId, Names, StreamId};
use std::cmp::Reverse;
use std::io::{self, Write};

/// A lap is long if it takes so much more than most: one part of this many.
const LONGER_BY: u64 = 4;
/// Causes named of a part of time, and parts named of a lap.
const NAMED: usize = 2;

/// Which laps are shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct LapsShown {
    /// Those that took this long; 0: those that took a quarter more than most of their thread.
    pub min_ns: u64,
    /// At most so many of a thread, the longest ones.
    pub limit: Option<usize>,
}

/// Names and times for a reader.
type Words<'a, 'n> = (&'a Names<'n>, Clock);

impl Laps<'_> {
    /// Writes for each thread how long its laps are, and a line for each long one, in the order of
    /// time: when it began since `start_tsc`, how long it took, how much longer than most, and
    /// what took so much more.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(
        &self,
        out: &mut impl Write,
        words: Words<'_, '_>,
        start_tsc: u64,
        (shown, style): (LapsShown, Style),
    ) -> io::Result<()> {
        let clock = words.1;
        for (at, (stream, thread)) in self.with_laps().into_iter().enumerate() {
            let (usual, most) = thread.medians();
            let laps = long(thread, usual, clock, shown);
            let (name, tid) = self.thread(stream);
            let text = format!(
                "{}{name} (thread {tid}): {} laps, most take {}; shown are {}",
                if at > 0 { "\n" } else { "" },
                Count(thread.laps.len() as u64),
                Duration(clock.ns(usual)).to_string().trim(),
                Count(laps.len() as u64)
            );
            writeln!(out, "{}", style.heading(&text))?;
            if laps.is_empty() {
                continue;
            }
            let heading = format!(
                "{:>11} {:>11} {:>11}  because",
                "began", "time", "longer by"
            );
            writeln!(out, "{}", style.heading(&heading))?;
            for lap in laps {
                let longer = clock.ns(lap.ticks().saturating_sub(usual));
                let began = Duration(clock.ns(lap.start_tsc.saturating_sub(start_tsc)));
                let text = format!("{:>11}", Duration(longer));
                writeln!(
                    out,
                    "{began:>11} {:>11} {}  {}",
                    Duration(clock.ns(lap.ticks())),
                    style.duration(longer, &text),
                    because(lap, &most, words)
                )?;
            }
        }
        Ok(())
    }

    /// Writes a row for each cause of each lap that is shown, the greatest first, with what it
    /// took more than in most laps.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_csv(
        &self,
        out: &mut impl Write,
        words: Words<'_, '_>,
        start_tsc: u64,
        shown: LapsShown,
    ) -> io::Result<()> {
        let (names, clock) = words;
        writeln!(
            out,
            "program,tid,start_ns,time_ns,longer_ns,what,in,cause,total_ns,more_ns"
        )?;
        for (stream, thread) in self.with_laps() {
            let (usual, most) = thread.medians();
            let (name, tid) = self.thread(stream);
            for lap in long(thread, usual, clock, shown) {
                let mut parts: Vec<_> = lap.parts.iter().collect();
                let more = |cause: &Cause, ticks: u64| {
                    ticks.saturating_sub(most.get(cause).copied().unwrap_or(0))
                };
                parts.sort_by_key(|(cause, ticks)| (Reverse(more(cause, **ticks)), **cause));
                for (cause, ticks) in parts {
                    writeln!(
                        out,
                        "{},{tid},{},{},{},{},{},{},{},{}",
                        field(&name),
                        clock.ns(lap.start_tsc.saturating_sub(start_tsc)),
                        clock.ns(lap.ticks()),
                        clock.ns(lap.ticks().saturating_sub(usual)),
                        what(cause.place),
                        cause.inside.map_or("".into(), |id| field(names.name(id))),
                        cause.by.map_or("".into(), |id| field(who(names.name(id)))),
                        clock.ns(*ticks),
                        clock.ns(more(cause, *ticks)),
                    )?;
                }
            }
        }
        Ok(())
    }

    /// True if no call has come after another.
    pub fn is_empty(&self) -> bool {
        self.threads.values().all(|thread| thread.laps.is_empty())
    }

    fn with_laps(&self) -> Vec<(StreamId, &Thread)> {
        let threads = self.threads.iter().map(|(id, thread)| (*id, thread));
        let mut threads: Vec<_> = threads.filter(|(_, t)| !t.laps.is_empty()).collect();
        threads.sort_by_key(|(id, _)| *id);
        threads
    }

    fn thread(&self, stream: StreamId) -> (String, u32) {
        let info = self.dictionary.stream(stream);
        let name = info.map_or("?", |info| info.comm.as_str());
        (clean(name), info.map_or(0, |info| info.tid))
    }
}

/// Laps that are shown, in the order of time.
fn long(thread: &Thread, usual: u64, clock: Clock, shown: LapsShown) -> Vec<&Lap> {
    let is_long = |lap: &&Lap| match shown.min_ns {
        0 => lap.ticks() >= usual.saturating_add(usual / LONGER_BY).max(1),
        min_ns => clock.ns(lap.ticks()) >= min_ns,
    };
    let mut laps: Vec<_> = thread.laps.iter().filter(is_long).collect();
    if let Some(limit) = shown.limit {
        laps.sort_by_key(|lap| (Reverse(lap.ticks()), lap.start_tsc));
        laps.truncate(limit);
        laps.sort_by_key(|lap| lap.start_tsc);
    }
    laps
}

/// What took more than in most laps, as far as it matters.
fn because(lap: &Lap, most: &Parts, words: Words<'_, '_>) -> String {
    let found = excesses(&lap.parts, most);
    let least = found.first().map_or(0, |excess| excess.ticks / 10);
    let named = found.iter().take_while(|excess| excess.ticks >= least);
    let named: Vec<_> = named.take(NAMED).map(|e| sentence(e, words)).collect();
    match named.is_empty() {
        true => "-".to_owned(),
        false => named.join("; "),
    }
}

fn sentence(excess: &Excess, (names, clock): Words<'_, '_>) -> String {
    let time = |ticks| Duration(clock.ns(ticks)).to_string().trim().to_owned();
    let least = excess.ticks / 10;
    let causes = excess.causes.iter().filter(|(_, ticks)| *ticks >= least);
    let causes: Vec<_> = causes.take(NAMED).collect();
    let details = causes.iter().filter_map(|(cause, ticks)| {
        let detail = detail(cause, names)?;
        Some(match causes.len() {
            1 => detail,
            _ => format!("{detail} {}", time(*ticks)),
        })
    });
    let details = details.collect::<Vec<_>>().join(", ");
    let space = if details.is_empty() { "" } else { " " };
    format!(
        "{}{space}{details} ({})",
        title(excess.place),
        time(excess.ticks)
    )
}

fn title(place: Where) -> &'static str {
    match place {
        Where::Way(Way::Own) => "its own computing",
        Where::Way(Way::Kernel) => "the kernel's work for it",
        Where::Way(Way::Interrupt) => "interrupted by",
        Where::Way(Way::Preempted) => "preempted by",
        Where::Way(Way::Blocked) => "blocked",
        Where::Way(Way::Queued) => "woken, but queued,",
        Where::Sptrace => "waiting for sptrace",
        Where::Unknown => "not known, as events were lost",
    }
}

fn detail(cause: &Cause, names: &Names<'_>) -> Option<String> {
    let name = |id: FunctionId| clean(names.name(id));
    let by = cause.by.map(|id| clean(who(names.name(id))));
    let inside = cause.inside.map(|id| format!("in {}", name(id)));
    match cause.place {
        Where::Way(Way::Own | Way::Kernel) => inside,
        Where::Way(Way::Interrupt | Way::Preempted) => by,
        Where::Way(Way::Blocked) => {
            let woken = by.map_or("not seen to be woken".to_owned(), |by| {
                format!("woken by {by}")
            });
            Some(inside.map_or(woken.clone(), |inside| format!("{inside}, {woken}")))
        }
        Where::Way(Way::Queued) => cause.by.map(|id| match behind(names.name(id)) {
            Some((how, who)) => format!("{how} {}", clean(who)),
            None => format!("after {} woke it", clean(who(names.name(id)))),
        }),
        Where::Sptrace | Where::Unknown => None,
    }
}

/// As csv has it.
fn what(place: Where) -> &'static str {
    match place {
        Where::Way(way) => way.name(),
        Where::Sptrace => "sptrace",
        Where::Unknown => "unknown",
    }
}
