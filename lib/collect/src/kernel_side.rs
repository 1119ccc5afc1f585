//! The kernel's side of a recording (`-K`): read by a thread of its own, and written into the same
//! trace, as streams of their own.
//!
//! Given a prepared [`Beside`] and processes; gives what came of it. Both sides are stamped by the
//! same counter and are brought together by who reads the trace (`lib/trace/src/replay/merge.rs`),
//! so neither waits for the other here.
//!
//! Must not know: tracefs, and what the kernel's events mean.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use sptrace_kernel::KernelError;
use sptrace_kernel::beside::{Beside, Outcome};
use sptrace_kernel::trace::Trace;
use sptrace_trace::{
    Function, FunctionId, Module, ModuleId, Note, Section, StreamEncoder, StreamInfo, Summary,
    TraceError,
};

use crate::shared::Shared;

type Reading = JoinHandle<Result<Outcome, KernelError>>;

/// See the module.
#[derive(Default)]
pub struct KernelSide {
    prepared: Option<Beside>,
    reading: Option<Reading>,
    is_over: Arc<AtomicBool>,
    outcome: Option<Result<Outcome, String>>,
}

impl KernelSide {
    /// One that was asked for.
    pub fn new(prepared: Beside) -> Self {
        Self {
            prepared: Some(prepared),
            ..Self::default()
        }
    }

    /// Begins to record what the kernel does for these processes and for what they start, if that
    /// was asked for.
    pub(crate) fn begin(&mut self, shared: &Arc<Shared>, pids: &[u32]) {
        let Some(mut beside) = self.prepared.take() else {
            return;
        };
        beside.leave_out(sptrace_wire::OWN_CALL);
        if let Err(e) = beside.follow(pids) {
            self.outcome = Some(Err(e.to_string()));
            return;
        }
        let trace = Both(Arc::clone(shared));
        let is_over = Arc::clone(&self.is_over);
        let read = move || {
            let shared = Arc::clone(&trace.0);
            let has_ended = || is_over.load(Ordering::Acquire) || shared.stopped.get().is_some();
            beside.read(trace, &has_ended)
        };
        let thread = std::thread::Builder::new().name("sptrace-kernel".to_owned());
        match thread.spawn(read) {
            Ok(reading) => self.reading = Some(reading),
            Err(e) => self.outcome = Some(Err(e.to_string())),
        }
    }

    /// Ends it, and waits until all is written.
    pub(crate) fn end(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(reading) = self.reading.take() {
            let read = reading.join();
            let read = read.map(|result| result.map_err(|e| e.to_string()));
            self.outcome = Some(read.unwrap_or_else(|_| Err("its thread panicked".to_owned())));
        }
    }

    /// What is said of it at the end.
    pub(crate) fn remark(&self) -> Option<String> {
        Some(match self.outcome.as_ref()? {
            Err(why) => format!("the kernel's side is not in the trace, or not all of it: {why}"),
            Ok(outcome) => {
                let unknown = match outcome.lost_unknown {
                    0 => String::new(),
                    gaps => format!(", {gaps} gaps of unknown length"),
                };
                let hint = match outcome.lost + outcome.lost_unknown {
                    0 => "",
                    _ => " (a larger --kernel-buffer helps)",
                };
                let Outcome {
                    events,
                    lost,
                    own_calls,
                    ..
                } = outcome;
                format!(
                    "kernel: {events} events recorded, {lost} lost{unknown}{hint}; {own_calls} \
                     system calls of sptrace's own in the program left out"
                )
            }
        })
    }

    /// The same for the trace.
    pub(crate) fn rows(&self, summary: &mut Summary) {
        let outcome = match &self.outcome {
            None => return,
            Some(Err(why)) => {
                return summary.row(Section::Hole, &format!("the kernel's side: {why}"), 1);
            }
            Some(Ok(outcome)) => outcome,
        };
        let lost = "records for which the kernel had no room";
        summary.row(Section::Loss, lost, outcome.lost);
        let gaps = "gaps of unknown length in the kernel's side";
        summary.row(Section::Loss, gaps, outcome.lost_unknown);
        if outcome.follows_calls {
            let what =
                "functions of the kernel called through pointers only (how many is not known)";
            summary.row(Section::Hole, what, 1);
        }
        for event in &outcome.missing {
            let what = format!("not recorded of the kernel: {event}");
            summary.row(Section::Hole, &what, 1);
        }
    }
}

/// The trace of a recording, into which both sides are written.
struct Both(Arc<Shared>);

impl Both {
    /// A failure to write ends the recording as it does on the program's side.
    fn written(&self, write: impl FnOnce(&mut Writer) -> Result<(), TraceError>) {
        let mut collector = self.0.lock();
        let written = write(collector.writer());
        collector.check(written);
    }
}

type Writer = sptrace_trace::TraceWriter<crate::output::Output>;

impl Trace for Both {
    fn system_calls(&self) -> &'static str {
        "[kernel system calls]"
    }

    fn module(&mut self, module: &Module) -> Result<ModuleId, KernelError> {
        Ok(self.0.lock().writer().module(module)?)
    }

    fn function(&mut self, function: &Function) -> Result<FunctionId, KernelError> {
        Ok(self.0.lock().writer().function(function)?)
    }

    fn description(&mut self, text: &str) -> Result<u32, KernelError> {
        Ok(self.0.lock().writer().description(text)?)
    }

    fn stream(&mut self, info: &StreamInfo) -> Result<StreamEncoder, KernelError> {
        let mut collector = self.0.lock();
        let stream = collector.writer().kernel_side(info)?;
        Ok(collector.writer().encoder(stream))
    }

    /// The program's side tells of processes, but for programs that it does not follow.
    fn note(&mut self, note: &Note) -> Result<(), KernelError> {
        if let Note::Exec { pid, tsc, path } = note.clone() {
            let executed = Note::KernelExec { pid, tsc, path };
            self.written(|writer| writer.event_note(&executed));
        }
        Ok(())
    }

    fn write_full(&mut self, encoder: &mut StreamEncoder) -> Result<(), KernelError> {
        if encoder.is_full() {
            self.written(|writer| writer.write_full(encoder));
        }
        Ok(())
    }

    fn write_block(&mut self, encoder: &mut StreamEncoder) -> Result<(), KernelError> {
        self.written(|writer| writer.write_block(encoder));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), KernelError> {
        self.written(Writer::flush);
        Ok(())
    }

    fn until_tsc(&self) -> u64 {
        self.0.end_tsc.load(Ordering::Acquire)
    }
}
