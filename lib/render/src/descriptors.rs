//! What the descriptors of processes lead to, as strace names it.
//!
//! Given lists of what processes had open at a time, and their calls in the order of time; gives
//! paths, and of sockets their addresses. What came by a message is not known. A path is that of
//! the call, from the process's folder; somebody else may follow its symbolic links. Must not know
//! how calls are shown.

use std::collections::{BTreeMap, HashMap};

use sptrace_types::calls::followed;
use sptrace_types::decode::memory::Memory;
use sptrace_types::decode::types::Phase;
use sptrace_types::syscalls;

use crate::listener::Call;
use crate::sockets::{Socket, address};

/// AT_FDCWD of openat(2): the folder that a process is in.
pub const FOLDER: i32 = -100;

const MOST_DESCRIPTORS: usize = 100_000;
const MOST_PATH_BYTES: usize = 4096;
const CLONE_THREAD: u64 = 0x10000;
const F_DUPFD: u64 = 0;
const F_DUPFD_CLOEXEC: u64 = 1030;

/// Follows the symbolic links of an absolute path, if there is such a file.
pub type Resolve = fn(&str) -> Option<String>;

/// Of all processes.
pub struct Descriptors {
    of: HashMap<u32, Table>,
    resolve: Resolve,
    /// Sockets are shown with their addresses.
    with_addresses: bool,
}

#[derive(Clone, Debug, Default)]
struct Table {
    folder: Option<String>,
    open: BTreeMap<i32, Open>,
}

#[derive(Clone, Debug)]
enum Open {
    Named(String),
    Socket(Socket),
}

impl Descriptors {
    /// Nothing is known yet.
    pub fn new(resolve: Resolve, with_addresses: bool) -> Self {
        Self {
            of: HashMap::new(),
            resolve,
            with_addresses,
        }
    }

    /// This is what a process has open, and the folder that it is in.
    pub fn listed(&mut self, pid: u32, folder: &str, open: &[(u32, String)]) {
        let named = |(fd, path): &(u32, String)| (*fd as i32, Open::Named(path.clone()));
        let table = Table {
            folder: Some(folder.to_owned()),
            open: open.iter().map(named).collect(),
        };
        self.of.insert(pid, table);
    }

    /// A process is there; if it is new it has what its parent has.
    pub fn meet(&mut self, pid: u32, parent: u32) {
        if !self.of.contains_key(&pid) {
            let inherited = self.of.get(&parent).cloned();
            self.of.insert(pid, inherited.unwrap_or_default());
        }
    }

    /// A process has ended: its number may be another's.
    pub fn gone(&mut self, pid: u32) {
        self.of.remove(&pid);
    }

    /// What a descriptor leads to; of [`FOLDER`], the process's folder.
    pub fn name(&self, pid: u32, fd: i32) -> Option<String> {
        let table = self.of.get(&pid)?;
        if fd == FOLDER {
            return table.folder.clone();
        }
        Some(match table.open.get(&fd)? {
            Open::Named(path) => path.clone(),
            Open::Socket(socket) if self.with_addresses => socket.with_addresses(),
            Open::Socket(_) => "socket:[?]".to_owned(),
        })
    }

    /// A path that a process has named, from its own folder or that of a descriptor, without `.`,
    /// `..` and symbolic links.
    pub fn path(&self, pid: u32, folder: i32, path: &str) -> String {
        let whole = match path.starts_with('/') {
            true => path.to_owned(),
            false => {
                let base = self.name(pid, folder).unwrap_or_default();
                format!("{base}/{path}")
            }
        };
        let own = format!("/proc/{pid}");
        let whole = match whole.strip_prefix("/proc/self") {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => own + rest,
            _ => whole,
        };
        (self.resolve)(&whole).unwrap_or_else(|| plain(&whole))
    }

    /// A call is about to be shown with its result: what it has made is known.
    pub fn made(&mut self, call: &Call) {
        let Some(result) = call.result.filter(|result| *result >= 0) else {
            return;
        };
        let Some(known) = syscalls::by_number(call.number) else {
            return;
        };
        if !followed::is_telling(known.name) {
            return;
        }
        match known.name {
            "fork" | "vfork" | "clone" | "clone3" => self.forked(call, known.name, result),
            "chdir" => {
                let folder = self.path(call.pid, FOLDER, &text(call, call.args[0]));
                self.table(call.pid).folder = Some(folder);
            }
            "fchdir" => {
                let folder = self.name(call.pid, call.args[0] as i32);
                self.table(call.pid).folder = folder;
            }
            name => {
                for (fd, open) in self.opened(call, name, result as i32) {
                    self.table(call.pid).open.insert(fd, open);
                }
            }
        }
    }

