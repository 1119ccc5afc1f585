//! A program is about to be executed in the place of this one, by whichever function: the host
//! takes hold of the process, so that it stands still at the new program's beginning.
//!
//! Given the function and its arguments. Must not know what the host does with the new program.

use crate::memory::frame::Frame;
use crate::memory::thread::Hot;
use crate::memory::{state, sys};
use crate::reach::thread;
use crate::record::capture::Captures;
use crate::record::{chunk, question};
use sptrace_wire::control::*;
use sptrace_wire::plan::SpecialKind;
use sptrace_wire::record;

const SYS_EXECVE: u64 = 59;
const SYS_EXECVEAT: u64 = 322;
/// The directory that a name without one is looked up in (fcntl.h).
const AT_FDCWD: u64 = -100i64 as u64;
/// The descriptor itself is meant, if the name is empty (fcntl.h).
const AT_EMPTY_PATH: u64 = 0x1000;

/// A call of execve(2) or execveat(2).
pub struct Exec {
    number: u64,
    arguments: [u64; 5],
    /// What the name is looked up in, and where that lies: see [`ASK_EXEC`].
    program: [u64; 2],
}

impl Exec {
    fn by_name(arguments: [u64; 3]) -> Self {
        let [path, argv, envp] = arguments;
        Self {
            number: SYS_EXECVE,
            arguments: [path, argv, envp, 0, 0],
            program: [AT_FDCWD, path],
        }
    }

    fn at(arguments: [u64; 5]) -> Self {
        Self {
            number: SYS_EXECVEAT,
            arguments,
            program: [arguments[0], arguments[1]],
        }
    }

    /// What a system call of this number is about to execute, if anything.
    pub fn by_number(number: u64, [a, b, c, d, e, _]: [u64; 6]) -> Option<Self> {
        match number {
            SYS_EXECVE => Some(Self::by_name([a, b, c])),
            SYS_EXECVEAT => Some(Self::at([a, b, c, d, e])),
            _ => None,
        }
    }

    /// What a special function of this kind is about to execute, if anything.
    pub fn of(kind: SpecialKind, f: &Frame) -> Option<Self> {
        let r9 = f.r11_r10_r9[2];
        match (kind, f.rdi) {
            (SpecialKind::Exec, path) => Some(Self::by_name([path, f.rsi, f.rdx])),
            (SpecialKind::ExecAt, fd) => Some(Self::at([fd, f.rsi, f.rdx, f.rcx, f.r8])),
            (SpecialKind::ExecFd, fd) => {
                let name = c"".as_ptr() as u64;
                Some(Self::at([fd, name, f.rsi, f.rdx, AT_EMPTY_PATH]))
            }
            (SpecialKind::Syscall, SYS_EXECVE) => Some(Self::by_name([f.rsi, f.rdx, f.rcx])),
            (SpecialKind::Syscall, SYS_EXECVEAT) => Some(Self::at([f.rsi, f.rdx, f.rcx, f.r8, r9])),
            _ => None,
        }
    }

    /// The host takes hold of us, and we do the call ourselves. If it fails, the host lets go and
    /// the program's own function runs (and fails the same way). `mask`: the program's signal mask.
    pub fn run(&self, hot: &Hot, mask: u64) {
        let program = self.program;
        match question::question(ASK_EXEC, program.as_ptr() as u64) {
            Some([1, ..]) => {
                // If it fails, the program's own call is made, and recorded.
                let [a, b, c, d, e] = self.arguments;
                let told = tell(hot, self.number as u32, [a, b, c, d, e, 0]);
                let has_left = thread::may_leave(hot);
                sys::restore_signals(mask);
                let arguments = [a, b, c, d, e, 0].map(|a| a as usize);
                // SAFETY: the call that the program is about to make, with its arguments.
                unsafe { sys::call_as_is(self.number as usize, arguments) };
                sys::block_signals();
                if has_left {
                    thread::stays(hot);
                }
                if let Some(told) = told {
                    chunk::take_back(hot, told);
                }
                question::question(ASK_EXEC_FAILED, 0);
            }
            // The host has counted it.
            Some(_) => {}
            None => state::count_hole(hole::EXEC_UNSEEN),
        }
    }
}

/// Records that the agent executes a program in the place of this one, for a function that would,
/// if system calls are recorded. Gives where the chunk has it.
fn tell(hot: &Hot, number: u32, args: [u64; 6]) -> Option<(u64, u64)> {
    let captures = Captures::of(number).filter(|_| hot.muted.get() == 0)?;
    if !captures.is_asked(&args) {
        return None;
    }
    let thread = thread::borrower(hot);
    let pieces = captures.read(hot, &args, None);
    let [a, b, c, d, e, f] = args;
    let head = [u64::from(thread), a, b, c, d, e, f];
    let (chunk, before) = (hot.chunk.get(), hot.cur.get());
    let alone = record::CALL_ALONE;
    chunk::put_values(hot, record::SYSTEM_CALL, number | alone, &head, pieces);
    (hot.chunk.get() == chunk).then_some((before, hot.cur.get()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::called_with;

    fn of(kind: SpecialKind, arguments: [u64; 6]) -> Option<(u64, [u64; 5], [u64; 2])> {
        Exec::of(kind, &called_with(arguments)).map(|e| (e.number, e.arguments, e.program))
    }

    #[test]
    fn execve_is_the_same_by_its_function_and_by_number() {
        let expected = Some((SYS_EXECVE, [1, 2, 3, 0, 0], [AT_FDCWD, 1]));
        assert_eq!(of(SpecialKind::Exec, [1, 2, 3, 9, 9, 9]), expected);
        assert_eq!(
            of(SpecialKind::Syscall, [SYS_EXECVE, 1, 2, 3, 9, 9]),
            expected
        );
    }

    #[test]
    fn execveat_looks_its_name_up_in_the_descriptor() {
        let expected = Some((SYS_EXECVEAT, [5, 1, 2, 3, 4], [5, 1]));
        assert_eq!(of(SpecialKind::ExecAt, [5, 1, 2, 3, 4, 9]), expected);
        assert_eq!(
            of(SpecialKind::Syscall, [SYS_EXECVEAT, 5, 1, 2, 3, 4]),
            expected
        );
    }

    #[test]
    fn fexecve_means_the_descriptor_itself() {
        let found = of(SpecialKind::ExecFd, [5, 1, 2, 9, 9, 9]);
        let (number, [fd, name, argv, envp, flags], program) = found.unwrap_or_default();
        assert_eq!(
            (number, fd, argv, envp, flags),
            (SYS_EXECVEAT, 5, 1, 2, AT_EMPTY_PATH)
        );
        assert_eq!(program, [5, name]);
        assert_eq!(sys::read(name), Some([0u8]));
    }

    #[test]
    fn other_calls_execute_nothing() {
        assert_eq!(of(SpecialKind::Syscall, [1, 2, 3, 4, 5, 6]), None);
        assert_eq!(of(SpecialKind::Walk, [SYS_EXECVE, 2, 3, 4, 5, 6]), None);
    }
}
