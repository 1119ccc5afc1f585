//! `--live`: lines of system calls while they are made.
//!
//! Given the options, and what the recording tells of calls and processes ([`Tap`]); writes lines
//! as `report lines` does, to standard error, a file, a file for each process, or a command. A
//! thread of its own writes: who tells only queues, so no output, however slow, holds up the
//! program. What the queue has no room for is counted and said. Must not know how a call is shown.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use sptrace_collect::tap::{Tap, Told};
use sptrace_render::{Call, Calls, Lines, LinesOptions, Listener, Signal, Teller};
use sptrace_trace::{Clock, ExitStatus, Header};

use crate::commands::lines::LineArgs;
use crate::talk::say;

/// What was told and not written takes at most so many bytes.
const MOST_QUEUED_BYTES: usize = 64 << 20;

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Standard error.
    Stderr,
    /// A file.
    File(PathBuf),
    /// A file for each process.
    FilePerProcess(PathBuf),
    /// The input of a command.
    Command(String),
}

impl Place {
    /// What `--live` and `--per-process` say.
    ///
    /// # Errors
    /// They do not fit together.
    pub fn of(text: &str, per_process: bool) -> Result<Self, String> {
        match (text, text.strip_prefix('|')) {
            ("" | "-" | "|", _) | (_, Some(_)) if per_process => {
                Err("--per-process needs --live=FILE: files are named FILE.PID".to_owned())
            }
            ("" | "-", _) => Ok(Self::Stderr),
            (_, Some(command)) => Ok(Self::Command(command.to_owned())),
            (file, None) if per_process => Ok(Self::FilePerProcess(file.into())),
            (file, None) => Ok(Self::File(file.into())),
        }
    }
}

/// What is told and not written yet.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lots: VecDeque<Vec<Told>>,
    bytes: usize,
    /// Things told that there was no room for.
    left_out: u64,
    /// No more will come.
    is_ended: bool,
    /// Nothing can be written any more.
    has_failed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, lot: Vec<Told>) {
        let mut state = self.lock();
        if state.has_failed {
            return;
        }
        if state.bytes > MOST_QUEUED_BYTES {
            state.left_out += lot.len() as u64;
            return;
        }
        state.bytes += bytes_of(&lot);
        state.lots.push_back(lot);
        self.changed.notify_one();
    }

    /// The next lot, and how many things are missing before it; `None`: all has been told.
    fn take(&self) -> Option<(Vec<Told>, u64)> {
        let mut state = self.lock();
        loop {
            if let Some(lot) = state.lots.pop_front() {
                state.bytes -= bytes_of(&lot);
                // They came after what is queued.
                let left_out = match state.lots.is_empty() {
                    true => std::mem::take(&mut state.left_out),
                    false => 0,
                };
                return Some((lot, left_out));
            }
            if state.is_ended {
                return None;
            }
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_empty(&self) -> bool {
        self.lock().lots.is_empty()
    }
}

fn bytes_of(lot: &[Told]) -> usize {
    let each = lot.iter().map(|told| match told {
        Told::Values { bytes, .. } => bytes.len(),
        Told::Note(_) => 0,
    });
    each.sum::<usize>() + size_of_val(lot)
}

/// How lines shall look.
#[derive(Clone)]
pub struct Shown {
    /// The options.
    pub lines: LineArgs,
    /// The most bytes of strings.
    pub string_limit: usize,
    /// Where results stand.
    pub column: usize,
    /// How long calls must have taken.
    pub min_ns: u64,
}

impl Shown {
    /// For what writes them.
    ///
    /// # Errors
    /// An option is wrong.
    pub fn options(&self) -> anyhow::Result<LinesOptions<'static>> {
        self.lines.options(self.string_limit, self.column)
    }
}

/// The live lines of a recording.
pub struct Live {
    queue: Arc<Queue>,
    place: Place,
    /// Where it is written, until the thread has it.
    out: Option<Patient>,
    shown: Shown,
    helper: Option<Child>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    /// Opens the output.
    ///
    /// # Errors
    /// It cannot be opened, or an option is wrong; one line for the user.
    pub fn open(place: Place, shown: Shown) -> Result<Self, String> {
        shown.options().map_err(|e| format!("{e:#}"))?;
        let mut helper = None;
        let cannot = |path: &Path, e| format!("cannot write lines to {}: {e}", path.display());
        let out = match &place {
            Place::Stderr => {
                let stderr = io::stderr().as_fd().try_clone_to_owned();
                Some(stderr.map_err(|e| format!("cannot write lines to standard error: {e}"))?)
            }
            Place::File(path) => {
                let file = File::create(path).map_err(|e| cannot(path, e))?;
                Some(file.into())
            }
            Place::FilePerProcess(path) => {
                let folder = path.parent().filter(|f| !f.as_os_str().is_empty());
                if folder.is_some_and(|folder| !folder.is_dir()) {
                    let e = io::Error::from(ErrorKind::NotFound);
                    return Err(cannot(path, e));
                }
                None
            }
            Place::Command(command) => {
                let mut shell = Command::new("/bin/sh");
                let shell = shell.arg("-c").arg(command).stdin(Stdio::piped());
                let spawned = shell.spawn();
                let mut child = spawned.map_err(|e| cannot(Path::new("/bin/sh"), e))?;
                let input = child.stdin.take().map(OwnedFd::from);
                helper = Some(child);
                input
            }
        };
        Ok(Self {
            queue: Arc::default(),
            place,
            out: out.map(Patient),
            shown,
            helper,
            thread: None,
        })
    }

