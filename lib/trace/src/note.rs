//! Notes: what happened to processes and to the recording beside the calls, and their bytes.
//!
//! A note says by type what happened, with its numbers and names; sentences are made of it by who
//! shows it. [`crate::writer`] puts each into a section of its own, between the blocks.

use crate::error::Malformed;
use crate::format::{Cursor, put_string, put_v};
use crate::model::{ExitStatus, FunctionId, ModuleId};
use crate::sums::TableSums;
use sptrace_addr::Avma;

/// Something that happened beside the calls.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(
    missing_docs,
    reason = "the fields are the process, the time and what the variant names"
)]
pub enum Note {
    /// A process ended.
    ProcessExit {
        pid: u32,
        tsc: u64,
        status: ExitStatus,
    },
    /// A process replaced its program.
    Exec { pid: u32, tsc: u64, path: String },
    /// A module was mapped; `avma` is where its `svma.start` lies.
    ModuleMap {
        pid: u32,
        tsc: u64,
        module: ModuleId,
        avma: Avma,
    },
    /// An event has had an effect on the recording; pid 0 if it concerns no one process.
    Recording { pid: u32, tsc: u64, turn: Turn },
    /// What a process had open, and the folder it was in.
    Descriptors {
        pid: u32,
        tsc: u64,
        folder: String,
        open: Vec<(u32, String)>,
    },
    /// A process replaced its program, as the kernel's side has it (tag 8): also one that is not
    /// followed, and the moment itself.
    KernelExec { pid: u32, tsc: u64, path: String },
    /// What the payloads of a script have added up inside of the program, of all threads.
    Tables {
        pid: u32,
        tsc: u64,
        tables: Vec<TableSums>,
    },
    /// How often a thread has made which calls, where calls are counted and not recorded; written
    /// when it ends.
    Counts {
        pid: u32,
        tsc: u64,
        tid: u32,
        edges: Vec<Counted>,
    },
    /// The recording's calls are recorded in order, as far as they can be: their times are
    /// estimates ([`crate::Event::Between`]).
    InOrder {
        tsc: u64,
        /// Only those of some functions are ([`Level::InOrder`]), and jumps.
        is_in_part: bool,
    },
    /// How much of a function's calls is recorded changes about now.
    Level {
        pid: u32,
        tsc: u64,
        function: FunctionId,
        level: Level,
    },
}

/// How much of a function's calls is recorded from a moment on, in one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// They are recorded.
    Recorded,
    /// They are counted, as far as that can be: a call through a pointer may be recorded still.
    Counted,
    /// They are recorded in order: without stamps and ends.
    InOrder,
    /// They are not recorded, and counted only where that is the least that can be.
    Off,
    /// They are recorded without the values that they have otherwise.
    Plain,
}

impl Level {
    fn number(self) -> u8 {
        match self {
            Self::Recorded => 0,
            Self::Counted => 1,
            Self::InOrder => 2,
            Self::Off => 3,
            Self::Plain => 4,
        }
    }

    fn read(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        match from.u8()? {
            0 => Ok(Self::Recorded),
            1 => Ok(Self::Counted),
            2 => Ok(Self::InOrder),
            3 => Ok(Self::Off),
            4 => Ok(Self::Plain),
            _ => Err(Malformed("unknown level of a function")),
        }
    }
}

/// Calls of one function by another, of which only the number is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// Who calls; `None`: that is not known.
    pub caller: Option<FunctionId>,
    /// Who is called.
    pub callee: FunctionId,
    /// How often.
    pub calls: u64,
}

/// What became of the recording. An event is named as the user has, with what is known of it in
/// parentheses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It begins.
    Begins {
        /// The event of `--start-on`.
        event: String,
        /// Which one of several recordings that is.
        window: Option<Window>,
    },
    /// It pauses, or ends with the last window.
    Ends {
        /// The event of `--stop-on`.
        event: String,
        /// Which one of several recordings that was.
        window: Window,
    },
    /// It ends before the command does.
    EndsEarly(EarlyEnd),
    /// The ring is copied, and this trace is the copy.
    Dumped {
        /// The event of `--dump-on`.
        event: String,
    },
    /// Functions are recorded from here on, or no longer.
    Between {
        /// The functions of `--between`.
        glob: String,
        /// From here on they are.
        is_opening: bool,
        /// The event that turned the rule.
        event: String,
        /// Turns before that could not be noted.
        missed: u64,
    },
}

