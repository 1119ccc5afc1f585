//! What a trace says: header, modules, functions, streams and events, and how each but the events
//! is written as bytes (the events have [`crate::encoder`] and its counterpart). Notes are
//! [`crate::note`], the summary is [`crate::summary`].
//!
//! Identifiers are indexes in order of appearance in one file. Times are TSC ticks; [`Clock`]
//! makes them nanoseconds.

use crate::error::Malformed;
use crate::format::{Cursor, put_bytes, put_string, put_v};
use sptrace_addr::Svma;
use std::ops::Range;

/// Index of a module in the trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ModuleId(pub u32);
/// Index of a function in the trace, below 2^29 - 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FunctionId(pub u32);
/// Index of a stream in the trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u32);

/// What was traced, where, when and by which clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Arguments of the traced command, program first.
    pub command: Vec<String>,
    /// Folder it was started in.
    pub cwd: String,
    /// Name of the machine.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// Model name of the processor.
    pub cpu: String,
    /// Version of the sptrace that wrote the trace.
    pub tool_version: String,
    /// Wall clock at the start, nanoseconds since 1970 (UTC).
    pub start_unix_ns: u64,
    /// Ticks a second of the time stamp counter.
    pub tsc_hz: u64,
    /// The counter at the start.
    pub start_tsc: u64,
}

/// A file with code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Path as the traced process saw it, or a name in brackets (`[vdso]`, `[jit]`).
    pub path: String,
    /// Build-id bytes; of a file that has none a hash of its code, 8 bytes; empty if it is no file.
    pub build_id: Vec<u8>,
    /// Stated addresses that it covers.
    pub svma: Range<Svma>,
}

impl Module {
    /// The last component of the path.
    pub fn base_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// It has what the kernel did: system calls, interrupts, waits, functions of the kernel's.
    pub fn is_of_kernel(&self) -> bool {
        const OF_PROGRAMS: [&str; 3] = ["[vdso]", "[jit]", "[vsyscall]"];
        self.path.starts_with('[') && !OF_PROGRAMS.contains(&self.path.as_str())
    }
}

/// The module of the functions that stand for system calls, by their numbers.
pub const SYSTEM_CALLS: &str = "[system calls]";

/// A function that the trace names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Module that holds it.
    pub module: ModuleId,
    /// Its first byte.
    pub svma: Svma,
    /// Its length, 0 if unknown.
    pub size_bytes: u64,
    /// Raw (mangled) name, empty if it has none.
    pub symbol: String,
}

/// One thread of one process epoch (an exec begins a new one).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamInfo {
    /// Process.
    pub pid: u32,
    /// Thread; of a lane, see [`crate::lane_tid`].
    pub tid: u32,
    /// Parent process.
    pub ppid: u32,
    /// Name of the thread at its start.
    pub comm: String,
    /// When recording began.
    pub start_tsc: u64,
    /// The stream that forked this one, if it was traced.
    pub parent: Option<StreamId>,
    /// How many execs the process had made before.
    pub execs: u32,
}

/// How a frame was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// By a call; its exit is seen.
    Call,
    /// By a jump out of the running frame; ends together with it.
    Tail,
    /// By a call whose exit is not seen.
    Open,
    /// Before the recording began; its exit is not seen either.
    Earlier,
}

impl Entry {
    /// A chain of tails and entry-only frames does not reach below a frame opened so.
    pub(crate) fn ends_chain(self) -> bool {
        matches!(self, Self::Call | Self::Earlier)
    }
}

/// One event of a stream; `tsc` never decreases within a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(
    missing_docs,
    reason = "the fields are `tsc` and what the variant's text names"
)]
pub enum Event {
    /// A function begins.
    Enter {
        tsc: u64,
        callee: FunctionId,
        entry: Entry,
    },
    /// A function that the process was forked in: it began in the parent, and goes on here. Comes
    /// before all else of its stream, outermost first. The entry is [`Entry::Call`] or
    /// [`Entry::Open`].
    Inherited {
        tsc: u64,
        callee: FunctionId,
        entry: Entry,
    },
    /// The innermost call frame ends, with the tail and open frames above it.
    Exit { tsc: u64 },
    /// That many innermost frames, tail frames above them not counted, are known to have ended (at
    /// the latest now): open ones, or calls whose return address was given back.
    CloseOpen { tsc: u64, frames: u32 },
    /// What follows is not shown to run inside the innermost `frames` entry-only frames (tails
    /// above them not counted): the function that it is called from is none of theirs. They may be
    /// open all the same, and what tells ends counts them.
    Outside { tsc: u64, frames: u32 },
    /// That many call frames are gone without an exit (longjmp, throw).
    Unwound { tsc: u64, frames: u32 },
    /// A call returned once more (setjmp, vfork), or a frame opened before the trace ended.
    Resumed { tsc: u64, callee: FunctionId },
    /// Events are missing here.
    Lost { tsc: u64, events: u64 },
    /// The thread waited for sptrace, ending now.
    Blocked { tsc: u64, ticks: u64 },
    /// What the call that has just begun, or ends next, brought with it: see [`Block::values`].
    ///
    /// [`Block::values`]: crate::Block::values
    Values { tsc: u64, at: u32, bytes: u32 },
    /// What follows happened between `back` ticks before this and `ahead` ticks after it, as far as
    /// its times are earlier than that end: they are estimates.
    Between { tsc: u64, back: u64, ahead: u64 },
}

