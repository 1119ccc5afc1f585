//! What happens to a process beside its calls: signals, and its end, as strace writes them.
//!
//! Must not know: how it was noticed.

use super::capture::number;
use super::scalar;
use crate::names::{Style, hex, table};
use std::fmt::Write;

/// The line of a signal that is delivered, from its siginfo_t, which is empty if it is not known.
pub fn signal_line(signal: u32, info: &[u8], style: Style) -> String {
    let mut line = String::from("--- ");
    scalar::signal(signal.into(), Style::Abbrev, &mut line);
    line.push(' ');
    if info.is_empty() {
        line.push_str("{si_signo=");
        scalar::signal(signal.into(), style, &mut line);
        line.push_str(", ...}");
    } else {
        signal_info(info, style, &mut line);
    }
    line.push_str(" ---");
    line
}

/// The line of a process that has ended, from what wait says of it.
pub fn end_line(status: u32) -> String {
    if status & 0x7f == 0 {
        return format!("+++ exited with {} +++", status >> 8 & 0xff);
    }
    let mut line = String::from("+++ killed by ");
    scalar::signal(u64::from(status & 0x7f), Style::Abbrev, &mut line);
    line.push_str(if status & 0x80 != 0 {
        " (core dumped) +++"
    } else {
        " +++"
    });
    line
}

/// How a child ended or stopped, as wait tells it.
pub(super) fn wait_status(status: u32, out: &mut String) {
    let named =
        |number: u32, out: &mut String| scalar::signal(u64::from(number), Style::Abbrev, out);
    let (low, high) = (status & 0x7f, status >> 8 & 0xff);
    if status == 0xffff {
        out.push_str("{WIFCONTINUED(s)}");
    } else if status & 0xff == 0x7f {
        out.push_str("{WIFSTOPPED(s) && WSTOPSIG(s) == ");
        named(high & 0x7f, out);
        if high & 0x80 != 0 {
            out.push_str(" | 0x80");
        }
        out.push('}');
    } else if low == 0 {
        let _ = write!(out, "{{WIFEXITED(s) && WEXITSTATUS(s) == {high}}}");
    } else {
        out.push_str("{WIFSIGNALED(s) && WTERMSIG(s) == ");
        named(low, out);
        if status & 0x80 != 0 {
            out.push_str(" && WCOREDUMP(s)");
        }
        out.push('}');
    }
    let above = status & 0xffff_0000;
    if above != 0 && status != 0xffff {
        let _ = write!(out, " | {above:#x}");
    }
}

/// Writes a siginfo_t.
pub(super) fn signal_info(info: &[u8], style: Style, out: &mut String) {
    let (signal, error, code) = (number(info, 0, 4), number(info, 4, 4), number(info, 8, 4));
    if signal == 0 {
        out.push_str("{}");
        return;
    }
    out.push_str("{si_signo=");
    scalar::signal(signal, style, out);
    out.push_str(", si_code=");
    signal_code(signal, code, style, out);
    if error != 0 {
        out.push_str(", si_errno=");
        match crate::names::error(error) {
            Some((name, _)) => out.push_str(name),
            None => drop(write!(out, "{error}")),
        }
    }
    let from_user = (code as i32) <= 0;
    match signal {
        17 if !from_user => child(code, info, style, out),
        4 | 5 | 7 | 8 | 11 if !from_user => {
            out.push_str(", si_addr=");
            scalar::address(number(info, 16, 8), out);
        }
        31 if !from_user => {
            out.push_str(", si_call_addr=");
            scalar::address(number(info, 16, 8), out);
            let call = number(info, 24, 4) as u32;
            match crate::syscalls::by_number(call) {
                Some(call) => drop(write!(out, ", si_syscall=__NR_{}", call.name)),
                None => drop(write!(out, ", si_syscall={call}")),
            }
            out.push_str(", si_arch=AUDIT_ARCH_X86_64");
        }
        29 if !from_user => {
            let _ = write!(
                out,
                ", si_band={}, si_fd={}",
                number(info, 16, 8),
                number(info, 24, 4)
            );
        }
        _ => sender(code as i32, info, out),
    }
    out.push('}');
}

/// What a SIGCHLD says of the child.
fn child(code: u64, info: &[u8], style: Style, out: &mut String) {
    const EXITED: u64 = 1;
    let (pid, uid) = (number(info, 16, 4) as i32, number(info, 20, 4));
    let status = number(info, 24, 4);
    let _ = write!(out, ", si_pid={pid}, si_uid={uid}, si_status=");
    if code == EXITED {
        let _ = write!(out, "{status}");
    } else {
        scalar::signal(status, style, out);
    }
    let (user, system) = (number(info, 32, 8), number(info, 40, 8));
    for (name, ticks) in [("si_utime", user), ("si_stime", system)] {
        let _ = write!(out, ", {name}=");
        scalar::ticks(ticks, out);
    }
}

fn sender(code: i32, info: &[u8], out: &mut String) {
    const TIMER: i32 = -2;
    const KERNEL: i32 = 128;
    let (first, second) = (number(info, 16, 4), number(info, 20, 4));
    match code {
        KERNEL => {}
        TIMER => {
            let _ = write!(out, ", si_timerid={first:#x}, si_overrun={second}");
        }
        _ => {
            let _ = write!(out, ", si_pid={}, si_uid={second}", first as i32);
        }
    }
    let value = number(info, 24, 8);
    if code < 0 && code != -6 && value != 0 {
        let _ = write!(out, ", si_int={}, si_ptr={value:#x}", value as i32);
    }
}

fn signal_code(signal: u64, code: u64, style: Style, out: &mut String) {
    let own = match signal {
        4 => &table::ILL,
        5 => &table::TRAP,
        7 => &table::BUS,
        8 => &table::FPE,
        11 => &table::SEGV,
        17 => &table::CLD,
        _ => &table::SI_CODE,
    };
    let name = table::SI_CODE.name(code).or_else(|| own.name(code));
    let name = name.or((signal == 31 && code == 1).then_some("SYS_SECCOMP"));
    match name {
        Some(name) if (code as i32) < 0 => style.write(code as i32, name, out),
        Some(name) => style.write(hex(code), name, out),
        None => drop(write!(out, "{:#x}", code as u32)),
    }
}
