//! How much CPU time a process has used, all its threads together.
//!
//! Given its number; gives what the kernel has counted for it, of user and system together. Must
//! not know what that is compared with.

use super::Stat;
use std::time::Duration;

/// CPU time that was used up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// By the threads of the process, those that have ended too, to the nanosecond.
    pub own: Duration,
    /// By children that it has waited for, and by theirs, to the tick of the kernel (10 ms).
    pub waited: Duration,
}

impl CpuTime {
    /// That of a process; `None`: it is gone, or its parent has not waited for it.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = Stat::of(pid).ok().filter(|stat| !stat.has_ended())?;
        let mut clock = 0;
        // SAFETY: writes a number of ours.
        if unsafe { libc::clock_getcpuclockid(pid as i32, &raw mut clock) } != 0 {
            return None;
        }
        // SAFETY: asks the kernel for a constant.
        let ticks_a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
        Some(Self {
            own: now(clock)?,
            waited: Duration::from_nanos(stat.waited_ticks * 1_000_000_000 / ticks_a_second),
        })
    }

    /// That of this process, without children.
    pub fn ours() -> Duration {
        now(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or_default()
    }
}

fn now(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes a value of ours.
    let is_read = unsafe { libc::clock_gettime(clock, &raw mut time) } == 0;
    is_read.then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_uses_is_counted_and_a_process_that_is_gone_has_none() {
        let pid = std::process::id();
        let before = CpuTime::of(pid).expect("this process");
        while CpuTime::ours() < before.own + Duration::from_millis(5) {
            std::hint::spin_loop();
        }
        let after = CpuTime::of(pid).expect("this process");
        assert!(after.own >= before.own + Duration::from_millis(5));
        let mut child = std::process::Command::new("true").spawn().expect("true");
        child.wait().expect("a child of ours");
        assert_eq!(CpuTime::of(child.id()), None);
    }

    #[test]
    fn a_child_that_was_waited_for_is_its_parents() {
        let burn = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
        let before = CpuTime::of(std::process::id()).expect("this process");
        let done = std::process::Command::new("sh").args(["-c", burn]).status();
        assert!(done.expect("sh").success());
        let after = CpuTime::of(std::process::id()).expect("this process");
        assert!(after.waited > before.waited, "{before:?} {after:?}");
    }
}
