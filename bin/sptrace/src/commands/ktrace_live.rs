//! `ktrace --live`: a line for each frame of the kernel's when it begins, and when it ends.
//!
//! Given where lines go; gives somebody who is told of frames. A thread of its own writes, each
//! line by itself, so that what was written before a crash has left the machine. Who tells only
//! queues: what a slow line has no room for is counted, and the count stands where the lines are
//! missing. The trace file has all of it nevertheless. Must not know how records are read.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use sptrace_kernel::tell::{Listener, Step, Told};
use sptrace_trace::Clock;

use crate::commands::live::{Place, with_signals_blocked};

/// Lines that wait to be written, at most.
const MOST_WAITING: usize = 1 << 14;
/// And where the output is a serial line: some seconds of it.
const MOST_WAITING_SERIAL: usize = 1000;
/// The first serial line.
const SERIAL: &str = "/dev/ttyS0";

/// The lines of a recording.
pub struct KernelLive {
    sender: Option<SyncSender<Told>>,
    left_out: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    helper: Option<Child>,
}

impl KernelLive {
    /// Opens the output: nothing or `-` for standard error, `|COMMAND`, `serial` or
    /// `serial:DEVICE` at 115200 bit/s, or a file.
    ///
    /// # Errors
    /// It cannot be opened; one line for the user.
    pub fn open(text: &str, clock: Clock) -> Result<Self, String> {
        let mut helper = None;
        let out: Box<dyn Write + Send> = match text.strip_prefix("serial") {
            Some("") => Box::new(serial(Path::new(SERIAL))?),
            Some(rest) if rest.starts_with(':') => Box::new(serial(Path::new(&rest[1..]))?),
            _ => match Place::of(text, false)? {
                Place::Stderr => Box::new(io::stderr()),
                Place::Command(command) => {
                    let mut shell = Command::new("/bin/sh");
                    shell.arg("-c").arg(command).stdin(Stdio::piped());
                    let spawned = shell.spawn();
                    let mut child = spawned.map_err(|e| format!("cannot run /bin/sh: {e}"))?;
                    let input = child.stdin.take().map(OwnedFd::from);
                    helper = Some(child);
                    Box::new(File::from(input.ok_or("the command has no input")?))
                }
                Place::File(path) | Place::FilePerProcess(path) => {
                    let cannot = |e| format!("cannot write lines to {}: {e}", path.display());
                    Box::new(File::create(&path).map_err(cannot)?)
                }
            },
        };
        let (sender, receiver) = sync_channel(match text.starts_with("serial") {
            true => MOST_WAITING_SERIAL,
            false => MOST_WAITING,
        });
        let left_out = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&left_out);
        let thread = std::thread::Builder::new().name("lines".to_owned());
        let body = move || write_all(out, &receiver, &counted, clock);
        let spawned = with_signals_blocked(|| thread.spawn(body));
        Ok(Self {
            sender: Some(sender),
            left_out,
            thread: Some(spawned.map_err(|e| format!("cannot write lines: {e}"))?),
            helper,
        })
    }

    /// Who is told of frames whose names match one of the patterns.
    pub fn listener(&self, patterns: &[String]) -> Option<Listener> {
        let sender = self.sender.clone()?;
        let left_out = Arc::clone(&self.left_out);
        let hear = move |told| {
            if let Err(TrySendError::Full(_)) = sender.try_send(told) {
                left_out.fetch_add(1, Ordering::Relaxed);
            }
        };
        Some(Listener::new(patterns.to_vec(), Arc::new(hear)))
    }

    /// The process that reads the lines.
    pub fn helper(&self) -> Option<u32> {
        self.helper.as_ref().map(Child::id)
    }

    /// Nothing more is told, and no listener is left: waits until all is written.
    pub fn end(mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(mut helper) = self.helper.take() {
            let _ = helper.wait();
        }
    }
}

fn write_all(
    mut out: Box<dyn Write + Send>,
    receiver: &Receiver<Told>,
    left_out: &AtomicU64,
    clock: Clock,
) {
    while let Ok(told) = receiver.recv() {
        let mut line = line(&told, clock);
        let missing = left_out.swap(0, Ordering::Relaxed);
        if missing > 0 {
            line.push_str(&format!(
                "... {missing} lines left out: the output is too slow\n"
            ));
        }
        if out
            .write_all(line.as_bytes())
            .and_then(|()| out.flush())
            .is_err()
        {
            return;
        }
    }
    let missing = left_out.swap(0, Ordering::Relaxed);
    if missing > 0 {
        let said = format!("... {missing} lines left out: the output is too slow\n");
        let _ = out.write_all(said.as_bytes());
    }
}

/// Short, since a slow line bears some ten thousand letters a second.
fn line(told: &Told, clock: Clock) -> String {
    let micros = clock.since_start_ns(told.tsc) / 1000;
    let head = format!(
        "{}.{:06} {}",
        micros / 1_000_000,
        micros % 1_000_000,
        told.tid
    );
    match told.step {
        Step::Begins => format!("{head} {} {{\n", told.name),
        Step::Ends(ticks) => format!("{head} }} {} {} us\n", told.name, clock.ns(ticks) / 1000),
        Step::Instant => format!("{head} {}\n", told.name),
    }
}

/// A serial line, with no control flow and nothing changed of what is written.
fn serial(path: &Path) -> Result<File, String> {
    let cannot = |e: io::Error| format!("cannot write lines to {}: {e}", path.display());
    let file = OpenOptions::new().write(true).open(path).map_err(cannot)?;
    // SAFETY: the structure is ours, and is filled in by the call before it is used.
    let is_set = unsafe {
        let mut settings = std::mem::zeroed::<libc::termios>();
        libc::tcgetattr(file.as_raw_fd(), &raw mut settings) == 0 && {
            libc::cfmakeraw(&raw mut settings);
            libc::cfsetspeed(&raw mut settings, libc::B115200);
            libc::tcsetattr(file.as_raw_fd(), libc::TCSANOW, &raw const settings) == 0
        }
    };
    match is_set {
        true => Ok(file),
        false => Err(cannot(io::Error::last_os_error())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sptrace_trace::Header;

    #[test]
    fn lines_are_short_and_say_when_who_and_what() {
        let clock = Clock::of(&Header::default());
        let told = |step| Told {
            tsc: 1_234_567_890,
            tid: 7,
            name: "write".to_owned(),
            step,
        };
        assert_eq!(line(&told(Step::Begins), clock), "1.234567 7 write {\n");
        assert_eq!(
            line(&told(Step::Ends(5_000)), clock),
            "1.234567 7 } write 5 us\n"
        );
        assert_eq!(line(&told(Step::Instant), clock), "1.234567 7 write\n");
    }
}
