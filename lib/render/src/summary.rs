//! The first view of a trace: what ran, how long, what took the time, and how far to trust it.

use crate::budget::budget_text;
use crate::coverage::sections;
use crate::functions::{Row, about};
use crate::levels::counted_times;
use crate::notes::early_end_text;
use crate::style::Style;
use crate::units::{Count, Duration, clean, date_text, size_text};
use sptrace_trace::{
    Clock, Dropped, Ending, FunctionStats, Header, Names, Note, Section, Stats, StreamInfo,
    StreamTotals, Summary, SummaryRow, Survey, lane_of,
};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// What the view is made of.
pub struct SummaryView<'a> {
    /// What was traced.
    pub header: &'a Header,
    /// Names, length and end of the file.
    pub survey: &'a Survey,
    /// Sums.
    pub stats: &'a Stats,
    /// The functions to list, by self time.
    pub top: &'a [Row<'a>],
    /// Display names.
    pub names: &'a Names<'a>,
}

/// Writes the view.
///
/// # Errors
/// Those of `out`.
pub fn write_summary(out: &mut impl Write, view: &SummaryView<'_>, style: Style) -> io::Result<()> {
    write_what_ran(out, view)?;
    write_top(out, view, style)?;
    writeln!(out)?;
    let is_recorded = view.survey.counted_calls().is_none() || has_levels(view);
    if is_recorded && !view.survey.is_in_order() {
        write_time(out, view, style)?;
    }
    write_trust(out, view, style)
}

fn write_what_ran(out: &mut impl Write, view: &SummaryView<'_>) -> io::Result<()> {
    let header = view.header;
    let command = clean(&header.command.join(" "));
    writeln!(out, "command    {command}")?;
    let (host, kernel, cpu) = (
        clean(&header.host),
        clean(&header.kernel),
        clean(&header.cpu),
    );
    writeln!(out, "machine    {host}, Linux {kernel}, {cpu}")?;
    write_when(out, view)?;
    write_how_much(out, view)
}

fn write_when(out: &mut impl Write, view: &SummaryView<'_>) -> io::Result<()> {
    let (header, ending) = (view.header, &view.survey.ending);
    let clock = Clock::of(header);
    let streams = view.stats.streams().iter();
    let last_tsc = streams.map(|(_, totals)| totals.last_tsc).max();
    let last_tsc = last_tsc.unwrap_or(0);
    let end_tsc = match ending {
        Ending::Complete(summary) => summary.end_tsc.max(last_tsc),
        _ => last_tsc,
    };
    let started = date_text(header.start_unix_ns);
    let ran = Duration(clock.since_start_ns(end_tsc)).to_string();
    writeln!(out, "started    {started}, ran {}", ran.trim())?;
    if let Ending::Complete(summary) = ending
        && let Some(dump) = summary.rows_of(Section::Dump).next()
    {
        writeln!(out, "dump       written at {}", clean(&dump.key))?;
    }
    if let Some((times, ns)) = recorded(ending, clock) {
        let together = Duration(ns).to_string();
        let often = match times {
            1 => "once".to_owned(),
            n => format!("{} times", Count(n)),
        };
        writeln!(out, "recorded   {often}, {} together", together.trim())?;
    }
    Ok(())
}

/// How many threads there were, and goroutines.
fn threads(infos: &[StreamInfo]) -> String {
    let all: BTreeSet<(u32, u32)> = infos.iter().map(|info| (info.pid, info.tid)).collect();
    let lanes = all
        .iter()
        .filter(|(_, tid)| lane_of(*tid).is_some())
        .count();
    let threads = Count((all.len() - lanes) as u64);
    match lanes {
        0 => format!("threads {threads}"),
        lanes => format!("threads {threads}, goroutines {}", Count(lanes as u64)),
    }
}

