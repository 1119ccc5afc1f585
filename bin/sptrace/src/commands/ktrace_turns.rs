//! `sptrace ktrace`: when a recording begins, ends, and is copied, and how much of it is kept.
//!
//! Given the options; gives what the recorder waits for, the output, and who writes copies. A
//! signal that is an event is counted by a handler, and asked for by the recorder.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::{ArgGroup, Args};
use sptrace_collect::event::{Event, What as Asked};
use sptrace_collect::output::{self, Output};
use sptrace_collect::react::{keep_old, numbered};
use sptrace_kernel::turns::{Deed, Turn, Turns, What};
use sptrace_trace::{Note, Section, Snapshot, Summary, is_pattern};

use crate::commands::record::{self, WHEN, WHERE_TO};
use crate::talk::say;

/// Options of events.
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("keeping").multiple(true))]
pub struct TurnArgs {
    /// Record nothing before EVENT happens; what is open then is there (repeatable, see below)
    #[arg(help_heading = WHEN, long, value_name = "EVENT")]
    pub start_on: Vec<Event>,
    /// End the recording, not the command, when EVENT happens (repeatable, see below)
    #[arg(help_heading = WHEN, long, value_name = "EVENT")]
    pub stop_on: Vec<Event>,
    /// Keep the ring in memory and write it out as a trace when EVENT happens, again and again: to
    /// FILE, FILE.2 and so on (repeatable, see below)
    #[arg(help_heading = WHEN, long, value_name = "EVENT", requires = "ring")]
    pub dump_on: Vec<Event>,
    /// Keep only the last SIZE bytes or so of the recording (2M or more)
    #[arg(help_heading = WHERE_TO, long, value_name = "SIZE", value_parser = record::parse_ring)]
    pub ring: Option<u64>,
}

/// Signals that there are.
const SIGNALS: usize = 65;
/// How often each has come.
static HEARD: [AtomicU64; SIGNALS] = [const { AtomicU64::new(0) }; SIGNALS];

extern "C" fn hear(signal: libc::c_int) {
    if let Some(heard) = HEARD.get(signal as usize) {
        heard.fetch_add(1, Ordering::Relaxed);
    }
}

/// How often a signal has come since this was asked before.
pub fn heard(signal: i32) -> u64 {
    let heard = HEARD.get(signal as usize);
    heard.map_or(0, |heard| heard.swap(0, Ordering::Relaxed))
}

impl TurnArgs {
    /// What is waited for; signals are heard from here on.
    ///
    /// # Errors
    /// An event that this recording cannot wait for.
    pub fn turns(&self, hz: u64, has_command: bool) -> Result<Turns, String> {
        let deeds = [
            (&self.start_on, Deed::Start),
            (&self.stop_on, Deed::Stop),
            (&self.dump_on, Deed::Dump),
        ];
        let mut all = Vec::new();
        for (events, deed) in deeds {
            for event in events {
                let what = what_of(event, deed, has_command);
                all.push(Turn {
                    what: what.map_err(|why| format!("{}: {why}", event.text))?,
                    every: event.every,
                    deed,
                    text: event.text.clone(),
                });
            }
        }
        for turn in &all {
            if let What::Signal(signal) = turn.what {
                let handler: extern "C" fn(libc::c_int) = hear;
                // SAFETY: the handler adds to an atomic and does nothing else.
                unsafe { libc::signal(signal, handler as *const () as libc::sighandler_t) };
            }
        }
        Ok(Turns::new(all, hz))
    }

    /// Functions whose calls are events, without wildcards: they are to be recorded.
    pub fn functions(&self) -> Vec<String> {
        let lists = [&self.start_on, &self.stop_on, &self.dump_on];
        let named = lists.into_iter().flatten().filter_map(|e| match &e.what {
            Asked::Call(glob) | Asked::Return(glob) | Asked::Slow(glob, _) => Some(glob),
            _ => None,
        });
        let is_name = |glob: &&String| !is_pattern(glob);
        let is_call = |name: &String| sptrace_types::syscalls::by_name(name).is_some();
        named
            .filter(is_name)
            .filter(|n| !is_call(n))
            .cloned()
            .collect()
    }

