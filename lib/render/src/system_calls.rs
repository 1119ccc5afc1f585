//! The system calls of a trace, put together: what a call began with, and what it returned.
//!
//! Given what a replay tells, or a recording while it is made, in the order of time; tells a
//! [`Listener`] of calls that begin and end, and of processes. A call that did not return has ended
//! when its thread's next one begins, when its process executes another program (a successful
//! execve) or ends.
//!
//! Must not know how a call is shown.

use std::collections::{BTreeMap, HashMap};

use sptrace_trace::values::{UNKNOWN_NUMBER, Values, What};
use sptrace_trace::{Dictionary, ExitStatus, Frame, FunctionId, Note, StreamId, Visitor};
use sptrace_types::decode::memory::{Captured, Chunk, Memory};
use sptrace_types::decode::types::Phase;
use sptrace_types::syscalls;

use crate::interrupted::{Context, Interrupted};
use crate::listener::{Call, Listener, Signal};
use crate::time_limits::TimeLimits;

const EXECVE: u32 = 59;
const EXIT: u32 = 60;
const WAIT4: u32 = 61;
const EXIT_GROUP: u32 = 231;
const EXECVEAT: u32 = 322;
/// Calls of a thread inside of each other, at most.
const MOST_NESTED: usize = 64;

/// Puts calls together.
pub struct Calls<L> {
    /// What happened to processes and was not told yet, by time.
    notes: BTreeMap<(u64, usize), Note>,
    /// Notes so far.
    noted: usize,
    /// Calls that have begun, by thread, the innermost last: a handler may run inside of one.
    open: HashMap<u32, Vec<Open>>,
    /// Threads that have shown a call and not ended, by process.
    threads: BTreeMap<u32, Vec<u32>>,
    /// The functions that the next call is made in.
    stack: Vec<FunctionId>,
    /// Sockets that wait for a time.
    limits: TimeLimits,
    /// Who is told.
    pub listener: L,
}

/// A call that has begun.
struct Open {
    call: Call,
    /// Its end has been told, since a signal has interrupted it; its handler may still run.
    interrupted: Option<Interrupted>,
}

/// The thread of which values are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Teller {
    /// Its process.
    pub pid: u32,
    /// Its own number.
    pub tid: u32,
    /// The process that made its process.
    pub ppid: u32,
}

impl<L: Listener> Calls<L> {
    /// Nothing told yet.
    pub fn new(listener: L) -> Self {
        Self {
            notes: BTreeMap::new(),
            noted: 0,
            open: HashMap::new(),
            threads: BTreeMap::new(),
            stack: Vec::new(),
            limits: TimeLimits::default(),
            listener,
        }
    }

    /// Tells of what happened to processes up to a time; afterwards, of calls that are still open.
    pub fn finish(mut self) -> L {
        self.come_to(u64::MAX);
        let open = self.open.drain().flat_map(|(_, calls)| calls);
        let mut left: Vec<_> = open.filter(|open| open.interrupted.is_none()).collect();
        left.sort_by_key(|open| open.call.start_tsc);
        left.iter().for_each(|open| self.listener.ended(&open.call));
        self.listener
    }

    /// Something has happened, or will, to a process.
    pub fn note(&mut self, note: &Note) {
        if let Note::Exec { tsc, .. }
        | Note::ProcessExit { tsc, .. }
        | Note::Descriptors { tsc, .. }
        | Note::Tables { tsc, .. } = note
        {
            self.notes.insert((*tsc, self.noted), note.clone());
            self.noted += 1;
        }
    }

