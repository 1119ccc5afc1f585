//! Which of the kernel's events are recorded, and what their records say.
//!
//! Given a folder of tracefs; switches the events on and reads their formats. Given a record; gives
//! what happened. An event that this kernel has not is left out and named.
//!
//! Must not know: tasks, frames, trace files.

use crate::brought::Brought;
use crate::error::KernelError;
use crate::folder::Folder;
use crate::format::Format;
use std::collections::HashMap;

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    SystemCall,
    SystemCallEnd,
    Interrupt,
    InterruptEnd,
    SoftInterrupt,
    SoftInterruptEnd,
    /// A vector of the processor's, begins or ends as the event's name says.
    Vector,
    Fault,
    Signal,
    Switch,
    Waking,
    NewTask,
    Exec,
    TaskEnd,
}

/// The events, by group and name.
const EVENTS: [(&str, &str, Kind); 15] = [
    ("raw_syscalls", "sys_enter", Kind::SystemCall),
    ("raw_syscalls", "sys_exit", Kind::SystemCallEnd),
    ("irq", "irq_handler_entry", Kind::Interrupt),
    ("irq", "irq_handler_exit", Kind::InterruptEnd),
    ("irq", "softirq_entry", Kind::SoftInterrupt),
    ("irq", "softirq_exit", Kind::SoftInterruptEnd),
    ("exceptions", "page_fault_user", Kind::Fault),
    ("exceptions", "page_fault_kernel", Kind::Fault),
    ("signal", "signal_deliver", Kind::Signal),
    ("sched", "sched_switch", Kind::Switch),
    ("sched", "sched_waking", Kind::Waking),
    ("task", "task_newtask", Kind::NewTask),
    ("sched", "sched_process_exec", Kind::Exec),
    ("sched", "sched_process_exit", Kind::TaskEnd),
    ("irq_vectors", "*", Kind::Vector),
];

/// What a frame of the kernel's is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// A system call, by number.
    SystemCall(u32),
    /// A device's interrupt, by name.
    Interrupt(String),
    /// Work that an interrupt has left for later, by number.
    SoftInterrupt(u32),
    /// An interrupt of the processor's own, by name.
    Vector(String),
    /// The task does not run, since it waits; the state's letter, as ps(1) has it.
    Waiting(char),
    /// The task could run, and another runs, of this name.
    Preempted(String),
    /// A function of the kernel's.
    Function {
        /// An address in it: its beginning, or just behind.
        address: u64,
        /// Calls of recorded functions around it, as far as the kernel counts them.
        depth: u32,
    },
}

/// Who wakes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waker {
    /// A task, the one that runs.
    Task(u32),
    /// A device or a timer, while this task runs.
    Interrupt(u32),
    /// What an interrupt has left for later, while this task runs.
    SoftInterrupt(u32),
}

impl Waker {
    /// By what the kernel says of the moment (trace_flag_type in its trace_events.h).
    fn of(task: u32, flags: i64) -> Self {
        const HARD_INTERRUPT: i64 = 0x08;
        const SOFT_INTERRUPT: i64 = 0x10;
        match flags {
            hard if hard & HARD_INTERRUPT != 0 => Self::Interrupt(task),
            soft if soft & SOFT_INTERRUPT != 0 => Self::SoftInterrupt(task),
            _ => Self::Task(task),
        }
    }
}

/// What has happened, to the task that was running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A frame begins.
    Begin(Frame),
    /// A system call that is not the program's own begins: what happens until its end is left
    /// out.
    OwnCall,
    /// The same, and the call brings this with it.
    BeginWith(Frame, Brought),
    /// A frame ends. Of a device's interrupt the name is not told.
    End(Frame),
    /// The same, and the call gives this.
    EndWith(Frame, Brought),
    /// Something without length.
    Instant(&'static str, String),
    /// The processor goes from one task to another.
    Switch {
        /// The former's name.
        name: String,
        /// Why the former does not run any more.
        why: Frame,
        /// Which task runs now.
        next: u32,
        /// And its name.
        next_name: String,
    },
    /// A task that waits is woken.
    Woken {
        /// Which.
        tid: u32,
        /// By whom.
        by: Waker,
    },
    /// A task was made.
    NewTask {
        /// Its number.
        tid: u32,
        /// It belongs to the process of the task that made it.
        is_thread: bool,
    },
    /// The task's process executes another program.
    Exec(String),
    /// The task ends.
    TaskEnd,
}