impl Event {
    /// When it happened.
    pub fn tsc(&self) -> u64 {
        match *self {
            Self::Enter { tsc, .. }
            | Self::Inherited { tsc, .. }
            | Self::Exit { tsc }
            | Self::CloseOpen { tsc, .. }
            | Self::Outside { tsc, .. }
            | Self::Unwound { tsc, .. }
            | Self::Resumed { tsc, .. }
            | Self::Lost { tsc, .. }
            | Self::Blocked { tsc, .. }
            | Self::Values { tsc, .. }
            | Self::Between { tsc, .. } => tsc,
        }
    }
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitStatus {
    /// `exit(n)`.
    Exited(i32),
    /// Killed by a signal.
    Signaled(i32),
    /// The same, and its memory was dumped into a core file.
    Dumped(i32),
}

/// Makes ticks nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    start_tsc: u64,
    tsc_hz: u64,
}

impl Clock {
    /// The clock of a trace; a frequency of 0 is read as 1 GHz.
    pub fn of(header: &Header) -> Self {
        let tsc_hz = if header.tsc_hz == 0 {
            1_000_000_000
        } else {
            header.tsc_hz
        };
        Self {
            start_tsc: header.start_tsc,
            tsc_hz,
        }
    }
    /// Nanoseconds in `ticks`, rounded down, at most `u64::MAX`.
    pub fn ns(&self, ticks: u64) -> u64 {
        // Dividing 128 bits is several times slower, and times are many.
        if let Some(product) = ticks.checked_mul(1_000_000_000) {
            return product / self.tsc_hz;
        }
        let ns = u128::from(ticks) * 1_000_000_000 / u128::from(self.tsc_hz);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
    /// Ticks in `ns`, rounded down, at most `u64::MAX`.
    pub fn ticks(&self, ns: u64) -> u64 {
        let ticks = u128::from(ns) * u128::from(self.tsc_hz) / 1_000_000_000;
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
    /// Nanoseconds from the start of the trace to `tsc`, 0 before it.
    pub fn since_start_ns(&self, tsc: u64) -> u64 {
        self.ns(tsc.saturating_sub(self.start_tsc))
    }
    /// The counter `ns` after the start of the trace.
    pub fn tsc_at(&self, ns: u64) -> u64 {
        self.start_tsc.saturating_add(self.ticks(ns))
    }
}

impl Header {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put_v(out, self.command.len() as u64);
        for argument in &self.command {
            put_string(out, argument);
        }
        for text in [
            &self.cwd,
            &self.host,
            &self.kernel,
            &self.cpu,
            &self.tool_version,
        ] {
            put_string(out, text);
        }
        for number in [self.start_unix_ns, self.tsc_hz, self.start_tsc] {
            put_v(out, number);
        }
    }

    pub(crate) fn read(mut from: Cursor<'_>) -> Result<Self, Malformed> {
        let arguments = from.v()?;
        let mut command = Vec::new();
        for _ in 0..arguments {
            command.push(from.string()?);
        }
        Ok(Self {
            command,
            cwd: from.string()?,
            host: from.string()?,
            kernel: from.string()?,
            cpu: from.string()?,
            tool_version: from.string()?,
            start_unix_ns: from.v()?,
            tsc_hz: from.v()?,
            start_tsc: from.v()?,
        })
    }
}

impl Module {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put_string(out, &self.path);
        put_bytes(out, &self.build_id);
        put_v(out, self.svma.start.0);
        put_v(out, self.svma.end.0);
    }

    pub(crate) fn read(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            path: from.string()?,
            build_id: from.bytes()?.to_vec(),
            svma: Svma(from.v()?)..Svma(from.v()?),
        })
    }
}

impl Function {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put_v(out, u64::from(self.module.0));
        put_v(out, self.svma.0);
        put_v(out, self.size_bytes);
        put_string(out, &self.symbol);
    }

    pub(crate) fn read(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            module: ModuleId(from.v32()?),
            svma: Svma(from.v()?),
            size_bytes: from.v()?,
            symbol: from.string()?,
        })
    }
}

impl StreamInfo {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for number in [self.pid, self.tid, self.ppid, self.execs] {
            put_v(out, u64::from(number));
        }
        put_string(out, &self.comm);
        put_v(out, self.start_tsc);
        // 0 is "none", so that an index needs no extra byte.
        put_v(out, self.parent.map_or(0, |parent| u64::from(parent.0) + 1));
    }

    pub(crate) fn read(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (pid, tid, ppid, execs) = (from.v32()?, from.v32()?, from.v32()?, from.v32()?);
        Ok(Self {
            pid,
            tid,
            ppid,
            execs,
            comm: from.string()?,
            start_tsc: from.v()?,
            parent: from.v32()?.checked_sub(1).map(StreamId),
        })
    }
}