    /// A thread has told what a call brought with it ([`Values`]).
    pub fn values(&mut self, of: Teller, tsc: u64, bytes: &[u8]) {
        let Ok(values) = Values::read(bytes) else {
            return;
        };
        self.come_to(tsc);
        // A vfork(2) child, in its parent's memory.
        let of = match values.thread {
            0 => of,
            tid if tid == of.tid => of,
            tid => Teller {
                pid: tid,
                tid,
                ppid: of.pid,
            },
        };
        let captured = Captured {
            chunks: chunks(&values),
        };
        match values.what {
            What::Begins(args) => {
                let stack = std::mem::take(&mut self.stack);
                self.begin(Call {
                    number: values.number,
                    tid: of.tid,
                    pid: of.pid,
                    ppid: of.ppid,
                    start_tsc: tsc,
                    args,
                    result: None,
                    end_tsc: None,
                    captured,
                    acted: None,
                    stack,
                });
            }
            What::Returned(result) | What::ReturnedLate(result) => {
                if let Some(place) = self.place(of.tid, values.number) {
                    let calls = self.open.get_mut(&of.tid);
                    if let Some(open) = calls.and_then(|calls| calls.get_mut(place)) {
                        open.call.captured.chunks.extend(captured.chunks);
                    }
                    self.end(of.tid, place, tsc, Some(result));
                }
            }
            What::Signal => self.signal(of, tsc, &values),
            What::Acted(acted) if acted.is_of_kernel => {
                let calls = self.open.get_mut(&of.tid);
                if let Some(open) = calls.and_then(|calls| calls.last_mut()) {
                    open.call.acted = Some(acted);
                }
            }
            // Of functions.
            What::Called(_) | What::Answered { .. } | What::Acted(_) => {}
            What::Left => {
                if let Some(place) = self.place(of.tid, values.number) {
                    self.end(of.tid, place, tsc, None);
                }
            }
        }
    }

    /// Where the innermost open call of this number is; of an unknown one, the innermost.
    fn place(&self, tid: u32, number: u32) -> Option<usize> {
        let is_it = |open: &Open| number == UNKNOWN_NUMBER || open.call.number == number;
        self.open.get(&tid)?.iter().rposition(is_it)
    }

    /// Tells of what happened to processes up to a time.
    pub fn come_to(&mut self, tsc: u64) {
        while let Some(entry) = self.notes.first_entry().filter(|e| e.key().0 <= tsc) {
            match entry.remove() {
                Note::Exec { pid, tsc, .. } => self.executed(pid, tsc),
                Note::ProcessExit { pid, tsc, status } => self.process_exited(pid, tsc, status),
                Note::Descriptors {
                    pid, folder, open, ..
                } => self.listener.listed(pid, &folder, &open),
                _ => {}
            }
        }
    }

    fn executed(&mut self, pid: u32, tsc: u64) {
        let is_exec = |open: &Open| matches!(open.call.number, EXECVE | EXECVEAT);
        let open = self
            .open
            .get(&pid)
            .and_then(|calls| calls.iter().rposition(is_exec));
        if let Some(place) = open {
            self.end(pid, place, tsc, Some(0));
        }
        // A new program has no handler that could go back into a call.
        self.forget(pid);
    }

    fn process_exited(&mut self, pid: u32, tsc: u64, status: ExitStatus) {
        // Told by its own call already, or never seen.
        let Some(mut threads) = self.threads.remove(&pid) else {
            return;
        };
        threads.retain(|tid| *tid != pid);
        threads.push(pid);
        for tid in threads {
            self.forget(tid);
            self.listener.exited(tsc, tid, status);
        }
    }

    /// The calls of a thread that are open have ended unseen.
    fn forget(&mut self, tid: u32) {
        for open in self.open.remove(&tid).unwrap_or_default().iter().rev() {
            if open.interrupted.is_none() {
                self.listener.ended(&open.call);
            }
        }
    }

    /// A signal is delivered to a handler.
    fn signal(&mut self, of: Teller, tsc: u64, values: &Values<'_>) {
        if let Some(context) = Context::of(values) {
            let made = chunks(values).into_iter();
            let made = made.filter(|chunk| chunk.phase != Phase::Entry);
            self.interrupt(of.tid, tsc, context, made.collect());
        }
        self.listener.signal(&Signal {
            number: values.number,
            tid: of.tid,
            pid: of.pid,
            tsc,
            info: info_of(values),
        });
    }

