//! Numbers, as their type has them written.
//!
//! Must not know: memory.

use super::call::Options;
use super::text;
use super::types::Type;
pub(super) use crate::names::hex;
use crate::names::{Names, Style, table};
use std::fmt::{Display, Write};

const AT_FDCWD: i32 = -100;
const FORMAT_BITS: u64 = 0o170_000;

/// A number of some bytes, with its sign.
pub(super) fn signed(value: u64, width: u8) -> i64 {
    match width {
        1 => i64::from(value as i8),
        2 => i64::from(value as i16),
        4 => i64::from(value as i32),
        _ => value as i64,
    }
}

/// The lowest bytes of a number.
pub(super) fn cut(value: u64, width: u8) -> u64 {
    if width >= 8 {
        value
    } else {
        value & ((1 << (8 * u32::from(width))) - 1)
    }
}

/// Writes a number; false if the type is not a number's.
pub(super) fn write(ty: &Type, value: u64, options: &Options<'_>, out: &mut String) -> bool {
    let style = options.style;
    match ty {
        Type::Signed(width) => put(signed(value, *width), out),
        Type::Unsigned(width) => put(cut(value, *width), out),
        Type::Hex(width) => put(hex(cut(value, *width)), out),
        Type::Octal => octal(cut(value, 2), out),
        Type::Address => address(value, out),
        Type::Fd | Type::DirFd => {
            descriptor(value as i32, matches!(ty, Type::DirFd), options, out);
        }
        Type::Id if value as u32 == u32::MAX => put("-1", out),
        Type::Id => put(value as u32, out),
        Type::Signal => signal(cut(value, 4), style, out),
        Type::Mode(width) => mode(cut(value, *width), style, out),
        Type::Device(width) => device(cut(value, *width), style, out),
        Type::Limit => limit(value, style, out),
        Type::Date | Type::Moment => {
            put(value as i64, out);
            text::date(value as i64, None, out);
        }
        Type::Ticks => ticks(value, out),
        Type::Named(names, width) => names.write(cut(value, *width), style, out),
        Type::Parts(mask, choice, flags) => parts(*mask, (choice, flags), value, style, out),
        _ => return of_a_function(ty, value, out),
    }
    true
}

fn put(shown: impl Display, out: &mut String) {
    let _ = write!(out, "{shown}");
}

/// Writes ticks, and how many seconds they are.
pub(super) fn ticks(value: u64, out: &mut String) {
    let _ = write!(out, "{}", value as i64);
    if value != 0 {
        let _ = write!(out, " /* {}.{:02} s */", value / 100, value % 100);
    }
}

fn limit(value: u64, style: Style, out: &mut String) {
    let name = match value {
        u64::MAX => "RLIM64_INFINITY".to_owned(),
        value if value > 1024 && value % 1024 == 0 => format!("{}*1024", value / 1024),
        _ => {
            out.push_str(&value.to_string());
            return;
        }
    };
    style.write(value, &name, out);
}

fn device(value: u64, style: Style, out: &mut String) {
    let major = value >> 8 & 0xfff | value >> 32 & !0xfff;
    let minor = value & 0xff | value >> 12 & 0xffff_ff00;
    let name = format!("makedev({}, {})", hex(major), hex(minor));
    style.write(hex(value), &name, out);
}

/// The same of types that only functions have.
fn of_a_function(ty: &Type, value: u64, out: &mut String) -> bool {
    let _ = match ty {
        Type::Char => {
            character(value as u8, out);
            Ok(())
        }
        Type::Bool => match value as u8 {
            0 => write!(out, "false"),
            1 => write!(out, "true"),
            other => write!(out, "{other}"),
        },
        Type::Float(4) => write!(out, "{:?}", f32::from_bits(value as u32)),
        // Two of them in a word.
        Type::Float(2) => {
            let (low, high) = (
                f32::from_bits(value as u32),
                f32::from_bits((value >> 32) as u32),
            );
            write!(out, "{{{low:?}, {high:?}}}")
        }
        Type::Float(_) => write!(out, "{:?}", f64::from_bits(value)),
        Type::Unknown => match value as i64 {
            small @ -0x10000..=0x10000 => write!(out, "{small}"),
            large => write!(out, "{large:#x}"),
        },
        _ => return false,
    };
    true
}

