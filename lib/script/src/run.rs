//! The handlers of a script over a trace.
//!
//! Given what a replay tells in the order of time; calls the handlers. One that fails is called no
//! more: why, and how many events it missed, is told at the end. Must not know where the trace is,
//! nor where output goes.

mod absorbed;
mod chosen;
mod happenings;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::sync::Arc;

use rhai::{Dynamic, FnPtr, FuncArgs, ImmutableString};
use sptrace_render::acted::remark;
use sptrace_render::call_values::{Begun, Descriptions, Told};
use sptrace_render::{Call, Listener, Signal, SystemCalls};
use sptrace_trace::values::{self, Acted, Values};
use sptrace_trace::{
    Clock, Dictionary, ExitStatus, Frame, FrameFlags, FunctionId, Note, SYSTEM_CALLS, StreamId,
    StreamTotals, Visitor,
};
use sptrace_types::calls;
use sptrace_types::decode::types::Type;

use crate::descriptors::Descriptors;
use crate::draft::Wanted;
use crate::error::ScriptError;
use crate::event::{Book, Event, Facts, ProcessEvent, What};
use crate::load::Script;
use crate::sheets::Form;
use crate::words::sheets::print;

/// Times that intervals may pass.
const MOST_INTERVALS: u64 = 1_000_000;

/// A handler that failed.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// Why.
    pub error: ScriptError,
    /// Events that it was not told of, with the one at which it failed.
    pub missed: u64,
}

struct Live {
    function: FnPtr,
    wanted: Wanted,
    trouble: Option<Trouble>,
    /// By function: does it make calls that are wanted? None: all do.
    by: Option<Vec<bool>>,
    /// Of intervals: the next time.
    next_ns: u64,
}

/// Calls and processes that have ended.
#[derive(Default)]
struct Ended {
    calls: Vec<Call>,
    processes: Vec<(u64, u32, ExitStatus)>,
    signals: Vec<Signal>,
}

impl Listener for Ended {
    fn begins(&mut self, _: &Call) {}
    fn ended(&mut self, call: &Call) {
        self.calls.push(call.clone());
    }
    fn exited(&mut self, tsc: u64, tid: u32, status: ExitStatus) {
        self.processes.push((tsc, tid, status));
    }
    fn signal(&mut self, signal: &Signal) {
        self.signals.push(signal.clone());
    }
    fn is_finished(&self) -> bool {
        false
    }
}

/// A thread.
struct Thread {
    tid: u32,
    name: ImmutableString,
}

/// Tells a script's handlers of a trace.
pub struct Run<'a> {
    script: &'a Script,
    clock: Clock,
    dictionary: &'a Dictionary,
    book: Book,
    handlers: Vec<Live>,
    /// By function: the handlers that want its calls.
    of_function: Vec<Vec<usize>>,
    /// And those that want their beginnings.
    of_beginning: Vec<Vec<usize>>,
    /// Those that want system calls.
    of_system_calls: Vec<usize>,
    has_intervals: bool,
    is_system_call: Vec<bool>,
    stacks: HashMap<StreamId, Vec<FunctionId>>,
    /// What open calls have brought with them, as deep as the stacks.
    brought: HashMap<StreamId, Vec<Option<Begun>>>,
    /// What payloads have done to open calls, by how many are open.
    acted: HashMap<(StreamId, usize), Acted>,
    descriptions: Arc<Descriptions>,
    /// Streams of a thread that have not ended.
    streams_left: HashMap<u32, usize>,
    counted: Vec<(u32, sptrace_trace::Counted)>,
    threads: HashMap<StreamId, Thread>,
    streams_of: HashMap<u32, StreamId>,
    parents: HashMap<u32, u32>,
    calls: Option<SystemCalls<'a, Ended>>,
    descriptors: Descriptors,
    processes: BTreeMap<(u64, usize), ProcessEvent>,
    /// So far: what is told of one moment is told in the order of its coming.
    processes_kept: usize,
    exited: HashSet<u32>,
    serial: u64,
    intervals: u64,
}

