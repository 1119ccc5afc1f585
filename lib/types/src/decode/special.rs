//! What strace shows in forms of its own: sets of signals and descriptors, addresses of sockets,
//! directory entries, how a child ended, and the like.
//!
//! Must not know: which call it is shown for.

use super::capture::number;
use super::printer::Printer;
use super::socket::{at, control, socket_address};
use super::types::{Phase, Special, Type};
use super::{events, scalar, text, words};
use crate::names::{Style, table};
use std::fmt::Write;

/// Writes a value that is in a register.
pub(super) fn register(printer: &mut Printer<'_>, special: Special, value: u64) {
    let style = printer.options.style;
    match special {
        Special::CloneFlags => clone_flags(value, style, &mut printer.out),
        Special::FutexOp => futex(value, style, &mut printer.out),
        Special::IoctlOp => ioctl(value & 0xffff_ffff, style, &mut printer.out),
        Special::IpcFlags => {
            let flags = value & 0xffff_ffff & !0o777;
            if flags != 0 {
                table::IPC.write(flags, style, &mut printer.out);
                printer.out.push('|');
            }
            scalar::octal(value & 0o777, &mut printer.out);
        }
        Special::Protocol => protocol(printer, value),
        Special::FileSystem => file_system(value, style, &mut printer.out),
        _ if words::write(special, value, style, &mut printer.out) => {}
        _ => scalar::address(value, &mut printer.out),
    }
}

/// Writes what is at an address; false if it cannot be read.
pub(super) fn memory(printer: &mut Printer<'_>, special: Special, address: u64) -> bool {
    let phase = printer.phase;
    match special {
        Special::SignalSet(len) | Special::CpuSet(len) => {
            let length = printer.length(len).min(1024) as usize;
            let Some(read) = printer.exactly(address, length) else {
                return false;
            };
            bytes(printer, special, &read);
        }
        Special::FdSet(count) => {
            let bits = printer.arg(count).min(1024);
            let Some(read) = printer.exactly(address, bits.div_ceil(64) as usize * 8) else {
                return false;
            };
            descriptors(printer, &read, bits);
        }
        Special::SocketAddress(len) => {
            let length = printer.length(len).min(128) as usize;
            if length < 2 {
                return false;
            }
            let Some(read) = printer.exactly(address, length) else {
                return false;
            };
            socket_address(&read, printer.options.style, &mut printer.out);
        }
        Special::Entries => return entries(printer, address),
        Special::Control(len) => {
            let length = printer.length(len).min(4096) as usize;
            let Some(read) = printer.exactly(address, length) else {
                return false;
            };
            control(printer, &read);
        }
        // Nobody has ended: nothing was written.
        Special::WaitStatus if printer.made.result == Some(0) => return false,
        other => {
            let size = Type::Shown(other).size().unwrap_or(8);
            let read = printer
                .made
                .memory
                .read(phase, address, size as usize)
                .to_vec();
            if read.len() != size as usize {
                return false;
            }
            bytes(printer, special, &read);
        }
    }
    true
}

/// Writes what these bytes are.
pub(super) fn bytes(printer: &mut Printer<'_>, special: Special, bytes: &[u8]) {
    let style = printer.options.style;
    let out = &mut printer.out;
    match special {
        Special::SignalSet(_) => signals(bytes, style, out),
        Special::CpuSet(_) => cpus(bytes, out),
        Special::WaitStatus => {
            out.push('[');
            events::wait_status(number(bytes, 0, 4) as u32, out);
            out.push(']');
        }
        Special::SignalInfo => events::signal_info(bytes, style, out),
        Special::FileTime => file_time(bytes, style, out),
        Special::Stamp => {
            let (seconds, part) = (number(bytes, 0, 8) as i64, number(bytes, 8, 4));
            let _ = write!(out, "{{tv_sec={seconds}, tv_nsec={part}}}");
            text::date(seconds, Some(part), out);
        }
        Special::Termios => termios(printer, bytes),
        Special::EpollData => {
            let (low, all) = (number(bytes, 0, 4), number(bytes, 0, 8));
            let _ = write!(out, "{{u32={low}, u64={all}}}");
        }
        Special::Capabilities => capabilities(bytes, style, out),
        _ => {
            let value = number(bytes, 0, bytes.len().min(8) as u8);
            register(printer, special, value);
        }
    }
}

