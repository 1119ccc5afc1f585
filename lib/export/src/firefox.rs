//! The processed profile format of the Firefox Profiler, version 55 (newer viewers upgrade it).
//!
//! Each time a thread's stack changes is a sample of the stack that begins there; its weight is how
//! long it stays (weight type `tracing-ms`), so the call tree has own times and the stack chart the
//! calls as they were. Times have the waits for sptrace in them. Samples are held until the end,
//! four words each, as the format has one column after the other: the viewer's limit bounds them.
//! So the size of the file is estimated as they come.

use crate::output::{Output, json};
use crate::{Context, Exporter, Written};
use rustc_hash::FxHashMap;
use sptrace_trace::{Frame, FunctionId, SourceLine, StreamId, StreamInfo, StreamTotals, Visitor};
use std::collections::BTreeMap;
use std::io::{self, Write};

const NO_STACK: u32 = u32::MAX;
const PREPROCESSED_PROFILE_VERSION: u64 = 55;
/// What is written of the trace, and of each thread, beside its tables.
const META_BYTES: u64 = 1000;
const THREAD_BYTES: u64 = 1500;
/// What is written of a function beside its names and numbers.
const FUNCTION_BYTES: u64 = 60;
/// A sample's point, six digits and comma in two columns, the zero before one of the points, and
/// the comma behind its stack.
const SAMPLE_BYTES: u64 = 18;

/// One thread's part.
#[derive(Default)]
struct Thread {
    /// Of each stack: the one below, and its innermost function's place in `functions`.
    stacks: Vec<(u32, u32)>,
    known_stacks: FxHashMap<(u32, FunctionId), u32>,
    functions: Vec<FunctionId>,
    known_functions: FxHashMap<FunctionId, u32>,
    /// When a stack begins, and which.
    samples: Vec<(u64, u32)>,
    open: Vec<u32>,
    last_tsc: u64,
}

impl Thread {
    /// The stack of a function upon another; how many bytes are to be written because of it.
    fn stack(&mut self, below: u32, function: FunctionId, cx: &Context<'_>) -> (u32, u64) {
        let next = self.stacks.len() as u32;
        let stack = *self.known_stacks.entry((below, function)).or_insert(next);
        if stack != next {
            return (stack, 0);
        }
        let next = self.functions.len() as u32;
        let number = *self.known_functions.entry(function).or_insert(next);
        let mut bytes = digits(below.into()) + digits(number.into()) + 2;
        if number == next {
            self.functions.push(function);
            bytes += FUNCTION_BYTES + cx.names.name(function).len() as u64;
        }
        self.stacks.push((below, number));
        (stack, bytes)
    }

    /// The innermost frame changed; how many bytes are to be written because of it.
    fn sample(&mut self, tsc: u64, cx: &Context<'_>) -> u64 {
        self.last_tsc = self.last_tsc.max(tsc);
        let stack = self.open.last().copied().unwrap_or(NO_STACK);
        match self.samples.last_mut() {
            // What took no time is in no sample.
            Some(last) if last.0 == self.last_tsc => {
                last.1 = stack;
                0
            }
            _ => {
                self.samples.push((self.last_tsc, stack));
                let begin_ms = cx.clock.since_start_ns(self.last_tsc) / 1_000_000;
                SAMPLE_BYTES + digits(stack.into()) + digits(begin_ms)
            }
        }
    }
}

/// How many a number has.
fn digits(number: u64) -> u64 {
    u64::from(number.checked_ilog10().unwrap_or(0)) + 1
}

/// The format.
pub struct Firefox<'a, W> {
    cx: &'a Context<'a>,
    threads: BTreeMap<StreamId, Thread>,
    out: Output<W>,
    calls: u64,
    /// To be written, about.
    bytes: u64,
    is_cut: bool,
}

impl<'a, W: Write> Firefox<'a, W> {
    /// Nothing told yet.
    pub fn new(cx: &'a Context<'a>, out: W) -> Self {
        Self {
            cx,
            threads: BTreeMap::new(),
            out: Output::new(out),
            calls: 0,
            bytes: META_BYTES,
            is_cut: false,
        }
    }

    fn pop(&mut self, stream: StreamId, frame: &Frame) {
        if let Some(thread) = self.threads.get_mut(&stream) {
            thread.open.pop();
            self.bytes += thread.sample(frame.end_tsc, self.cx);
        }
    }
}