/// One of the recordings that a trace holds, with pauses between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The first is 1.
    pub number: u64,
    /// So many at most; 0: as often as it is asked for.
    pub of: u64,
}

/// Why recording ended before the command did, though the trace could be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EarlyEnd {
    /// The file had reached the size that it may have.
    AtSize,
    /// Its volume ran low.
    DiskLow,
    /// At an event of `--stop-on`.
    AtEvent(String),
}

impl Note {
    /// When it happened.
    pub fn tsc(&self) -> u64 {
        match *self {
            Self::ProcessExit { tsc, .. }
            | Self::Exec { tsc, .. }
            | Self::ModuleMap { tsc, .. }
            | Self::Recording { tsc, .. }
            | Self::Descriptors { tsc, .. }
            | Self::KernelExec { tsc, .. }
            | Self::Tables { tsc, .. }
            | Self::Counts { tsc, .. }
            | Self::InOrder { tsc, .. }
            | Self::Level { tsc, .. } => tsc,
        }
    }

    /// The process it concerns, 0 for none.
    pub fn pid(&self) -> u32 {
        match *self {
            Self::ProcessExit { pid, .. }
            | Self::Exec { pid, .. }
            | Self::ModuleMap { pid, .. }
            | Self::Recording { pid, .. }
            | Self::Descriptors { pid, .. }
            | Self::KernelExec { pid, .. }
            | Self::Tables { pid, .. }
            | Self::Counts { pid, .. }
            | Self::Level { pid, .. } => pid,
            Self::InOrder { .. } => 0,
        }
    }

