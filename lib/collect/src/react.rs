//! What a recording does when an [`event`](crate::event) happens: it begins, writes its ring out, or ends.
//!
//! Whoever sees an event holds the collector's lock: the drain thread for calls, the session for signals and
//! the command's end, the events thread for everything else. Under the lock the ring is copied, with what the
//! threads have written into their chunks by then ([`crate::collector`]'s peek), so that the copy reaches up to
//! the event; it is written without the lock, by the events thread, while the program goes on.
//!
//! Must not know: how events are recognised, or what a trace file looks like.

mod prepared;
mod rules;

pub use prepared::Prepared;

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufWriter;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use sptrace_trace::{DUMP, ExitStatus, Note, Snapshot, Summary};

use crate::between::{Between, Rule};
use crate::clock;
use crate::collector::Collector;
use crate::event::parse::signal_name;
use crate::event::processes::Processes;
use crate::event::time::Moments;
use crate::event::{Armed, Event, Occurrence, Reaction, Source, Verdict, What, wait::once};
use crate::gate::Gates;
use crate::output::{self, Output};
use crate::shared::{Shared, Stopped};
use crate::windows::{Start, Windows};

/// Copies that wait for being written; more would take the memory of as many rings.
const WAITING: usize = 2;

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct OnEvents {
    /// A command will be started, which has our terminal; else there is one already, which has not.
    pub is_launched: bool,
    /// Begin the recording at the first of these; none: at the command's start.
    pub start_on: Vec<Event>,
    /// Until then the command is followed, and nothing recorded: calls can begin the recording.
    pub shadow: bool,
    /// Record the calls of some functions between two events each.
    pub between: Vec<Rule>,
    /// Write the ring out at these.
    pub dump_on: Vec<Event>,
    /// End the recording at these.
    pub stop_on: Vec<Event>,
    /// How often each of `dump_on` does so, each of `between` opens, and the recording begins and ends.
    pub times: u64,
    /// Tells the user of a dump.
    pub say: fn(&str),
    /// Tells the user of a dump that failed.
    pub warn: fn(&str),
}

/// The events of a recording and what has come of them.
pub struct Reactor {
    armed: Arc<Armed>,
    asked: OnEvents,
    output: PathBuf,
    /// The ring, if it is kept in memory.
    ring: Option<File>,
    waiting: Mutex<VecDeque<Dump>>,
    /// Copies made, and files written.
    made: AtomicU64,
    written: AtomicU64,
    /// Wakes the events thread, if there is one.
    wake: Option<OwnedFd>,
    ended: AtomicBool,
    /// For the calls that begin it, unless the command is followed.
    gates: Arc<Gates>,
    /// It will be, for some of the events.
    follows: bool,
    windows: Arc<Windows>,
    between: Arc<Between>,
    /// What has begun the present window, or will begin the next, and what has ended the last.
    causes: Mutex<[String; 2]>,
}

/// A copy of the ring, to be written.
struct Dump {
    number: u64,
    snapshot: Snapshot,
    summary: Summary,
    event: String,
    events: u64,
}

impl Reactor {
    /// The ring in memory, if dumps were asked for.
    pub fn ring(&self) -> std::io::Result<Option<File>> {
        self.ring.as_ref().map(File::try_clone).transpose()
    }

    /// Signals that events wait for.
    pub fn signals(&self) -> Vec<i32> {
        let signal = |(_, event): (usize, &Event)| match event.what {
            What::Signal(signal) => Some(signal),
            _ => None,
        };
        self.armed.iter().filter_map(signal).collect()
    }

    /// How many dumps were written; `None`: none were asked for.
    pub fn dumps(&self) -> Option<u64> {
        self.ring.as_ref()?;
        Some(self.written.load(Ordering::Acquire))
    }

    /// Is what comes before the recording followed?
    pub fn is_followed(&self) -> bool {
        self.asked.shadow || self.windows.is_following()
    }

    /// How often the recording begins and ends.
    pub fn windows(&self) -> &Windows {
        &self.windows
    }

    /// The functions that are recorded between two events each.
    pub fn between(&self) -> &Between {
        &self.between
    }

    /// The recording begins now: time counts from here.
    pub fn begin(&self) {
        self.windows.begin();
        self.wake();
    }

    /// Tells the user where a recording of several stands.
    pub fn tell_window(&self, has_ended: bool) {
        let Some(times) = self.windows.several() else {
            return;
        };
        let (what, number) = (
            if has_ended { "has ended" } else { "begins" },
            self.windows.number(),
        );
        let cause = &self.causes()[usize::from(has_ended)];
        (self.asked.say)(&format!("recording {number} of {times} {what} ({cause})"));
    }

