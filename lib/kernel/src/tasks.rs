//! What has happened, as frames of tasks in a trace.
//!
//! Given happenings in the order of their times; keeps for each task which frames of the kernel's
//! are open, and encodes their beginnings and ends as those of functions. A frame whose end was not
//! seen ends with the frame around it.
//!
//! Must not know: tracefs, how records are laid out, and who else writes into the trace.

use crate::brought::Brought;
use crate::calls::{Called, Calls};
use crate::error::KernelError;
use crate::privileges;
use crate::source::{Frame, Happening, soft_interrupt};
use crate::task::Task;
use crate::task_names::TaskNames;
use crate::tell::{Listener, Step, Told};
use crate::trace::Trace;
use crate::turns::Turns;
use queued::Queued;
use sptrace_addr::Svma;
use sptrace_trace::{
    Function, FunctionId, Module, ModuleId, Note, SYSTEM_CALLS, StreamEncoder, StreamInfo,
};
use sptrace_tracee::proc::Status;
use std::collections::{HashMap, HashSet};

mod queued;
mod turning;

/// Modules that the frames are shown in: the kind of frame, in brackets.
const MODULES: [&str; 6] = [
    SYSTEM_CALLS,
    "[interrupts]",
    "[scheduler]",
    "[faults]",
    "[signals]",
    privileges::MODULE,
];

/// All tasks, and the trace.
pub struct Tasks<T> {
    trace: T,
    modules: Vec<ModuleId>,
    functions: HashMap<(usize, String), FunctionId>,
    /// Modules of functions of the kernel's.
    kernel_modules: HashMap<String, ModuleId>,
    /// Functions of the kernel's, by the addresses that records have.
    called: HashMap<u64, FunctionId>,
    calls: Calls,
    /// Numbers of the descriptions of what functions bring.
    descriptions: Vec<u32>,
    /// Somebody is told of frames at once: of those that have a name here.
    listener: Option<Listener>,
    told: HashMap<FunctionId, String>,
    /// When it begins, ends, and is copied; functions whose calls do so.
    turns: Turns,
    turning: HashMap<FunctionId, String>,
    /// Nothing is recorded yet.
    is_silent: bool,
    /// What happened later is not recorded.
    until_tsc: u64,
    /// Events at which it is to be copied.
    pub dumps: Vec<String>,
    names: TaskNames,
    tasks: HashMap<u32, Task>,
    queued: Queued,
    /// Processes of the tasks that are recorded, as far as they are known otherwise than by their
    /// own events.
    processes: HashMap<u32, u32>,
    /// Every task of the machine is recorded.
    is_for_all: bool,
    /// Tasks that are not recorded: our own.
    without: Vec<u32>,
    /// Tasks that have ended. Their numbers may be given to others.
    ended: HashSet<u32>,
    /// A task that has not executed its program yet, and when it has, at the latest: the record of
    /// that may be lost.
    before_exec: Option<(u32, u64)>,
    /// Events written.
    pub events: u64,
    /// System calls that are not the program's own, which were left out.
    pub own_calls: u64,
}

