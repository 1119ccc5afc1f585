//! Leaving the process that was started to the command: who traces is another one.
//!
//! The process that somebody has started, and waits for, becomes the command; its grandchild goes
//! on as sptrace. It is nobody's child, so it shows in no wait(2), and leads a process group of its
//! own, so what is sent to the command's group (ctrl-c, a supervisor's kill) does not end the
//! recording with it. Until the command executes, both share a page, and a pipe whose end says that
//! the other is gone: then the command runs untraced.
//!
//! Must not know: how the command is traced.

use crate::at_start::AtStart;
use crate::before_exec::Between;
use crate::error::TraceeError;
use crate::terminal::pipe;
use std::ffi::{CString, c_char};
use std::fs::File;
use std::io::{Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// Said by who traces: execute.
const GO: u8 = b'g';
/// Said by who traces, before a status to end with.
const END: u8 = b'e';

/// For who traces: the process that becomes the command.
#[derive(Clone, Copy)]
pub struct Kept {
    /// Its number.
    pub command: u32,
    pub(crate) between: &'static Between,
    /// Open for our life.
    tell: RawFd,
}

/// For the process that becomes the command.
pub struct Waiting {
    between: &'static Between,
    told: OwnedFd,
}

/// Who we are after [`split`].
pub enum Split {
    /// The process that was started.
    Command(Waiting),
    /// The one that traces it.
    Tracer(Kept),
}

/// Splits us in two. There must be one thread.
///
/// # Errors
/// There cannot be another process; then there is none.
pub fn split() -> Result<Split, TraceeError> {
    let between = Between::new()?;
    let (told, tell) = pipe()?;
    // SAFETY: no arguments.
    let command = unsafe { libc::getpid() } as u32;
    // SAFETY: there is one thread, so the child is a whole process.
    match unsafe { libc::fork() } {
        0 => {}
        child if child > 0 => return waiting(child, between, told),
        _ => return Err(TraceeError::last("fork")),
    }
    // SAFETY: as above.
    match unsafe { libc::fork() } {
        0 => {}
        // SAFETY: its end; nothing in it is its own.
        child => unsafe { libc::_exit(i32::from(child < 0)) },
    }
    drop(told);
    // SAFETY: about this process alone.
    unsafe {
        libc::setpgid(0, 0);
        // In the background, and orphaned: a terminal that is asked to would not stop us, but
        // refuse our words.
        libc::signal(libc::SIGTTOU, libc::SIG_IGN);
    }
    leave_streams();
    let kept = Kept {
        command,
        between,
        tell: tell.into_raw_fd(),
    };
    // SAFETY: no arguments.
    kept.say(&unsafe { libc::getpid() }.to_ne_bytes());
    Ok(Split::Tracer(kept))
}

fn waiting(child: i32, between: &'static Between, told: OwnedFd) -> Result<Split, TraceeError> {
    let mut status = 0;
    // SAFETY: our own child. The other end of the pipe is closed here when `tell` was dropped by
    // the caller.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    if status != 0 {
        return Err(TraceeError::System {
            what: "fork",
            source: std::io::Error::from_raw_os_error(libc::EAGAIN),
        });
    }
    Ok(Split::Command(Waiting { between, told }))
}

/// Input and output are the command's: who waits for their end waits for it alone.
fn leave_streams() {
    let Ok(null) = File::options().read(true).write(true).open("/dev/null") else {
        return;
    };
    for stream in 0..2 {
        // SAFETY: two descriptors of ours.
        unsafe { libc::dup2(null.as_raw_fd(), stream) };
    }
}

impl Kept {
    /// It shall execute.
    pub(crate) fn go(&self) {
        self.say(&[GO]);
    }

    /// There is nothing to trace: it shall end with this status, unless it has executed.
    pub fn end(&self, status: u8) {
        self.say(&[END, status]);
    }

    fn say(&self, bytes: &[u8]) {
        // SAFETY: a descriptor of ours, which stays open.
        let mut pipe = ManuallyDrop::new(unsafe { File::from_raw_fd(self.tell) });
        // It may be gone, which is seen otherwise.
        let _ = pipe.write_all(bytes);
    }
}

impl Waiting {
    /// Becomes the command as soon as it is traced, or who traces is gone. Comes back with the
    /// status to end with if there is no command.
    pub fn execute(self, argv: &[CString], at_start: &AtStart) -> u8 {
        let mut pointers: Vec<*const c_char> = argv.iter().map(|a| a.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let mut told = File::from(self.told);
        let mut tracer = [0; 4];
        if told.read_exact(&mut tracer).is_ok() {
            let tracer = i32::from_ne_bytes(tracer);
            // SAFETY: numbers. Where only ancestors may trace (Yama), this one may.
            unsafe { libc::prctl(libc::PR_SET_PTRACER, tracer, 0, 0, 0) };
        }
        let mut word = [0; 1];
        if told.read_exact(&mut word).is_ok() && word[0] == END {
            let mut status = [1; 1];
            let _ = told.read_exact(&mut status);
            return status[0];
        }
        // SAFETY: one thread, which executes now; argv lives.
        let error = unsafe {
            at_start.hand_on();
            libc::execvp(pointers[0], pointers.as_ptr());
            std::io::Error::last_os_error()
        };
        self.between
            .failed(error.raw_os_error().unwrap_or(libc::ENOEXEC));
        match error.raw_os_error() {
            Some(libc::ENOENT) => 127,
            _ => 126,
        }
    }
}