    /// A signal is delivered in a thread, whose handler will go back to `context`. If it has
    /// interrupted the innermost call, that has ended before the handler, as a tracer sees it, and
    /// has `made` this memory.
    fn interrupt(&mut self, tid: u32, tsc: u64, context: Context, made: Vec<Chunk>) {
        let calls = self.open.get_mut(&tid);
        let Some(Open { call, interrupted }) = calls.and_then(|calls| calls.last_mut()) else {
            return;
        };
        let new = |context| Interrupted {
            context,
            since_tsc: tsc,
        };
        if let Some(before) = interrupted {
            if !before.is_same_place(&context) {
                return;
            }
            // The handler before has returned, and here is another signal.
            before.tell_return(&mut self.listener, call);
            if !before.context.begins_again() {
                *interrupted = Some(new(context));
                return;
            }
        }
        let is_limited = self.limits.limits(call);
        let Some(result) = context.result_of(call, is_limited) else {
            return;
        };
        let mut ended = call.clone();
        ended.captured.chunks.extend(made);
        ended.result = Some(result);
        ended.end_tsc = Some(tsc);
        *interrupted = Some(new(context));
        self.tell_ended(&ended, tsc);
    }

    /// A call has ended, which may have told the end of a process.
    fn tell_ended(&mut self, call: &Call, tsc: u64) {
        if let Some((pid, status)) = waited_for(call) {
            self.process_exited(pid, tsc, status);
        }
        self.limits.ended(call);
        self.listener.ended(call);
    }

    /// A thread's call at this place has ended, and unseen those inside of it.
    fn end(&mut self, tid: u32, place: usize, tsc: u64, result: Option<i64>) {
        let Some(calls) = self.open.get_mut(&tid) else {
            return;
        };
        for open in calls.drain(place + 1..).rev() {
            if open.interrupted.is_none() {
                self.listener.ended(&open.call);
            }
        }
        let ended = calls.pop();
        // The handler in which it was made runs on.
        if let Some(Open {
            interrupted: Some(around),
            ..
        }) = calls.last_mut()
        {
            around.since_tsc = tsc;
        }
        let Some(Open {
            mut call,
            interrupted,
        }) = ended
        else {
            return;
        };
        if let Some(interrupted) = interrupted {
            let is_again = result.is_some() && interrupted.context.begins_again();
            if result.is_some() {
                interrupted.tell_return(&mut self.listener, &mut call);
            }
            if !is_again {
                return;
            }
        }
        call.result = result;
        call.end_tsc = Some(tsc);
        self.tell_ended(&call, tsc);
    }

    fn begin(&mut self, call: Call) {
        // No handlers run in each other so often: those before have ended unseen.
        if self
            .open
            .get(&call.tid)
            .is_some_and(|calls| calls.len() >= MOST_NESTED)
        {
            self.forget(call.tid);
        }
        let threads = self.threads.entry(call.pid).or_default();
        if !threads.contains(&call.tid) {
            threads.push(call.tid);
        }
        self.listener.begins(&call);
        let ends_thread = call.number == EXIT && call.tid != call.pid;
        if call.number == EXIT_GROUP {
            let status = ExitStatus::Exited((call.args[0] & 0xff) as i32);
            let (pid, tsc) = (call.pid, call.start_tsc);
            self.push(call);
            self.process_exited(pid, tsc, status);
        } else if ends_thread {
            let status = ExitStatus::Exited((call.args[0] & 0xff) as i32);
            threads.retain(|tid| *tid != call.tid);
            self.listener.ended(&call);
            self.listener.exited(call.start_tsc, call.tid, status);
        } else {
            self.push(call);
        }
    }

    fn push(&mut self, call: Call) {
        let calls = self.open.entry(call.tid).or_default();
        calls.push(Open {
            call,
            interrupted: None,
        });
    }
}

