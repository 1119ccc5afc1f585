//! Runs a command under ptrace and writes its system calls with this crate, for `tests/decode.py`,
//! which compares them with strace's.
//!
//! usage: stepper [-v] [-y] [-s N] -o FILE COMMAND [ARGUMENT]...
//!
//! The command is an absolute path. It reads exactly the memory that `capture` asks for: what is
//! missing there is missing in the line. A development tool: calls of threads are written when
//! they return.

use nix::sys::ptrace::{self, Options as Trace};
use nix::sys::signal::{Signal, kill};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use sptrace_types::calls;
use sptrace_types::decode::call::{Made, Options};
use sptrace_types::decode::capture::{Extent, captures, run};
use sptrace_types::decode::memory::Captured;
use sptrace_types::decode::print::line;
use sptrace_types::decode::{events, types::Returns};
use sptrace_types::names::Style;
use std::collections::HashMap;
use std::io::{self, IoSliceMut, Write};
use std::process::Command;

/// Where strace's results begin.
const COLUMN: usize = 40;
/// What rax holds at a call's beginning.
const ENOSYS: i64 = -38;
/// Why a process that was attached to stops.
const EVENT_STOP: i32 = 128;

struct InCall {
    number: u32,
    args: [u64; 6],
    captured: Captured,
    /// What descriptors led to before the call, if that is asked for.
    paths: HashMap<i32, String>,
}

struct Stepper {
    options: Options<'static>,
    out: io::BufWriter<std::fs::File>,
    calls: HashMap<Pid, InCall>,
    /// Whether descriptors are shown with what they lead to.
    with_paths: bool,
    /// Set by the command's own execve: what was before is of the shell that starts it.
    begun: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    let (mut file, mut with_paths) = (None, false);
    let mut command = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-v" => options.verbose = true,
            "-y" => with_paths = true,
            "-s" => options.string_limit = arguments.next().ok_or("-s needs a number")?.parse()?,
            "-o" => file = arguments.next(),
            _ => {
                command.push(argument);
                command.extend(arguments.by_ref());
            }
        }
    }
    let file = std::fs::File::create(file.ok_or("-o FILE is missing")?)?;
    let shell = ["-c", "kill -STOP $$; exec \"$@\"", "sh"];
    let child = Command::new("/bin/sh").args(shell).args(&command).spawn()?;
    let first = Pid::from_raw(i32::try_from(child.id())?);
    waitpid(first, Some(WaitPidFlag::WUNTRACED))?;
    let follow =
        Trace::PTRACE_O_TRACEFORK | Trace::PTRACE_O_TRACEVFORK | Trace::PTRACE_O_TRACECLONE;
    let all = follow | Trace::PTRACE_O_TRACESYSGOOD | Trace::PTRACE_O_TRACEEXEC;
    ptrace::seize(first, all | Trace::PTRACE_O_EXITKILL)?;
    kill(first, Signal::SIGCONT)?;
    let out = io::BufWriter::new(file);
    let mut stepper = Stepper {
        options,
        with_paths,
        out,
        calls: HashMap::new(),
        begun: false,
    };
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::__WALL)) {
        stepper.stopped(status)?;
    }
    stepper.out.flush()?;
    Ok(())
}

impl Stepper {
    fn stopped(&mut self, status: WaitStatus) -> io::Result<()> {
        let mut deliver = None;
        let Some(pid) = status.pid() else {
            return Ok(());
        };
        match status {
            WaitStatus::Exited(_, code) => {
                self.cut_off(pid)?;
                self.end(pid, (code as u32 & 0xff) << 8)?;
                return Ok(());
            }
            WaitStatus::Signaled(_, signal, dumped) => {
                self.cut_off(pid)?;
                self.end(pid, signal as u32 | u32::from(dumped) << 7)?;
                return Ok(());
            }
            WaitStatus::PtraceSyscall(_) => self.call(pid)?,
            WaitStatus::Stopped(_, signal) => {
                deliver = Some(signal);
                if self.begun
                    && let Ok(info) = ptrace::getsiginfo(pid)
                {
                    writeln!(
                        self.out,
                        "{pid} {}",
                        events::signal_line(signal as u32, &bytes_of(&info), Style::Abbrev)
                    )?;
                }
            }
            WaitStatus::PtraceEvent(_, _, event) => {
                self.begun |=
                    event != EVENT_STOP && event == ptrace::Event::PTRACE_EVENT_EXEC as i32;
            }
            _ => {}
        }
        // It may have been killed meanwhile; then waitpid says so.
        let _ = ptrace::syscall(pid, deliver);
        Ok(())
    }

