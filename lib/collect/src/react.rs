//! What a recording does when an [`event`](crate::event) happens: it begins, writes its ring out,
//! or ends.
//!
//! Whoever sees an event holds the collector's lock: the drain thread for calls, the session for
//! signals and the command's end, the events thread for everything else. Under the lock the ring is
//! copied, with what the threads have written into their chunks by then ([`crate::collector`]'s
//! peek), so that the copy reaches up to the event; it is written without the lock, by the events
//! thread, while the program goes on.
//!
//! Must not know: how events are recognised, or what a trace file looks like.

mod bids;
mod prepared;
pub mod reactor;
mod rules;

pub use prepared::Prepared;
pub use reactor::{keep_old, numbered};

use reactor::{Dump, WAITING};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use sptrace_trace::{EarlyEnd, ExitStatus, Note, Section, Snapshot, Turn, Window};

use crate::clock;
use crate::collector::Collector;
use crate::event::parse::signal_name;
use crate::event::processes::Processes;
use crate::event::time::Moments;
use crate::event::{Occurrence, Reaction, Source, Verdict, What, wait::once};
use crate::output::Output;
use crate::shared::Shared;
use crate::windows::Start;

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
    bids::heard(shared, collector);
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
        ExitStatus::Signaled(signal) | ExitStatus::Dumped(signal) => (
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

const USED_UP: &str = "it has happened as often as it counts";

/// Does what an occurrence asks for; says what that was.
fn happened(shared: &Shared, c: &mut Collector<Output>, occurrence: &Occurrence) -> String {
    let reactor = &shared.reactor;
    if reactor.armed.reaction(occurrence.event) == Some(Reaction::Follow) {
        return follow(shared, c);
    }
    match what_follows(shared, c, occurrence) {
        Ok(reaction) => follow_up(shared, c, occurrence, reaction),
        Err(why) => why,
    }
}

/// Counts an occurrence; gives what follows from it, or why nothing does.
fn what_follows(
    shared: &Shared,
    c: &Collector<Output>,
    occurrence: &Occurrence,
) -> Result<Reaction, String> {
    if let Some(why) = why_not(shared, c, occurrence) {
        return Err(why.to_owned());
    }
    match shared.reactor.armed.count(occurrence.event) {
        Verdict::React(reaction) => Ok(reaction),
        Verdict::Missing(more) => Err(format!("counted, {more} more to come")),
        Verdict::UsedUp => Err(USED_UP.to_owned()),
    }
}

/// Why an occurrence leads to nothing, and does not count either.
fn why_not(
    shared: &Shared,
    c: &Collector<Output>,
    occurrence: &Occurrence,
) -> Option<&'static str> {
    let (reactor, windows) = (&shared.reactor, &shared.reactor.windows);
    let reaction = reactor.armed.reaction(occurrence.event);
    match reaction {
        Some(Reaction::Start) => match windows.would_start() {
            // Of the recording that is brought to its end, and collected late.
            Start::Soon if occurrence.tsc <= c.until_tsc() => {
                return Some("the recording has begun already");
            }
            Start::Now | Start::Soon => {}
            Start::Already => return Some("the recording has begun already"),
            Start::UsedUp => return Some(USED_UP),
        },
        // What begins and ends recordings by turns does not do both at once.
        Some(Reaction::Stop) if windows.is_begun_at(occurrence.tsc) => {
            return Some("the recording begins");
        }
        _ if !windows.is_pause() => {}
        // What was recorded before can be dumped.
        Some(Reaction::Dump) if windows.number() > 0 => {}
        _ => return Some("nothing is recorded yet"),
    }
    match reaction {
        Some(Reaction::Open(rule)) if reactor.between.is_open(rule) => {
            Some("these calls are recorded already")
        }
        Some(Reaction::Close(rule)) if !reactor.between.is_open(rule) => {
            Some("these calls are not recorded now")
        }
        _ => None,
    }
}

/// Does what follows from an occurrence that counts; says what that was.
fn follow_up(
    shared: &Shared,
    c: &mut Collector<Output>,
    occurrence: &Occurrence,
    reaction: Reaction,
) -> String {
    let (reactor, windows) = (&shared.reactor, &shared.reactor.windows);
    let text = text_of(shared, occurrence);
    let used_up = || USED_UP.to_owned();
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
            match reactor.armed.is_recorded(occurrence.event) {
                true => c.record_until(occurrence.tsc),
                false => c.record_up_to(&shared.arena, occurrence.tsc),
            }
            if windows.stop(occurrence.tsc) {
                shared.stop(c, EarlyEnd::AtEvent(text));
            } else {
                reactor.causes().ended = text;
                reactor.armed.count_anew(Reaction::Start);
                shared.pause();
            }
            "the recording has ended".to_owned()
        }
    }
}

/// All processes were let go after a window, and their records written. False: there is no further
/// one.
pub fn window_ended(shared: &Shared, c: &mut Collector<Output>) -> bool {
    let reactor = &shared.reactor;
    if !reactor.windows.is_ending() {
        return false;
    }
    let end_tsc = c.until_tsc();
    note_window(shared, c, Edge::End, end_tsc);
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
    note_window(shared, c, Edge::Begin, tsc);
}

/// What of a window is noted in the trace.
enum Edge {
    Begin,
    End,
}

fn note_window(shared: &Shared, c: &mut Collector<Output>, edge: Edge, tsc: u64) {
    let reactor = &shared.reactor;
    let Some(of) = reactor.windows.several() else {
        return;
    };
    let number = reactor.windows.number();
    // That many nobody can mean: as often as it is asked for.
    let of = if of == u64::MAX { 0 } else { of };
    let window = Window { number, of };
    let turn = match edge {
        Edge::Begin => Turn::Begins {
            event: reactor.causes().begun.clone(),
            window: Some(window),
        },
        Edge::End => Turn::Ends {
            event: reactor.causes().ended.clone(),
            window,
        },
    };
    c.note(&Note::Recording { pid: 0, tsc, turn });
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
    reactor.causes().begun = text_of(shared, occurrence);
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
        c.note(&Note::Recording {
            pid: occurrence.pid,
            tsc: occurrence.tsc,
            turn: Turn::Begins {
                event: text_of(shared, occurrence),
                window: None,
            },
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
    // Before the copy, which has the names that are known then.
    let counts = c.notes_of_counts(&shared.arena);
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
    counts.iter().for_each(|note| snapshot.add_note(note));
    snapshot.add_note(&Note::Recording {
        pid: occurrence.pid,
        tsc: occurrence.tsc,
        turn: Turn::Dumped {
            event: text.clone(),
        },
    });
    let mut outcome = shared.outcome(c);
    outcome.events += ahead.events;
    outcome.record_bytes += ahead.record_bytes;
    let mut summary = shared.summary(&outcome);
    summary.row(Section::Dump, &text, 1);
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
