//! Who is who: the host's numbers of processes and threads that know themselves by those of their
//! own pid namespace.
//!
//! Given what a process says of itself in the arena: its number in the recording, which no other
//! process of the recording has, and its own idea of its pid. Gives the number that it has here, as
//! strace shows it: that of the process whose innermost number is the same, and in whose memory the
//! number in the recording is found. Knows nothing of records.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sptrace_tracee::arena::Arena;
use sptrace_tracee::memory;
use sptrace_tracee::proc::{self, Stat, Status, files};
use sptrace_wire::control::{
    HOST_RECORDING, PIDS_OTHER, POINTS_LEFT, Question, STREAM_LIVE, STREAMS, Stream,
};

/// Numbers that nobody has here (PID_MAX_LIMIT is 2 to the 22nd): for who ended before it could be
/// found.
const NOBODY: u32 = 1 << 30;

/// What is known of a process by its number in the recording and its own pid, and of a thread by
/// its tid, too.
#[derive(Default)]
pub struct Numbers {
    known: Mutex<Known>,
    /// Processes are let go, and lose what tells them from others.
    is_letting_go: AtomicBool,
}

#[derive(Default)]
struct Known {
    processes: HashMap<(u32, u32), u32>,
    tasks: HashMap<(u32, u32, u32), u32>,
    /// Those that run another program, unannounced.
    elsewhere: HashSet<(u32, u32)>,
}

impl Numbers {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number here of a process; None: it was never found, and is not there now.
    pub fn process(&self, arena: &Arena, number: u32, own: u32) -> Option<u32> {
        if let Some(pid) = self.known().processes.get(&(number, own)) {
            return Some(*pid);
        }
        let pid = find(arena, number, own)?;
        self.note(arena, number, own, pid);
        Some(pid)
    }

    fn note(&self, arena: &Arena, number: u32, own: u32, pid: u32) {
        if pid != own {
            let is_said = &arena.control().other_pids;
            is_said.store(1, Ordering::Relaxed);
        }
        self.known().processes.insert((number, own), pid);
    }

    /// The process that asks. It is there; a vfork child has its parent's number, and its own pid
    /// may have been another's before.
    pub fn asking(&self, arena: &Arena, q: &Question) -> Option<u32> {
        let before = self.known().processes.get(&(q.process, q.pid)).copied();
        if let Some(pid) = before.filter(|pid| is_it(arena, *pid, q.process, q.pid) == Some(true)) {
            return Some(pid);
        }
        let pid = find(arena, q.process, q.pid)?;
        self.note(arena, q.process, q.pid, pid);
        Some(pid)
    }

    /// The number by which a stream's process is shown.
    pub fn shown(&self, arena: &Arena, s: &Stream) -> u32 {
        let pid = self.process(arena, s.process, s.pid);
        pid.unwrap_or_else(|| {
            let pid = self.ended(s);
            self.known().processes.insert((s.process, s.pid), pid);
            pid
        })
    }

    /// Of a process that ended before it was found: where its parent has the same numbers here, so
    /// had it.
    fn ended(&self, s: &Stream) -> u32 {
        let parent = (s.parent_process, s.parent_pid);
        let parent = self.known().processes.get(&parent).copied();
        let is_here = parent.is_none_or(|pid| pid == s.parent_pid);
        match is_here && s.other_pids != PIDS_OTHER {
            true => s.pid,
            false => NOBODY | s.process & (NOBODY - 1),
        }
    }

    /// The same for its thread.
    pub fn shown_task(&self, arena: &Arena, s: &Stream) -> u32 {
        let pid = self.shown(arena, s);
        match self.task_of(pid, s) {
            Some(tid) => tid,
            None if s.tid == s.pid => pid,
            None => s.tid,
        }
    }

    /// The same for the process that it was forked in; 0: it was not.
    pub fn shown_parent(&self, arena: &Arena, s: &Stream) -> u32 {
        match s.parent_pid {
            0 => 0,
            own => self
                .process(arena, s.parent_process, own)
                .unwrap_or(s.parent_pid),
        }
    }

    fn task_of(&self, pid: u32, s: &Stream) -> Option<u32> {
        if pid == s.pid {
            return Some(s.tid);
        }
        let key = (s.process, s.pid, s.tid);
        if let Some(tid) = self.known().tasks.get(&key) {
            return Some(*tid);
        }
        let tid = task(pid, s.tid)?;
        self.known().tasks.insert(key, tid);
        Some(tid)
    }

    /// The thread of a stream exists and is no zombie.
    pub fn is_alive(&self, arena: &Arena, s: &Stream) -> bool {
        let pid = self.shown(arena, s);
        self.task_of(pid, s).is_some_and(|tid| runs(pid, tid))
    }