/// Softirqs, by number (include/linux/interrupt.h).
const SOFT_INTERRUPTS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

/// Name of a softirq.
pub fn soft_interrupt(number: u32) -> String {
    let name = SOFT_INTERRUPTS.get(number as usize);
    name.map_or_else(
        || format!("softirq {number}"),
        |name| format!("softirq {name}"),
    )
}

/// The events of a folder that are switched on.
#[derive(Debug, Default)]
pub struct Source {
    events: HashMap<u16, (Kind, Format)>,
    /// System calls with this for a sixth argument are made by who records, not by the program.
    pub own_call: Option<u64>,
    /// Events that this kernel has not, or does not let be recorded.
    pub missing: Vec<String>,
}

impl Source {
    /// Switches the events on, switches between tasks in a folder of their own if there is one.
    ///
    /// # Errors
    /// There are no system calls among them: nothing could be nested in anything.
    pub fn switch_on(own: &Folder, switches: Option<&Folder>) -> Result<Self, KernelError> {
        let mut source = Self::default();
        for (group, name, kind) in EVENTS {
            let folder = match kind {
                Kind::Switch => switches.unwrap_or(own),
                _ => own,
            };
            let names = match name {
                "*" => pairs(folder, group),
                name => vec![name.to_owned()],
            };
            for name in names {
                let result = source.add(folder, (group, &name), kind);
                if let Err(e) = result {
                    if kind == Kind::SystemCall {
                        return Err(e);
                    }
                    source.missing.push(format!("{group}:{name}"));
                }
            }
        }
        Ok(source)
    }

    /// Records these system calls alone, by filters of the events; all if there are none.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn only(&self, folder: &Folder, numbers: &[u32]) -> Result<(), KernelError> {
        if numbers.is_empty() {
            return Ok(());
        }
        let each: Vec<_> = numbers.iter().map(|n| format!("id == {n}")).collect();
        for name in ["sys_enter", "sys_exit"] {
            let file = format!("events/raw_syscalls/{name}/filter");
            folder.set(&file, &each.join(" || "))?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        folder: &Folder,
        (group, name): (&str, &str),
        kind: Kind,
    ) -> Result<(), KernelError> {
        let event = format!("events/{group}/{name}");
        let text = folder.read(&format!("{event}/format"))?;
        folder.set(&format!("{event}/enable"), "1")?;
        if let Some(format) = Format::parse(&text) {
            self.events.insert(format.id, (kind, format));
        }
        Ok(())
    }

    /// The task that was running, and what happened. `None`: a record of an event that is not ours.
    pub fn read(&self, record: &[u8]) -> Option<(u32, Happening)> {
        let id = record.first_chunk().map(|b| u16::from_le_bytes(*b))?;
        let (kind, format) = self.events.get(&id)?;
        let number = |field| format.number(record, field);
        let text = |field| format.text(record, field);
        let task = u32::try_from(number("common_pid")?).ok()?;
        let call = || Some(Frame::SystemCall(u32::try_from(number("id")?).ok()?));
        let soft = || Some(Frame::SoftInterrupt(number("vec")? as u32));
        let happening = match kind {
            Kind::SystemCall => {
                let sixth = self.own_call.and_then(|_| format.word(record, "args", 5));
                match self.own_call.is_some() && sixth == self.own_call {
                    true => Happening::OwnCall,
                    false => call_begins(format, record, call()?),
                }
            }
            Kind::SystemCallEnd => call_ends(call()?, number("ret")),
            Kind::Interrupt => Happening::Begin(Frame::Interrupt(text("name")?)),
            Kind::InterruptEnd => Happening::End(Frame::Interrupt(String::new())),
            Kind::SoftInterrupt => Happening::Begin(soft()?),
            Kind::SoftInterruptEnd => Happening::End(soft()?),
            Kind::Vector => match format.name.strip_suffix("_entry") {
                Some(name) => Happening::Begin(Frame::Vector(name.to_owned())),
                None => {
                    let name = format.name.strip_suffix("_exit")?;
                    Happening::End(Frame::Vector(name.to_owned()))
                }
            },
            Kind::Fault => Happening::Instant("[faults]", format.name.replace('_', " ")),
            Kind::Signal => {
                let signal = nix::sys::signal::Signal::try_from(number("sig")? as i32);
                let name = signal.map_or_else(
                    |_| format!("signal {}", number("sig").unwrap_or(0)),
                    |s| s.as_str().to_owned(),
                );
                Happening::Instant("[signals]", name)
            }
            Kind::Switch => Happening::Switch {
                name: text("prev_comm").unwrap_or_default(),
                why: why_not(
                    number("prev_state")?,
                    &text("next_comm").unwrap_or_default(),
                ),
                next: u32::try_from(number("next_pid")?).ok()?,
                next_name: text("next_comm").unwrap_or_default(),
            },
            Kind::Waking => Happening::Woken {
                tid: u32::try_from(number("pid")?).ok()?,
                by: Waker::of(task, number("common_flags").unwrap_or(0)),
            },
            Kind::NewTask => Happening::NewTask {
                tid: u32::try_from(number("pid")?).ok()?,
                is_thread: number("clone_flags")? & CLONE_THREAD != 0,
            },
            Kind::Exec => Happening::Exec(text("filename")?),
            Kind::TaskEnd => Happening::TaskEnd,
        };
        Some((task, happening))
    }
}

