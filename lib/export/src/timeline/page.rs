//! The file of a time line: HTML with everything in it.
//!
//! Given what was collected, writes: the style, what is on the page, a table of names, threads and
//! parts as JSON, the scripts, and then the parts, the coarsest first, so that a browser draws
//! before it has read them all. Each part is a `script` element of an unknown type, which browsers
//! keep as text. Text of the trace gets into the page as JSON only, without `<`.

use super::Context;
use super::columns::Packed;
use super::levels::step_ns;
use super::track::{Longest, MARKS, Track};
use crate::output::{Output, json, xml};
use rustc_hash::FxHashMap as HashMap;
use sptrace_trace::{FunctionId, Stats, StreamId};
use std::io::Write;

const BODY: &str = include_str!("body.html");
const STYLE: &str = include_str!("style.css");
const SCRIPTS: [&str; 6] = [
    include_str!("data.js"),
    include_str!("lines.js"),
    include_str!("draw.js"),
    include_str!("find.js"),
    include_str!("panel.js"),
    include_str!("main.js"),
];
/// Longer names are cut: parameters of templates fill screens.
const MAX_NAME_CHARS: usize = 400;
/// Modules with a colour of their own; the others share the last one.
const COLOURS: usize = 6;

/// What is to be written.
pub struct Page<'a> {
    pub cx: &'a Context<'a>,
    pub tracks: &'a HashMap<StreamId, Track>,
    pub stats: &'a Stats,
    pub longest: &'a [Longest],
    pub notes: &'a [(u64, u32, String)],
    pub notes_left_out: u64,
    /// Lines of calls, with their threads.
    pub lines: &'a [(StreamId, &'a [Packed])],
    pub lines_left_out: u64,
    pub finest: usize,
    /// Calls, those that are shown one by one, deeper ones than there are rows, those whose
    /// duration is not known, and those that the options hide.
    pub counts: [u64; 5],
}

/// Writes the page.
pub fn write<W: Write>(page: &Page<'_>, out: &mut Output<W>) {
    let command = page.cx.header.command.join(" ");
    out.text("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out.text("<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
    out.text(&xml(&command));
    out.text(" - sptrace</title>\n<style>\n");
    out.text(STYLE);
    out.text("</style>\n</head>\n<body>\n");
    out.text(BODY);
    let mut tracks: Vec<_> = page.tracks.iter().filter(|(_, t)| t.rows > 0).collect();
    tracks.sort_by_key(|(id, track)| (pid_of(page, **id), track.start_ns, **id));
    let parts = parts_of(&tracks);
    out.text("<script id=\"table\" type=\"application/json\">\n{");
    meta(page, &command, out);
    functions(page, &tracks, out);
    threads(page, &tracks, out);
    table_of_parts(&parts, out);
    let lines = lines_of(page, &tracks);
    table_of_lines(&lines, out);
    out.text("}\n</script>\n<script>\n\"use strict\";\n");
    for script in SCRIPTS {
        out.text(script);
    }
    out.text("</script>\n");
    for (number, (_, _, part)) in parts.iter().enumerate() {
        out.text(&format!("<script id=\"p{number}\" type=\"text/plain\">"));
        out.text(&part.text);
        out.text("</script>\n");
        out.pass();
    }
    for (number, (_, part)) in lines.iter().enumerate() {
        out.text(&format!("<script id=\"l{number}\" type=\"text/plain\">"));
        out.text(&part.text);
        out.text("</script>\n");
        out.pass();
    }
    out.text("</body>\n</html>\n");
}

/// All parts of lines, with the places of their threads.
fn lines_of<'a>(page: &Page<'a>, tracks: &[(&StreamId, &Track)]) -> Vec<(usize, &'a Packed)> {
    let mut lines = Vec::new();
    for (thread, (id, _)) in tracks.iter().enumerate() {
        let its = page.lines.iter().filter(|(stream, _)| stream == *id);
        lines.extend(its.flat_map(|(_, parts)| parts.iter().map(|part| (thread, part))));
    }
    lines
}

/// Of each part of lines: thread, first start, last start.
fn table_of_lines<W: Write>(lines: &[(usize, &Packed)], out: &mut Output<W>) {
    let rows = lines
        .iter()
        .map(|(thread, part)| format!("[{thread},{},{}]", part.start_ns, part.end_ns));
    out.text(&format!(
        ",\"lines\":[{}]",
        rows.collect::<Vec<_>>().join(",")
    ));
}

fn pid_of(page: &Page<'_>, id: StreamId) -> u32 {
    let info = page.cx.names.dictionary().stream(id);
    info.map_or(0, |info| info.pid)
}

/// All parts with their thread and level, the coarsest levels of all threads first.
fn parts_of<'a>(tracks: &[(&StreamId, &'a Track)]) -> Vec<(usize, usize, &'a Packed)> {
    let mut parts = Vec::new();
    for (thread, (_, track)) in tracks.iter().enumerate() {
        for (level, packed) in track.levels.parts() {
            parts.extend(packed.iter().map(|part| (thread, level, part)));
        }
    }
    parts.sort_by_key(|(thread, level, _)| (std::cmp::Reverse(*level), *thread));
    parts
}

