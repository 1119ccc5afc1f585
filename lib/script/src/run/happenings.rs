//! What a trace tells beside calls: processes, threads, modules, signals, and calls that were
//! counted.
//!
//! Given notes and streams; tells handlers of them in the order of time. Must not know calls.

use std::collections::HashSet;

use rhai::ImmutableString;
use sptrace_render::Signal;
use sptrace_trace::{ExitStatus, Note, SYSTEM_CALLS, StreamId};
use sptrace_types::names::table::SIGNALS;

use super::{Ended, Run, Thread, indexes};
use crate::draft::Wanted;
use crate::event::{Counted, ProcessEvent, Subject};

impl Run<'_> {
    /// Threads and processes begin where their streams do.
    pub(super) fn read_streams(&mut self) {
        let mut threads = HashSet::new();
        for (id, stream) in (0..).map(StreamId).zip(&self.dictionary.streams) {
            let thread = Thread {
                tid: stream.tid,
                name: stream.comm.as_str().into(),
            };
            let event = ProcessEvent {
                tid: stream.tid,
                thread: thread.name.clone(),
                ..self.process_event("begin", stream.pid, stream.start_tsc)
            };
            self.threads.insert(id, thread);
            self.streams_of.insert(stream.tid, id);
            *self.streams_left.entry(stream.tid).or_default() += 1;
            if self.parents.insert(stream.pid, stream.ppid).is_none() {
                let ppid = stream.ppid;
                let begin = ProcessEvent {
                    tid: stream.pid,
                    ppid,
                    ..event.clone()
                };
                self.keep(stream.start_tsc, begin);
            }
            if threads.insert(stream.tid) {
                let subject = Subject::Thread;
                self.keep(stream.start_tsc, ProcessEvent { subject, ..event });
            }
        }
    }

    /// It is told when the time has come.
    fn keep(&mut self, tsc: u64, event: ProcessEvent) {
        self.processes.insert((tsc, self.processes_kept), event);
        self.processes_kept += 1;
    }

    /// A stream has ended, and with its thread's last one the thread.
    pub(super) fn stream_ends(&mut self, stream: StreamId, tsc: u64) {
        let Some(info) = self.dictionary.stream(stream) else {
            return;
        };
        let left = self.streams_left.entry(info.tid).or_default();
        *left = left.saturating_sub(1);
        if *left == 0 {
            let event = ProcessEvent {
                subject: Subject::Thread,
                tid: info.tid,
                thread: info.comm.as_str().into(),
                ..self.process_event("exit", info.pid, tsc)
            };
            self.keep(tsc, event);
        }
    }

    /// Keeps what a note tells until its time has come.
    pub(super) fn keep_note(&mut self, note: &Note) {
        let (pid, tsc) = (note.pid(), note.tsc());
        let event = match note {
            Note::Exec { path, .. } => ProcessEvent {
                path: path.as_str().into(),
                ..self.process_event("exec", pid, tsc)
            },
            Note::ProcessExit { status, .. } => ProcessEvent {
                status: status_text(*status).into(),
                ..self.process_event("exit", pid, tsc)
            },
            Note::ModuleMap { module, .. } => {
                let Some(module) = self.dictionary.module(*module) else {
                    return;
                };
                // What stands for the kernel's calls is no file.
                if module.path == SYSTEM_CALLS {
                    return;
                }
                ProcessEvent {
                    subject: Subject::Module,
                    path: module.path.as_str().into(),
                    ..self.process_event("map", pid, tsc)
                }
            }
            Note::Counts { tid, edges, .. } => {
                self.counted.extend(edges.iter().map(|edge| (*tid, *edge)));
                return;
            }
            _ => return,
        };
        self.keep(tsc, event);
    }

    /// Tells what system calls have told.
    pub(super) fn tell_ended(&mut self, ended: Ended) {
        for signal in &ended.signals {
            self.tell_signal(signal);
        }
        for call in ended.calls {
            self.system_call_ended(call);
        }
        for (tsc, pid, status) in ended.processes {
            // Of threads nothing is told.
            if self.parents.contains_key(&pid) {
                let event = self.process_event("exit", pid, tsc);
                let status = status_text(status).into();
                self.tell_process(&ProcessEvent { status, ..event });
            }
        }
    }

    fn tell_signal(&mut self, signal: &Signal) {
        let name = SIGNALS.name(signal.number.into());
        let name = name.map_or_else(|| format!("SIG{}", signal.number), str::to_owned);
        let event = ProcessEvent {
            subject: Subject::Signal,
            tid: signal.tid,
            path: name.into(),
            ..self.process_event("signal", signal.pid, signal.tsc)
        };
        self.tell_process(&event);
    }

    /// Tells handlers of it.
    pub(super) fn tell_process(&mut self, event: &ProcessEvent) {
        // An end may be known twice: from its own call, and from the recording.
        let is_process = event.subject == Subject::Process;
        if is_process && event.kind == "exit" && !self.exited.insert(event.pid) {
            return;
        }
        self.script.shared.lock().now_ns = event.time_ns;
        let wanted = Wanted::Happenings(event.subject);
        let is_wanted = |w: &Wanted| matches!((w, &wanted), (Wanted::Happenings(a), Wanted::Happenings(b)) if a == b);
        for at in indexes(&self.handlers, is_wanted) {
            self.tell(at, (event.clone(),));
        }
    }

    fn process_event(&self, kind: &'static str, pid: u32, tsc: u64) -> ProcessEvent {
        ProcessEvent {
            subject: Subject::Process,
            kind,
            pid,
            tid: pid,
            ppid: self.parents.get(&pid).copied().unwrap_or(0),
            time_ns: self.clock.since_start_ns(tsc),
            path: ImmutableString::default(),
            thread: ImmutableString::default(),
            status: ImmutableString::default(),
        }
    }

    /// Calls that were counted and not recorded.
    pub(super) fn tell_counted(&mut self) {
        let handlers = indexes(&self.handlers, |w| matches!(w, Wanted::Counted));
        for (tid, edge) in std::mem::take(&mut self.counted) {
            let (name, module) = self.names_of(Some(edge.callee));
            let event = Counted {
                name,
                module,
                caller: self.names_of(edge.caller).0,
                tid,
                calls: edge.calls,
            };
            for at in &handlers {
                self.tell(*at, (event.clone(),));
            }
        }
    }

    /// Stores show nothing by themselves but what had no room.
    pub(super) fn say_what_stores_left_out(&self) {
        let shared = &self.script.shared;
        let stores = shared.lock().stores.clone();
        for store in stores {
            let store = store.lock();
            let (title, left_out) = (&store.title, store.left_out);
            let is_text = shared.lock().form.has_lines();
            if left_out > 0 && is_text {
                shared.print(&format!(
                    "{title}: {left_out} values left out: too many keys\n"
                ));
            }
        }
    }
}

fn status_text(status: ExitStatus) -> String {
    match status {
        ExitStatus::Exited(code) => code.to_string(),
        ExitStatus::Signaled(signal) | ExitStatus::Dumped(signal) => format!("signal {signal}"),
    }
}