    /// Where the trace is written, and who copies it.
    ///
    /// # Errors
    /// One line for the user.
    pub fn open(&self, path: &Path) -> Result<(Output, Kept), String> {
        let cannot = |e: &dyn std::fmt::Display| record::no_output(path, &e.to_string());
        let memory = match self.dump_on.is_empty() {
            true => None,
            false => Some(output::memory().map_err(|e| cannot(&e))?),
        };
        let ring = memory.as_ref().map(File::try_clone).transpose();
        let ring = ring.map_err(|e| cannot(&e))?;
        if memory.is_none() {
            keep_old(path);
        }
        let opened = output::open(path, self.ring.unwrap_or(0), memory).map_err(|e| cannot(&e))?;
        let kept = Kept {
            path: path.to_owned(),
            ring,
            overwritten: opened.overwritten,
            made: AtomicU64::new(0),
        };
        Ok((opened.output, kept))
    }
}

fn what_of(event: &Event, deed: Deed, has_command: bool) -> Result<What, &'static str> {
    Ok(match &event.what {
        Asked::Time(duration) => What::Time(*duration),
        Asked::Signal(signal) => What::Signal(*signal),
        Asked::Call(glob) => What::Call(glob.clone()),
        Asked::Return(glob) => What::Return(glob.clone()),
        Asked::Slow(glob, least) => What::Slow(glob.clone(), *least),
        Asked::Key(_) | Asked::Control(_) | Asked::Asked(_) | Asked::Bid(_) => {
            return Err("ktrace hears no keys and no words; use signal:USR1");
        }
        Asked::Several(..) => return Err("ktrace waits for one event at a time; write one"),
        Asked::Exit | Asked::Crash if !has_command => {
            return Err("ktrace sees the end of a command only, and here is none");
        }
        Asked::Exit | Asked::Crash if deed == Deed::Start => {
            return Err("it comes too late to begin a recording");
        }
        Asked::Exit => What::Exit,
        Asked::Crash => What::Crash,
    })
}

/// What is kept of a recording: a ring, perhaps, of which copies are made.
pub struct Kept {
    path: PathBuf,
    /// In memory.
    ring: Option<File>,
    overwritten: Arc<AtomicU64>,
    made: AtomicU64,
}

impl Kept {
    /// A file of this name was made that holds the recording.
    pub fn has_file(&self) -> bool {
        self.ring.is_none()
    }

    /// Copies the ring.
    pub fn dump(&self, event: &str, tsc: u64, quiet: bool) {
        let number = self.made.load(Ordering::Relaxed) + 1;
        let path = numbered(&self.path, number);
        match self.try_dump(event, tsc, &path) {
            Ok(()) => {
                self.made.store(number, Ordering::Relaxed);
                if !quiet {
                    say(&format!(
                        "dump {number} written to {} at {event}",
                        path.display()
                    ));
                }
            }
            Err(e) => say(&format!("no dump at {event}: {}: {e}", path.display())),
        }
    }

    fn try_dump(&self, event: &str, tsc: u64, path: &Path) -> std::io::Result<()> {
        let Some(ring) = &self.ring else {
            return Ok(());
        };
        let mut snapshot = Snapshot::of(ring)?;
        let event = event.to_owned();
        let mut summary = Summary {
            end_tsc: tsc,
            ..Summary::default()
        };
        summary.row(Section::Dump, &event, 1);
        let turn = sptrace_trace::Turn::Dumped { event };
        snapshot.add_note(&Note::Recording { pid: 0, tsc, turn });
        keep_old(path);
        let file = output::create(path)?;
        let written = snapshot.write(BufWriter::new(file), &summary);
        written.map_err(std::io::Error::other)
    }

    /// Says what has become of it; a row of the trace's end for what the ring has dropped.
    pub fn end(&self, summary: &mut Summary, quiet: bool) {
        let dropped = self.overwritten.load(Ordering::Relaxed);
        if dropped > 0 {
            summary.row(Section::Ring, "events dropped by --ring", dropped);
        }
        if self.ring.is_some() && self.made.load(Ordering::Relaxed) == 0 && !quiet {
            say("no dump written: no event of --dump-on happened");
        }
    }
}
