//! Stopping all threads of a running process, and letting them go on as if nothing had been.
//!
//! Given a pid; gives each thread's registers and signal mask while it is stopped. Threads are
//! taken by PTRACE_SEIZE before the first of them is stopped. Signals that come on the way are
//! delivered; a process that a signal has stopped (SIGSTOP) is so again afterwards
//! (kernel/ptrace.c, `__ptrace_unlink`). What system calls were waiting for goes on: the kernel
//! begins most of them again by itself, and those that give EINTR for a stop as they do for a
//! signal (signal(7)) are begun again here.
//!
//! Must not know why the process is stopped.

use crate::error::TraceeError;
use crate::proc::{self, Stat, Status};
use crate::ptrace;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A stop is waited for so long: a thread that waits for a vfork child or a disk cannot stop.
const STOP_LIMIT: Duration = Duration::from_secs(2);
/// One that runs stops within so long, and the shortest sleep lasts as long.
const SHORT: Duration = Duration::from_micros(200);
/// While threads are made as fast as they are stopped.
const ROUNDS: usize = 64;

const ERESTARTSYS: i64 = -512;
const ERESTARTNOINTR: i64 = -513;
const ERESTARTNOHAND: i64 = -514;
const ERESTART_RESTARTBLOCK: i64 = -516;

/// System calls that end with EINTR when their thread is stopped, and may be begun again: nothing
/// has happened yet.
const BEGUN_AGAIN: [i64; 15] = [
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
];

/// A thread that is held by us.
#[derive(Clone, Copy)]
pub struct Thread {
    /// Thread id.
    pub tid: u32,
    /// Its registers, while it is stopped.
    pub regs: libc::user_regs_struct,
    /// Its signal mask, likewise.
    pub mask: u64,
    is_stopped: bool,
}

/// The threads of a process, held by us.
pub struct Threads {
    /// The process.
    pub pid: u32,
    held: BTreeMap<u32, Thread>,
    /// Of ours: others wait for its end.
    is_child: bool,
    /// It stands still between two holds, too.
    stands: bool,
}

/// What waiting for a thread gave.
enum Seen {
    Stopped,
    Gone,
    Nothing,
}

impl Threads {
    fn none(pid: u32) -> Self {
        let own = std::process::id();
        Self {
            pid,
            held: BTreeMap::new(),
            is_child: Stat::of(pid).is_ok_and(|stat| stat.parent == own),
            stands: false,
        }
    }

    /// Takes hold of a process of one thread that the caller holds stopped already, and which
    /// stands so again when it is released.
    ///
    /// # Errors
    /// Gone.
    pub fn standing(pid: u32) -> Result<Self, TraceeError> {
        let mut threads = Self::none(pid);
        let thread = Thread {
            tid: pid,
            regs: ptrace::registers(pid)?,
            mask: ptrace::signal_mask(pid)?,
            is_stopped: true,
        };
        threads.held.insert(pid, thread);
        threads.stands = true;
        Ok(threads)
    }

    /// Takes hold of one thread and stops it: one that can be stopped at once, if there is any.
    /// `idle` is called while none stops.
    ///
    /// # Errors
    /// Not permitted, gone, or none could be stopped.
    pub fn stop_one(pid: u32, idle: &dyn Fn()) -> Result<Self, TraceeError> {
        let until = Instant::now() + STOP_LIMIT;
        loop {
            match Self::stop_any(pid, idle) {
                Err(TraceeError::Unstoppable(_)) if Instant::now() < until => {}
                result => return result,
            }
        }
    }

    /// Tries one thread after the other.
    fn stop_any(pid: u32, idle: &dyn Fn()) -> Result<Self, TraceeError> {
        let tids = threads_of(pid)?;
        let tids = in_order(tids, |tid| matches!(state(pid, tid), Some('D')));
        let mut failure = TraceeError::Gone;
        for (k, tid) in tids.iter().enumerate() {
            let limit = if k == 0 {
                STOP_LIMIT / 4
            } else {
                STOP_LIMIT / 10
            };
            let mut threads = Self::none(pid);
            match threads
                .seize(*tid)
                .and_then(|()| threads.stop_held(limit, idle))
            {
                Ok(()) if threads.held.is_empty() => {}
                Ok(()) => return Ok(threads),
                Err(e) => failure = e,
            }
            threads.release();
        }
        Err(failure)
    }