impl<'a> Run<'a> {
    /// Of a trace with this dictionary; what is printed goes to `out`. `files`: by function the
    /// file of the source in which it begins, if the script asks for that.
    pub fn new(
        script: &'a Script,
        (dictionary, files): (&'a Dictionary, &[Option<String>]),
        clock: Clock,
        (form, out): (Form, Box<dyn Write + Send>),
    ) -> Self {
        begin_output(script, form, out);
        let live = |handler: &crate::draft::Handler| Live {
            function: handler.function.clone(),
            wanted: handler.wanted.clone(),
            trouble: None,
            by: None,
            next_ns: match handler.wanted {
                Wanted::Interval(ns) => ns,
                _ => 0,
            },
        };
        let handlers: Vec<_> = script.handlers.iter().map(live).collect();
        let is_module = |function: &sptrace_trace::Function| {
            let module = dictionary.module(function.module);
            module.is_some_and(|m| m.path == SYSTEM_CALLS)
        };
        let mut run = Self {
            script,
            clock,
            dictionary,
            book: Book::of(dictionary),
            of_function: Vec::new(),
            of_beginning: Vec::new(),
            of_system_calls: indexes(&handlers, |wanted| {
                matches!(wanted, Wanted::All | Wanted::SystemCalls(_))
            }),
            has_intervals: handlers
                .iter()
                .any(|h| matches!(h.wanted, Wanted::Interval(_))),
            handlers,
            is_system_call: dictionary.functions.iter().map(is_module).collect(),
            stacks: HashMap::new(),
            brought: HashMap::new(),
            acted: HashMap::new(),
            descriptions: Arc::new(Descriptions::of(dictionary)),
            streams_left: HashMap::new(),
            counted: Vec::new(),
            threads: HashMap::new(),
            streams_of: HashMap::new(),
            parents: HashMap::new(),
            calls: Some(SystemCalls::new(dictionary, Ended::default())),
            descriptors: Descriptors::default(),
            processes: BTreeMap::new(),
            processes_kept: 0,
            exited: HashSet::new(),
            serial: 0,
            intervals: 0,
        };
        run.choose_functions(files);
        run.read_streams();
        run
    }

    /// Calls a handler, unless it has failed.
    fn tell(&mut self, at: usize, arguments: impl FuncArgs) {
        let Some(handler) = self.handlers.get_mut(at) else {
            return;
        };
        if let Some(trouble) = &mut handler.trouble {
            trouble.missed += 1;
            return;
        }
        let Script { engine, ast, .. } = self.script;
        if let Err(error) = handler.function.call::<Dynamic>(engine, ast, arguments) {
            handler.trouble = Some(Trouble {
                error: self.script.explain_in(&handler.function, &error),
                missed: 1,
            });
        }
    }

    /// Time has come so far.
    fn come_to(&mut self, tsc: u64) {
        let now_ns = self.clock.since_start_ns(tsc);
        while let Some(entry) = self.processes.first_entry().filter(|e| e.key().0 <= tsc) {
            let process = entry.remove();
            self.tell_process(&process);
        }
        if self.has_intervals {
            self.pass_intervals(now_ns);
        }
    }

    fn pass_intervals(&mut self, now_ns: u64) {
        for at in 0..self.handlers.len() {
            while let Some(Live {
                wanted: Wanted::Interval(ns),
                next_ns,
                ..
            }) = self.handlers.get_mut(at)
                && *next_ns <= now_ns
                && self.intervals < MOST_INTERVALS
            {
                let now = *next_ns;
                *next_ns += *ns;
                self.intervals += 1;
                self.script.shared.lock().now_ns = now;
                self.tell(at, ());
            }
        }
    }

    fn names_of(&self, function: Option<FunctionId>) -> (ImmutableString, ImmutableString) {
        let names = function.and_then(|id| self.book.names.get(id.0 as usize));
        names.cloned().unwrap_or_default()
    }

    /// Makes what an event's own time knows available, and counts it.
    fn begin_event(&mut self, stream: Option<StreamId>, now_tsc: u64) -> u64 {
        self.serial += 1;
        let open = stream.and_then(|stream| self.stacks.get(&stream));
        let open = open.map_or(&[][..], Vec::as_slice);
        let mut draft = self.script.shared.lock();
        draft.serial = self.serial;
        draft.now_ns = self.clock.since_start_ns(now_tsc);
        draft.stack.clear();
        draft.stack.extend(open.iter().map(|id| id.0 as usize));
        self.serial
    }

    fn is_system_call(&self, id: FunctionId) -> bool {
        self.is_system_call.get(id.0 as usize) == Some(&true)
    }

    fn caller(&self, stream: Option<StreamId>) -> Option<FunctionId> {
        let open = stream.and_then(|stream| self.stacks.get(&stream))?;
        open.iter()
            .rev()
            .copied()
            .find(|id| !self.is_system_call(*id))
    }

    /// A call begins, or has ended with what it has brought; the stack is that of its caller.
    fn tell_function(&mut self, stream: StreamId, frame: &Frame, end: Option<Ending>) {
        let has_ended = end.is_some();
        let (brought, acted) = end.unwrap_or_default();
        let wanted = match has_ended {
            true => &self.of_function,
            false => &self.of_beginning,
        };
        let wanted = wanted.get(frame.function.0 as usize);
        let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()) else {
            return;
        };
        let wanted = self.made_by(self.caller(Some(stream)), wanted);
        if wanted.is_empty() {
            return;
        }
        // Until it has ended, its end is its start.
        let serial = self.begin_event(Some(stream), frame.end_tsc);
        let (name, module) = self.names_of(Some(frame.function));
        let (caller, caller_module) = self.names_of(self.caller(Some(stream)));
        let thread = self.threads.get(&stream);
        let info = self.dictionary.stream(stream);
        let event = Event(Arc::new(Facts {
            what: What::Function(brought.map(Box::new), self.descriptions.clone()),
            injected: acted.as_ref().map_or_else(Default::default, injected),
            name,
            module,
            caller,
            caller_module,
            thread: thread.map(|t| t.name.clone()).unwrap_or_default(),
            pid: info.map_or(0, |info| info.pid),
            tid: thread.map_or(0, |t| t.tid),
            depth: frame.depth,
            start_ns: self.clock.since_start_ns(frame.start_tsc),
            elapsed_ns: frame
                .total_ticks
                .filter(|_| has_ended)
                .map(|ticks| self.clock.ns(ticks)),
            self_ns: frame
                .self_ticks
                .filter(|_| has_ended)
                .map(|ticks| self.clock.ns(ticks)),
            end: end_of(frame.flags, has_ended),
            fd_path: ImmutableString::default(),
            serial,
        }));
        for at in wanted {
            self.tell(at, (event.clone(),));
        }
    }