    fn causes(&self) -> MutexGuard<'_, [String; 2]> {
        let causes = self.causes.lock();
        causes.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Dump>> {
        let waiting = self.waiting.lock();
        waiting.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Of the calls that begin the recording.
    pub(crate) fn gates(&self) -> &Arc<Gates> {
        &self.gates
    }

    /// True if nothing is waited for.
    pub(crate) fn is_idle(&self) -> bool {
        self.armed.is_empty()
    }

    pub(crate) fn wake(&self) {
        let one = 1u64;
        if let Some(wake) = &self.wake {
            // SAFETY: an eventfd takes eight bytes.
            unsafe { libc::write(wake.as_raw_fd(), (&raw const one).cast(), 8) };
        }
    }

    /// Writes the copies that wait.
    fn write_waiting(&self) -> Option<String> {
        let mut last = None;
        loop {
            let Some(dump) = self.waiting().pop_front() else {
                return last;
            };
            let path = numbered(&self.output, dump.number);
            let (place, event) = (path.display(), &dump.event);
            last = Some(match write(&dump, &path) {
                Ok(()) => {
                    self.written.fetch_add(1, Ordering::AcqRel);
                    let text = format!(
                        "dump {} written to {place} at {event}: the last {} events",
                        dump.number, dump.events
                    );
                    (self.asked.say)(&text);
                    text
                }
                Err(e) => {
                    let text = format!(
                        "cannot write dump {} to {place} at {event}: {e}",
                        dump.number
                    );
                    (self.asked.warn)(&text);
                    text
                }
            });
        }
    }
}

/// The first dump has the name that was given, the others a number after it.
fn numbered(output: &Path, number: u64) -> PathBuf {
    match number {
        0 | 1 => output.to_owned(),
        n => with_suffix(output, &format!(".{n}")),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Writes a dump under another name first: what has the name of a trace is whole.
fn write(dump: &Dump, path: &Path) -> std::io::Result<()> {
    let partial = with_suffix(path, ".partial");
    let result = output::create(&partial)
        .and_then(|file| {
            let written = dump.snapshot.write(BufWriter::new(file), &dump.summary);
            written.map_err(std::io::Error::other)
        })
        .and_then(|()| {
            keep_old(path);
            std::fs::rename(&partial, path)
        });
    if result.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    result
}

/// Keeps a former trace as FILE.old, as perf and uftrace do.
pub fn keep_old(path: &Path) {
    if std::fs::symlink_metadata(path).is_ok_and(|m| m.is_file()) {
        let _ = std::fs::rename(path, with_suffix(path, ".old"));
    }
}

/// The events thread of a recording.
pub struct EventsThread(Option<JoinHandle<()>>);

impl EventsThread {
    /// Starts it if there is something to wait for. `command` is the process that was started.
    pub fn spawn(shared: &Arc<Shared>, mut sources: Vec<Box<dyn Source>>, command: u32) -> Self {
        let armed = &shared.reactor.armed;
        if armed.is_empty() {
            return Self(None);
        }
        let windows = Arc::clone(&shared.reactor.windows);
        windows.launched();
        let between = Arc::clone(&shared.reactor.between);
        sources.push(Box::new(Moments::new(armed, windows, between)));
        let crashes = armed.all(&What::Crash);
        if !crashes.is_empty() {
            let shared = Arc::clone(shared);
            let pids = Box::new(move || others(&shared, command));
            sources.push(Box::new(Processes::new(crashes, pids)));
        }
        let shared = Arc::clone(shared);
        let body = move || events_loop(&shared, sources);
        let thread = std::thread::Builder::new().name("events".to_owned());
        Self(thread.spawn(body).ok())
    }

    /// Ends it, after what waits has been written.
    pub fn end(self, shared: &Shared) {
        shared.reactor.ended.store(true, Ordering::Release);
        shared.reactor.wake();
        if let Some(thread) = self.0 {
            let _ = thread.join();
        }
    }
}

/// The processes that record, but for the command, whose end the session sees.
fn others(shared: &Shared, command: u32) -> Vec<u32> {
    use sptrace_wire::control::{STREAM_LIVE, STREAMS};
    let used = shared.arena.control().streams_used.load(Ordering::Acquire) as usize;
    let streams = (0..used.min(STREAMS)).map(|i| shared.arena.stream(i));
    let mut pids: Vec<_> = streams
        .filter(|s| s.state.load(Ordering::Acquire) == STREAM_LIVE)
        .filter_map(|s| shared.numbers.process(&shared.arena, s.process, s.pid))
        .filter(|pid| *pid != command)
        .collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

fn events_loop(shared: &Shared, mut sources: Vec<Box<dyn Source>>) {
    // Touching the terminal from the background must not stop us.
    block([libc::SIGTTOU, libc::SIGTTIN]);
    let reactor = &shared.reactor;
    let Some(wake) = &reactor.wake else { return };
    while !reactor.ended.load(Ordering::Acquire) {
        once(&mut sources, wake.as_raw_fd(), &mut |occurrence| {
            let answer = happened(shared, &mut shared.lock(), occurrence);
            reactor.write_waiting().unwrap_or(answer)
        });
        reactor.write_waiting();
    }
    reactor.write_waiting();
}

fn block(signals: [i32; 2]) {
    // SAFETY: a set of ours, for the calling thread.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// What the collector has seen since it was asked last.
pub fn collected(shared: &Shared, collector: &mut Collector<Output>) {
    let begun = collector.begun();
    if let Some(occurrence) = begun.filter(|_| shared.reactor.windows.would_start() == Start::Now) {
        started(shared, collector, &occurrence);
    }
    for occurrence in collector.seen() {
        happened(shared, collector, &occurrence);
    }
    rules::noted(shared, collector);
}

/// sptrace has received a signal.
pub fn signalled(shared: &Shared, signal: i32) {
    let tsc = clock::tsc();
    for event in shared.reactor.armed.all(&What::Signal(signal)) {
        let occurrence = Occurrence {
            event,
            tsc,
            pid: 0,
            detail: String::new(),
        };
        happened(shared, &mut shared.lock(), &occurrence);
    }
}

/// The command has ended.
pub fn ended(shared: &Shared, pid: u32, status: ExitStatus) {
    let armed = &shared.reactor.armed;
    let (crashes, detail) = match status {
        ExitStatus::Signaled(signal) => (
            armed.all(&What::Crash),
            format!("process {pid} was killed by {}", signal_name(signal)),
        ),
        ExitStatus::Exited(code) => (Vec::new(), format!("process {pid} exited with {code}")),
    };
    for event in crashes.into_iter().chain(armed.all(&What::Exit)) {
        let occurrence = Occurrence {
            event,
            tsc: clock::tsc(),
            pid,
            detail: detail.clone(),
        };
        happened(shared, &mut shared.lock(), &occurrence);
    }
}

/// Does what an occurrence asks for; says what that was.
fn happened(shared: &Shared, c: &mut Collector<Output>, occurrence: &Occurrence) -> String {
    let (reactor, windows) = (&shared.reactor, &shared.reactor.windows);
    let used_up = || "it has happened as often as it counts".to_owned();
    match reactor.armed.reaction(occurrence.event) {
        Some(Reaction::Start) => match windows.would_start() {
            // Of the recording that is brought to its end, and collected late.
            Start::Soon if occurrence.tsc <= c.until_tsc => {
                return "the recording has begun already".to_owned();
            }
            Start::Now | Start::Soon => {}
            Start::Already => return "the recording has begun already".to_owned(),
            Start::UsedUp => return used_up(),
        },
        // What begins and ends recordings by turns does not do both at once.
        Some(Reaction::Stop) if windows.is_begun_at(occurrence.tsc) => {
            return "the recording begins".to_owned();
        }
        Some(Reaction::Follow) => return follow(shared, c),
        _ if !windows.is_pause() => {}
        // What was recorded before can be dumped.
        Some(Reaction::Dump) if windows.number() > 0 => {}
        _ => return "nothing is recorded yet".to_owned(),
    }
    match reactor.armed.reaction(occurrence.event) {
        Some(Reaction::Open(rule)) if reactor.between.is_open(rule) => {
            return "these calls are recorded already".to_owned();
        }
        Some(Reaction::Close(rule)) if !reactor.between.is_open(rule) => {
            return "these calls are not recorded now".to_owned();
        }
        _ => {}
    }
    let reaction = match reactor.armed.count(occurrence.event) {
        Verdict::React(reaction) => reaction,
        Verdict::Missing(more) => return format!("counted, {more} more to come"),
        Verdict::UsedUp => return used_up(),
    };
    let text = text_of(shared, occurrence);
    match reaction {
        Reaction::Start => {
            if reactor.is_followed() {
                // Those that have ended by now are not part of it.
                c.end_ended(&shared.arena);
                c.record_from(occurrence.tsc);
            }
            started(shared, c, occurrence);
            "the recording begins".to_owned()
        }
        Reaction::Follow => String::new(),
        Reaction::Dump => dump(shared, c, occurrence, text),
        Reaction::Open(rule) => rules::turn(shared, c, rule, true, occurrence.tsc, used_up),
        Reaction::Close(rule) => rules::turn(shared, c, rule, false, occurrence.tsc, used_up),
        Reaction::Stop => {
            c.record_until(occurrence.tsc);
            if windows.stop(occurrence.tsc) {
                shared.stop(c, Stopped::AtEvent(text));
            } else {
                reactor.causes()[1] = text;
                reactor.armed.count_anew(Reaction::Start);
                shared.pause();
            }
            "the recording has ended".to_owned()
        }
    }
}

/// All processes were let go after a window, and their records written. False: there is no further one.
pub fn window_ended(shared: &Shared, c: &mut Collector<Output>) -> bool {
    let reactor = &shared.reactor;
    if !reactor.windows.is_ending() {
        return false;
    }
    let end_tsc = c.until_tsc;
    note_window(shared, c, "ended", end_tsc);
    c.write_out();
    reactor.tell_window(true);
    shared.go_on();
    reactor.windows.wait_again(clock::tsc());
    if !reactor.windows.is_waiting() {
        window_begun(shared, c, clock::tsc());
    }
    reactor.wake();
    true
}

/// A window has begun at `tsc`.
fn window_begun(shared: &Shared, c: &mut Collector<Output>, tsc: u64) {
    c.record_again();
    shared.reactor.armed.count_anew(Reaction::Stop);
    note_window(shared, c, "began", tsc);
}

fn note_window(shared: &Shared, c: &mut Collector<Output>, what: &str, tsc: u64) {
    let reactor = &shared.reactor;
    let Some(times) = reactor.windows.several() else {
        return;
    };
    let (option, cause) = match what {
        "began" => ("--start-on", reactor.causes()[0].clone()),
        _ => ("--stop-on", reactor.causes()[1].clone()),
    };
    let number = reactor.windows.number();
    c.note(&Note::Text {
        pid: 0,
        tsc,
        text: format!("recording {number} of {times} {what} at {option} {cause}"),
    });
}

fn text_of(shared: &Shared, occurrence: &Occurrence) -> String {
    let event = shared.reactor.armed.text(occurrence.event);
    match occurrence.detail.as_str() {
        "" => event.to_owned(),
        detail => format!("{event} ({detail})"),
    }
}

/// A function is called whose return, or whose taking long, would begin the recording.
fn follow(shared: &Shared, c: &mut Collector<Output>) -> String {
    if shared.reactor.windows.follow() {
        c.record_again();
        c.begin_following();
        shared.wake_main();
    }
    String::new()
}

/// The recording begins: at once if the command is followed, else the session attaches to it.
fn started(shared: &Shared, c: &mut Collector<Output>, occurrence: &Occurrence) {
    let reactor = &shared.reactor;
    let is_followed = reactor.is_followed();
    reactor.causes()[0] = text_of(shared, occurrence);
    reactor.windows.start(occurrence.tsc);
    if !reactor.windows.is_ending() {
        window_begun(shared, c, occurrence.tsc);
    }
    if is_followed {
        reactor.begin();
        reactor.tell_window(false);
        if reactor.windows.several().is_some() {
            return shared.wake_main();
        }
        c.note(&Note::Text {
            pid: occurrence.pid,
            tsc: occurrence.tsc,
            text: format!(
                "recording began at --start-on {}",
                text_of(shared, occurrence)
            ),
        });
    }
    shared.wake_main();
}

/// Copies the ring and leaves it to the events thread.
fn dump(
    shared: &Shared,
    c: &mut Collector<Output>,
    occurrence: &Occurrence,
    text: String,
) -> String {
    let reactor = &shared.reactor;
    let Some(ring) = &reactor.ring else {
        return String::new();
    };
    if reactor.waiting().len() >= WAITING {
        let text = format!("no dump at {text}: two others wait for being written");
        (reactor.asked.warn)(&text);
        return text;
    }
    if reactor.armed.all(&What::Crash).contains(&occurrence.event)
        || reactor.armed.all(&What::Exit).contains(&occurrence.event)
    {
        // Its threads are gone, and what they had begun is complete.
        c.end_process(&shared.arena, occurrence.pid);
    }
    let ahead = c.peek(&shared.arena);
    let snapshot = Snapshot::of(ring);
    let mut snapshot = match snapshot {
        Ok(snapshot) => snapshot,
        Err(e) => {
            let text = format!("no dump at {text}: {e}");
            (reactor.asked.warn)(&text);
            return text;
        }
    };
    snapshot.add_blocks(&ahead.blocks);
    snapshot.add_note(&Note::Text {
        pid: occurrence.pid,
        tsc: occurrence.tsc,
        text: format!("dumped at {text}"),
    });
    let mut outcome = shared.outcome(c);
    outcome.events += ahead.events;
    outcome.record_bytes += ahead.record_bytes;
    let mut summary = shared.summary(&outcome);
    summary.row(DUMP, &text, 1);
    let number = reactor.made.fetch_add(1, Ordering::AcqRel) + 1;
    let events = outcome.events.saturating_sub(snapshot.dropped().events);
    reactor.waiting().push_back(Dump {
        number,
        snapshot,
        summary,
        event: text,
        events,
    });
    reactor.wake();
    format!("dump {number} is being written")
}