fn write_how_much(out: &mut impl Write, view: &SummaryView<'_>) -> io::Result<()> {
    let infos = &view.survey.dictionary.streams;
    let processes: BTreeSet<u32> = infos.iter().map(|info| info.pid).collect();
    let processes = Count(processes.len() as u64);
    writeln!(out, "processes  {processes}, {}", threads(infos))?;
    let streams = view.stats.streams();
    let events: u64 = streams.iter().map(|(_, totals)| totals.events).sum();
    let calls: u64 = streams.iter().map(|(_, totals)| totals.calls).sum();
    let size = size_text(view.survey.bytes);
    let density = view.survey.bytes as f64 / events.max(1) as f64;
    let in_memory = in_memory(&view.survey.ending);
    let (events, calls) = (Count(events), Count(calls));
    writeln!(
        out,
        "events     {events} in {size}, {density:.2} bytes each{in_memory}; {calls} calls"
    )?;
    if let Some(counted) = view.survey.counted_calls() {
        let counted = Count(counted);
        let whose = match counted_functions(view) {
            0 => String::new(),
            1 => " of a function while it was hot (report levels)".to_owned(),
            more => format!(" of {more} functions while they were hot (report levels)"),
        };
        writeln!(
            out,
            "counted    {counted} calls{whose}, of which neither order nor times are known"
        )?;
    }
    if let Ending::Complete(summary) = &view.survey.ending
        && let Some(text) = budget_text(summary)
    {
        writeln!(out, "budget     {text}")?;
    }
    if view.survey.is_in_order_in_part() {
        writeln!(
            out,
            "stamps     auto: short calls are recorded in order (report levels), times with ~ are \
             estimates"
        )?;
    } else if view.survey.is_in_order() {
        writeln!(
            out,
            "stamps     none: calls are recorded in order, times with ~ are estimates"
        )?;
    }
    let blocked: u64 = streams.iter().map(|(_, totals)| totals.blocked_ticks).sum();
    if blocked > 0 {
        let blocked = Duration(Clock::of(view.header).ns(blocked)).to_string();
        let blocked = blocked.trim();
        writeln!(
            out,
            "waiting    {blocked} for sptrace, not counted in durations"
        )?;
    }
    Ok(())
}

/// True if calls were recorded, and those of some functions counted at times.
fn has_levels(view: &SummaryView<'_>) -> bool {
    let mut notes = view.survey.notes.iter();
    notes.any(|note| matches!(note, Note::Level { .. }))
}

/// How many functions' calls were counted at times.
fn counted_functions(view: &SummaryView<'_>) -> usize {
    let times = counted_times(&view.survey.notes);
    let functions: BTreeSet<_> = times.iter().map(|time| time.function).collect();
    functions.len()
}

/// How often and how long, if there were pauses.
fn recorded(ending: &Ending, clock: Clock) -> Option<(u64, u64)> {
    let Ending::Complete(summary) = ending else {
        return None;
    };
    let is_there = summary.rows_of(Section::Recorded).next().is_some();
    let (times, ticks) = (
        summary.total(Section::Recorded),
        summary.total(Section::RecordedFor),
    );
    is_there.then(|| (times, clock.ns(ticks)))
}

/// Its own time, or what that may be.
fn self_ticks(stats: &FunctionStats) -> Option<u64> {
    stats.self_estimate().or(stats.self_ticks())
}

fn write_top(out: &mut impl Write, view: &SummaryView<'_>, style: Style) -> io::Result<()> {
    if view
        .top
        .iter()
        .all(|(_, stats)| self_ticks(stats).is_none())
    {
        return Ok(());
    }
    let clock = Clock::of(view.header);
    let all: u64 = view
        .stats
        .functions()
        .filter_map(|(_, stats)| self_ticks(stats))
        .sum();
    let heading = format!(
        "{:>11} {:>7} {:>15}  function (module)",
        "self", "share", "calls"
    );
    writeln!(out, "\n{}", style.heading(&heading))?;
    for &(id, stats) in view.top {
        let Some(ticks) = self_ticks(stats) else {
            continue;
        };
        let ns = clock.ns(ticks);
        let share = ticks as f64 * 100.0 / all.max(1) as f64;
        let duration = match stats.self_estimate() {
            Some(_) => format!("{:>11}", about(ns)),
            None => style.duration(ns, &format!("{:>11}", Duration(ns))),
        };
        let calls = Count(stats.calls);
        let (name, module) = (view.names.name(id), clean(view.names.module(id)));
        writeln!(
            out,
            "{duration} {share:>5.1} % {calls:>15}  {name} ({module})"
        )?;
    }
    Ok(())
}