impl<W: Write> Visitor for Firefox<'_, W> {
    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        self.is_cut |= self.cx.is_enough(self.calls, self.bytes);
        if self.is_cut {
            return;
        }
        self.calls += 1;
        let thread = self.threads.entry(stream).or_insert_with(|| {
            self.bytes += THREAD_BYTES;
            Thread::default()
        });
        let below = thread.open.last().copied().unwrap_or(NO_STACK);
        let (stack, bytes) = thread.stack(below, frame.function, self.cx);
        thread.open.push(stack);
        self.bytes += bytes + thread.sample(frame.start_tsc, self.cx);
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        if !self.is_cut {
            self.pop(stream, frame);
        }
    }

    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame) {
        if !self.is_cut {
            self.calls -= 1;
            self.pop(stream, frame);
        }
    }

    fn end(&mut self, stream: StreamId, _: &StreamTotals) {
        if let Some(thread) = self.threads.get_mut(&stream) {
            thread.known_stacks = FxHashMap::default();
        }
    }

    fn is_finished(&self) -> bool {
        self.is_cut
    }
}

impl<W: Write> Exporter for Firefox<'_, W> {
    fn finish(mut self) -> io::Result<Written> {
        let (cx, out) = (self.cx, &mut self.out);
        write_meta(cx, out);
        out.text(",\"threads\":[");
        let nameless = StreamInfo::default();
        for (at, (id, thread)) in self.threads.iter().enumerate() {
            let info = cx.names.dictionary().stream(*id).unwrap_or(&nameless);
            out.text(if at > 0 { ",\n" } else { "\n" });
            write_thread(cx, info, thread, out);
        }
        out.text("\n]}\n");
        let bytes = self.out.bytes_so_far().max(self.bytes);
        self.out.finish()?;
        Ok(Written {
            calls: self.calls,
            is_cut: self.is_cut,
            bytes,
            ..Written::default()
        })
    }
}

fn write_meta<W: Write>(cx: &Context<'_>, out: &mut Output<W>) {
    let product = json(&cx.header.command.join(" "));
    out.text("{\"meta\":{\"categories\":[{\"name\":\"Other\",\"color\":\"grey\",\"subcategories\":[\"Other\"]},");
    out.text(
        "{\"name\":\"Traced\",\"color\":\"blue\",\"subcategories\":[\"Other\"]}],\"debug\":false,",
    );
    out.text(
        "\"extensions\":{\"length\":0,\"baseURL\":[],\"id\":[],\"name\":[]},\"interval\":0.001,",
    );
    out.text("\"preprocessedProfileVersion\":");
    out.number(PREPROCESSED_PROFILE_VERSION);
    out.text(",\"processType\":0,\"product\":");
    out.text(&product);
    out.text(",\"oscpu\":\"Linux\",\"sampleUnits\":{\"time\":\"ms\",\"eventDelay\":\"ms\",\"threadCPUDelta\":\"\u{b5}s\"},");
    out.text("\"startTime\":");
    out.millis(cx.header.start_unix_ns);
    out.text(
        ",\"symbolicated\":true,\"stackwalk\":1,\"version\":24,\"usesOnlyOneStackType\":true,",
    );
    out.text("\"sourceCodeIsNotOnSearchfox\":true,\"markerSchema\":[]},\"libs\":[],\"pages\":[],");
    out.text("\"profilerOverhead\":[],\"counters\":[]");
}

fn write_thread<W: Write>(
    cx: &Context<'_>,
    info: &StreamInfo,
    thread: &Thread,
    out: &mut Output<W>,
) {
    let (functions, stacks) = (&thread.functions, &thread.stacks);
    write_frames(functions, out);
    write_functions(cx, functions, out);
    out.text(&format!("\"stackTable\":{{\"length\":{}", stacks.len()));
    column("prefix", stacks, |(below, _)| or_null(*below), out);
    column("frame", stacks, |(_, function)| function.to_string(), out);
    out.text("},");
    write_samples(cx, thread, out);
    write_rest(cx, info, thread, out);
}

fn always<T>(text: &'static str) -> impl Fn(&T) -> String {
    move |_| text.to_owned()
}

fn write_frames<W: Write>(functions: &[FunctionId], out: &mut Output<W>) {
    let length = functions.len();
    out.text(&format!("{{\"frameTable\":{{\"length\":{length}"));
    column("address", functions, always("-1"), out);
    column("inlineDepth", functions, always("0"), out);
    column("category", functions, always("1"), out);
    column("subcategory", functions, always("0"), out);
    let numbers: Vec<u32> = (0..length as u32).collect();
    column("func", &numbers, u32::to_string, out);
    column("nativeSymbol", functions, always("null"), out);
    column("innerWindowID", functions, always("0"), out);
    column("line", functions, always("null"), out);
    column("column", functions, always("null"), out);
    out.text("},");
}