fn signals(bytes: &[u8], style: Style, out: &mut String) {
    let set: Vec<u64> = (1..=bytes.len() as u64 * 8)
        .filter(|n| {
            bytes
                .get((n - 1) as usize / 8)
                .is_some_and(|b| b >> ((n - 1) % 8) & 1 != 0)
        })
        .collect();
    let all = bytes.len() as u64 * 8;
    // Of a set that is nearly full, what is missing is shown.
    let inverse = set.len() as u64 >= all * 2 / 3 && all != 0;
    let shown = if inverse {
        (1..=all).filter(|n| !set.contains(n)).collect()
    } else {
        set
    };
    out.push_str(if inverse { "~[" } else { "[" });
    for (index, signal) in shown.iter().enumerate() {
        out.push_str(if index == 0 { "" } else { " " });
        let mut name = String::new();
        scalar::signal(*signal, Style::Abbrev, &mut name);
        style.write(signal, name.strip_prefix("SIG").unwrap_or(&name), out);
    }
    out.push(']');
}

fn cpus(bytes: &[u8], out: &mut String) {
    out.push('[');
    let mut first = true;
    for cpu in 0..bytes.len() * 8 {
        if bytes.get(cpu / 8).is_some_and(|b| b >> (cpu % 8) & 1 != 0) {
            let _ = write!(out, "{}{cpu}", if first { "" } else { " " });
            first = false;
        }
    }
    out.push(']');
}

fn members(bytes: &[u8], bits: u64) -> impl Iterator<Item = i32> + '_ {
    let set = move |fd: &u64| {
        bytes
            .get((fd / 8) as usize)
            .is_some_and(|b| b >> (fd % 8) & 1 != 0)
    };
    (0..bits).filter(set).map(|fd| fd as i32)
}

fn descriptors(printer: &mut Printer<'_>, bytes: &[u8], bits: u64) {
    printer.out.push('[');
    for (index, fd) in members(bytes, bits).enumerate() {
        printer.out.push_str(if index == 0 { "" } else { " " });
        scalar::descriptor(fd, false, &printer.options, &mut printer.out);
    }
    printer.out.push(']');
}

fn entries(printer: &mut Printer<'_>, address: u64) -> bool {
    let returned = usize::try_from(printer.made.result.unwrap_or(0)).unwrap_or(0);
    let read = printer
        .made
        .memory
        .read(printer.phase, address, returned)
        .to_vec();
    if read.len() != returned {
        return false;
    }
    let (mut rest, mut count) = (read.as_slice(), 0);
    let verbose = printer.options.verbose;
    let mut list = String::from("[");
    while rest.len() >= 19 {
        let length = usize::from(number(rest, 16, 2) as u16);
        let entry = rest.get(..length).unwrap_or(rest);
        let name = entry.get(19..).unwrap_or(&[]);
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        list.push_str(if count == 0 { "" } else { ", " });
        let (inode, offset) = (number(entry, 0, 8), number(entry, 8, 8));
        let _ = write!(
            list,
            "{{d_ino={inode}, d_off={offset}, d_reclen={length}, d_type="
        );
        table::DT.write(u64::from(at(entry, 18)), printer.options.style, &mut list);
        list.push_str(", d_name=");
        text::quote(
            name.get(..end).unwrap_or(name),
            false,
            printer.options.hex,
            &mut list,
        );
        list.push('}');
        count += 1;
        rest = rest.get(length.max(19)..).unwrap_or(&[]);
    }
    if verbose {
        printer.out.push_str(&list);
        printer.out.push(']');
    } else {
        let ending = if count == 1 { "y" } else { "ies" };
        let _ = write!(printer.out, "{address:#x} /* {count} entr{ending} */");
    }
    true
}