/// Writes a character in quotes, as C has it.
pub(super) fn character(byte: u8, out: &mut String) {
    out.push('\'');
    match byte {
        b'\'' => out.push_str("\\'"),
        b'"' => out.push('"'),
        0 => out.push_str("\\0"),
        byte => text::escape(&[byte], super::call::Hex::Never, out),
    }
    out.push('\'');
}

fn parts(mask: u64, (choice, flags): (&Names, &Names), value: u64, style: Style, out: &mut String) {
    let rest = value & !mask;
    // Of a socket's type, strace shows the two parts as two numbers.
    let is_split = std::ptr::eq(choice, &raw const table::SOCK_TYPE);
    if style != Style::Abbrev && is_split {
        choice.write(value & mask, style, out);
        if rest != 0 {
            out.push('|');
            flags.write(rest, style, out);
        }
        return;
    }
    let mut names = String::new();
    choice.write_names(value & mask, &mut names);
    // The size of huge pages is a number among the flags.
    const HUGE_SHIFT: u32 = 26;
    const HUGE_MASK: u64 = 0x3f << HUGE_SHIFT;
    let is_mapping = std::ptr::eq(choice, &raw const table::MAP_TYPE);
    let huge = if is_mapping { rest & HUGE_MASK } else { 0 };
    let rest = rest & !huge;
    if flags.write_bits(rest, "|", &mut names) == 0 && rest != 0 {
        let _ = write!(names, "|{}", hex(rest));
    }
    if huge != 0 {
        let _ = write!(names, "|{}<<MAP_HUGE_SHIFT", huge >> HUGE_SHIFT);
    }
    style.write(hex(value), &names, out);
}

/// Writes an address.
pub(super) fn address(value: u64, out: &mut String) {
    let _ = if value == 0 {
        write!(out, "NULL")
    } else {
        write!(out, "{value:#x}")
    };
}

/// Writes permissions, with a 0 before them.
pub(super) fn octal(value: u64, out: &mut String) {
    let _ = write!(out, "0{value:02o}");
}

/// Writes a descriptor, with what it leads to if that is asked for.
pub(super) fn descriptor(fd: i32, may_be_here: bool, options: &Options<'_>, out: &mut String) {
    match fd {
        AT_FDCWD if may_be_here => options.style.write(fd, "AT_FDCWD", out),
        fd => out.push_str(&fd.to_string()),
    }
    if let Some(path) = options.path_of.and_then(|path_of| path_of(fd)) {
        out.push('<');
        let mut name = String::new();
        text::escape(path.as_bytes(), options.hex, &mut name);
        // The end of what stands between them must be found.
        let is_file = path.starts_with('/');
        match is_file {
            true => out.push_str(&name.replace('<', "\\74").replace('>', "\\76")),
            false => out.push_str(&name),
        }
        out.push('>');
    }
}

/// Writes a signal's name.
pub(super) fn signal(number: u64, style: Style, out: &mut String) {
    let name = match (table::SIGNALS.name(number), number) {
        (Some(name), _) => name.to_owned(),
        (None, 32) => "SIGRTMIN".to_owned(),
        (None, 33..=64) => format!("SIGRT_{}", number - 32),
        (None, _) => {
            out.push_str(&(number as i32).to_string());
            return;
        }
    };
    style.write(number, &name, out);
}

fn mode(value: u64, style: Style, out: &mut String) {
    let (format, rest) = (value & FORMAT_BITS, value & 0o7777);
    let Some(kind) = table::S_IFMT.name(format).or((format == 0).then_some("")) else {
        octal(value, out);
        return;
    };
    let mut name = kind.to_owned();
    if format != 0 {
        name.push('|');
    }
    if table::S_ISUGID.write_bits(rest & 0o7000, "", &mut name) > 0 {
        name.push('|');
    }
    octal(rest & 0o777, &mut name);
    let mut number = String::new();
    octal(value, &mut number);
    match name == number {
        true => out.push_str(&name),
        false => style.write(number, &name, out),
    }
}