    fn call(&mut self, pid: Pid) -> io::Result<()> {
        let Ok(registers) = ptrace::getregs(pid) else {
            return Ok(());
        };
        let mut read = |address: u64, buffer: &mut [u8]| read(pid, address, buffer);
        let string_bytes = u32::try_from(self.options.string_limit).unwrap_or(u32::MAX);
        let extent = Extent {
            string_bytes,
            verbose: self.options.verbose,
        };
        if let Some(mut made) = self.calls.remove(&pid) {
            let result = registers.rax as i64;
            if let Some(call) = calls::by_number(made.number) {
                let loads = captures(call, &made.args, extent);
                run(
                    &loads,
                    &made.args,
                    Some(result),
                    &mut made.captured,
                    &mut read,
                );
            }
            return self.write(pid, &made, Some(result));
        }
        if registers.rax as i64 != ENOSYS {
            return Ok(());
        }
        let r = registers;
        let args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        let number = r.orig_rax as u32;
        let paths = if self.with_paths {
            paths_of(pid)
        } else {
            HashMap::new()
        };
        let mut captured = Captured::default();
        if let Some(call) = calls::by_number(number) {
            run(
                &captures(call, &args, extent),
                &args,
                None,
                &mut captured,
                &mut read,
            );
        }
        self.calls.insert(
            pid,
            InCall {
                number,
                args,
                captured,
                paths,
            },
        );
        Ok(())
    }

    fn write(&mut self, pid: Pid, made: &InCall, result: Option<i64>) -> io::Result<()> {
        if !self.begun {
            return Ok(());
        }
        let InCall {
            number,
            args,
            captured,
            paths,
        } = made;
        let now = if self.with_paths {
            paths_of(pid)
        } else {
            HashMap::new()
        };
        let path_of = |fd: i32| paths.get(&fd).or_else(|| now.get(&fd)).cloned();
        let options = Options {
            path_of: Some(&path_of),
            ..self.options
        };
        let made = Made {
            number: *number,
            args,
            result,
            memory: captured,
        };
        let line = line(&made, &options);
        let never = calls::by_number(*number).is_some_and(|c| matches!(c.returns, Returns::Never));
        if result.is_none() && !never {
            let known = line.call.get(..line.known_before).unwrap_or(&line.call);
            return writeln!(self.out, "{pid} {known} <unfinished ...>) = ?");
        }
        writeln!(self.out, "{pid} {}", line.aligned(COLUMN))
    }

    /// A thread ended inside a call.
    fn cut_off(&mut self, pid: Pid) -> io::Result<()> {
        let Some(made) = self.calls.remove(&pid) else {
            return Ok(());
        };
        self.write(pid, &made, None)
    }

    fn end(&mut self, pid: Pid, status: u32) -> io::Result<()> {
        if !self.begun {
            return Ok(());
        }
        writeln!(self.out, "{pid} {}", events::end_line(status))
    }
}

/// What a process's descriptors, and AT_FDCWD, lead to.
fn paths_of(pid: Pid) -> HashMap<i32, String> {
    const AT_FDCWD: i32 = -100;
    let name = |path: String| Some(std::fs::read_link(path).ok()?.to_str()?.to_owned());
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let each = numbers.filter_map(|fd| Some((fd, name(format!("/proc/{pid}/fd/{fd}"))?)));
    let here = name(format!("/proc/{pid}/cwd")).map(|path| (AT_FDCWD, path));
    each.chain(here).collect()
}

fn read(pid: Pid, address: u64, buffer: &mut [u8]) -> usize {
    let Ok(base) = usize::try_from(address) else {
        return 0;
    };
    let remote = [RemoteIoVec {
        base,
        len: buffer.len(),
    }];
    process_vm_readv(pid, &mut [IoSliceMut::new(buffer)], &remote).unwrap_or(0)
}

/// The bytes of a signal's description.
fn bytes_of(info: &nix::libc::siginfo_t) -> Vec<u8> {
    let from = std::ptr::from_ref(info).cast::<u8>();
    // SAFETY: siginfo_t is plain data of exactly this size, initialised by the kernel.
    unsafe { std::slice::from_raw_parts(from, size_of::<nix::libc::siginfo_t>()) }.to_vec()
}