    /// It has been shown: what it has ended is not known any more.
    pub fn shown(&mut self, call: &Call) {
        let first = call.args[0] as i32;
        let Some(known) = syscalls::by_number(call.number) else {
            return;
        };
        // Even if it fails, it closes the descriptor.
        if known.name == "close" {
            self.table(call.pid).open.remove(&first);
        } else if known.name == "close_range" && call.result == Some(0) {
            let last = i32::try_from(call.args[1]).unwrap_or(i32::MAX);
            let is_left = |fd: &i32, _: &mut Open| !(first..=last).contains(fd);
            self.table(call.pid).open.retain(is_left);
        }
    }

    fn table(&mut self, pid: u32) -> &mut Table {
        let table = self.of.entry(pid).or_default();
        if table.open.len() > MOST_DESCRIPTORS {
            table.open.clear();
        }
        table
    }

    fn forked(&mut self, call: &Call, name: &str, child: i64) {
        let flags = match name {
            "clone" => call.args[0],
            // The first eight bytes of what it is given.
            "clone3" => number(call, Phase::Entry, call.args[0], 8),
            _ => 0,
        };
        // Threads have their process's; who only shares its files is told of as another process.
        if flags & CLONE_THREAD == 0
            && let Ok(child) = u32::try_from(child)
            && child > 0
        {
            self.meet(child, call.pid);
        }
    }

    /// The descriptors that a call has made, or changed.
    fn opened(&self, call: &Call, name: &str, result: i32) -> Vec<(i32, Open)> {
        let first = call.args[0] as i32;
        let of = |fd: i32| Some(self.of.get(&call.pid)?.open.get(&fd)?.clone());
        let named = |name: &str| vec![(result, Open::Named(name.to_owned()))];
        let path = |folder, argument: usize| {
            let text = text(call, call.args[argument]);
            named(&self.path(call.pid, folder, &text))
        };
        let is_duplicate = matches!(call.args[1], F_DUPFD | F_DUPFD_CLOEXEC);
        match name {
            "open" | "creat" => path(FOLDER, 0),
            "openat" | "openat2" => path(first, 1),
            "dup" | "dup2" | "dup3" => of(first).map(|open| (result, open)).into_iter().collect(),
            "fcntl" if is_duplicate => of(first).map(|open| (result, open)).into_iter().collect(),
            "pipe" | "pipe2" => pair(call, call.args[0], &Open::Named("pipe:[?]".to_owned())),
            "socket" => vec![(result, Open::Socket(Socket::new(call.args)))],
            "socketpair" => pair(call, call.args[3], &Open::Socket(Socket::new(call.args))),
            "bind" | "connect" | "getsockname" | "getpeername" => {
                self.addressed(call, name).into_iter().collect()
            }
            "accept" | "accept4" => self.accepted(call, result).into_iter().collect(),
            "memfd_create" => {
                let name = text(call, call.args[0]);
                named(&format!("/memfd:{name} (deleted)"))
            }
            "eventfd" | "eventfd2" => named("anon_inode:[eventfd]"),
            "epoll_create" | "epoll_create1" => named("anon_inode:[eventpoll]"),
            "timerfd_create" => named("anon_inode:[timerfd]"),
            "signalfd" | "signalfd4" => named("anon_inode:[signalfd]"),
            "inotify_init" | "inotify_init1" => named("anon_inode:inotify"),
            "pidfd_open" => named("anon_inode:[pidfd]"),
            "userfaultfd" => named("anon_inode:[userfaultfd]"),
            "io_uring_setup" => named("anon_inode:[io_uring]"),
            "perf_event_open" => named("anon_inode:[perf_event]"),
            "fanotify_init" => named("anon_inode:[fanotify]"),
            _ => Vec::new(),
        }
    }