impl<T: Trace> Tasks<T> {
    /// Writes into `trace`, of all tasks that there are records of but those in `without`. Where
    /// not all of the machine's are recorded (`is_for_all`), those that are must be expected.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn new(mut trace: T, is_for_all: bool, without: Vec<u32>) -> Result<Self, KernelError> {
        let modules: Result<Vec<_>, _> = MODULES
            .iter()
            .map(|path| match *path {
                SYSTEM_CALLS => bracketed(trace.system_calls()),
                other => bracketed(other),
            })
            .collect::<Vec<_>>()
            .iter()
            .map(|module| trace.module(module))
            .collect();
        Ok(Self {
            trace,
            names: TaskNames::new(&without),
            modules: modules?,
            functions: HashMap::new(),
            kernel_modules: HashMap::new(),
            called: HashMap::new(),
            calls: Calls::default(),
            descriptions: Vec::new(),
            listener: None,
            told: HashMap::new(),
            turns: Turns::default(),
            turning: HashMap::new(),
            is_silent: false,
            until_tsc: u64::MAX,
            dumps: Vec::new(),
            tasks: HashMap::new(),
            queued: Queued::default(),
            processes: HashMap::new(),
            is_for_all,
            without,
            ended: HashSet::new(),
            before_exec: None,
            events: 0,
            own_calls: 0,
        })
    }

    /// Shows calls of the kernel's functions, too.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn show(&mut self, calls: Calls) -> Result<(), KernelError> {
        self.calls = calls;
        // The trace names what is hooked, also if it is never executed.
        for address in self.calls.hooked() {
            self.kernel_function(address)?;
        }
        Ok(())
    }

    /// Names what calls bring with them.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn describe(&mut self, texts: &[String]) -> Result<(), KernelError> {
        for text in texts {
            self.descriptions.push(self.trace.description(text)?);
        }
        Ok(())
    }

    /// Writes a note.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn note(&mut self, note: &Note) -> Result<(), KernelError> {
        self.trace.note(note)
    }

    /// Tells somebody of frames at once.
    pub fn tell(&mut self, listener: Option<Listener>) {
        self.listener = listener;
    }

    /// A function has a name; somebody may want to be told of it.
    fn named(&mut self, id: FunctionId, name: &str, module: &str) {
        if self.turns.wants(name) {
            self.turning.insert(id, name.to_owned());
        }
        if let Some(listener) = &self.listener
            && listener.wants(name, module)
        {
            self.told.insert(id, name.to_owned());
        }
    }

    fn told(&self, tid: u32, tsc: u64, function: FunctionId, step: Step) {
        if let (Some(listener), Some(name)) = (&self.listener, self.told.get(&function)) {
            let name = name.clone();
            listener.tell(Told {
                tsc,
                tid,
                name,
                step,
            });
        }
    }

    /// Leaves another task out.
    pub fn leave_out(&mut self, tid: u32) {
        self.without.push(tid);
    }

    /// A task of this process is recorded, of which nothing else may be known yet.
    pub fn expect(&mut self, tid: u32, process: u32) {
        self.processes.insert(tid, process);
    }

    /// Leaves a task out until it executes a program: what it does before is our own work.
    /// It has executed one by `tsc`.
    pub fn leave_out_until_exec(&mut self, tid: u32, tsc: u64) {
        self.before_exec = Some((tid, tsc));
    }

    /// Takes what has happened to task `tid`, on the processor that was named last.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn happened(
        &mut self,
        tid: u32,
        tsc: u64,
        happening: Happening,
    ) -> Result<(), KernelError> {
        if tsc > self.trace.until_tsc().min(self.until_tsc) {
            return Ok(());
        }
        self.begin_after_exec(|_, at_the_latest| tsc > at_the_latest);
        if let Happening::Begin(Frame::SystemCall(_))
        | Happening::BeginWith(Frame::SystemCall(_), _) = &happening
        {
            // Who has ended makes no calls, so this is another of the same number.
            self.ended.remove(&tid);
        }
        match happening {
            Happening::Begin(frame) => self.begin(tid, tsc, frame, None),
            Happening::BeginWith(frame, brought) => self.begin(tid, tsc, frame, Some(&brought)),
            Happening::OwnCall => self.begin_own_call(tid, tsc),
            Happening::End(frame) => self.end(tid, tsc, &frame, None),
            Happening::EndWith(frame, brought) => self.end(tid, tsc, &frame, Some(&brought)),
            Happening::Instant(module, name) => self.instant(tid, tsc, module, name),
            Happening::Switch {
                name,
                why,
                next,
                next_name,
            } => {
                self.names.saw(tid, name);
                self.names.saw(next, next_name);
                self.switch((tid, why), next, tsc)
            }
            Happening::Woken { tid: woken, by } => self.woken(woken, tsc, by),
            Happening::NewTask {
                tid: new,
                is_thread,
            } => {
                let process = match is_thread {
                    true => self.process_of(tid),
                    false => new,
                };
                self.processes.insert(new, process);
                self.ended.remove(&new);
                Ok(())
            }
            Happening::Exec(path) => {
                self.begin_after_exec(|waiting, _| waiting == tid);
                self.executes(tid, tsc, path)
            }
            Happening::TaskEnd => {
                if let Some(task) = self.tasks.get_mut(&tid) {
                    task.leave(tsc);
                }
                self.ended.insert(tid);
                self.end_stream(tid, tsc)
            }
        }
    }

    /// The processor goes from one task to another, of which one at least is recorded.
    fn switch(&mut self, (tid, why): (u32, Frame), next: u32, tsc: u64) -> Result<(), KernelError> {
        let why = match why {
            Frame::Preempted(_) => Frame::Preempted(self.names.of(next)),
            waiting => waiting,
        };
        if self.is_for_all || self.processes.contains_key(&tid) {
            self.begin(tid, tsc, why, None)?;
        }
        self.runs(next, tsc, tid)?;
        self.end(next, tsc, &Frame::Preempted(String::new()), None)
    }

    /// A task goes on as another program.
    fn executes(&mut self, tid: u32, tsc: u64, path: String) -> Result<(), KernelError> {
        let pid = self.process_of(tid);
        self.end_stream(tid, tsc)?;
        let name = path.rsplit('/').next().unwrap_or(&path);
        self.names.saw(tid, name.to_owned());
        self.processes.insert(tid, pid);
        let note = Note::Exec { pid, tsc, path };
        self.trace.note(&note)
    }

    /// What the task's stream holds is written, and the stream ends: the task ends, or goes on as
    /// another program, with nothing open.
    fn end_stream(&mut self, tid: u32, tsc: u64) -> Result<(), KernelError> {
        self.end_above(tid, tsc, 0)?;
        match self.tasks.remove(&tid).and_then(|task| task.encoder) {
            Some(mut encoder) => self.trace.write_block(&mut encoder),
            None => Ok(()),
        }
    }

    /// Leaves the task out no longer, if it is so.
    fn begin_after_exec(&mut self, is_so: impl Fn(u32, u64) -> bool) {
        if let Some((tid, _)) = self.before_exec.take_if(|(tid, tsc)| is_so(*tid, *tsc)) {
            self.expect(tid, tid);
        }
    }

    fn process_of(&self, tid: u32) -> u32 {
        let known = self.tasks.get(&tid).map(|task| task.pid);
        known
            .or_else(|| self.processes.get(&tid).copied())
            .or_else(|| thread_group(tid))
            .unwrap_or(tid)
    }

    /// True for tasks that have no thread of their own in a trace: the processors' idle ones, ours,
    /// and those that have ended and are still leaving.
    fn is_left_out(&self, tid: u32) -> bool {
        tid == 0
            || self.before_exec.is_some_and(|(t, _)| t == tid)
            || self.without.contains(&tid)
            || self.ended.contains(&tid)
    }

    /// What encodes a task. `None`: nothing is recorded yet.
    fn encoder(
        &mut self,
        tid: u32,
        pid: u32,
        tsc: u64,
    ) -> Result<Option<StreamEncoder>, KernelError> {
        if self.is_silent {
            return Ok(None);
        }
        let encoder = self.trace.stream(&StreamInfo {
            pid,
            tid,
            comm: self.names.of(tid),
            start_tsc: tsc,
            ..StreamInfo::default()
        })?;
        Ok(Some(encoder))
    }

    fn task(&mut self, tid: u32, tsc: u64) -> Result<&mut Task, KernelError> {
        if !self.tasks.contains_key(&tid) {
            let pid = self.process_of(tid);
            let encoder = self.encoder(tid, pid, tsc)?;
            self.tasks.insert(tid, Task::new(pid, encoder));
        }
        let task = self.tasks.get_mut(&tid);
        task.ok_or_else(|| KernelError::Command(std::io::Error::other("a task was lost")))
    }

    fn function(&mut self, module: usize, name: String) -> Result<FunctionId, KernelError> {
        let key = (module, name);
        if let Some(known) = self.functions.get(&key) {
            return Ok(*known);
        }
        let Some(id) = self.modules.get(module) else {
            return Ok(FunctionId(0));
        };
        let function = self.trace.function(&Function {
            module: *id,
            svma: Svma(self.functions.len() as u64),
            size_bytes: 0,
            symbol: key.1.clone(),
        })?;
        self.named(function, &key.1, MODULES.get(module).unwrap_or(&""));
        self.functions.insert(key, function);
        Ok(function)
    }

    /// What is shown for a frame that is no function of the kernel's.
    fn frame(&mut self, frame: &Frame) -> Result<FunctionId, KernelError> {
        let (module, name) = shown(frame);
        self.function(module, name)
    }

    fn kernel_function(&mut self, address: u64) -> Result<FunctionId, KernelError> {
        if let Some(known) = self.called.get(&address) {
            return Ok(*known);
        }
        let Called {
            module: path,
            name: symbol,
            offset,
            bytes,
        } = self.calls.at(address);
        let module = match self.kernel_modules.get(&path) {
            Some(known) => *known,
            None => {
                let module = self.trace.module(&bracketed(&path))?;
                self.kernel_modules.insert(path.clone(), module);
                module
            }
        };
        let named = symbol.clone();
        let function = self.trace.function(&Function {
            module,
            svma: Svma(offset),
            size_bytes: bytes,
            symbol,
        })?;
        self.named(function, &named, &path);
        self.called.insert(address, function);
        Ok(function)
    }

    /// Of those that are open before, the ends were lost.
    fn begin_own_call(&mut self, tid: u32, tsc: u64) -> Result<(), KernelError> {
        if self.is_left_out(tid) {
            return Ok(());
        }
        self.end_above(tid, tsc, 0)?;
        self.own_calls += 1;
        self.task(tid, tsc)?.is_own_call = true;
        Ok(())
    }

    /// What a task does is left out for now. A call that begins, or ends, ends this.
    fn is_in_own_call(&mut self, tid: u32, frame: &Frame) -> bool {
        let task = self.tasks.get_mut(&tid).filter(|task| task.is_own_call);
        let Some(task) = task else {
            return false;
        };
        task.is_own_call = !matches!(frame, Frame::SystemCall(_));
        true
    }

    fn begin(
        &mut self,
        tid: u32,
        tsc: u64,
        frame: Frame,
        brought: Option<&Brought>,
    ) -> Result<(), KernelError> {
        let is_call = matches!(frame, Frame::SystemCall(_));
        if self.is_left_out(tid) || self.is_in_own_call(tid, &frame) && !is_call {
            return Ok(());
        }
        let function = match &frame {
            Frame::Function { address, .. } => {
                let open = self.tasks.get(&tid).map_or(&[][..], |t| &t.open);
                if !self.calls.is_shown(open, *address) {
                    return Ok(());
                }
                self.kernel_function(*address)?
            }
            // A task that makes a call is in none: of those that are open, the ends were lost.
            Frame::SystemCall(_) => {
                self.end_above(tid, tsc, 0)?;
                self.frame(&frame)?
            }
            _ => self.frame(&frame)?,
        };
        self.events += u64::from(!self.is_silent);
        let values = brought.and_then(|brought| brought.bytes(&self.descriptions));
        self.saw(tsc, function, Step::Begins)?;
        self.task(tid, tsc)?
            .begin(tsc, frame, function, values.as_deref());
        self.told(tid, tsc, function, Step::Begins);
        Ok(())
    }

    /// Ends the innermost frame of this kind, with those above it. Of one that was not seen to
    /// begin nothing is written.
    fn end(
        &mut self,
        tid: u32,
        tsc: u64,
        frame: &Frame,
        brought: Option<&Brought>,
    ) -> Result<(), KernelError> {
        if self.is_left_out(tid) || self.is_in_own_call(tid, frame) {
            return Ok(());
        }
        let task = self.tasks.get(&tid);
        let found = task.and_then(|t| t.open.iter().rposition(|open| is_end_of(frame, open)));
        if let Some(found) = found {
            let values = brought.and_then(|brought| brought.bytes(&self.descriptions));
            if let Some(values) = values {
                self.end_above(tid, tsc, found + 1)?;
                self.task(tid, tsc)?.values(tsc, &values);
            }
            self.end_above(tid, tsc, found)?;
        }
        Ok(())
    }

    /// Ends a task's frames until so many are open.
    fn end_above(&mut self, tid: u32, tsc: u64, open: usize) -> Result<(), KernelError> {
        let task = self.tasks.get_mut(&tid);
        let ended = task.map_or_else(Vec::new, |task| task.end_above(tsc, open));
        self.events += ended.len() as u64 * u64::from(!self.is_silent);
        for (function, begun) in ended {
            let step = Step::Ends(tsc.saturating_sub(begun));
            self.told(tid, tsc, function, step);
            self.saw(tsc, function, step)?;
        }
        Ok(())
    }

    fn instant(
        &mut self,
        tid: u32,
        tsc: u64,
        module: &str,
        name: String,
    ) -> Result<(), KernelError> {
        let is_own_call = self.tasks.get(&tid).is_some_and(|task| task.is_own_call);
        if is_own_call || self.is_left_out(tid) {
            return Ok(());
        }
        let module = MODULES.iter().position(|m| *m == module).unwrap_or(0);
        let function = self.function(module, name)?;
        self.events += 2 * u64::from(!self.is_silent);
        self.saw(tsc, function, Step::Instant)?;
        self.task(tid, tsc)?.instant(tsc, function);
        self.told(tid, tsc, function, Step::Instant);
        Ok(())
    }

    /// What interrupts a task, as far as its events are recorded.
    fn interrupting(&self, tid: u32) -> Option<String> {
        let open = &self.tasks.get(&tid)?.open;
        let innermost = open.iter().rev().find(|frame| {
            matches!(
                frame,
                Frame::Interrupt(_) | Frame::SoftInterrupt(_) | Frame::Vector(_)
            )
        })?;
        Some(shown(innermost).1)
    }

    /// Writes the blocks that are full.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn write_full(&mut self) -> Result<(), KernelError> {
        let encoders = self.tasks.values_mut().filter_map(|t| t.encoder.as_mut());
        for encoder in encoders {
            self.trace.write_full(encoder)?;
        }
        Ok(())
    }

    /// Writes the others, too, so that a trace is never far behind.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn write_rest(&mut self) -> Result<(), KernelError> {
        let encoders = self.tasks.values_mut().filter_map(|t| t.encoder.as_mut());
        for encoder in encoders.filter(|encoder| encoder.len_events() > 0) {
            self.trace.write_block(encoder)?;
        }
        self.trace.flush()
    }

    /// Writes the rest, and gives the writer back. What is open at `tsc` stays so.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn finish(mut self) -> Result<T, KernelError> {
        let mut tids: Vec<u32> = self.tasks.keys().copied().collect();
        tids.sort_unstable();
        for tid in tids {
            let task = self.tasks.get_mut(&tid);
            if let Some(encoder) = task.and_then(|task| task.encoder.as_mut()) {
                self.trace.write_block(encoder)?;
            }
        }
        Ok(self.trace)
    }
}