/// A system call begins, with its six words if the record has them.
fn call_begins(format: &Format, record: &[u8], call: Frame) -> Happening {
    let mut words = [0; 6];
    let mut has_all = true;
    for (i, word) in words.iter_mut().enumerate() {
        match format.word(record, "args", i) {
            Some(known) => *word = known,
            None => has_all = false,
        }
    }
    match call {
        Frame::SystemCall(number) if has_all => {
            Happening::BeginWith(call, Brought::Call(number, words))
        }
        _ => Happening::Begin(call),
    }
}

/// It ends, with its result if the record has it.
fn call_ends(call: Frame, result: Option<i64>) -> Happening {
    match (&call, result) {
        (Frame::SystemCall(number), Some(result)) => {
            let brought = Brought::Result(*number, result);
            Happening::EndWith(call, brought)
        }
        _ => Happening::End(call),
    }
}

/// clone(2).
const CLONE_THREAD: i64 = 0x1_0000;

/// Why a task does not run any more, by the state that it is left in (sched_switch, prev_state).
fn why_not(state: i64, next: &str) -> Frame {
    const LETTERS: &[u8] = b"SDTtXZPI";
    if state == 0 || state & 0x100 != 0 {
        return Frame::Preempted(task_name(next));
    }
    let bit = state.trailing_zeros() as usize;
    Frame::Waiting(LETTERS.get(bit).map_or('?', |letter| char::from(*letter)))
}

/// The name of a task as it is shown: the kernel's own workers bear numbers and what they do at the
/// moment, of which there is no end.
pub fn task_name(comm: &str) -> String {
    match comm {
        "" => "?".to_owned(),
        idle if idle.starts_with("swapper/") => "nobody".to_owned(),
        kernel if kernel.starts_with("kworker/") => "kworker".to_owned(),
        other => other.to_owned(),
    }
}

/// The events of a group that come in pairs.
fn pairs(folder: &Folder, group: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path(&format!("events/{group}")));
    let names = entries.into_iter().flatten().flatten();
    let mut names: Vec<String> = names
        .filter_map(|e| e.file_name().into_string().ok())
        .filter(|name| name.ends_with("_entry") || name.ends_with("_exit"))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_tasks() {
        let next = "hog";
        assert_eq!(why_not(0, next), Frame::Preempted("hog".to_owned()));
        assert_eq!(why_not(0x100, next), Frame::Preempted("hog".to_owned()));
        assert_eq!(why_not(1, next), Frame::Waiting('S'));
        assert_eq!(why_not(2, next), Frame::Waiting('D'));
        assert_eq!(why_not(0x80, next), Frame::Waiting('I'));
        assert_eq!(why_not(0x400, next), Frame::Waiting('?'));
    }

    #[test]
    fn a_record_of_no_event_of_ours_is_nothing() {
        assert_eq!(Source::default().read(&[1, 0, 0, 0]), None);
        assert_eq!(Source::default().read(&[]), None);
    }
}
