//! `/proc/PID/status`: what the kernel says of a task by name (proc_pid_status(5)).
//!
//! Given numbers; gives the fields that somebody asks for, by typed questions. A field that this
//! kernel does not have is told from one that is zero.

use std::io;

/// The text as it was at one moment.
pub struct Status(String);

impl Status {
    /// Of a process, or of a thread by its own number.
    ///
    /// # Errors
    /// It is gone, or no descriptor is left to look with.
    pub fn of(pid: u32) -> io::Result<Self> {
        Self::read(&format!("/proc/{pid}/status"))
    }

    /// Of a thread.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn of_thread(pid: u32, tid: u32) -> io::Result<Self> {
        Self::read(&format!("/proc/{pid}/task/{tid}/status"))
    }

    fn read(path: &str) -> io::Result<Self> {
        let text = std::fs::read(path)?;
        Ok(Self(String::from_utf8_lossy(&text).into_owned()))
    }

    /// True if it has ended, and at most its parent has not waited for it.
    pub fn has_ended(&self) -> bool {
        self.text("State")
            .is_some_and(|s| s.starts_with(['Z', 'X']))
    }

    /// The process that a thread belongs to.
    pub fn thread_group(&self) -> Option<u32> {
        self.number("Tgid")
    }

    /// The process that is told of its end.
    pub fn parent(&self) -> Option<u32> {
        self.number("PPid")
    }

    /// The user that it runs as.
    pub fn user(&self) -> Option<u32> {
        self.text("Uid")?.split_whitespace().next()?.parse().ok()
    }

    /// The users that it runs as: the real and the effective one.
    pub fn users(&self) -> Option<[u32; 2]> {
        self.first_two("Uid")
    }

    /// The groups that it runs as: the real and the effective one.
    pub fn groups(&self) -> Option<[u32; 2]> {
        self.first_two("Gid")
    }

    /// Its capabilities: the effective and the permitted ones, a bit each.
    pub fn capabilities(&self) -> Option<[u64; 2]> {
        Some([self.signals("CapEff")?, self.signals("CapPrm")?])
    }

    /// The thread that traces it.
    pub fn tracer(&self) -> Option<u32> {
        self.number("TracerPid").filter(|tracer| *tracer != 0)
    }

    /// The number that it has in its own, innermost pid namespace.
    pub fn own_number(&self) -> Option<u32> {
        let numbers = self.text("NSpid")?;
        numbers.split_whitespace().next_back()?.parse().ok()
    }

    /// SECCOMP_MODE_*; None: this kernel has none.
    pub fn seccomp_mode(&self) -> Option<u32> {
        self.number("Seccomp")
    }

    /// True if it has memory: neither a thread of the kernel nor about to end.
    pub fn has_memory(&self) -> bool {
        self.text("VmSize").is_some()
    }

    /// KiB of memory that is locked; None: it has no memory.
    pub fn locked_kib(&self) -> Option<u64> {
        self.kib("VmLck")
    }

    /// KiB of executable mappings: the program's and the libraries', which the kernel counts apart.
    pub fn code_kib(&self) -> Option<u64> {
        Some(self.kib("VmExe")? + self.kib("VmLib")?)
    }

    /// True if it runs with a shadow stack (CET).
    pub fn has_shadow_stack(&self) -> bool {
        let features = self.text("x86_Thread_features");
        features.is_some_and(|features| features.contains("shstk"))
    }

    /// True if the process has a handler for a signal.
    pub fn catches(&self, signal: i32) -> bool {
        self.signals("SigCgt")
            .is_some_and(|set| set & 1 << (signal - 1) != 0)
    }

    /// The signals that wait for the thread or its process, a bit each.
    pub fn pending_signals(&self) -> u64 {
        let of = |name| self.signals(name).unwrap_or(0);
        of("SigPnd") | of("ShdPnd")
    }

    fn text(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines();
        let value = lines.find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
        Some(value.trim())
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.text(name)?.parse().ok()
    }

    fn first_two(&self, name: &str) -> Option<[u32; 2]> {
        let mut words = self.text(name)?.split_whitespace();
        let mut next = || words.next()?.parse().ok();
        Some([next()?, next()?])
    }

    fn kib(&self, name: &str) -> Option<u64> {
        self.text(name)?.strip_suffix(" kB")?.parse().ok()
    }

    fn signals(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.text(name)?, 16).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "Name:\tUid: 7\nTgid:\t12\nPPid:\t1\nTracerPid:\t0\nUid:\t1000\t0\t0\t0\nNSpid:\t12\t3\n\
                    VmSize:\t  10 kB\nVmLck:\t       0 kB\nVmExe:\t   4 kB\nVmLib:\t  16 kB\n\
                    SigPnd:\t0000000000000001\nShdPnd:\t0000000000000200\nSigCgt:\t0000000004000000\n";
        let status = Status(text.to_owned());
        assert_eq!(
            (status.thread_group(), status.parent()),
            (Some(12), Some(1))
        );
        assert_eq!((status.user(), status.tracer()), (Some(1000), None));
        assert_eq!(status.users(), Some([1000, 0]));
        assert_eq!(status.own_number(), Some(3));
        assert_eq!(
            (status.locked_kib(), status.code_kib()),
            (Some(0), Some(20))
        );
        assert_eq!(status.pending_signals(), 0x201);
        assert!(status.catches(libc::SIGPROF) && !status.catches(libc::SIGHUP));
        assert_eq!(status.seccomp_mode(), None);
        assert!(status.has_memory() && !status.has_shadow_stack() && !status.has_ended());
    }

    #[test]
    fn this_process_and_its_thread_say_the_same_of_their_group() {
        let own = std::process::id();
        let group = |status: io::Result<Status>| status.expect("this process").thread_group();
        assert_eq!(group(Status::of(own)), Some(own));
        // SAFETY: a plain query.
        let tid = unsafe { libc::gettid() } as u32;
        assert_eq!(group(Status::of_thread(own, tid)), Some(own));
    }
}
