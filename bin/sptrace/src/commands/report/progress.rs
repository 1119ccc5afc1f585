//! How far a trace has been read, on the terminal, while that takes long.
//!
//! Given how many bytes a reader has passed, and how many there are; writes one line to standard
//! error, again and again over itself, and erases it before anything else is written. Says nothing
//! where standard error is no terminal. Must not know what is made of the trace.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is over sooner is not spoken of.
const LONG: Duration = Duration::from_secs(1);
/// From one number to the next.
const AGAIN: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    /// None was written.
    Not,
    /// It stands on the terminal.
    Shown,
    /// Something else is being written there.
    Over,
}

/// There is one terminal, and who writes to it need not know of progress.
static LINE: Mutex<Line> = Mutex::new(Line::Not);

fn line() -> MutexGuard<'static, Line> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Goes on until it is dropped.
pub struct Progress {
    _end: Option<Sender<()>>,
}

impl Progress {
    /// Of a reader that passes `length` bytes from here on, if there is somebody to see it.
    pub fn begin(passed: Arc<AtomicU64>, length: u64) -> Self {
        if !std::io::stderr().is_terminal() || length == 0 {
            return Self { _end: None };
        }
        let (end, ended) = channel::<()>();
        let before = passed.load(Ordering::Relaxed);
        let body = move || {
            let mut wait = LONG;
            while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                wait = AGAIN;
                let done = passed.load(Ordering::Relaxed) - before;
                show(done.saturating_mul(100) / length);
            }
        };
        let thread = std::thread::Builder::new().name("progress".to_owned());
        let is_there = thread.spawn(body).is_ok();
        Self {
            _end: is_there.then_some(end),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        erase(Line::Not);
    }
}

fn show(percent: u64) {
    let mut line = line();
    if *line != Line::Over {
        *line = Line::Shown;
        let text = format!("\rsptrace: {} % read", percent.min(100));
        // Nobody has to see it.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

fn erase(next: Line) {
    let mut line = line();
    if *line == Line::Shown {
        let _ = std::io::stderr().write_all(b"\r\x1b[K");
    }
    *line = next;
}

/// Something is written to the terminal from here on, which shows progress enough.
pub fn is_over() {
    erase(Line::Over);
}
