//! Whose something is that is left in the kernel's tracing: the process's number and start.
//!
//! Given a name that has both; says whether the process that made it lives. Numbers are used again,
//! a number with a start is not.
//!
//! Must not know: what it is that is named so.

use sptrace_tracee::proc::Stat;

/// A process that makes things in the kernel's tracing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pid: u32,
    started: u64,
}

impl Owner {
    /// This process.
    pub fn me() -> Self {
        let pid = std::process::id();
        let started = started(pid).unwrap_or(0);
        Self { pid, started }
    }

    /// As part of a name.
    pub fn name(self, between: char) -> String {
        format!("{}{between}{}", self.pid, self.started)
    }

    /// Of a name that [`Self::name`] has made.
    pub fn of(name: &str, between: char) -> Option<Self> {
        let (pid, started) = name.split_once(between)?;
        Some(Self {
            pid: pid.parse().ok()?,
            started: started.parse().ok()?,
        })
    }

    /// True if it lives.
    pub fn is_alive(self) -> bool {
        started(self.pid) == Some(self.started)
    }
}

/// When a process was started, in ticks since the machine's.
fn started(pid: u32) -> Option<u64> {
    Stat::of(pid).ok().map(|stat| stat.started_ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_process() {
        let me = Owner::me();
        assert_eq!(Owner::of(&me.name('-'), '-'), Some(me));
        assert!(me.is_alive());
        assert!(!Owner::of("1-77777777777", '-').is_some_and(Owner::is_alive));
        assert_eq!(Owner::of("other", '-'), None);
    }
}
