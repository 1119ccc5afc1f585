//! The relay: a process that stands between our terminal and the command's.
//!
//! Given both terminals, the keys to take out, a socket to the host and a pipe that brings the
//! command's pid; it begins when that comes. Our terminal is in raw mode while the relay's group is
//! in the foreground, and has its settings again whenever it is not ours to set: when the command
//! has stopped (then our group stops, too, as without a relay), at the end, at a hang-up. It ends
//! for the host when that says so, or is gone and the command has ended; then it goes on to bring
//! out what processes write that the command has left behind, until none has the terminal. If our
//! terminal hangs up, or our session's leader goes, the command's terminal hangs up.
//!
//! Must not know: what a key does.

use super::sieve::Sieve;
use super::{END, MESSAGE_BYTES};
use crate::key::Key;
use crate::pressed::Clock;
use crate::settings;
use sptrace_tracee::pidfd;
use sptrace_tracee::proc::Stat;
use sptrace_tracee::terminal::keep_only;
use std::io::Error;
use std::mem::MaybeUninit;
use std::os::fd::{IntoRawFd, RawFd};
use std::time::{Duration, Instant};

/// How often we look whether we have come into the foreground, and whether the command has stopped.
const LOOK: Duration = Duration::from_millis(200);
/// No more waits in each direction; then the writer waits.
const ROOM_BYTES: usize = 1 << 16;

/// What the relay works with; the descriptors are non-blocking where two sides are waited for.
pub struct Ends {
    /// Our terminal.
    pub terminal: RawFd,
    /// What it was set to.
    pub former: libc::termios,
    /// Our side of the command's.
    pub master: RawFd,
    /// Open here, so that the terminal goes on while no process of the command has it open.
    pub slave: RawFd,
    /// Takes messages of keys, brings the word to end.
    pub host: RawFd,
    /// Brings the command's pid.
    pub begun: RawFd,
    /// What is not for the command, each with its event.
    pub keys: Vec<(usize, Key)>,
    /// Says when a key was read.
    pub clock: Clock,
    /// Is there a shell that goes on with a stopped command?
    pub is_job: bool,
    /// Does the command's output go elsewhere? Then who reads it may well write on our terminal.
    pub is_shared: bool,
}

/// Starts it. It is no child of ours, whom somebody would wait for.
///
/// # Errors
/// No process.
pub fn spawn(ends: Ends) -> std::io::Result<()> {
    // SAFETY: no other thread of ours holds anything that the child needs; it does not come back.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(Error::last_os_error());
    }
    if child == 0 {
        // SAFETY: as above. A panic must not run what the host does on its way out.
        unsafe {
            if libc::fork() == 0 {
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(ends)));
            }
            libc::_exit(0);
        }
    }
    // SAFETY: a child of ours that ends at once.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    Ok(())
}

fn body(ends: Ends) {
    let signals = detach(&ends);
    let mut pid = [0u8; 4];
    // SAFETY: four bytes.
    let got = unsafe { libc::read(ends.begun, pid.as_mut_ptr().cast(), 4) };
    // End of file: there will be no command.
    if got == 4 {
        Relaying::new(ends, signals, i32::from_ne_bytes(pid)).run();
    }
}

