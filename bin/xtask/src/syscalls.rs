//! The table of system calls in `lib/types`, made from what this machine's kernel says of itself.
//!
//! Given the kernel's header with the numbers (package linux-libc-dev) and a mounted tracefs; gives
//! Rust source. Made by hand when a newer kernel is at hand, never while building.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::Path;

const HEADER: &str = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";
/// Bytes of the fields that all events have, and of the number.
const OWN_FIELDS_FROM: usize = 16;

/// Where a call's tracepoint has another name than the call.
const OTHER_NAMES: [(&str, &str); 6] = [
    ("stat", "newstat"),
    ("fstat", "newfstat"),
    ("lstat", "newlstat"),
    ("uname", "newuname"),
    ("sendfile", "sendfile64"),
    ("umount2", "umount"),
];

/// The table's source.
///
/// # Errors
/// The header cannot be read.
pub fn make(tracefs: &Path) -> io::Result<String> {
    let header = std::fs::read_to_string(HEADER)?;
    let mut calls = BTreeMap::new();
    for line in header.lines() {
        let mut words = line.split_whitespace();
        if let (Some("#define"), Some(name), Some(number)) =
            (words.next(), words.next(), words.next())
            && let Some(name) = name.strip_prefix("__NR_")
            && let Ok(number) = number.parse::<u32>()
        {
            calls.insert(number, name.to_owned());
        }
    }
    let mut out = String::from(
        "//! Made by `cargo run -p xtask -- syscalls`; not to be changed by hand.\n\n\
         use super::{Parameter, SystemCall};\n\n\
         const fn p(c_type: &'static str, name: &'static str) -> Parameter {\n    \
         Parameter { name, c_type }\n}\n\n\
         const fn call(number: u32, name: &'static str, parameters: &'static [Parameter]) -> SystemCall {\n    \
         SystemCall {\n        number,\n        name,\n        parameters: Some(parameters),\n    }\n}\n\n\
         const fn unknown(number: u32, name: &'static str) -> SystemCall {\n    \
         SystemCall {\n        number,\n        name,\n        parameters: None,\n    }\n}\n\n\
         #[rustfmt::skip]\npub(super) static CALLS: &[SystemCall] = &[\n",
    );
    for (number, name) in &calls {
        let line = match parameters(tracefs, name) {
            None => format!("    unknown({number}, {name:?}),"),
            Some(parameters) => {
                let each = parameters
                    .iter()
                    .map(|(c_type, name)| format!("p({c_type:?}, {name:?})"));
                let each: Vec<_> = each.collect();
                format!("    call({number}, {name:?}, &[{}]),", each.join(", "))
            }
        };
        let _ = writeln!(out, "{line}");
    }
    out.push_str("];\n");
    Ok(out)
}

/// Types and names of a call's parameters.
fn parameters(tracefs: &Path, call: &str) -> Option<Vec<(String, String)>> {
    let other = OTHER_NAMES.iter().find(|(name, _)| *name == call);
    let traced = other.map_or(call, |(_, traced)| traced);
    let path = tracefs.join(format!("events/syscalls/sys_enter_{traced}/format"));
    let text = std::fs::read_to_string(path).ok()?;
    let mut found = Vec::new();
    for line in text.lines() {
        let Some(field) = line.trim().strip_prefix("field:") else {
            continue;
        };
        let mut parts = field.split(';').map(str::trim);
        let declaration = parts.next()?;
        let offset = parts
            .next()?
            .strip_prefix("offset:")?
            .parse::<usize>()
            .ok()?;
        if offset < OWN_FIELDS_FROM {
            continue;
        }
        let (c_type, name) = declaration.rsplit_once(' ')?;
        // Copies of what pointers lead to, which newer kernels record.
        if name.starts_with("__") || c_type.starts_with("__data_loc") {
            continue;
        }
        let c_type = c_type.replace(" *", "*").replace('*', " *");
        found.push((c_type, name.to_owned()));
    }
    Some(found)
}