    /// Who the recording shall tell.
    pub fn tap(&self) -> Tap {
        let queue = Arc::clone(&self.queue);
        Tap(Arc::new(move |lot| queue.put(lot)))
    }

    /// The process that reads the lines, a child of ours.
    pub fn helper(&self) -> Option<u32> {
        self.helper.as_ref().map(Child::id)
    }

    /// The recording begins, with this header.
    ///
    /// # Errors
    /// There cannot be another thread.
    pub fn begin(&mut self, header: &Header) -> Result<(), String> {
        let (queue, header) = (Arc::clone(&self.queue), header.clone());
        let (place, out) = (self.place.clone(), self.out.take());
        let shown = self.shown.clone();
        // Options hold what belongs to one thread.
        let body = move || {
            if let Ok(mut options) = shown.options() {
                options.min_ticks = Clock::of(&header).ticks(shown.min_ns);
                Writer::new(queue, place, out, &header, options).run();
            }
        };
        let thread = std::thread::Builder::new().name("lines".to_owned());
        // Signals are for the session's thread.
        let spawned = with_signals_blocked(|| thread.spawn(body));
        self.thread = Some(spawned.map_err(|e| format!("cannot write lines: {e}"))?);
        Ok(())
    }

    /// Nothing more will be told: waits until all is written.
    pub fn end(mut self) {
        self.queue.lock().is_ended = true;
        self.queue.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(mut helper) = self.helper.take() {
            // Its input has ended. Who waits for all children may have taken it already.
            let _ = helper.wait();
        }
    }
}

/// Does it with all signals blocked in this thread, as threads that it begins have them.
pub fn with_signals_blocked<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: sets are ours; the mask is put back.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        let mut former = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut former);
        let result = act();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const former, std::ptr::null_mut());
        result
    }
}