    /// Takes hold of all threads and stops them. `idle` is called while one does not stop: it may
    /// wait for somebody who waits for us.
    ///
    /// # Errors
    /// Gone, or one cannot be stopped: then all others go on.
    pub fn stop_all(pid: u32, idle: &dyn Fn()) -> Result<Self, TraceeError> {
        let mut threads = Self::none(pid);
        match threads.stop(idle) {
            Ok(()) => Ok(threads),
            Err(e) => {
                threads.release();
                Err(e)
            }
        }
    }

    /// Stops all threads that run, new ones included.
    ///
    /// # Errors
    /// As for [`Self::stop_all`].
    pub fn stop(&mut self, idle: &dyn Fn()) -> Result<(), TraceeError> {
        // Before anything stands still.
        while self.seize_new()? {}
        for _ in 0..ROUNDS {
            self.stop_held(STOP_LIMIT, idle)?;
            if self.held.is_empty() {
                return Err(TraceeError::Gone);
            }
            if !self.seize_new()? {
                return Ok(());
            }
        }
        Err(TraceeError::NoRoom(
            "it makes threads faster than they can be stopped",
        ))
    }

    /// True if there were threads that we did not hold.
    fn seize_new(&mut self) -> Result<bool, TraceeError> {
        let mut any = false;
        for tid in threads_of(self.pid)? {
            if !self.held.contains_key(&tid) {
                self.seize(tid)?;
                any |= self.held.contains_key(&tid);
            }
        }
        Ok(any)
    }

    fn seize(&mut self, tid: u32) -> Result<(), TraceeError> {
        if let Err(e) = ptrace::seize_thread(tid) {
            match state(self.pid, tid) {
                // One that is ending is no thread any more.
                None | Some('Z' | 'X') => return Ok(()),
                // It did not stop in time when we held it before, and is ours still.
                _ if is_ours(self.pid, tid) => {}
                _ => return Err(e),
            }
        }
        // SAFETY: plain numbers.
        let regs = unsafe { std::mem::zeroed() };
        let thread = Thread {
            tid,
            regs,
            mask: 0,
            is_stopped: false,
        };
        self.held.insert(tid, thread);
        Ok(())
    }

    /// Stops all threads that are held.
    fn stop_held(&mut self, limit: Duration, idle: &dyn Fn()) -> Result<(), TraceeError> {
        let running = |t: &&mut Thread| !t.is_stopped;
        for t in self.held.values_mut().filter(running) {
            // One that is gone is found below.
            let _ = ptrace::interrupt(t.tid);
        }
        let until = Instant::now() + limit;
        let tids: Vec<u32> = self.held.keys().copied().collect();
        for tid in tids {
            self.wait_for_stop(tid, until, idle)?;
        }
        Ok(())
    }

    fn wait_for_stop(
        &mut self,
        tid: u32,
        until: Instant,
        idle: &dyn Fn(),
    ) -> Result<(), TraceeError> {
        let begun = Instant::now();
        while self.held.get(&tid).is_some_and(|t| !t.is_stopped) {
            match self.look(tid, true)? {
                Seen::Gone => {
                    self.held.remove(&tid);
                }
                Seen::Stopped => {
                    let (regs, mask) = (ptrace::registers(tid)?, ptrace::signal_mask(tid)?);
                    if let Some(t) = self.held.get_mut(&tid) {
                        (t.regs, t.mask, t.is_stopped) = (regs, mask, true);
                    }
                }
                Seen::Nothing if Instant::now() > until => {
                    return Err(TraceeError::Unstoppable(tid));
                }
                Seen::Nothing => {
                    idle();
                    match begun.elapsed() < SHORT {
                        true => std::thread::yield_now(),
                        false => std::thread::sleep(Duration::from_micros(20)),
                    }
                }
            }
        }
        Ok(())
    }

    /// What has happened to a thread that is held. Signals are handed on; each takes a pending stop
    /// with it (kernel/signal.c, `ptrace_stop`), so one that `shall_stop` is asked for that again.
    fn look(&self, tid: u32, shall_stop: bool) -> Result<Seen, TraceeError> {
        loop {
            let status = match stop_of(tid, self.is_child && tid == self.pid) {
                Ok(Some(status)) => status,
                Ok(None) => return Ok(Seen::Nothing),
                Err(_) => return Ok(Seen::Gone),
            };
            if status >> 16 != 0 {
                return Ok(Seen::Stopped);
            }
            if shall_stop {
                let _ = ptrace::interrupt(tid);
            }
            ptrace::resume(tid, libc::WSTOPSIG(status))?;
        }
    }