fn capabilities(bytes: &[u8], style: Style, out: &mut String) {
    for (index, name) in (0u16..).zip(["{effective", ", permitted", ", inheritable"]) {
        let low = number(bytes, index * 4, 4);
        let set = number(bytes, index * 4 + 12, 4) << 32 | low;
        let _ = write!(out, "{name}=");
        let mut names = String::new();
        for (bit, capability) in table::CAPABILITY.values {
            if set >> bit & 1 != 0 {
                let before = if names.is_empty() { "" } else { "|" };
                let _ = write!(names, "{before}1<<{capability}");
            }
        }
        match names.is_empty() {
            true => out.push_str(&scalar::hex(set)),
            false => style.write(scalar::hex(set), &names, out),
        }
    }
    out.push('}');
}

fn file_time(bytes: &[u8], style: Style, out: &mut String) {
    const NOW: u64 = 0x3fff_ffff;
    const OMIT: u64 = 0x3fff_fffe;
    let (seconds, part) = (number(bytes, 0, 8), number(bytes, 8, 8));
    let seconds = seconds as i64;
    let name = match part {
        NOW => "UTIME_NOW",
        OMIT => "UTIME_OMIT",
        _ => {
            let _ = write!(out, "{{tv_sec={seconds}, tv_nsec={part}}}");
            text::date(seconds, Some(part), out);
            return;
        }
    };
    if style == Style::Abbrev {
        out.push_str(name);
        return;
    }
    let _ = write!(out, "{{tv_sec={seconds}, tv_nsec={part}}}");
    if style == Style::Verbose {
        let _ = write!(out, " /* {name} */");
    }
}

fn termios(printer: &mut Printer<'_>, bytes: &[u8]) {
    let (output, control, local) = (
        number(bytes, 4, 4),
        number(bytes, 8, 4),
        number(bytes, 12, 4),
    );
    let input = number(bytes, 0, 4);
    let out = &mut printer.out;
    out.push('{');
    table::BAUD.write(control & 0o010_017, printer.options.style, out);
    let bit = |value: u64, mask: u64| if value & mask != 0 { "" } else { "-" };
    let _ = write!(out, " {}opost", bit(output, 1));
    let _ = write!(
        out,
        " {}isig {}icanon {}echo ...}}",
        bit(local, 1),
        bit(local, 2),
        bit(local, 8)
    );
    let _ = input;
}

fn clone_flags(value: u64, style: Style, out: &mut String) {
    let (flags, signal) = (value & !0xff, value & 0xff);
    if flags != 0 || signal == 0 {
        table::CLONE.write(flags, style, out);
    }
    if signal != 0 {
        out.push_str(if flags == 0 { "" } else { "|" });
        scalar::signal(signal, style, out);
    }
}

fn futex(value: u64, style: Style, out: &mut String) {
    const REALTIME: u64 = 256;
    let op = value & 0xffff_ffff;
    if op & REALTIME != 0
        && let Some(name) = table::FUTEX.name(op & !REALTIME)
    {
        style.write(
            scalar::hex(op),
            &format!("{name}|FUTEX_CLOCK_REALTIME"),
            out,
        );
    } else {
        table::FUTEX.write(op, style, out);
    }
}

