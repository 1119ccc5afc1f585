//! Numbers that are made of parts: a mode and flags, flags and a number that is shifted.
//!
//! Given a number and how constants are shown; gives its text. Must not know which argument it is.

use super::types::Special;
use crate::names::{Names, Style, hex, table};
use std::fmt::Write;

/// Writes a number; false if it is not made of parts.
pub(super) fn write(special: Special, value: u64, style: Style, out: &mut String) -> bool {
    match special {
        Special::MemoryPolicy(4) => memory_policy(value & 0xffff_ffff, style, out),
        Special::MemoryPolicy(_) => memory_policy(value, style, out),
        Special::IoPriority => io_priority(value as u32, style, out),
        Special::SveLength => vector_length(&table::SVE, value, style, out),
        Special::SmeLength => vector_length(&table::SME, value, style, out),
        Special::TaggedAddress => tagged_address(value, style, out),
        Special::PidType => pid_type(value & 0xffff_ffff, style, out),
        Special::MountFlags => mount_flags(value, style, out),
        _ => return false,
    }
    true
}

fn memory_policy(value: u64, style: Style, out: &mut String) {
    const FLAGS: u64 = 0xe000;
    let (mode, flags) = (value & !FLAGS, value & FLAGS);
    let name = table::MPOL.name(mode);
    if flags == 0 {
        table::MPOL.write(value, style, out);
        return;
    }
    let mut names = name.unwrap_or("").to_owned();
    let before = if name.is_some() { "|" } else { "" };
    table::MPOL_MODE_FLAGS.write_bits(flags, before, &mut names);
    if name.is_none() {
        let _ = write!(names, "|{}", hex(mode));
    }
    style.write(hex(value), &names, out);
}

fn io_priority(value: u32, style: Style, out: &mut String) {
    let mut name = String::new();
    io_priority_name(value, style, &mut name);
    style.write(value as i32, &name, out);
}

/// Writes the class and the level of a priority.
pub(super) fn io_priority_name(value: u32, style: Style, out: &mut String) {
    out.push_str("IOPRIO_PRIO_VALUE(");
    table::IOPRIO_CLASS.write(u64::from(value >> 13), style, out);
    let _ = write!(out, ", {})", value & 0x1fff);
}

fn vector_length(flags: &Names, value: u64, style: Style, out: &mut String) {
    let (upper, length) = (value & !0xffff, value & 0xffff);
    if upper == 0 {
        out.push_str(&hex(length));
        return;
    }
    let mut names = String::new();
    if flags.write_bits(upper, "", &mut names) == 0 {
        names = hex(upper);
    }
    let _ = write!(names, "|{}", hex(length));
    style.write(hex(value), &names, out);
}

fn tagged_address(value: u64, style: Style, out: &mut String) {
    const MODES: u64 = 6;
    const TAGS_SHIFT: u32 = 3;
    const TAGS: u64 = 0xffff;
    let mut names = if value & 1 == 0 { "!" } else { "" }.to_owned();
    names.push_str("PR_TAGGED_ADDR_ENABLE|");
    table::MTE_TCF.write_names(value & MODES, &mut names);
    let tags = value >> TAGS_SHIFT & TAGS;
    if tags != 0 {
        let _ = write!(names, "|{tags:#x}<<PR_MTE_TAG_SHIFT");
    }
    let rest = value & !(1 | MODES | TAGS << TAGS_SHIFT);
    if rest != 0 {
        let _ = write!(names, "|{rest:#x}");
    }
    style.write(hex(value), &names, out);
}

/// The number always stands before the name: the names are the kernel's own.
fn pid_type(value: u64, style: Style, out: &mut String) {
    let shown = match style {
        Style::Abbrev => Style::Verbose,
        other => other,
    };
    table::PIDTYPE.write(value, shown, out);
}

fn mount_flags(value: u64, style: Style, out: &mut String) {
    const MAGIC: u64 = 0xc0ed_0000;
    const MAGIC_MASK: u64 = 0xffff_0000;
    let has_magic = value & MAGIC_MASK == MAGIC;
    let rest = if has_magic {
        value & !MAGIC_MASK
    } else {
        value
    };
    if has_magic {
        style.write(hex(MAGIC), "MS_MGC_VAL", out);
        if rest == 0 {
            return;
        }
        out.push('|');
    }
    table::MOUNT.write(rest, style, out);
}
