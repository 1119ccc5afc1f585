//! What shall be recorded of the kernel, and how.
//!
//! Given by who starts a recording. Must not know: the command line, and how it is done.

use crate::blocks::wanted::Wanted;
use crate::counts;
use crate::level::Level;
use crate::policy::Policy;
use crate::tell::Listener;
use crate::turns::Turns;
use crate::values::Asked;
use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

/// What is recorded.
#[derive(Clone, Debug)]
pub enum Target {
    /// A command, with all that it starts.
    Command(Vec<OsString>),
    /// Processes that run, with all their threads and all that they start.
    Processes(Vec<u32>),
    /// Everything.
    Machine,
}

/// How it is recorded.
#[derive(Clone, Debug)]
pub struct Options {
    /// What.
    pub target: Target,
    /// What the command needs beside its arguments.
    pub prepare: fn(&mut Command),
    /// It ends after so long, if not before.
    pub duration: Option<Duration>,
    /// Memory of each processor's buffer.
    pub buffer_kib: u64,
    /// How deep it looks; the deepest that this machine allows if nobody says.
    pub level: Option<Level>,
    /// Which functions of the kernel's it sees.
    pub policy: Policy,
    /// Functions of which it sees the blocks.
    pub blocks: Vec<Wanted>,
    /// Values of functions that it keeps.
    pub values: Option<Asked>,
    /// What a script runs at calls of functions.
    pub counts: Option<counts::Asked>,
    /// System calls that are recorded; all if there are none.
    pub system_calls: Vec<u32>,
    /// It sees changes of users, groups and capabilities.
    pub has_privileges: bool,
    /// Events at which it begins, ends, and is copied.
    pub turns: Turns,
    /// How often a signal has come since this was asked before.
    pub signals: fn(i32) -> u64,
    /// Somebody who is told of frames at once.
    pub listener: Option<Listener>,
    /// Processes that work for us, and are no part of what is recorded.
    pub helpers: Vec<u32>,
    /// Tells the user what it does.
    pub say: fn(&str),
    /// The processor's time stamp counter, now.
    pub now_tsc: fn() -> u64,
}
