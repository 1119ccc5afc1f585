//! Addresses of sockets and ancillary data.
//!
//! Must not know: which call they are shown for.

use super::call::Hex;
use super::capture::number;
use super::printer::Printer;
use super::{scalar, text};
use crate::names::{Style, table};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Writes an address.
pub(super) fn socket_address(bytes: &[u8], style: Style, out: &mut String) {
    let family = number(bytes, 0, 2);
    let port = u16::from_be_bytes([at(bytes, 2), at(bytes, 3)]);
    out.push_str("{sa_family=");
    table::AF.write(family, style, out);
    let part = |name: &str, bytes: &[u8], text: String, out: &mut String| {
        let mut number = String::new();
        text::quote(bytes, false, Hex::All, &mut number);
        let _ = write!(out, ", {name}=");
        style.write(number, &text, out);
    };
    let ranged = |range: std::ops::Range<usize>| bytes.get(range).unwrap_or(&[]);
    let _ = match family {
        1 => unix_address(bytes, out),
        2 if bytes.len() >= 8 => {
            let address = Ipv4Addr::new(at(bytes, 4), at(bytes, 5), at(bytes, 6), at(bytes, 7));
            part("sin_port", ranged(2..4), format!("htons({port})"), out);
            let text = format!("inet_addr(\"{address}\")");
            part("sin_addr", ranged(4..8), text, out);
            Ok(())
        }
        10 if bytes.len() >= 24 => {
            let mut octets = [0; 16];
            octets.copy_from_slice(bytes.get(8..24).unwrap_or(&[0; 16]));
            let flow = number(bytes, 4, 4).swap_bytes() >> 32;
            let scope = number(bytes, 24, 4);
            part("sin6_port", ranged(2..4), format!("htons({port})"), out);
            part("sin6_flowinfo", ranged(4..8), format!("htonl({flow})"), out);
            let address = Ipv6Addr::from(octets);
            if style == Style::Abbrev {
                let _ = write!(out, ", inet_pton(AF_INET6, \"{address}\", &sin6_addr)");
            } else {
                let text = format!("inet_pton(AF_INET6, \"{address}\")");
                part("sin6_addr", &octets, text, out);
            }
            write!(out, ", sin6_scope_id={scope}")
        }
        16 if bytes.len() >= 12 => {
            let (pid, groups) = (number(bytes, 4, 4), number(bytes, 8, 4));
            write!(out, ", nl_pid={}, nl_groups={groups:#010x}", pid as i32)
        }
        _ => {
            out.push_str(", sa_data=");
            let rest = bytes.get(2..).unwrap_or(&[]);
            text::quote(rest, false, Hex::Never, out);
            Ok(())
        }
    };
    out.push('}');
}

fn unix_address(bytes: &[u8], out: &mut String) -> std::fmt::Result {
    let path = bytes.get(2..).unwrap_or(&[]);
    if path.is_empty() {
        return Ok(());
    }
    out.push_str(", sun_path=");
    if path.first() == Some(&0) && path.len() > 1 {
        out.push('@');
        text::quote(path.get(1..).unwrap_or(&[]), false, Hex::Never, out);
        return Ok(());
    }
    let end = path.iter().position(|b| *b == 0).unwrap_or(path.len());
    text::quote(path.get(..end).unwrap_or(path), false, Hex::Never, out);
    Ok(())
}

pub(super) fn at(bytes: &[u8], index: usize) -> u8 {
    bytes.get(index).copied().unwrap_or(0)
}

/// Writes ancillary data.
pub(super) fn control(printer: &mut Printer<'_>, bytes: &[u8]) {
    let style = printer.options.style;
    let mut rest = bytes;
    printer.out.push('[');
    while rest.len() >= 16 {
        let length = number(rest, 0, 8) as usize;
        let (level, kind) = (number(rest, 8, 4), number(rest, 12, 4));
        printer
            .out
            .push_str(if rest.len() == bytes.len() { "" } else { ", " });
        let _ = write!(printer.out, "{{cmsg_len={length}, cmsg_level=");
        table::SOL.write(level, style, &mut printer.out);
        printer.out.push_str(", cmsg_type=");
        if level == 1 {
            table::SCM.write(kind, style, &mut printer.out);
        } else {
            let _ = write!(printer.out, "{kind:#x}");
        }
        let data = rest.get(16..length.max(16)).unwrap_or(&[]);
        match (level, kind) {
            (1, 1) => {
                printer.out.push_str(", cmsg_data=[");
                for (index, fd) in data.chunks_exact(4).enumerate() {
                    printer.out.push_str(if index == 0 { "" } else { ", " });
                    let fd = number(fd, 0, 4) as i32;
                    scalar::descriptor(fd, false, &printer.options, &mut printer.out);
                }
                printer.out.push(']');
            }
            (1, 2) => {
                let (pid, uid, gid) = (number(data, 0, 4), number(data, 4, 4), number(data, 8, 4));
                let _ = write!(
                    printer.out,
                    ", cmsg_data={{pid={pid}, uid={uid}, gid={gid}}}"
                );
            }
            _ if !data.is_empty() => {
                printer.out.push_str(", cmsg_data=");
                text::quote(data, false, Hex::All, &mut printer.out);
            }
            _ => {}
        }
        printer.out.push('}');
        rest = rest
            .get(length.max(16).next_multiple_of(8)..)
            .unwrap_or(&[]);
    }
    printer.out.push(']');
}