    fn system_call_ended(&mut self, call: Call) {
        let stream = self.streams_of.get(&call.tid).copied();
        let parent = self.parents.get(&call.pid).copied();
        let wanted: Vec<_> = self
            .of_system_calls
            .iter()
            .copied()
            .filter(|at| match self.handlers.get(*at).map(|h| &h.wanted) {
                Some(Wanted::SystemCalls(selection)) => selection.contains(call.number),
                _ => true,
            })
            .collect();
        if !wanted.is_empty() {
            let end = call.end_tsc.unwrap_or(call.start_tsc);
            let serial = self.begin_event(stream, end);
            let known = calls::by_number(call.number).map(|known| known.of(&call.args).0);
            let has_fd = known.is_some_and(|types| matches!(types.first(), Some(Type::Fd)));
            let fd = i64::from(call.args[0] as i32);
            let fd_path = match has_fd {
                true => self.descriptors.name(call.pid, parent, fd),
                false => ImmutableString::default(),
            };
            let (caller, caller_module) = self.names_of(self.caller(stream));
            let thread = stream.and_then(|stream| self.threads.get(&stream));
            let elapsed = call.end_tsc.map(|end| end.saturating_sub(call.start_tsc));
            let elapsed_ns = elapsed.map(|ticks| self.clock.ns(ticks));
            let event = Event(Arc::new(Facts {
                name: sptrace_render::name_of(call.number).into(),
                module: SYSTEM_CALLS.into(),
                caller,
                caller_module,
                thread: thread.map(|t| t.name.clone()).unwrap_or_default(),
                pid: call.pid,
                tid: call.tid,
                depth: stream
                    .and_then(|s| self.stacks.get(&s))
                    .map_or(0, |s| s.len() as u32),
                start_ns: self.clock.since_start_ns(call.start_tsc),
                elapsed_ns,
                self_ns: elapsed_ns,
                end: if call.result.is_some() { "return" } else { "?" },
                fd_path,
                injected: call.acted.as_ref().map_or_else(Default::default, injected),
                serial,
                what: What::SystemCall(Box::new(call.clone())),
            }));
            for at in wanted {
                self.tell(at, (event.clone(),));
            }
        }
        self.descriptors.ended(&call, parent);
    }

    fn take_ended(&mut self) {
        let ended = self.calls.as_mut().map(SystemCalls::listener);
        let ended = ended.map(std::mem::take).unwrap_or_default();
        self.tell_ended(ended);
    }