/// An output that may be one that does not wait (O_NONBLOCK), as terminals of others are: we do.
struct Patient(OwnedFd);

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            // SAFETY: the bytes are the slice's.
            let written =
                unsafe { libc::write(self.0.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
            if let Ok(written) = usize::try_from(written) {
                return Ok(written);
            }
            let error = io::Error::last_os_error();
            if error.kind() != ErrorKind::WouldBlock {
                return Err(error);
            }
            let mut ready = libc::pollfd {
                fd: self.0.as_raw_fd(),
                events: libc::POLLOUT,
                revents: 0,
            };
            // SAFETY: one entry of ours.
            unsafe { libc::poll(&raw mut ready, 1, -1) };
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type Printer = Lines<'static, BufWriter<Patient>>;

/// What the thread writes.
struct Writer {
    queue: Arc<Queue>,
    calls: Calls<Files>,
}

impl Writer {
    fn new(
        queue: Arc<Queue>,
        place: Place,
        out: Option<Patient>,
        header: &Header,
        options: LinesOptions<'static>,
    ) -> Self {
        let mut files = Files {
            header: header.clone(),
            clock: Clock::of(header),
            options,
            base: None,
            one: None,
            of: HashMap::new(),
            process_of: HashMap::new(),
            result: Ok(()),
        };
        match (place, out) {
            (Place::FilePerProcess(base), _) => files.base = Some(base),
            (_, Some(out)) => files.one = Some(files.printer(out)),
            (_, None) => {}
        }
        Self {
            queue,
            calls: Calls::new(files),
        }
    }

    fn run(mut self) {
        while let Some((lot, left_out)) = self.queue.take() {
            for told in lot {
                match told {
                    Told::Values {
                        pid,
                        tid,
                        ppid,
                        tsc,
                        bytes,
                    } => self.calls.values(Teller { pid, tid, ppid }, tsc, &bytes),
                    Told::Note(note) => {
                        self.calls.note(&note);
                        self.calls.come_to(note.tsc());
                    }
                }
            }
            if left_out > 0 {
                let text = format!(
                    "sptrace: {left_out} beginnings and ends of calls are not shown here: lines \
                     were written too slowly (`sptrace report lines` has them)"
                );
                self.calls.listener.all(|lines| lines.say(&text));
            }
            if self.queue.is_empty() {
                self.calls.listener.all(Lines::show_begun);
            }
            if let Some(error) = self.calls.listener.failed() {
                self.queue.lock().has_failed = true;
                say(&format!(
                    "lines are not shown any more: {error} (the program was not disturbed; \
                     `sptrace report lines` shows them)"
                ));
                return;
            }
        }
        let mut files = self.calls.finish();
        files.all(Lines::flush);
    }
}

/// Where the lines of each process go.
struct Files {
    header: Header,
    clock: Clock,
    options: LinesOptions<'static>,
    /// The name of a process's file begins so.
    base: Option<PathBuf>,
    /// All lines go here.
    one: Option<Printer>,
    of: HashMap<u32, Printer>,
    /// Threads that have made a call.
    process_of: HashMap<u32, u32>,
    /// The first error of opening a file.
    result: io::Result<()>,
}

impl Files {
    fn printer(&self, out: Patient) -> Printer {
        let options = self.options.clone();
        Lines::new(BufWriter::new(out), &self.header, self.clock, options)
    }

    fn all(&mut self, mut act: impl FnMut(&mut Printer)) {
        self.one.iter_mut().for_each(&mut act);
        self.of.values_mut().for_each(act);
    }

    fn failed(&mut self) -> Option<io::Error> {
        let taken = |result: &mut io::Result<()>| std::mem::replace(result, Ok(())).err();
        let mut all = self.one.iter_mut().chain(self.of.values_mut());
        let of_lines = all.find_map(|lines| taken(&mut lines.result));
        of_lines.or_else(|| taken(&mut self.result))
    }

    /// The lines of a process.
    fn of(&mut self, pid: u32) -> Option<&mut Printer> {
        let Some(base) = &self.base else {
            return self.one.as_mut();
        };
        if !self.of.contains_key(&pid) {
            let mut path = base.clone().into_os_string();
            path.push(format!(".{pid}"));
            match File::create(path) {
                Ok(file) => {
                    let mut printer = self.printer(Patient(file.into()));
                    if let Some(other) = self.of.values().next() {
                        printer.share_descriptors(other);
                    }
                    self.of.insert(pid, printer);
                }
                Err(e) => self.result = Err(e),
            }
        }
        self.of.get_mut(&pid)
    }
}

impl Listener for Files {
    fn begins(&mut self, call: &Call) {
        self.process_of.insert(call.tid, call.pid);
        if let Some(lines) = self.of(call.pid) {
            lines.begins(call);
        }
    }

    fn ended(&mut self, call: &Call) {
        if let Some(lines) = self.of(call.pid) {
            lines.ended(call);
        }
    }

    fn signal(&mut self, signal: &Signal) {
        if let Some(lines) = self.of(signal.pid) {
            lines.signal(signal);
        }
    }

    fn exited(&mut self, tsc: u64, tid: u32, status: ExitStatus) {
        let pid = self.process_of.remove(&tid).unwrap_or(tid);
        if let Some(lines) = self.of(pid) {
            lines.exited(tsc, tid, status);
            lines.flush();
        }
        // The number may be another's.
        if pid == tid
            && let Some(lines) = self.of.remove(&pid)
            && lines.result.is_err()
        {
            self.result = lines.result;
        }
    }

    fn listed(&mut self, pid: u32, folder: &str, open: &[(u32, String)]) {
        if let Some(lines) = self.of(pid) {
            lines.listed(pid, folder, open);
        }
    }

    fn is_finished(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        assert_eq!(Place::of("-", false), Ok(Place::Stderr));
        assert_eq!(Place::of("a", false), Ok(Place::File("a".into())));
        assert_eq!(Place::of("a", true), Ok(Place::FilePerProcess("a".into())));
        let command = Place::Command("less -S".to_owned());
        assert_eq!(Place::of("|less -S", false), Ok(command));
        assert!(Place::of("|less", true).is_err());
        assert!(Place::of("-", true).is_err());
    }

    #[test]
    fn what_there_is_no_room_for_is_counted_behind_what_is_queued() {
        let queue = Queue::default();
        let lot = |bytes: usize| {
            vec![Told::Values {
                pid: 1,
                tid: 1,
                ppid: 0,
                tsc: 0,
                bytes: vec![0; bytes],
            }]
        };
        queue.put(lot(MOST_QUEUED_BYTES));
        queue.put(lot(1));
        queue.put(lot(1));
        let (first, left_out) = queue.take().unwrap();
        assert_eq!((first.len(), left_out), (1, 2));
        queue.put(lot(1));
        assert_eq!(queue.take().unwrap().1, 0);
        queue.lock().is_ended = true;
        assert!(queue.take().is_none());
    }
}