/// Leaves what is the host's alone; gives a descriptor that tells of signals.
fn detach(ends: &Ends) -> RawFd {
    // SAFETY: our own process, which has one thread; nothing of the host's is used any more.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        libc::sigemptyset(set.as_mut_ptr());
        for signal in [libc::SIGWINCH, libc::SIGCONT, libc::SIGHUP] {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut());
        // Meant for the host and the command; we end with them.
        for signal in [
            libc::SIGINT,
            libc::SIGQUIT,
            libc::SIGTERM,
            libc::SIGPIPE,
            libc::SIGTTIN,
            libc::SIGTTOU,
            libc::SIGUSR1,
            libc::SIGUSR2,
            libc::SIGALRM,
            libc::SIGVTALRM,
            libc::SIGPROF,
            libc::SIGIO,
        ] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let signals = libc::signalfd(-1, set.as_ptr(), libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
        keep_only(&mut [
            ends.terminal,
            ends.master,
            ends.slave,
            ends.host,
            ends.begun,
            signals,
        ]);
        libc::prctl(libc::PR_SET_NAME, c"sptrace-relay".as_ptr());
        libc::chdir(c"/".as_ptr());
        signals
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Goes {
    On,
    /// The command is through.
    Out,
    /// The terminal is.
    Away,
}

struct Relaying {
    ends: Ends,
    signals: RawFd,
    sieve: Sieve,
    pid: i32,
    /// Readable when the command has ended; -1 once it has.
    command: RawFd,
    /// -1 once the host is gone.
    host: RawFd,
    is_foreground: bool,
    /// It was in the foreground once.
    is_taken: bool,
    looked: Option<Instant>,
    to_program: Vec<u8>,
    to_terminal: Vec<u8>,
}

/// Where each descriptor stands in what is waited for.
const TERMINAL: usize = 0;
const MASTER: usize = 1;
const SIGNALS: usize = 2;
const HOST: usize = 3;
const COMMAND: usize = 4;

impl Relaying {
    fn new(mut ends: Ends, signals: RawFd, pid: i32) -> Self {
        // Without one it has ended.
        let command = pidfd::open(pid as u32).map_or(-1, IntoRawFd::into_raw_fd);
        Self {
            sieve: Sieve::new(std::mem::take(&mut ends.keys)),
            host: ends.host,
            ends,
            signals,
            pid,
            command,
            is_foreground: false,
            is_taken: false,
            looked: None,
            to_program: Vec::new(),
            to_terminal: Vec::new(),
        }
    }

    fn run(mut self) {
        let mut goes = Goes::On;
        while goes == Goes::On {
            self.look();
            let ready = self.wait();
            goes = self.turn(ready);
        }
        if goes == Goes::Out {
            close(self.ends.slave);
            while self.drain() && !self.to_terminal.is_empty() {
                let all = [
                    poll(self.ends.terminal, libc::POLLOUT),
                    poll(self.signals, libc::POLLIN),
                ];
                if wait_for(all, -1)[1] != 0 && self.is_hung_up() {
                    break;
                }
            }
        }
        self.give_back();
        close(self.ends.host);
        if goes == Goes::Out {
            self.trail();
        }
    }

    /// Takes the terminal if it has become ours to set; stops with the command.
    fn look(&mut self) {
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now < looked + LOOK) {
            return;
        }
        self.looked = Some(now);
        self.take();
        if self.ends.is_job && self.host >= 0 && self.command >= 0 && is_stopped(self.pid) {
            self.stop();
            self.take();
        }
    }

    fn take(&mut self) {
        self.is_foreground = settings::is_foreground(self.ends.terminal);
        if !self.is_foreground {
            return;
        }
        settings::copy_size(self.ends.terminal, self.ends.master);
        let Some(now) = settings::of(self.ends.terminal) else {
            return;
        };
        if !self.is_taken {
            // Those that the host has seen may be a shell's own, if it began in the background.
            self.ends.former = now;
            self.is_taken = true;
        }
        let mut wanted = settings::raw(now);
        if let Some(of_command) = settings::of(self.ends.master).filter(|_| self.ends.is_shared) {
            // As it would be without us: lines of others end as they should. The command's end in
            // one CR more.
            wanted.c_oflag = of_command.c_oflag;
        }
        if !settings::is_same(&wanted, &now) {
            settings::set(self.ends.terminal, &wanted);
        }
    }

    /// In the background the terminal has the settings of whoever is in the foreground.
    fn give_back(&mut self) {
        let terminal = self.ends.terminal;
        if settings::is_foreground(terminal) || !settings::is_controlling(terminal) {
            settings::set(terminal, &self.ends.former);
        }
    }

    /// Stops all of our group, as the terminal does when the command is in it; goes on when
    /// somebody continues us.
    fn stop(&mut self) {
        self.drain();
        self.give_back();
        // SAFETY: our own group; the command's.
        unsafe {
            libc::kill(0, libc::SIGTSTP);
            let group = libc::getpgid(self.pid);
            if group > 1 {
                libc::kill(-group, libc::SIGCONT);
            }
        }
    }

    fn wait(&self) -> [i16; 5] {
        let flag = |is, flag| if is { flag } else { 0 };
        let reads = self.is_foreground && self.to_program.len() < ROOM_BYTES;
        let events = flag(reads, libc::POLLIN) | flag(!self.to_terminal.is_empty(), libc::POLLOUT);
        let of_master = flag(self.to_terminal.len() < ROOM_BYTES, libc::POLLIN)
            | flag(!self.to_program.is_empty(), libc::POLLOUT);
        let now = Instant::now();
        let next = self.looked.map_or(now, |looked| looked + LOOK);
        let due = self.sieve.due().map_or(next, |due| due.min(next));
        // Rounded up: a moment must have come when it is looked at.
        let millis = due
            .saturating_duration_since(now)
            .as_micros()
            .div_ceil(1000) as i32;
        let mut ready = [0; 5];
        ready.copy_from_slice(&wait_for(
            [
                poll(self.ends.terminal, events),
                poll(self.ends.master, of_master),
                poll(self.signals, libc::POLLIN),
                poll(self.host, libc::POLLIN),
                poll(self.command, libc::POLLIN),
            ],
            millis,
        ));
        ready
    }

    fn turn(&mut self, ready: [i16; 5]) -> Goes {
        let has = |which: usize, flags: i16| ready[which] & flags != 0;
        if has(SIGNALS, !0) && self.is_hung_up() {
            return Goes::Away;
        }
        if has(TERMINAL, libc::POLLHUP | libc::POLLERR)
            && settings::of(self.ends.terminal).is_none()
        {
            return Goes::Away;
        }
        if has(TERMINAL, libc::POLLIN) {
            self.typed();
        }
        self.late();
        write(self.ends.master, &mut self.to_program);
        if has(MASTER, !0) && read(self.ends.master, &mut self.to_terminal) && self.ends.is_shared {
            self.take();
        }
        write(self.ends.terminal, &mut self.to_terminal);
        if has(COMMAND, !0) {
            close(self.command);
            self.command = -1;
        }
        if has(HOST, !0) && self.is_told_to_end() {
            return Goes::Out;
        }
        match self.host < 0 && self.command < 0 {
            true => Goes::Out,
            false => Goes::On,
        }
    }

    fn typed(&mut self) {
        // Whoever has come into the foreground since the last look reads this now.
        self.is_foreground = settings::is_foreground(self.ends.terminal);
        let mut bytes = Vec::new();
        if !self.is_foreground || !read(self.ends.terminal, &mut bytes) {
            return;
        }
        let mut events = Vec::new();
        self.sieve.feed(&bytes, &mut self.to_program, &mut events);
        self.tell(&events);
    }

    fn late(&mut self) {
        let mut events = Vec::new();
        self.sieve.late(&mut self.to_program, &mut events);
        self.tell(&events);
    }

    fn tell(&self, events: &[usize]) {
        let time = (self.ends.clock)();
        for event in events {
            let mut message = [0; MESSAGE_BYTES];
            message[..8].copy_from_slice(&(*event as u64).to_le_bytes());
            message[8..].copy_from_slice(&time.to_le_bytes());
            let how = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // A host that does not read for so long is stopped: the key is lost.
            // SAFETY: the buffer has the size that is said.
            unsafe { libc::send(self.host, message.as_ptr().cast(), MESSAGE_BYTES, how) };
        }
    }

    /// Reads the host's word; without one it is gone.
    fn is_told_to_end(&mut self) -> bool {
        let mut byte = 0u8;
        // SAFETY: one byte.
        let got = unsafe { libc::recv(self.host, (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) };
        let is_none = || Error::last_os_error().raw_os_error() == Some(libc::EAGAIN);
        if got == 0 || got < 0 && !is_none() {
            self.host = -1;
        }
        got == 1 && byte == END
    }

    /// Takes the signals that have come; true if one of them is the kernel's word that our session
    /// has ended.
    fn is_hung_up(&mut self) -> bool {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let bytes = size_of::<libc::signalfd_siginfo>();
        let mut is_hung_up = false;
        // SAFETY: the buffer has the size of one entry, which the kernel fills.
        unsafe {
            while libc::read(self.signals, info.as_mut_ptr().cast(), bytes) == bytes as isize {
                let (signal, code) = ((*info.as_ptr()).ssi_signo, (*info.as_ptr()).ssi_code);
                is_hung_up |= signal as i32 == libc::SIGHUP && code == libc::SI_KERNEL;
            }
        }
        // A size, or the foreground, is new.
        self.looked = None;
        is_hung_up
    }

    /// Brings out what has been written so far, unless our terminal does not take it now; false if
    /// it never will.
    fn drain(&mut self) -> bool {
        while self.to_terminal.len() < ROOM_BYTES && read(self.ends.master, &mut self.to_terminal) {
            write(self.ends.terminal, &mut self.to_terminal);
        }
        write(self.ends.terminal, &mut self.to_terminal)
    }

    /// What is left behind writes on, as it would on our terminal; what that makes of it is done
    /// there now.
    fn trail(&mut self) {
        if let Some(mut settings) = settings::of(self.ends.master) {
            settings.c_oflag &= !libc::OPOST;
            settings::set(self.ends.master, &settings);
        }
        loop {
            let is_full = !self.to_terminal.is_empty();
            let flag = |is, flag| if is { flag } else { 0 };
            let all = [
                poll(self.ends.terminal, flag(is_full, libc::POLLOUT)),
                poll(self.ends.master, flag(!is_full, libc::POLLIN)),
            ];
            let [terminal, master] = wait_for(all, -1);
            let is_read = read(self.ends.master, &mut self.to_terminal);
            let is_over = master & libc::POLLHUP != 0 && !is_read;
            let is_gone = terminal & (libc::POLLHUP | libc::POLLERR) != 0;
            if !write(self.ends.terminal, &mut self.to_terminal) || is_gone {
                return;
            }
            if is_over && self.to_terminal.is_empty() {
                return;
            }
        }
    }
}

/// Has a signal stopped it? (Not a tracer.)
fn is_stopped(pid: i32) -> bool {
    Stat::of(pid as u32).is_ok_and(|stat| stat.state == 'T')
}

fn poll(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd {
        fd,
        events,
        revents: 0,
    }
}

fn wait_for<const N: usize>(mut all: [libc::pollfd; N], millis: i32) -> [i16; N] {
    // SAFETY: so many entries.
    let count = unsafe { libc::poll(all.as_mut_ptr(), N as libc::nfds_t, millis) };
    all.map(|one| if count > 0 { one.revents } else { 0 })
}

/// Adds what is there; false if there is nothing, or never will be.
fn read(from: RawFd, to: &mut Vec<u8>) -> bool {
    let mut bytes = [0u8; 4096];
    // SAFETY: the buffer has the size that is said.
    let got = unsafe { libc::read(from, bytes.as_mut_ptr().cast(), bytes.len()) };
    to.extend_from_slice(&bytes[..got.max(0) as usize]);
    got > 0
}

/// Takes off what could be written; false if nothing ever can.
fn write(to: RawFd, from: &mut Vec<u8>) -> bool {
    if from.is_empty() {
        return true;
    }
    // SAFETY: so many bytes.
    let put = unsafe { libc::write(to, from.as_ptr().cast(), from.len()) };
    from.drain(..put.max(0) as usize);
    put >= 0
        || matches!(
            Error::last_os_error().raw_os_error(),
            Some(libc::EAGAIN | libc::EINTR)
        )
}

fn close(fd: RawFd) {
    // SAFETY: our own process's, and used by nobody after this.
    unsafe { libc::close(fd) };
}
