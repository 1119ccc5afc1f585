//! What this machine and this user's rights let be recorded of programs, and what would allow more.
//!
//! Given nothing; tries what a recording does on a child of its own, looks at the settings that
//! decide about other processes, and says one line for each question, with a remedy where the
//! answer is no. Must not know the kernel's own tracing, and where anything is shown.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::memory;
use crate::ptrace;

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What was looked for.
    pub what: &'static str,
    /// It is there.
    pub is_there: bool,
    /// Where or how; if it is not there: why, and what would help.
    pub how: String,
}

fn answer(what: &'static str, result: Result<String, String>) -> Answer {
    Answer {
        what,
        is_there: result.is_ok(),
        how: result.unwrap_or_else(|why| why),
    }
}

/// The agent finds its thread block through gs and needs user-mode FSGSBASE (AT_HWCAP2 bit 1).
///
/// # Errors
/// It is not there; why.
pub fn has_fsgsbase() -> Result<(), String> {
    // SAFETY: reads our own auxiliary vector.
    let hwcap2 = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    match hwcap2 & 2 {
        0 => Err(
            "this kernel or processor lacks FSGSBASE (Linux 5.9 or later, any x86-64 since 2012)"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

/// What `sptrace run` needs, tried on a child.
pub fn for_commands() -> Vec<Answer> {
    let mut answers = vec![
        answer(
            "processor and kernel",
            has_fsgsbase().map(|()| {
                format!(
                    "Linux {}, with FSGSBASE",
                    setting("/proc/sys/kernel/osrelease")
                )
            }),
        ),
        answer("steady time stamps", steady_clock()),
        answer("memory that is shared", shared_memory()),
    ];
    match TestChild::start() {
        Ok(child) => answers.extend(child.try_all()),
        Err(e) => answers.push(answer("a child to try it on", Err(format!("cat: {e}")))),
    }
    answers
}

/// What `sptrace attach` needs beyond that.
pub fn for_running() -> Vec<Answer> {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let scope = scope.ok().and_then(|s| s.trim().parse::<u32>().ok());
    let may_all = has_capability(CAP_SYS_PTRACE);
    let own = match scope {
        None | Some(0) => Ok("no restriction beyond the user id".to_owned()),
        Some(3) => Err(
            "kernel.yama.ptrace_scope is 3, which stays so until the machine is started anew"
                .to_owned(),
        ),
        Some(s) if may_all => Ok(format!("kernel.yama.ptrace_scope is {s}, but not for root")),
        Some(s) => Err(format!(
            "kernel.yama.ptrace_scope is {s}: `sudo sysctl kernel.yama.ptrace_scope=0` permits it, or \
             `sudo sptrace attach`"
        )),
    };
    let others = match may_all {
        true => Ok("CAP_SYS_PTRACE".to_owned()),
        false => Err(
            "CAP_SYS_PTRACE is missing: `sudo sptrace attach`; in a container, \
             `--cap-add=SYS_PTRACE`"
                .to_owned(),
        ),
    };
    vec![
        answer("processes of this user", own),
        answer("processes of other users", others),
    ]
}

/// capabilities(7).
const CAP_SYS_PTRACE: u32 = 19;

fn has_capability(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let set = set.and_then(|s| u64::from_str_radix(s.trim(), 16).ok());
    set.unwrap_or(0) & 1 << number != 0
}

fn setting(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

/// Times of different processors can be compared if the kernel itself takes its time from there.
fn steady_clock() -> Result<String, String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|l| l.starts_with("flags")).unwrap_or("");
    let has = |flag: &str| flags.split(' ').any(|f| f == flag);
    let source = setting("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    match has("constant_tsc") && has("nonstop_tsc") {
        true => Ok(format!(
            "constant_tsc, nonstop_tsc; the kernel's clock is {source}"
        )),
        false => Err(format!(
            "the time stamp counter of this processor changes its speed or stops (the kernel's clock is {source}): \
             counts are right, times are not"
        )),
    }
}

/// The patch areas are written through one mapping of a memory file and executed through another.
fn shared_memory() -> Result<String, String> {
    let flags = MFdFlags::MFD_CLOEXEC;
    let made = memfd_create(c"sptrace doctor", flags).map_err(|e| format!("memfd_create: {e}"))?;
    let file = File::from(made);
    file.set_len(4096).map_err(|e| format!("ftruncate: {e}"))?;
    // SAFETY: a fresh mapping, which nobody uses.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_EXEC,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED {
        let e = std::io::Error::last_os_error();
        return Err(format!(
            "code in a memory file cannot be executed ({e}): is vm.memfd_noexec 2, or does SELinux forbid it?"
        ));
    }
    // SAFETY: the mapping just made.
    unsafe { libc::munmap(at, 4096) };
    Ok("memfd_create, and code in it can be executed".to_owned())
}

/// A child that waits, and ends with us.
struct TestChild(Child);

impl TestChild {
    fn start() -> std::io::Result<Self> {
        let mut command = Command::new("cat");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().map(Self)
    }

    fn try_all(mut self) -> Vec<Answer> {
        let pid = self.0.id();
        let seized = ptrace::seize(pid).map_err(|e| {
            format!("{e}: a seccomp filter (of a container?) or a debugger above forbids it; `--cap-add=SYS_PTRACE`")
        });
        let memory = memory::look_to_write(pid)
            .map(|_| format!("/proc/{pid}/mem could be opened"))
            .map_err(|e| format!("/proc/PID/mem: {e}: is /proc mounted, and not with hidepid?"));
        let taken = take_descriptor(pid)
            .map(|()| "pidfd_getfd".to_owned())
            .map_err(|e| format!("pidfd_getfd: {e} (Linux 5.6): it is opened under /proc instead"));
        let answers = vec![
            answer(
                "ptrace",
                seized.map(|()| "a child could be seized".to_owned()),
            ),
            answer("memory of a child", memory),
            answer("descriptors of a child", taken),
        ];
        // What is left of it is of no interest.
        let _ = self.0.kill();
        let _ = self.0.wait();
        answers
    }
}

fn take_descriptor(pid: u32) -> std::io::Result<()> {
    let made = |result: libc::c_long| match result {
        // SAFETY: a fresh descriptor of ours.
        fd @ 0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: plain numbers.
    let process = made(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    let number = process.as_raw_fd();
    // SAFETY: plain numbers.
    made(unsafe { libc::syscall(libc::SYS_pidfd_getfd, number, 0, 0) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_no_says_what_to_do() {
        let mut all = for_commands();
        all.extend(for_running());
        assert!(all.len() >= 7, "{all:?}");
        let terse = all.iter().find(|a| !a.is_there && a.how.len() < 20);
        assert_eq!(terse, None);
    }
}
