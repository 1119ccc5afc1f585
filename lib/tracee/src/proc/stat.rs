//! `/proc/PID/stat`: the state of a process or of one of its threads (proc_pid_stat(5)).
//!
//! Given numbers; gives the fields that somebody asks for. The program's name stands in the middle
//! and may hold any byte, so fields are counted from behind its last parenthesis.

use std::io;

/// What the kernel says of a task in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// A letter: `R` runs, `S` and `D` wait, `T` is stopped by a signal, `t` by a tracer, `Z` and
    /// `X` have ended.
    pub state: char,
    /// The process that is told of its end.
    pub parent: u32,
    /// PF_* of the kernel.
    flags: u64,
    /// CPU time of children that it has waited for, user and system, in ticks of the kernel.
    pub waited_ticks: u64,
    /// Its start, in ticks since the machine's. With its number it names a process for good.
    pub started_ticks: u64,
    /// Its wait status, once it has ended.
    exit_code: i32,
}

/// Which field is which, counted from the state.
const PARENT: usize = 4 - 3;
const FLAGS: usize = 9 - 3;
const WAITED_USER: usize = 16 - 3;
const WAITED_SYSTEM: usize = 17 - 3;
const STARTED: usize = 22 - 3;
const EXIT_CODE: usize = 52 - 3;

impl Stat {
    /// Of a process, as its first thread is.
    ///
    /// # Errors
    /// It is gone, or no descriptor is left to look with.
    pub fn of(pid: u32) -> io::Result<Self> {
        Self::read(&format!("/proc/{pid}/stat"))
    }

    /// Of a thread.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn of_thread(pid: u32, tid: u32) -> io::Result<Self> {
        Self::read(&format!("/proc/{pid}/task/{tid}/stat"))
    }

    /// True if it has ended, and at most its parent has not waited for it.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// True if it is a thread of the kernel.
    pub fn is_kernel(&self) -> bool {
        const PF_KTHREAD: u64 = 0x0020_0000;
        self.flags & PF_KTHREAD != 0
    }

    /// Its wait status, if it has ended. The kernel says 0 to who may not look at it.
    pub fn wait_status(&self) -> Option<i32> {
        (self.state == 'Z').then_some(self.exit_code)
    }

    fn read(path: &str) -> io::Result<Self> {
        let line = std::fs::read(path)?;
        Self::parse(&line).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let behind_name = line.iter().rposition(|b| *b == b')')? + 1;
        let fields = std::str::from_utf8(line.get(behind_name..)?).ok()?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: fields.get(PARENT)?.parse().ok()?,
            flags: fields.get(FLAGS)?.parse().ok()?,
            waited_ticks: [WAITED_USER, WAITED_SYSTEM]
                .map(|i| fields.get(i).and_then(|ticks| ticks.parse::<u64>().ok()))
                .into_iter()
                .sum::<Option<u64>>()?,
            started_ticks: fields.get(STARTED)?.parse().ok()?,
            exit_code: fields.get(EXIT_CODE)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_no_text_shifts_no_field() {
        let numbers = "17 3 3 0 -1 2097216 5 6 7 8 9 10 11 12 20 0 1 0 4711 0 0 0 0 0 0 0 0 0 0 0 \
                       0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 9";
        let line = [b"12 (a) Z 1 (\xff) Z ", numbers.as_bytes()].concat();
        let stat = Stat::parse(&line).expect("a line of the kernel");
        assert_eq!((stat.state, stat.parent), ('Z', 17));
        assert_eq!((stat.started_ticks, stat.waited_ticks), (4711, 11 + 12));
        assert!(stat.is_kernel() && stat.has_ended());
        assert_eq!(stat.wait_status(), Some(9));
        assert_eq!(Stat::parse(b"12 (a) Z 17"), None);
    }

    #[test]
    fn this_process_runs_and_the_end_of_a_child_is_told() {
        let own = Stat::of(std::process::id()).expect("this process");
        assert!(!own.has_ended() && !own.is_kernel());
        let mut command = std::process::Command::new("sh");
        let mut child = command.args(["-c", "exit 3"]).spawn().expect("sh");
        let stat = loop {
            let stat = Stat::of(child.id()).expect("a child of ours");
            if stat.has_ended() {
                break stat;
            }
            std::thread::yield_now();
        };
        assert_eq!(stat.parent, std::process::id());
        assert_eq!(stat.wait_status(), Some(3 << 8));
        child.wait().expect("a child of ours");
        assert!(Stat::of(child.id()).is_err());
    }
}
