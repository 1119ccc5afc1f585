//! What is told of system calls: calls that begin and end, signals, processes.
//!
//! Given by who puts calls together ([`crate::system_calls`]); a [`Listener`] takes it. Must not
//! know how a call is shown.

use sptrace_trace::values::Acted;
use sptrace_trace::{ExitStatus, FunctionId};
use sptrace_types::decode::memory::Captured;

/// A system call.
#[derive(Clone, Debug)]
pub struct Call {
    /// Which.
    pub number: u32,
    /// The thread that made it.
    pub tid: u32,
    /// Its process, as far as that is known: of a vfork(2) child its parent's.
    pub pid: u32,
    /// The process that made its process.
    pub ppid: u32,
    /// When it began.
    pub start_tsc: u64,
    /// Its arguments.
    pub args: [u64; 6],
    /// What it returned, errors as the kernel returns them; `None`: it did not return.
    pub result: Option<i64>,
    /// When it ended; `None`: that was not seen.
    pub end_tsc: Option<u64>,
    /// The memory that shows its arguments.
    pub captured: Captured,
    /// What a payload has done to it.
    pub acted: Option<Acted>,
    /// The functions that it was made in, the innermost first, if that was asked for and they were
    /// recorded.
    pub stack: Vec<FunctionId>,
}

/// A signal that is delivered to a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Its number.
    pub number: u32,
    /// The thread that it comes to.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// When.
    pub tsc: u64,
    /// Its siginfo_t; empty: not known, since the handler has not asked for it.
    pub info: Vec<u8>,
}

/// Is told of calls and processes in the order of time.
pub trait Listener {
    /// A call begins.
    fn begins(&mut self, call: &Call);
    /// It has ended.
    fn ended(&mut self, call: &Call);
    /// A process, or a thread of it, has ended.
    fn exited(&mut self, tsc: u64, tid: u32, status: ExitStatus);
    /// A signal is delivered to a handler.
    fn signal(&mut self, _signal: &Signal) {}
    /// This is what a process has open, and the folder that it is in.
    fn listed(&mut self, _pid: u32, _folder: &str, _open: &[(u32, String)]) {}
    /// It has enough.
    fn is_finished(&self) -> bool;
}