/// Functions, their modules, and the names of both.
fn write_functions<W: Write>(cx: &Context<'_>, functions: &[FunctionId], out: &mut Output<W>) {
    let length = functions.len();
    out.text(&format!("\"funcTable\":{{\"length\":{length}"));
    let numbers: Vec<u32> = (0..length as u32).collect();
    column("name", &numbers, u32::to_string, out);
    column("isJS", functions, always("false"), out);
    column("relevantForJS", functions, always("false"), out);
    let mut modules: Vec<&str> = functions.iter().map(|id| cx.names.module(*id)).collect();
    let of_function = modules.clone();
    modules.sort_unstable();
    modules.dedup();
    let resource = |module: &&str| modules.binary_search(module).unwrap_or(0).to_string();
    column("resource", &of_function, resource, out);
    let line = |id: &FunctionId| cx.names.source(*id);
    let mut files: Vec<&str> = functions.iter().filter_map(line).map(file_of).collect();
    files.sort_unstable();
    files.dedup();
    // Names of functions come first in the table of strings, then those of modules, then files.
    let count = modules.len();
    let file = |id: &FunctionId| match line(id) {
        Some(line) => {
            let at = files.binary_search(&file_of(line)).unwrap_or(0);
            (length + count + at).to_string()
        }
        None => "null".to_owned(),
    };
    column("fileName", functions, file, out);
    let number = |id: &FunctionId| line(id).map_or("null".to_owned(), |l| l.line.to_string());
    column("lineNumber", functions, number, out);
    column("columnNumber", functions, always("null"), out);
    out.text(&format!("}},\"resourceTable\":{{\"length\":{count}"));
    column("lib", &modules, always("null"), out);
    let name = |module: &&str| (length + modules.binary_search(module).unwrap_or(0)).to_string();
    column("name", &modules, name, out);
    column("host", &modules, always("null"), out);
    column("type", &modules, always("1"), out);
    out.text("},\"stringArray\":[");
    let names = functions.iter().map(|id| cx.names.name(*id));
    let texts = names
        .chain(modules.iter().copied())
        .chain(files.iter().copied());
    list(texts, json, out);
    out.text("],");
}

fn file_of(line: &SourceLine) -> &str {
    &line.file
}

fn write_samples<W: Write>(cx: &Context<'_>, thread: &Thread, out: &mut Output<W>) {
    let samples = &thread.samples;
    let begin_ns = |(tsc, _): &(u64, u32)| cx.clock.since_start_ns(*tsc);
    out.text(&format!(
        "\"samples\":{{\"length\":{},\"weightType\":\"tracing-ms\"",
        samples.len()
    ));
    column("stack", samples, |(_, stack)| or_null(*stack), out);
    out.text(",\"time\":[");
    for (at, sample) in samples.iter().enumerate() {
        out.text(if at > 0 { "," } else { "" });
        out.millis(begin_ns(sample));
        out.pass();
    }
    out.text("],\"weight\":[");
    let last_ns = cx.clock.since_start_ns(thread.last_tsc);
    for (at, sample) in samples.iter().enumerate() {
        let end_ns = samples.get(at + 1).map_or(last_ns, begin_ns);
        out.text(if at > 0 { "," } else { "" });
        match sample.1 {
            NO_STACK => out.text("0"),
            _ => out.millis(end_ns.saturating_sub(begin_ns(sample))),
        }
        out.pass();
    }
    out.text("]},");
}

fn write_rest<W: Write>(cx: &Context<'_>, info: &StreamInfo, thread: &Thread, out: &mut Output<W>) {
    let (pid, tid, name) = (info.pid, info.tid, json(&info.comm));
    let first = thread.samples.first().map_or(0, |sample| sample.0);
    out.text("\"markers\":{\"length\":0,\"category\":[],\"data\":[],\"endTime\":[],\"name\":[],");
    out.text("\"phase\":[],\"startTime\":[]},\"nativeSymbols\":{\"length\":0,\"address\":[],");
    out.text("\"functionSize\":[],\"libIndex\":[],\"name\":[]},\"pausedRanges\":[],");
    out.text(&format!(
        "\"name\":{name},\"isMainThread\":{},\"pid\":\"{pid}\",\"tid\":{tid},\"processName\":{name},",
        pid == tid
    ));
    out.text("\"processType\":\"default\",\"processStartupTime\":0,\"processShutdownTime\":null,");
    out.text("\"registerTime\":");
    out.millis(cx.clock.since_start_ns(first));
    out.text(",\"unregisterTime\":null,\"showMarkersInTimeline\":false}");
}

fn or_null(stack: u32) -> String {
    match stack {
        NO_STACK => "null".to_owned(),
        stack => stack.to_string(),
    }
}

fn column<T, W: Write>(name: &str, rows: &[T], cell: impl Fn(&T) -> String, out: &mut Output<W>) {
    out.text(",\"");
    out.text(name);
    out.text("\":[");
    list(rows.iter(), cell, out);
    out.text("]");
}

fn list<T, W: Write>(
    items: impl Iterator<Item = T>,
    text: impl Fn(T) -> String,
    out: &mut Output<W>,
) {
    for (at, item) in items.enumerate() {
        out.text(if at > 0 { "," } else { "" });
        out.text(&text(item));
        out.pass();
    }
}