    /// True if all functions of which it tells have such numbers.
    pub(crate) fn names_functions_below(&self, functions: usize) -> bool {
        let is_below = |id: FunctionId| (id.0 as usize) < functions;
        match self {
            Self::Counts { edges, .. } => edges
                .iter()
                .all(|edge| is_below(edge.callee) && edge.caller.is_none_or(is_below)),
            Self::Level { function, .. } => is_below(*function),
            _ => true,
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let tag = match self {
            Self::ProcessExit { .. } => 1,
            Self::Exec { .. } => 2,
            Self::ModuleMap { .. } => 3,
            Self::Recording { .. } => 4,
            Self::Descriptors { .. } => 5,
            Self::KernelExec { .. } => 8,
            Self::Tables { .. } => 12,
            Self::Counts { .. } => 6,
            Self::Level { .. } => 7,
            Self::InOrder { .. } => 9,
        };
        out.push(tag);
        put_v(out, u64::from(self.pid()));
        put_v(out, self.tsc());
        match self {
            Self::ProcessExit { status, .. } => {
                let (how, number) = parts(*status);
                out.push(how);
                put_v(out, u64::from(number as u32));
            }
            Self::Exec { path, .. } | Self::KernelExec { path, .. } => put_string(out, path),
            Self::ModuleMap { module, avma, .. } => {
                put_v(out, u64::from(module.0));
                put_v(out, avma.0);
            }
            Self::Recording { turn, .. } => turn.write(out),
            Self::Descriptors { folder, open, .. } => {
                put_string(out, folder);
                put_v(out, open.len() as u64);
                for (descriptor, path) in open {
                    put_v(out, u64::from(*descriptor));
                    put_string(out, path);
                }
            }
            Self::Tables { tables, .. } => {
                put_v(out, tables.len() as u64);
                tables.iter().for_each(|table| table.write(out));
            }
            Self::InOrder { is_in_part, .. } => out.push(u8::from(*is_in_part)),
            Self::Level {
                function, level, ..
            } => {
                put_v(out, u64::from(function.0));
                out.push(level.number());
            }
            Self::Counts { tid, edges, .. } => {
                put_v(out, u64::from(*tid));
                put_v(out, edges.len() as u64);
                for edge in edges {
                    let caller = edge.caller.map_or(0, |caller| u64::from(caller.0) + 1);
                    put_v(out, caller);
                    put_v(out, u64::from(edge.callee.0));
                    put_v(out, edge.calls);
                }
            }
        }
    }

    pub(crate) fn read(mut from: Cursor<'_>) -> Result<Self, Malformed> {
        let tag = from.u8()?;
        let (pid, tsc) = (from.v32()?, from.v()?);
        Ok(match tag {
            1 => {
                let how = from.u8()?;
                let number = from.v32()? as i32;
                let status = match how {
                    0 => ExitStatus::Exited(number),
                    1 => ExitStatus::Signaled(number),
                    _ => ExitStatus::Dumped(number),
                };
                Self::ProcessExit { pid, tsc, status }
            }
            2 => Self::Exec {
                pid,
                tsc,
                path: from.string()?,
            },
            3 => {
                let (module, avma) = (ModuleId(from.v32()?), Avma(from.v()?));
                Self::ModuleMap {
                    pid,
                    tsc,
                    module,
                    avma,
                }
            }
            4 => {
                let turn = Turn::read(&mut from)?;
                Self::Recording { pid, tsc, turn }
            }
            5 => {
                let folder = from.string()?;
                let mut open = Vec::new();
                for _ in 0..from.v()? {
                    open.push((from.v32()?, from.string()?));
                }
                Self::Descriptors {
                    pid,
                    tsc,
                    folder,
                    open,
                }
            }
            tag => return Self::read_sums(tag, (pid, tsc), from),
        })
    }

    /// What was counted inside of programs, and what the kernel's side tells.
    fn read_sums(tag: u8, (pid, tsc): (u32, u64), mut from: Cursor<'_>) -> Result<Self, Malformed> {
        Ok(match tag {
            7 => Self::Level {
                pid,
                tsc,
                function: FunctionId(from.v32()?),
                level: Level::read(&mut from)?,
            },
            8 => Self::KernelExec {
                pid,
                tsc,
                path: from.string()?,
            },
            9 => Self::InOrder {
                tsc,
                is_in_part: from.u8()? != 0,
            },
            12 => {
                let mut tables = Vec::new();
                for _ in 0..from.v()? {
                    tables.push(TableSums::read(&mut from)?);
                }
                Self::Tables { pid, tsc, tables }
            }
            6 => {
                let tid = from.v32()?;
                let mut edges = Vec::new();
                for _ in 0..from.v()? {
                    let caller = from.v32()?.checked_sub(1).map(FunctionId);
                    let (callee, calls) = (FunctionId(from.v32()?), from.v()?);
                    edges.push(Counted {
                        caller,
                        callee,
                        calls,
                    });
                }
                Self::Counts {
                    pid,
                    tsc,
                    tid,
                    edges,
                }
            }
            _ => return Err(Malformed("unknown kind of note")),
        })
    }
}

impl Turn {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Begins { event, window } => {
                out.push(1);
                put_string(out, event);
                // The first window is 1, so 0 is none.
                window.unwrap_or(Window { number: 0, of: 0 }).write(out);
            }
            Self::Ends { event, window } => {
                out.push(2);
                put_string(out, event);
                window.write(out);
            }
            Self::EndsEarly(why) => {
                out.push(3);
                why.write(out);
            }
            Self::Dumped { event } => {
                out.push(4);
                put_string(out, event);
            }
            Self::Between {
                glob,
                is_opening,
                event,
                missed,
            } => {
                out.extend([5, u8::from(*is_opening)]);
                put_string(out, glob);
                put_string(out, event);
                put_v(out, *missed);
            }
        }
    }

    fn read(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        Ok(match from.u8()? {
            1 => {
                let (event, window) = (from.string()?, Window::read(from)?);
                let window = (window.number > 0).then_some(window);
                Self::Begins { event, window }
            }
            2 => Self::Ends {
                event: from.string()?,
                window: Window::read(from)?,
            },
            3 => Self::EndsEarly(EarlyEnd::read(from.u8()?, from)?),
            4 => Self::Dumped {
                event: from.string()?,
            },
            5 => {
                let is_opening = from.u8()? != 0;
                let (glob, event, missed) = (from.string()?, from.string()?, from.v()?);
                Self::Between {
                    glob,
                    is_opening,
                    event,
                    missed,
                }
            }
            _ => return Err(Malformed("unknown turn of the recording")),
        })
    }
}

