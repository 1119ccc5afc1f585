//! Numbers, as their type has them written.
//!
//! Must not know: memory.

use super::call::Options;
use super::text;
use super::types::Type;
use crate::names::table;
use std::fmt::Write;

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
    let _ = match ty {
        Type::Signed(width) => write!(out, "{}", signed(value, *width)),
        Type::Unsigned(width) => write!(out, "{}", cut(value, *width)),
        Type::Hex(width) => {
            let value = cut(value, *width);
            write!(out, "{}", hex(value))
        }
        Type::Octal => {
            octal(cut(value, 2), out);
            Ok(())
        }
        Type::Address => {
            address(value, out);
            Ok(())
        }
        Type::Fd | Type::DirFd => {
            descriptor(value as i32, matches!(ty, Type::DirFd), options, out);
            Ok(())
        }
        Type::Id => match value as u32 {
            u32::MAX => write!(out, "-1"),
            id => write!(out, "{id}"),
        },
        Type::Signal => {
            signal(cut(value, 4), out);
            Ok(())
        }
        Type::Mode(width) => {
            mode(cut(value, *width), out);
            Ok(())
        }
        Type::Device(width) => {
            let value = cut(value, *width);
            let major = value >> 8 & 0xfff | value >> 32 & !0xfff;
            let minor = value & 0xff | value >> 12 & 0xffff_ff00;
            write!(out, "makedev({}, {})", hex(major), hex(minor))
        }
        Type::Limit => match value {
            u64::MAX => write!(out, "RLIM64_INFINITY"),
            value if value > 1024 && value % 1024 == 0 => write!(out, "{}*1024", value / 1024),
            value => write!(out, "{value}"),
        },
        Type::Date | Type::Moment => {
            let _ = write!(out, "{}", value as i64);
            text::date(value as i64, None, out);
            Ok(())
        }
        Type::Named(names, width) => {
            names.write(cut(value, *width), out);
            Ok(())
        }
        Type::Parts(mask, choice, flags) => {
            parts(*mask, choice, flags, value, out);
            Ok(())
        }
        _ => return of_a_function(ty, value, out),
    };
    true
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

fn parts(
    mask: u64,
    choice: &crate::names::Names,
    flags: &crate::names::Names,
    value: u64,
    out: &mut String,
) {
    choice.write(value & mask, out);
    let rest = value & !mask;
    if flags.write_bits(rest, "|", out) == 0 && rest != 0 {
        let _ = write!(out, "|{rest:#x}");
    }
}

/// A number in hexadecimal; 0 is `0`.
pub(super) fn hex(value: u64) -> String {
    if value == 0 {
        "0".to_owned()
    } else {
        format!("{value:#x}")
    }
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
    let _ = match fd {
        AT_FDCWD if may_be_here => write!(out, "AT_FDCWD"),
        fd => write!(out, "{fd}"),
    };
    if let Some(path) = options.path_of.and_then(|path_of| path_of(fd)) {
        out.push('<');
        text::escape(path.as_bytes(), options.hex, out);
        out.push('>');
    }
}

/// Writes a signal's name.
pub(super) fn signal(number: u64, out: &mut String) {
    let _ = match (table::SIGNALS.name(number), number) {
        (Some(name), _) => write!(out, "{name}"),
        (None, 32) => write!(out, "SIGRTMIN"),
        (None, 33..=64) => write!(out, "SIGRT_{}", number - 32),
        (None, _) => write!(out, "{}", number as i32),
    };
}

fn mode(value: u64, out: &mut String) {
    match table::S_IFMT.name(value & FORMAT_BITS) {
        Some(name) => out.push_str(name),
        None if value & FORMAT_BITS != 0 => {
            octal(value, out);
            return;
        }
        None => {}
    }
    if value & FORMAT_BITS != 0 {
        out.push('|');
    }
    if table::S_ISUGID.write_bits(value & 0o7000, "", out) > 0 {
        out.push('|');
    }
    octal(value & 0o777, out);
}