/// How much of the threads' time is known to be spent where, and why not more.
fn write_time(out: &mut impl Write, view: &SummaryView<'_>, style: Style) -> io::Result<()> {
    let totals = || view.stats.streams().iter().map(|(_, totals)| totals);
    let sum = |of: fn(&StreamTotals) -> u64| totals().map(of).fold(0, u64::saturating_add);
    let all = sum(|totals| totals.ticks);
    let (known, outside) = (sum(|t| t.known_ticks), sum(|t| t.outside_ticks));
    let rows = match &view.survey.ending {
        Ending::Complete(summary) => &summary.rows[..],
        _ => &[],
    };
    let in_part = || rows.iter().filter(|row| row.section == Section::SeenInPart);
    if all > 0 {
        // Cut off, not rounded: 100 % means all.
        let share = |ticks: u64| (ticks as f64 * 1000.0 / all as f64).floor() / 10.0;
        let duration = Duration(Clock::of(view.header).ns(all)).to_string();
        let duration = duration.trim();
        let mut line = format!(
            "time       {:.1} % of the threads' {duration} is known",
            share(known)
        );
        if share(outside) > 0.0 {
            line += &format!(", {:.1} % is outside of the calls seen", share(outside));
        }
        writeln!(out, "{line}")?;
        write_unknown(out, rows, sum(|t| t.end_unseen), sum(|t| t.unwound))?;
        let unknown = all.saturating_sub(known).saturating_sub(outside);
        if unknown > all / 2 || known < all / 2 && in_part().next().is_some() {
            let text =
                "seen poorly: of most of its time it is not known which function it was spent in";
            writeln!(out, "{}", style.warning(text))?;
        }
    }
    for row in in_part() {
        let text = format!("{}: {}", row.section.name(), clean(&row.key));
        writeln!(out, "{}", style.warning(&text))?;
    }
    Ok(())
}

/// Why the time of calls is not known.
fn write_unknown(
    out: &mut impl Write,
    rows: &[SummaryRow],
    unseen: u64,
    unwound: u64,
) -> io::Result<()> {
    if unseen + unwound == 0 {
        return Ok(());
    }
    let without_end = || rows.iter().filter(|row| row.section == Section::WithoutEnd);
    let reasons = without_end();
    let reasons = reasons.map(|row| format!("{} {}", Count(row.count), clean(&row.key)));
    let left = (unwound > 0).then(|| format!("{} left by a throw or longjmp", Count(unwound)));
    let told: u64 = without_end().fold(0, |sum, row| sum.saturating_add(row.count));
    let cut = unseen.saturating_sub(told);
    let cut = (cut > 0).then(|| {
        let cut = Count(cut);
        format!("{cut} that began earlier, or were open at the recording's end or where events were lost")
    });
    let reasons: Vec<_> = reasons.chain(left).chain(cut).collect();
    let colon = if reasons.is_empty() { "" } else { ": " };
    let calls = if unseen + unwound == 1 {
        "call"
    } else {
        "calls"
    };
    let (count, reasons) = (Count(unseen + unwound), reasons.join(", "));
    writeln!(
        out,
        "           {count} {calls} without an end{colon}{reasons}"
    )
}

/// What payloads of a script have asked of the recording.
fn write_bidden(out: &mut impl Write, rows: &[SummaryRow]) -> io::Result<()> {
    let mut bidden = rows.iter().filter(|row| row.section == Section::Bidden);
    bidden.try_for_each(|row| writeln!(out, "{} times   {}", Count(row.count), clean(&row.key)))
}

