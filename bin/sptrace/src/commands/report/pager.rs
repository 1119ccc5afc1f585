//! Standard output of a report, through a pager where it is a terminal.
//!
//! Given bytes; starts the pager when the first come, and waits for its end. SPTRACE_PAGER and
//! PAGER name it, as for other programs; `less` is told to show colours and to end where all fits
//! (LESS=FRX), unless LESS is set. Without one that can be started the bytes go to the terminal.
//! Must not know what is shown.

use super::progress;
use std::env::{var, var_os};
use std::io::{self, BufWriter, Write};
use std::process::{Child, Command, Stdio};

const BUFFER_BYTES: usize = 64 << 10;

/// Standard output.
pub struct Paged {
    /// As the user has named it; none: there shall be no pager.
    pager: Option<String>,
    /// None: nothing was written yet.
    out: Option<Box<dyn Write + Send>>,
    started: Option<Child>,
}

/// The pager that the variables name; none: an empty name, or `cat`.
pub fn named() -> Option<String> {
    let named = var("SPTRACE_PAGER").or_else(|_| var("PAGER"));
    let named = named.unwrap_or_else(|_| "less".to_owned());
    let named = named.trim();
    (!named.is_empty() && named != "cat").then(|| named.to_owned())
}

impl Paged {
    /// Through this pager, if any.
    pub fn new(pager: Option<String>) -> Self {
        Self {
            pager,
            out: None,
            started: None,
        }
    }

    fn begin(&mut self) -> Box<dyn Write + Send> {
        progress::is_over();
        let mut child = self.pager.as_deref().and_then(start);
        match child.as_mut().and_then(|child| child.stdin.take()) {
            Some(input) => {
                self.started = child;
                Box::new(BufWriter::with_capacity(BUFFER_BYTES, input))
            }
            None => Box::new(BufWriter::with_capacity(BUFFER_BYTES, io::stdout())),
        }
    }
}

/// A program and its arguments. The terminal's interrupt is for it from then on.
fn start(pager: &str) -> Option<Child> {
    let mut words = pager.split_whitespace();
    let mut command = Command::new(words.next()?);
    command.args(words).stdin(Stdio::piped());
    if var_os("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    let child = command.spawn().ok()?;
    // SAFETY: a disposition of our own process; the pager has its own.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    Some(child)
}

impl Write for Paged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.out.is_none() {
            self.out = Some(self.begin());
        }
        self.out.as_mut().map_or(Ok(0), |out| out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.as_mut().map_or(Ok(()), |out| out.flush())
    }
}

impl Drop for Paged {
    fn drop(&mut self) {
        self.out = None;
        if let Some(child) = &mut self.started {
            let _ = child.wait();
        }
    }
}