fn ioctl(value: u64, style: Style, out: &mut String) {
    // A terminal's requests have one name each that is used; others are shown with all.
    let all = table::IOCTL.values.iter().filter(|(v, _)| *v == value);
    let mut names: Vec<_> = all.map(|(_, name)| *name).collect();
    if value >> 8 == 0x54 {
        names.truncate(1);
    }
    names.sort_unstable();
    if !names.is_empty() {
        style.write(scalar::hex(value), &names.join(" or "), out);
        return;
    }
    let direction = match (style, value >> 30) {
        (Style::Raw, direction) => scalar::hex(direction),
        (_, 0) => "_IOC_NONE".to_owned(),
        (_, 1) => "_IOC_WRITE".to_owned(),
        (_, 2) => "_IOC_READ".to_owned(),
        _ => "_IOC_READ|_IOC_WRITE".to_owned(),
    };
    let (kind, nr, size) = (value >> 8 & 0xff, value & 0xff, value >> 16 & 0x3fff);
    let (kind, nr, size) = (scalar::hex(kind), scalar::hex(nr), scalar::hex(size));
    let name = format!("_IOC({direction}, {kind}, {nr}, {size})");
    style.write(scalar::hex(value), &name, out);
}

fn protocol(printer: &mut Printer<'_>, value: u64) {
    let style = printer.options.style;
    match printer.arg(0) & 0xffff_ffff {
        2 | 10 => table::IPPROTO.write(value & 0xffff_ffff, style, &mut printer.out),
        16 => table::NETLINK.write(value & 0xffff_ffff, style, &mut printer.out),
        _ => drop(write!(printer.out, "{}", value as u32)),
    }
}

fn file_system(value: u64, style: Style, out: &mut String) {
    match table::FSMAGIC.name(value) {
        Some(name) => style.write(scalar::hex(value), name, out),
        None => drop(write!(out, "{value:#x}")),
    }
}

/// What poll found, after its result.
pub(super) fn polled(
    printer: &mut Printer<'_>,
    value: i64,
    parameters: &[Type],
) -> std::fmt::Result {
    let _ = write!(printer.out, "= {value} (");
    let (at, count) = (printer.arg(0), printer.arg(1));
    printer.phase = Phase::Exit;
    let mut separator = "[";
    for index in 0..count.min(65536 / 8) {
        let Some(entry) = printer.exactly(at.wrapping_add(index * 8), 8) else {
            break;
        };
        let found = number(&entry, 6, 2);
        if found != 0 {
            printer.out.push_str(separator);
            separator = ", ";
            printer.out.push_str("{fd=");
            let fd = number(&entry, 0, 4) as i32;
            scalar::descriptor(fd, false, &printer.options, &mut printer.out);
            printer.out.push_str(", revents=");
            table::POLL.write(found, printer.options.style, &mut printer.out);
            printer.out.push('}');
        }
    }
    printer
        .out
        .push_str(if separator == "[" { "[]" } else { "]" });
    if parameters.len() > 3 {
        time_left(printer, 2);
    }
    write!(printer.out, ")")
}

/// What is left of a time limit.
fn time_left(printer: &mut Printer<'_>, index: u8) {
    let address = printer.arg(index);
    printer.phase = Phase::Exit;
    if let Some(left) = printer.exactly(address, 16).filter(|_| address != 0) {
        let (seconds, part) = (number(&left, 0, 8), number(&left, 8, 8));
        let unit = if index == 2 || printer.made.number == 270 {
            "nsec"
        } else {
            "usec"
        };
        let _ = write!(
            printer.out,
            ", left {{tv_sec={}, tv_{unit}={part}}}",
            seconds as i64
        );
    }
}

/// What select found, after its result.
pub(super) fn selected(printer: &mut Printer<'_>, value: i64) -> std::fmt::Result {
    let _ = write!(printer.out, "= {value} (");
    let bits = printer.arg(0).min(1024);
    printer.phase = Phase::Exit;
    let mut separator = "";
    for (index, name) in [(1, "in"), (2, "out"), (3, "except")] {
        let address = printer.arg(index);
        let Some(set) = printer.exactly(address, bits.div_ceil(64) as usize * 8) else {
            continue;
        };
        if address != 0 && members(&set, bits).next().is_some() {
            let _ = write!(printer.out, "{separator}{name} ");
            separator = ", ";
            descriptors(printer, &set, bits);
        }
    }
    time_left(printer, 4);
    write!(printer.out, ")")
}