fn write_trust(out: &mut impl Write, view: &SummaryView<'_>, style: Style) -> io::Result<()> {
    let streams = view.stats.streams();
    let lost: u64 = streams
        .iter()
        .map(|(_, totals)| totals.lost)
        .fold(0, u64::saturating_add);
    let summary = match &view.survey.ending {
        Ending::Complete(summary) => Some(summary),
        _ => None,
    };
    let coverage = summary.map_or_else(|| "unknown".to_owned(), coverage_line);
    writeln!(out, "coverage   {coverage}")?;
    let counted = summary
        .map_or(0, |summary| summary.total(Section::Loss))
        .max(lost);
    let loss = if counted == 0 && summary.is_some() {
        "no event lost".to_owned()
    } else if counted == 0 {
        style.warning("unknown")
    } else {
        style.warning(&format!("{} events lost", Count(counted)))
    };
    writeln!(out, "loss       {loss}")?;
    if let Some(dropped) = view.survey.dropped {
        writeln!(out, "{}", style.warning(&dropped_text(dropped)))?;
    }
    let rows = summary.map_or(&[][..], |summary| &summary.rows);
    if let Some(why) = summary.and_then(|summary| summary.ended_early.as_ref()) {
        let text = format!("recording ended early: {}", early_end_text(why));
        writeln!(out, "{}", style.warning(&text))?;
    }
    for row in rows.iter().filter(|row| row.section == Section::Shadow) {
        let count = Count(row.count);
        writeln!(
            out,
            "shadow mode: {count} events before the start were left out"
        )?;
    }
    let changed = rows.iter().filter(|row| row.section == Section::Changed);
    let changed: Vec<_> = changed
        .map(|row| format!("{} {}", Count(row.count), clean(&row.key)))
        .collect();
    if !changed.is_empty() {
        let text = format!("changed by the script (INJECTED): {}", changed.join(", "));
        writeln!(out, "{}", style.warning(&text))?;
    }
    write_bidden(out, rows)?;
    if let Ending::Early { offset } = view.survey.ending {
        let text = format!(
            "the trace ends early, at byte {}: sptrace did not finish it",
            Count(offset)
        );
        writeln!(out, "{}", style.warning(&text))?;
    }
    let hint = match view.survey.counted_calls().filter(|_| !has_levels(view)) {
        Some(_) => "more: sptrace report functions | callers | callees | graph | coverage",
        None => "more: sptrace report functions | tree | coverage | folded",
    };
    writeln!(out, "{}", style.aside(hint))
}

/// What an event took in memory, on average over all that were recorded.
fn in_memory(ending: &Ending) -> String {
    let Ending::Complete(summary) = ending else {
        return String::new();
    };
    match (
        summary.total(Section::Memory),
        summary.total(Section::Events),
    ) {
        (0, _) | (_, 0) => String::new(),
        (bytes, events) => format!(" ({:.2} in memory)", bytes as f64 / events as f64),
    }
}

/// What is said of a trace whose beginning a ring has dropped.
pub fn dropped_text(dropped: Dropped) -> String {
    format!(
        "the beginning was dropped by --ring: {} events",
        Count(dropped.events)
    )
}

fn coverage_line(summary: &Summary) -> String {
    let (patched, refused) = (
        summary.total(Section::Sites),
        summary.total(Section::Refused),
    );
    let reached = patched.saturating_add(refused);
    let share = (reached > 0).then(|| {
        // Cut off, not rounded: 100 % means all.
        let percent = (patched as f64 / reached as f64 * 10_000.0).floor() / 100.0;
        format!("{percent:.2} % of {} call sites patched", Count(reached))
    });
    let ends = summary.rows_of(Section::Ends).next().map(|seen| {
        let all = summary.total(Section::Ends).max(1);
        let percent = (seen.count as f64 / all as f64 * 10_000.0).floor() / 100.0;
        format!("ends of {percent:.2} % of these seen where calls return to")
    });
    let told = [
        Section::Bidden,
        Section::Changed,
        Section::Sites,
        Section::Budget,
        Section::Events,
        Section::Loss,
        Section::Dump,
        Section::Ends,
        Section::Memory,
        Section::Recorded,
        Section::RecordedFor,
        Section::Ring,
        Section::SeenInPart,
        Section::Shadow,
        Section::WithoutEnd,
    ];
    let others = sections(summary)
        .into_iter()
        .filter(|section| !told.contains(section));
    let others =
        others.map(|section| format!("{} {}", section.name(), Count(summary.total(section))));
    let parts: Vec<String> = share.into_iter().chain(ends).chain(others).collect();
    if parts.is_empty() {
        "not recorded".to_owned()
    } else {
        parts.join(", ")
    }
}