    /// The stopped threads.
    pub fn all(&self) -> impl Iterator<Item = &Thread> {
        self.held.values()
    }

    /// Lets one stopped thread run on, still held.
    ///
    /// # Errors
    /// Gone.
    pub fn run(&mut self, tid: u32) -> Result<(), TraceeError> {
        if let Some(t) = self.held.get_mut(&tid)
            && t.is_stopped
        {
            t.is_stopped = false;
            ptrace::resume(tid, 0)?;
        }
        Ok(())
    }

    /// Gives a stopped thread these registers and this mask.
    ///
    /// # Errors
    /// Gone.
    pub fn put(
        &mut self,
        tid: u32,
        regs: &libc::user_regs_struct,
        mask: u64,
    ) -> Result<(), TraceeError> {
        let thread = self.held.get_mut(&tid).ok_or(TraceeError::Gone)?;
        (thread.regs, thread.mask) = (*regs, mask);
        ptrace::set_registers(tid, regs)?;
        ptrace::set_signal_mask(tid, mask)
    }

    /// Sets the gs base of a stopped thread.
    ///
    /// # Errors
    /// Gone.
    pub fn set_gs_base(&mut self, tid: u32, to: u64) -> Result<(), TraceeError> {
        let thread = self.held.get_mut(&tid).ok_or(TraceeError::Gone)?;
        thread.regs.gs_base = to;
        ptrace::set_gs_base(tid, to)
    }

    /// What a thread that runs has met: delivers its signals, and lets it run on if something has
    /// stopped it.
    ///
    /// # Errors
    /// Gone.
    pub fn keep_running(&mut self, tid: u32) -> Result<(), TraceeError> {
        match self.look(tid, false)? {
            Seen::Nothing => Ok(()),
            Seen::Stopped => ptrace::resume(tid, 0),
            Seen::Gone => {
                self.held.remove(&tid);
                Err(TraceeError::Gone)
            }
        }
    }

    /// Stops one thread again.
    ///
    /// # Errors
    /// Gone, or it cannot be stopped.
    pub fn stop_again(&mut self, tid: u32) -> Result<Thread, TraceeError> {
        if self.held.get(&tid).is_some_and(|t| !t.is_stopped) {
            ptrace::interrupt(tid)?;
            self.wait_for_stop(tid, Instant::now() + STOP_LIMIT, &|| ())?;
        }
        self.held.get(&tid).copied().ok_or(TraceeError::Gone)
    }

    /// Lets all threads go, but for one that was standing.
    pub fn release(mut self) {
        for t in std::mem::take(&mut self.held).into_values() {
            if !t.is_stopped {
                // It cannot be let go before it stops: whoever waits for our children does that.
                let _ = ptrace::interrupt(t.tid);
                continue;
            }
            if self.stands {
                continue;
            }
            let again = begun_again(&t, self.pid);
            if again.rip != t.regs.rip {
                let _ = ptrace::set_registers(t.tid, &again);
            }
            let _ = ptrace::detach(t.tid, 0);
        }
    }
}

/// The registers with which a thread that a stop has brought out of a system call goes on with that
/// call, by itself: not as the kernel would begin it again, which sees to that when it lets the
/// thread go.
pub fn restarted(t: &Thread, pid: u32) -> libc::user_regs_struct {
    let mut regs = begun_again(t, pid);
    if (regs.orig_rax as i64) < 0 {
        return regs;
    }
    match regs.rax as i64 {
        ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND => {
            regs.rax = regs.orig_rax;
            regs.rip -= 2;
        }
        ERESTART_RESTARTBLOCK => {
            regs.rax = libc::SYS_restart_syscall as u64;
            regs.rip -= 2;
        }
        _ => {}
    }
    regs.orig_rax = u64::MAX;
    regs
}

/// The same for what the kernel does not begin again.
fn begun_again(t: &Thread, pid: u32) -> libc::user_regs_struct {
    let mut regs = t.regs;
    let interrupted = regs.rax as i64 == -i64::from(libc::EINTR);
    if interrupted && BEGUN_AGAIN.contains(&(regs.orig_rax as i64)) && !has_signal(pid, t) {
        regs.rax = regs.orig_rax;
        regs.rip -= 2;
        regs.orig_rax = u64::MAX;
    }
    regs
}