    /// Calls the last handlers, prints what was not printed, and says what went wrong.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> std::io::Result<Vec<Trouble>> {
        if let Some(calls) = self.calls.take() {
            let ended = calls.finish();
            self.tell_ended(ended);
        }
        let end = self.processes.last_key_value().map(|(at, _)| at.0);
        if let Some(end) = end {
            self.come_to(end);
        }
        let shared = self.script.shared.clone();
        self.tell_counted();
        for at in indexes(&self.handlers, |w| matches!(w, Wanted::End)) {
            self.tell(at, ());
        }
        let sheets = shared.lock().sheets.clone();
        let unprinted = sheets.iter().filter(|sheet| !sheet.lock().has_printed);
        for sheet in unprinted {
            if !sheet.lock().grid().rows.is_empty() {
                print(&shared, sheet);
            }
        }
        self.say_what_stores_left_out();
        let troubles = self
            .handlers
            .into_iter()
            .filter_map(|h| h.trouble)
            .collect();
        let mut draft = shared.lock();
        let out = draft.out.take();
        match draft.out_error.take() {
            Some(error) => Err(error),
            None => out.map_or(Ok(()), |mut out| out.flush()).map(|()| troubles),
        }
    }
}

/// What the script prints goes there, and what it has printed already.
fn begin_output(script: &Script, form: Form, out: Box<dyn Write + Send>) {
    let mut draft = script.shared.lock();
    draft.form = form;
    draft.out = Some(out);
    let early = std::mem::take(&mut draft.early);
    if form.has_lines() && !early.is_empty() {
        draft.has_printed = true;
        draft.write(&early);
    }
}

fn end_of(flags: FrameFlags, has_ended: bool) -> &'static str {
    match flags {
        _ if !has_ended => "?",
        flags if flags.until_process_end => "process",
        flags if flags.unwound => "jump",
        flags if flags.end_unseen => "?",
        _ => "return",
    }
}

fn indexes(handlers: &[Live], is_wanted: impl Fn(&Wanted) -> bool) -> Vec<usize> {
    let all = handlers.iter().enumerate();
    let chosen = all.filter(|(_, handler)| is_wanted(&handler.wanted));
    chosen.map(|(at, _)| at).collect()
}

/// What a call has brought, and what a payload has done to it.
type Ending = (Option<Begun>, Option<Acted>);

/// What was done to a call, in words.
fn injected(acted: &Acted) -> ImmutableString {
    let remark = remark(acted);
    remark.strip_prefix("INJECTED: ").unwrap_or(&remark).into()
}

impl Visitor for Run<'_> {
    fn note(&mut self, note: &Note) {
        if let Note::Tables { tables, .. } = note {
            self.absorb(tables);
        }
        if let Some(calls) = &mut self.calls {
            calls.note(note);
        }
        self.keep_note(note);
    }

    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        self.come_to(frame.start_tsc);
        if !frame.flags.begin_unseen {
            self.tell_function(stream, frame, None);
        }
        self.stacks.entry(stream).or_default().push(frame.function);
        self.brought.entry(stream).or_default().push(None);
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        self.come_to(frame.end_tsc);
        let open = self.stacks.entry(stream).or_default();
        let acted = self.acted.remove(&(stream, open.len()));
        open.pop();
        let brought = self.brought.entry(stream).or_default().pop().flatten();
        // What ran already, or in the parent of a fork, is no call of this recording.
        if !frame.flags.begin_unseen {
            self.tell_function(stream, frame, Some((brought, acted)));
        }
    }

    fn leave_hidden(&mut self, stream: StreamId, _: &Frame) {
        self.stacks.entry(stream).or_default().pop();
        self.brought.entry(stream).or_default().pop();
    }

    fn values(&mut self, stream: StreamId, tsc: u64, bytes: &[u8]) {
        self.come_to(tsc);
        if let Some(info) = self.dictionary.stream(stream) {
            // A thread that has executed another program goes on in another stream.
            self.streams_of.insert(info.tid, stream);
        }
        if let Ok(values) = Values::read(bytes)
            && let Some(told) = Told::of(&values)
        {
            let open = self.brought.entry(stream).or_default();
            told.put(&mut open.iter_mut().rev());
            return;
        }
        if let Ok(values) = Values::read(bytes)
            && let values::What::Acted(acted) = values.what
            && !acted.is_of_kernel
        {
            let open = self.stacks.get(&stream).map_or(0, Vec::len);
            self.acted.insert((stream, open), acted);
            return;
        }
        if let Some(calls) = &mut self.calls {
            calls.values(stream, tsc, bytes);
        }
        self.take_ended();
    }

    fn end(&mut self, stream: StreamId, totals: &StreamTotals) {
        self.brought.remove(&stream);
        self.stream_ends(stream, totals.last_tsc);
    }

    fn is_finished(&self) -> bool {
        self.script.shared.lock().out_error.is_some()
    }
}