/// A string of JSON that can stand in a page.
fn safe(text: &str) -> String {
    json(text).replace('<', "\\u003c")
}

fn meta<W: Write>(page: &Page<'_>, command: &str, out: &mut Output<W>) {
    let header = page.cx.header;
    for (key, text) in [
        ("command", command),
        ("host", header.host.as_str()),
        ("cpu", header.cpu.as_str()),
        ("tool", header.tool_version.as_str()),
    ] {
        out.text(&format!("\"{key}\":{},", safe(text)));
    }
    let [calls, single, deep, unknown, hidden] = page.counts;
    let finest_ns = step_ns(page.finest);
    let (left_out, lines_left_out) = (page.notes_left_out, page.lines_left_out);
    // As milliseconds, which JavaScript can make a date of.
    let start_ms = header.start_unix_ns / 1_000_000;
    out.text(&format!(
        "\"startMs\":{start_ms},\"calls\":{calls},\"single\":{single},\"deep\":{deep},\"unknown\":{unknown},\
         \"hidden\":{hidden},\"finestNs\":{finest_ns},\"notesLeftOut\":{left_out},\"linesLeftOut\":{lines_left_out},\n\"notes\":["
    ));
    for (at, (ns, pid, text)) in page.notes.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        out.text(&format!("{comma}[{ns},{pid},{}]", safe(text)));
        out.pass();
    }
    out.text("],\n");
}

/// Marks and functions: name, module, colour, calls, total, own time, the longest call.
fn functions<W: Write>(page: &Page<'_>, tracks: &[(&StreamId, &Track)], out: &mut Output<W>) {
    let clock = page.cx.clock;
    let ran: HashMap<FunctionId, _> = page.stats.functions().collect();
    let mut own: HashMap<&str, u64> = HashMap::default();
    for (id, stats) in &ran {
        let sum = own.entry(page.cx.names.module(*id)).or_default();
        *sum = sum.saturating_add(stats.self_ticks().unwrap_or(0).saturating_add(stats.calls));
    }
    let mut modules: Vec<_> = own.into_iter().collect();
    modules.sort_by_key(|(module, own)| (std::cmp::Reverse(*own), *module));
    let index: HashMap<&str, usize> = modules.iter().enumerate().map(|(i, m)| (m.0, i)).collect();
    let thread_of: HashMap<u32, usize> = tracks
        .iter()
        .enumerate()
        .map(|(at, (id, _))| (id.0, at))
        .collect();
    let names: Vec<_> = modules.iter().map(|(module, _)| safe(module)).collect();
    out.text(&format!(
        "\"colours\":{COLOURS},\"modules\":[{}],\n\"functions\":[",
        names.join(",")
    ));
    let marks: Vec<_> = MARKS
        .iter()
        .map(|name| format!("[{}]", safe(name)))
        .collect();
    out.text(&marks.join(",\n"));
    for id in (0..page.cx.names.dictionary().functions.len() as u32).map(FunctionId) {
        let Some(stats) = ran.get(&id) else {
            out.text(",\n0");
            continue;
        };
        let name: String = page
            .cx
            .names
            .name(id)
            .chars()
            .take(MAX_NAME_CHARS)
            .collect();
        let module = index.get(page.cx.names.module(id)).copied().unwrap_or(0);
        let time = |ticks: Option<u64>| ticks.map_or(0, |ticks| clock.ns(ticks));
        let (total, own) = (time(stats.total_ticks()), time(stats.self_ticks()));
        out.text(&format!(
            ",\n[{},{module},{},{total},{own}",
            safe(&name),
            stats.calls
        ));
        let longest = page.longest.get(id.0 as usize).copied().unwrap_or_default();
        let stream = longest.stream.checked_sub(1);
        if let Some(thread) = stream.and_then(|stream| thread_of.get(&stream)) {
            out.text(&format!(
                ",{thread},{},{}",
                longest.start_ns, longest.total_ns
            ));
        }
        out.text("]");
        out.pass();
    }
    out.text("],\n");
}

fn threads<W: Write>(page: &Page<'_>, tracks: &[(&StreamId, &Track)], out: &mut Output<W>) {
    out.text("\"threads\":[");
    for (at, (id, track)) in tracks.iter().enumerate() {
        let comma = if at > 0 { ",\n" } else { "" };
        let info = page.cx.names.dictionary().stream(**id).cloned();
        let info = info.unwrap_or_default();
        out.text(&format!(
            "{comma}{{\"pid\":{},\"tid\":{},\"name\":{},\"execs\":{},\"start\":{},\"end\":{},\"rows\":{},\"calls\":{}}}",
            info.pid, info.tid, safe(&info.comm), info.execs, track.start_ns, track.end_ns, track.rows, track.calls
        ));
    }
    out.text("],\n");
}

/// Of each part: thread, step of its level, first start, last end, items.
fn table_of_parts<W: Write>(parts: &[(usize, usize, &Packed)], out: &mut Output<W>) {
    out.text("\"parts\":[");
    for (at, (thread, level, part)) in parts.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        out.text(&format!(
            "{comma}[{thread},{},{},{},{}]",
            step_ns(*level),
            part.start_ns,
            part.end_ns,
            part.items
        ));
        out.pass();
    }
    out.text("]");
}