    /// A socket that has got an address.
    fn addressed(&self, call: &Call, name: &str) -> Option<(i32, Open)> {
        let fd = call.args[0] as i32;
        let Open::Socket(socket) = self.of.get(&call.pid)?.open.get(&fd)? else {
            return None;
        };
        let phase = match name {
            "bind" | "connect" => Phase::Entry,
            _ => Phase::Exit,
        };
        let found = address(call.captured.read(phase, call.args[1], 128))?;
        let mut socket = socket.clone();
        match name {
            "bind" | "getsockname" => socket.local = Some(found),
            _ => socket.peer = Some(found),
        }
        Some((fd, Open::Socket(socket)))
    }

    fn accepted(&self, call: &Call, fd: i32) -> Option<(i32, Open)> {
        let listening = self.of.get(&call.pid)?.open.get(&(call.args[0] as i32))?;
        let Open::Socket(listening) = listening else {
            return None;
        };
        let mut socket = listening.clone();
        socket.peer = match call.args[1] {
            0 => None,
            at => address(call.captured.read(Phase::Exit, at, 128)),
        };
        Some((fd, Open::Socket(socket)))
    }
}

fn number(call: &Call, phase: Phase, address: u64, bytes: usize) -> u64 {
    let read = call.captured.read(phase, address, bytes);
    read.iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn pair(call: &Call, at: u64, open: &Open) -> Vec<(i32, Open)> {
    let bytes = call.captured.read(Phase::Exit, at, 8);
    let fds = bytes.chunks_exact(4).filter_map(<[u8]>::first_chunk);
    fds.map(|fd| (i32::from_le_bytes(*fd), open.clone()))
        .collect()
}

/// A string that was captured before the call.
fn text(call: &Call, address: u64) -> String {
    let bytes = call.captured.read(Phase::Entry, address, MOST_PATH_BYTES);
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or(bytes)).into_owned()
}

/// An absolute path without empty parts, `.` and `..`.
fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sptrace_types::decode::memory::{Captured, Chunk};

    const OPENAT: u32 = 257;
    const CLOSE: u32 = 3;
    const DUP2: u32 = 33;
    const FORK: u32 = 57;
    const FCHDIR: u32 = 81;

    fn call(pid: u32, number: u32, args: [u64; 6], result: i64, memory: &[u8]) -> Call {
        Call {
            number,
            tid: pid,
            pid,
            ppid: 1,
            start_tsc: 0,
            args,
            result: Some(result),
            end_tsc: Some(1),
            captured: Captured {
                chunks: vec![Chunk {
                    phase: Phase::Entry,
                    address: 0x1000,
                    bytes: memory.to_vec(),
                }],
            },
            acted: None,
            stack: Vec::new(),
        }
    }

    fn descriptors() -> Descriptors {
        let mut descriptors = Descriptors::new(|_| None, true);
        descriptors.listed(7, "/srv/me", &[(0, "/dev/null".to_owned())]);
        descriptors
    }

    fn tell(descriptors: &mut Descriptors, call: &Call) {
        descriptors.made(call);
        descriptors.shown(call);
    }

    #[test]
    fn what_is_opened_copied_inherited_and_closed_is_known() {
        let mut d = descriptors();
        assert_eq!(d.name(7, 0).as_deref(), Some("/dev/null"));
        let folder = FOLDER as i64 as u64;
        tell(
            &mut d,
            &call(7, OPENAT, [folder, 0x1000, 0, 0, 0, 0], 3, b"../a/./b\0"),
        );
        assert_eq!(d.name(7, 3).as_deref(), Some("/srv/a/b"));
        tell(&mut d, &call(7, DUP2, [3, 5, 0, 0, 0, 0], 5, b""));
        tell(&mut d, &call(7, FORK, [0; 6], 8, b""));
        tell(&mut d, &call(7, CLOSE, [5, 0, 0, 0, 0, 0], 0, b""));
        assert_eq!(d.name(7, 5), None);
        assert_eq!(d.name(8, 5).as_deref(), Some("/srv/a/b"));
        tell(&mut d, &call(8, FCHDIR, [3, 0, 0, 0, 0, 0], 0, b""));
        assert_eq!(d.name(8, FOLDER).as_deref(), Some("/srv/a/b"));
        assert_eq!(d.name(7, FOLDER).as_deref(), Some("/srv/me"));
    }

    #[test]
    fn a_call_that_fails_opens_nothing() {
        let mut d = descriptors();
        let folder = FOLDER as i64 as u64;
        tell(
            &mut d,
            &call(7, OPENAT, [folder, 0x1000, 0, 0, 0, 0], -2, b"x\0"),
        );
        assert_eq!(d.name(7, -2), None);
    }
}