/// The process whose end a call of wait4(2) has told, and its status.
fn waited_for(call: &Call) -> Option<(u32, ExitStatus)> {
    let pid = u32::try_from(call.result?).ok().filter(|pid| *pid > 0)?;
    let bytes = call.captured.read(Phase::Exit, call.args[1], 4);
    let status = u32::from_le_bytes(*bytes.first_chunk()?);
    match status & 0x7f {
        _ if call.number != WAIT4 => None,
        0 => Some((pid, ExitStatus::Exited((status >> 8 & 0xff) as i32))),
        // Stopped, or goes on.
        0x7f => None,
        signal if status & 0x80 != 0 => Some((pid, ExitStatus::Dumped(signal as i32))),
        signal => Some((pid, ExitStatus::Signaled(signal as i32))),
    }
}

/// The siginfo_t that came with a signal.
fn info_of(values: &Values<'_>) -> Vec<u8> {
    let info = values.pieces.iter().find(|piece| piece.when == 0);
    info.map_or_else(Vec::new, |piece| piece.bytes.to_vec())
}

pub(crate) fn chunks(values: &Values<'_>) -> Vec<Chunk> {
    let chunk = |piece: &sptrace_trace::values::Piece<'_>| Chunk {
        phase: match piece.when {
            0 => Phase::Entry,
            1 => Phase::Exit,
            _ => Phase::Always,
        },
        address: piece.address,
        bytes: piece.bytes.to_vec(),
    };
    values.pieces.iter().map(chunk).collect()
}

/// Puts the calls of a trace together.
pub struct SystemCalls<'a, L> {
    dictionary: &'a Dictionary,
    calls: Calls<L>,
    /// The functions that each stream is in, if they are asked for.
    stacks: Option<HashMap<StreamId, Vec<FunctionId>>>,
}

impl<'a, L: Listener> SystemCalls<'a, L> {
    /// Nothing told yet.
    pub fn new(dictionary: &'a Dictionary, listener: L) -> Self {
        Self {
            dictionary,
            calls: Calls::new(listener),
            stacks: None,
        }
    }

    /// Calls shall have their stacks.
    pub fn with_stacks(mut self) -> Self {
        self.stacks = Some(HashMap::new());
        self
    }

    /// Who is told.
    pub fn listener(&mut self) -> &mut L {
        &mut self.calls.listener
    }

    /// Nothing more will be told.
    pub fn finish(self) -> L {
        self.calls.finish()
    }
}

impl<L: Listener> Visitor for SystemCalls<'_, L> {
    fn note(&mut self, note: &Note) {
        self.calls.note(note);
    }

    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        if let Some(stacks) = &mut self.stacks {
            stacks.entry(stream).or_default().push(frame.function);
        }
    }

    fn leave(&mut self, stream: StreamId, _frame: &Frame) {
        if let Some(stacks) = &mut self.stacks {
            stacks.entry(stream).or_default().pop();
        }
    }

    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame) {
        self.leave(stream, frame);
    }

    fn values(&mut self, stream: StreamId, tsc: u64, bytes: &[u8]) {
        if let Some(stacks) = &self.stacks {
            // The innermost frame is the call's own.
            let stack = stacks.get(&stream).map_or(&[][..], Vec::as_slice);
            self.calls.stack = stack.iter().rev().skip(1).copied().collect();
        }
        if let Some(info) = self.dictionary.stream(stream) {
            let of = Teller {
                pid: info.pid,
                tid: info.tid,
                ppid: info.ppid,
            };
            self.calls.values(of, tsc, bytes);
        }
    }

    fn is_finished(&self) -> bool {
        self.calls.listener.is_finished()
    }
}

/// The name of a call.
pub fn name_of(number: u32) -> String {
    match syscalls::by_number(number) {
        Some(call) => call.name.to_owned(),
        None => format!("syscall_{number:#x}"),
    }
}
