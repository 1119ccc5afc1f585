//! `--top`: the functions that take the most time, while the program runs.
//!
//! Given the trace that is being written, and the terminal; shows the list in place of what stands
//! there, and gives the terminal back however it ends. A thread of its own reads the trace behind
//! the recording, which it does not hold up; by its keys the recording is paused and functions are
//! left out. Must not know how events are recorded, nor
//! what the list looks like ([`view`]).

mod guard;
mod screen;
mod view;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sptrace_collect::event::switch::Switch;
use sptrace_trace::follow::Follower;
use sptrace_trace::{
    CallTree, Frame, FunctionId, Graph, Item, Names, Stats, StreamId, StreamTotals, TraceError,
    Visitor,
};

use crate::commands::live::with_signals_blocked;
use crate::talk::say;
use screen::Screen;
use view::{Facts, View, Wish};

/// The list is drawn anew so often.
const REDRAW: Duration = Duration::from_millis(500);
/// How long a key is waited for where nothing is to be read.
const POLL: Duration = Duration::from_millis(50);
/// So long is read before keys are looked at again.
const READ_AT_ONCE: Duration = Duration::from_millis(100);

/// The view of a recording.
pub struct Top {
    output: PathBuf,
    screen: Option<Screen>,
    /// Pauses the recording; none: other options say when it is made.
    switch: Option<Switch>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Top {
    /// Takes the terminal.
    ///
    /// # Errors
    /// There is none; one line for the user.
    pub fn open(output: &Path) -> Result<Self, String> {
        let screen = Screen::open().map_err(|e| format!("--top needs a terminal: {e}"))?;
        Ok(Self {
            output: output.to_owned(),
            screen: Some(screen),
            switch: None,
            is_over: Arc::default(),
            thread: None,
        })
    }

    /// Keys may pause the recording, by this.
    ///
    /// # Errors
    /// There is no descriptor left; one line for the user.
    pub fn switch(&mut self) -> Result<Switch, String> {
        let switch = Switch::new().map_err(|e| format!("--top cannot have keys: {e}"))?;
        self.switch = Some(switch.clone());
        Ok(switch)
    }

    /// The trace has been begun: what is written from here on is shown.
    ///
    /// # Errors
    /// There cannot be another thread.
    pub fn begin(&mut self) -> Result<(), String> {
        let (output, is_over) = (self.output.clone(), Arc::clone(&self.is_over));
        let Some(screen) = self.screen.take() else {
            return Ok(());
        };
        let switch = self.switch.take();
        let body = move || {
            if let Err(why) = show(&output, screen, switch.as_ref(), &is_over) {
                say(&format!("--top shows nothing any more: {why}"));
            }
        };
        let thread = std::thread::Builder::new().name("top".to_owned());
        // Signals are for the session's thread.
        let spawned = with_signals_blocked(|| thread.spawn(body));
        self.thread = Some(spawned.map_err(|e| format!("cannot show anything: {e}"))?);
        Ok(())
    }

    /// The recording has ended: gives the terminal back.
    pub fn end(mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What is summed up: functions, and who calls them since somebody has asked.
#[derive(Default)]
struct Sums {
    stats: Stats,
    callers: Option<Graph>,
    calls: u64,
    /// The latest moment that was told of.
    latest_tsc: u64,
}

impl Visitor for Sums {
    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        self.calls += 1;
        self.latest_tsc = self.latest_tsc.max(frame.start_tsc);
        self.stats.enter(stream, frame);
        if let Some(graph) = &mut self.callers {
            graph.enter(stream, frame);
        }
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        self.stats.leave(stream, frame);
        if let Some(graph) = &mut self.callers {
            graph.leave(stream, frame);
        }
    }

    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame) {
        self.stats.leave_hidden(stream, frame);
        if let Some(graph) = &mut self.callers {
            graph.leave_hidden(stream, frame);
        }
    }

    fn end(&mut self, stream: StreamId, totals: &StreamTotals) {
        self.stats.end(stream, totals);
        if let Some(graph) = &mut self.callers {
            graph.end(stream, totals);
        }
    }
}

/// The trace, once its header is written; none: the recording is over.
fn follow(output: &Path, is_over: &AtomicBool) -> Result<Option<Follower>, String> {
    loop {
        match Follower::open(output) {
            Ok(follower) => return Ok(Some(follower)),
            Err(TraceError::NotAFile) => return Err("the trace must be a file".to_owned()),
            Err(_) if !is_over.load(Ordering::Acquire) => std::thread::sleep(POLL),
            Err(_) => return Ok(None),
        }
    }
}

fn show(
    output: &Path,
    mut screen: Screen,
    switch: Option<&Switch>,
    is_over: &AtomicBool,
) -> Result<(), String> {
    let Some(mut follower) = follow(output, is_over)? else {
        return Ok(());
    };
    let clock = follower.clock();
    let (mut frames, mut sums) = (CallTree::new(), Sums::default());
    let mut view = View::new(&follower.header().command);
    let began = Instant::now();
    let mut drawn: Option<Instant> = None;
    while !is_over.load(Ordering::Acquire) {
        let is_behind = read(&mut follower, &mut frames, &mut sums)?;
        let keys = screen.keys(if is_behind { Duration::ZERO } else { POLL });
        let mut is_changed = false;
        for key in keys {
            is_changed = true;
            match view.key(key) {
                Wish::Leave => {
                    leave(switch);
                    return Ok(());
                }
                Wish::Turn(function) => turn(switch, &Names::new(follower.dictionary()), function),
                Wish::Switch => {
                    if let Some(switch) = switch {
                        switch.ask(switch.is_paused());
                    }
                }
                Wish::Callers if sums.callers.is_none() => sums.callers = Some(Graph::default()),
                Wish::Callers | Wish::Nothing => {}
            }
        }
        if is_changed || drawn.is_none_or(|at| at.elapsed() >= REDRAW) {
            let facts = Facts {
                names: &Names::new(follower.dictionary()),
                clock,
                stats: &sums.stats,
                callers: sums.callers.as_ref(),
                calls: sums.calls,
                told_ns: clock.since_start_ns(sums.latest_tsc.max(clock.tsc_at(0))),
                elapsed: began.elapsed(),
                is_behind,
                left_out: switch.map(Switch::left_out),
                is_off: switch.is_some_and(Switch::is_paused),
            };
            screen.draw(|frame| view.draw(frame, &facts));
            drawn = Some(Instant::now());
        }
    }
    Ok(())
}

/// Who does not look any more cannot have it go on.
fn leave(switch: Option<&Switch>) {
    if let Some(switch) = switch.filter(|switch| switch.is_paused()) {
        switch.ask(true);
    }
}

fn turn(switch: Option<&Switch>, names: &Names<'_>, function: FunctionId) {
    if let Some(switch) = switch {
        switch.turn(names.name(function));
    }
}

/// Reads what has been written since, for a while; true if more is there.
fn read(follower: &mut Follower, frames: &mut CallTree, sums: &mut Sums) -> Result<bool, String> {
    let explain = |error: TraceError| error.to_string();
    let began = Instant::now();
    while began.elapsed() < READ_AT_ONCE {
        match follower.next_item().map_err(explain)? {
            None => return Ok(false),
            Some(Item::Note(note)) => frames.note(&note),
            Some(Item::Block(block)) => {
                let told = frames.replay(&block, follower.dictionary(), sums);
                told.map_err(|what| explain(what.at(0)))?;
            }
        }
    }
    Ok(true)
}