/// A module that is no file.
fn bracketed(path: &str) -> Module {
    Module {
        path: path.to_owned(),
        build_id: Vec::new(),
        svma: Svma(0)..Svma(1 << 32),
    }
}

/// In which module a frame is shown, and by what name.
fn shown(frame: &Frame) -> (usize, String) {
    match frame {
        Frame::SystemCall(number) => {
            let known = sptrace_types::syscalls::by_number(*number);
            let name = known.map_or_else(|| format!("syscall_{number}"), |c| c.name.to_owned());
            (0, name)
        }
        Frame::Interrupt(name) => (1, format!("irq {name}")),
        Frame::SoftInterrupt(number) => (1, soft_interrupt(*number)),
        Frame::Vector(name) => (1, name.replace('_', " ")),
        Frame::Waiting('S') => (2, "waiting".to_owned()),
        Frame::Waiting('D') => (2, "waiting for a device".to_owned()),
        Frame::Waiting('T' | 't') => (2, "stopped".to_owned()),
        Frame::Waiting('X' | 'Z') => (2, "ended".to_owned()),
        Frame::Waiting(_) => (2, "not running".to_owned()),
        Frame::Preempted(by) => (2, format!("preempted by {by}")),
        Frame::Function { address, .. } => (2, format!("{address:#x}")),
    }
}