impl Window {
    fn write(self, out: &mut Vec<u8>) {
        put_v(out, self.number);
        put_v(out, self.of);
    }

    fn read(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (number, of) = (from.v()?, from.v()?);
        Ok(Self { number, of })
    }
}

impl EarlyEnd {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::AtSize => out.push(1),
            Self::DiskLow => out.push(2),
            Self::AtEvent(event) => {
                out.push(3);
                put_string(out, event);
            }
        }
    }

    /// `tag` is what was written first.
    pub(crate) fn read(tag: u8, from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        match tag {
            1 => Ok(Self::AtSize),
            2 => Ok(Self::DiskLow),
            3 => Ok(Self::AtEvent(from.string()?)),
            _ => Err(Malformed("unknown reason of an early end")),
        }
    }
}

/// How a process ended: 0 by exit, 1 by a signal, 2 by one with a core file; and which.
fn parts(status: ExitStatus) -> (u8, i32) {
    match status {
        ExitStatus::Exited(code) => (0, code),
        ExitStatus::Signaled(signal) => (1, signal),
        ExitStatus::Dumped(signal) => (2, signal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sums::{KeyColumn, KeyTold, TableRow};

    #[test]
    fn every_turn_comes_back_as_it_was_written() {
        let event = || "call:parse (thread 3)".to_owned();
        let window = Window { number: 2, of: 9 };
        let (glob, missed) = ("parse*".to_owned(), 7);
        let turns = [(event(), None), (event(), Some(window))]
            .map(|(event, window)| Turn::Begins { event, window });
        let early = [
            EarlyEnd::AtSize,
            EarlyEnd::DiskLow,
            EarlyEnd::AtEvent(event()),
        ];
        let between = [true, false].map(|is_opening| Turn::Between {
            glob: glob.clone(),
            is_opening,
            event: event(),
            missed,
        });
        let others = [
            Turn::Ends {
                event: event(),
                window,
            },
            Turn::Dumped { event: event() },
        ];
        let all = turns
            .into_iter()
            .chain(early.map(Turn::EndsEarly))
            .chain(between)
            .chain(others);
        for turn in all {
            let (pid, tsc) = (17, 1 << 40);
            let note = Note::Recording { pid, tsc, turn };
            let mut bytes = Vec::new();
            note.write(&mut bytes);
            assert_eq!(Note::read(Cursor::new(&bytes)).unwrap(), note);
            for end in 0..bytes.len() {
                assert!(Note::read(Cursor::new(&bytes[..end])).is_err());
            }
        }
    }

    #[test]
    fn tables_come_back_as_they_were_written() {
        let row = |key: u64| TableRow {
            keys: vec![key, u64::MAX],
            count: 3,
            values: vec![0, 1 << 63],
        };
        let note = Note::Tables {
            pid: 0,
            tsc: 1 << 40,
            tables: vec![
                TableSums {
                    title: "sizes".to_owned(),
                    left_out: 9,
                    columns: vec![KeyColumn::Stack, KeyColumn::Function],
                    told: vec![
                        KeyTold::Stack(vec![1, 0, u64::MAX]),
                        KeyTold::Text("/etc".to_owned()),
                    ],
                    rows: vec![row(1), row(2)],
                },
                TableSums::default(),
            ],
        };
        let mut bytes = Vec::new();
        note.write(&mut bytes);
        assert_eq!(Note::read(Cursor::new(&bytes)).unwrap(), note);
        for end in 0..bytes.len() {
            assert!(Note::read(Cursor::new(&bytes[..end])).is_err());
        }
    }

    #[test]
    fn a_kind_that_nobody_has_written_is_refused() {
        assert!(Note::read(Cursor::new(&[6, 0, 0])).is_err());
        assert!(Note::read(Cursor::new(&[4, 0, 0, 6])).is_err());
        assert!(Note::read(Cursor::new(&[4, 0, 0, 3, 4])).is_err());
    }
}