/// A signal is about to be delivered to the thread: the system call was interrupted for it.
fn has_signal(pid: u32, t: &Thread) -> bool {
    let status = Status::of_thread(pid, t.tid);
    status.map_or(true, |status| status.pending_signals() & !t.mask != 0)
}

/// The thread ids of a process.
///
/// # Errors
/// It is gone.
pub fn threads_of(pid: u32) -> Result<Vec<u32>, TraceeError> {
    let threads = proc::threads(pid);
    match threads.is_empty() {
        true => Err(TraceeError::Gone),
        false => Ok(threads),
    }
}

/// True if the calling thread traces one of the process's threads.
pub fn traces(pid: u32) -> bool {
    proc::threads(pid).into_iter().any(|tid| is_ours(pid, tid))
}

/// True if the calling thread traces it (proc_pid_status(5), TracerPid).
fn is_ours(pid: u32, tid: u32) -> bool {
    // SAFETY: a plain query.
    let own = unsafe { libc::gettid() } as u32;
    Status::of_thread(pid, tid).is_ok_and(|status| status.tracer() == Some(own))
}

/// The state of a thread, a letter (proc_pid_stat(5)).
pub fn state(pid: u32, tid: u32) -> Option<char> {
    Stat::of_thread(pid, tid).ok().map(|stat| stat.state)
}

/// What a thread that is held has met: `Some` status of a stop.
///
/// # Errors
/// It is gone. The end of a process that is a child of ours stays to be waited for.
fn stop_of(tid: u32, is_child: bool) -> Result<Option<i32>, TraceeError> {
    let options = libc::__WALL | libc::WNOHANG;
    if is_child {
        // Stops alone are taken: it may end between two looks.
        let stop = child_event(tid, libc::WSTOPPED | options)?;
        if let Some((_, status)) = stop {
            // As waitpid(2) gives it.
            return Ok(Some(status << 8 | 0x7f));
        }
        // The stop of a traced child is seen here, too (kernel/exit.c, `wait_task_stopped`).
        let seen = child_event(tid, libc::WEXITED | libc::WNOWAIT | options)?;
        return match seen {
            Some((libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED, _)) => {
                Err(TraceeError::Gone)
            }
            _ => Ok(None),
        };
    }
    let mut status = 0;
    // SAFETY: the status is ours.
    let got = unsafe { libc::waitpid(tid as i32, &raw mut status, options) };
    match got {
        0 => Ok(None),
        _ if got < 0 || !libc::WIFSTOPPED(status) => Err(TraceeError::Gone),
        _ => Ok(Some(status)),
    }
}

/// What waitid(2) with these options says of a child: how (CLD_...), and its status.
fn child_event(tid: u32, options: i32) -> Result<Option<(i32, i32)>, TraceeError> {
    // SAFETY: plain numbers.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the information is ours.
    if unsafe { libc::waitid(libc::P_PID, tid, &raw mut info, options) } != 0 {
        return Err(TraceeError::Gone);
    }
    // SAFETY: of SIGCHLD, or zeros.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    Ok((pid != 0).then_some((info.si_code, status)))
}

/// Threads in the order in which they are tried: the first one is waited for by others most rarely,
/// and who waits for a device stops late. A thread is looked at once: what it does changes
/// meanwhile, and an order that changes while it is made is none.
fn in_order(mut tids: Vec<u32>, waits: impl Fn(u32) -> bool) -> Vec<u32> {
    tids.sort_by_cached_key(|tid| (waits(*tid), *tid));
    tids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_fall_asleep_meanwhile_are_put_in_order() {
        let asked = std::cell::Cell::new(0u32);
        let waits = |_: u32| {
            asked.set(asked.get().wrapping_mul(1_103_515_245).wrapping_add(12_345));
            asked.get() & 0x1_0000 != 0
        };
        for threads in [1, 2, 21, 500] {
            let mut tids = in_order((0..threads).rev().collect(), waits);
            assert_eq!(tids.len(), threads as usize);
            tids.sort_unstable();
            assert!(tids.into_iter().eq(0..threads));
        }
        assert_eq!(in_order(vec![3, 1, 2], |tid| tid == 1), [2, 3, 1]);
    }
}