    /// From here on processes are let go, or no longer.
    pub fn letting_go(&self, is_so: bool) {
        self.is_letting_go.store(is_so, Ordering::Release);
    }

    /// Programs that processes have come to run since the last look without a word of the agent's.
    /// Who was announced is traced until his streams have ended.
    pub fn executed_unseen(&self, arena: &Arena) -> Vec<String> {
        let control = arena.control();
        let used = control.streams_used.load(Ordering::Acquire) as usize;
        let streams = (0..used.min(STREAMS)).map(|i| arena.stream(i));
        let is_first = |s: &&Stream| {
            let is_live = s.state.load(Ordering::Acquire) == STREAM_LIVE;
            s.tid == s.pid && is_live && s.first_lane().is_none()
        };
        let is_recording = || {
            !self.is_letting_go.load(Ordering::Acquire)
                && control.host_state.load(Ordering::Acquire) == HOST_RECORDING
        };
        if !is_recording() {
            return Vec::new();
        }
        let executed = streams.filter(is_first).filter_map(|s| {
            let key = (s.process, s.pid);
            let pid = self.process(arena, s.process, s.pid)?;
            if self.known().elsewhere.contains(&key)
                || is_it(arena, pid, s.process, s.pid) != Some(false)
                || !is_free(pid, s.pid)
                || !is_recording()
            {
                return None;
            }
            self.known().elsewhere.insert(key);
            files::program_name(pid).ok()
        });
        executed.collect()
    }
}

/// The process of that number in the recording which takes `own` for its pid.
fn find(arena: &Arena, number: u32, own: u32) -> Option<u32> {
    let is_surely = |pid: u32| is_it(arena, pid, number, own);
    let first = is_surely(own);
    if first == Some(true) {
        return Some(own);
    }
    let all = proc::processes().into_iter();
    let mut others = all.filter(|pid| *pid != own);
    let found = others.find(|pid| is_surely(*pid) == Some(true));
    // Of one that may not be looked at, nothing speaks against it.
    found.or_else(|| first.is_none().then_some(own))
}

/// Is it the process? None: nobody knows, since it may not be looked at.
fn is_it(arena: &Arena, pid: u32, number: u32, own: u32) -> Option<bool> {
    let at = arena.control().number_avma.load(Ordering::Acquire);
    if at == 0 || own_number(Status::of(pid)) != Some(own) {
        return Some(false);
    }
    let memory = match memory::look_at(pid) {
        Ok(memory) => memory,
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => return None,
        Err(_) => return Some(false),
    };
    let mut found = [0u8; 4];
    let is_there = memory.read_exact_at(&mut found, at).is_ok();
    Some(is_there && u32::from_le_bytes(found) == number)
}

/// How many return points were left alone in a process so far, and in those that it was forked in.
/// `None`: that cannot be read, of one that is gone or without the agent.
pub fn points_left(arena: &Arena, pid: u32) -> Option<u32> {
    let at = arena.control().number_avma.load(Ordering::Acquire);
    let mut found = [0u8; 4];
    let memory = memory::look_at(pid).ok().filter(|_| at != 0)?;
    let is_there = memory.read_exact_at(&mut found, at + POINTS_LEFT).is_ok();
    is_there.then_some(u32::from_le_bytes(found))
}

/// The number here of a thread of a process that knows itself by its own.
pub fn task(pid: u32, own: u32) -> Option<u32> {
    let is_it = |tid: &u32| own_number(Status::of_thread(pid, *tid)) == Some(own);
    if is_it(&own) {
        return Some(own);
    }
    proc::threads(pid).into_iter().find(is_it)
}

/// By which number a thread knows itself.
pub fn own_task(pid: u32, tid: u32) -> u32 {
    own_number(Status::of_thread(pid, tid)).unwrap_or(tid)
}

/// The process still has that number of its own, has memory, and nobody traces it.
fn is_free(pid: u32, own: u32) -> bool {
    Status::of(pid).is_ok_and(|status| {
        status.has_memory() && status.tracer().is_none() && status.own_number() == Some(own)
    })
}

fn runs(pid: u32, tid: u32) -> bool {
    match Stat::of_thread(pid, tid) {
        Ok(stat) => !stat.has_ended(),
        // Anything else, as that too many files are open: nobody knows, and it is asked again. Of a
        // thread that runs, what it writes next would be taken for another's.
        Err(e) => !matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)),
    }
}

fn own_number(status: std::io::Result<Status>) -> Option<u32> {
    status.ok()?.own_number()
}