/// Is `end` what ends `open`? Whatever keeps a task from running ends when it runs.
fn is_end_of(end: &Frame, open: &Frame) -> bool {
    match (end, open) {
        (Frame::Preempted(_), Frame::Preempted(_) | Frame::Waiting(_)) => true,
        (Frame::Interrupt(_), Frame::Interrupt(_)) => true,
        (end, open) => end == open,
    }
}

/// The process that a task belongs to.
fn thread_group(tid: u32) -> Option<u32> {
    Status::of(tid).ok()?.thread_group()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Waker;
    use sptrace_trace::{Header, Summary, TraceWriter};

    #[test]
    fn frames_end_with_what_they_are_in() {
        let writer = TraceWriter::create(Vec::new(), &Header::default()).unwrap();
        let mut tasks = Tasks::new(writer, false, vec![9]).unwrap();
        let tid = 0x3fff_fff0;
        tasks.expect(tid, tid);
        let call = Frame::SystemCall(0);
        let mut happened = |tid, tsc, what| tasks.happened(tid, tsc, what).unwrap();
        happened(tid, 10, Happening::Begin(call.clone()));
        let why = Frame::Waiting('S');
        let switch = |why, next| Happening::Switch {
            name: "it".to_owned(),
            why,
            next,
            next_name: "other".to_owned(),
        };
        happened(tid, 20, switch(why, 9));
        let by = Waker::Task(9);
        happened(9, 25, Happening::Woken { tid, by });
        happened(9, 26, Happening::Woken { tid, by });
        happened(9, 30, Happening::Begin(call.clone()));
        let why = Frame::Preempted("it".to_owned());
        happened(9, 40, switch(why, tid));
        happened(
            tid,
            45,
            Happening::Begin(Frame::Interrupt("disk".to_owned())),
        );
        happened(tid, 50, Happening::End(call.clone()));
        happened(tid, 60, Happening::End(call));
        happened(
            tid,
            70,
            Happening::Instant("[signals]", "SIGCHLD".to_owned()),
        );
        assert_eq!(tasks.events, 12, "three frames and three instants");
        assert_eq!(tasks.tasks.len(), 1, "task 9 is left out");
        let bytes = tasks.finish().unwrap().finish(&Summary::default()).unwrap();
        assert!(bytes.len() > 100);
    }
}
