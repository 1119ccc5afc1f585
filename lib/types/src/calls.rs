//! The description of every system call: one row a call, by subject.
//!
//! Given a number or a name; gives the call's [`Call`]. Names of parameters are in
//! [`crate::syscalls`]; a call that no row describes shows its arguments by their C types.
//!
//! Must not know: how anything is read or shown.

mod basic;
pub mod descriptors;
mod files;
pub mod followed;
mod memory;
mod network;
mod plain;
mod process;
mod select;
mod structs;

pub use select::{Matcher, Selection, SelectionError};

use crate::decode::types::{Call, Type};
use crate::syscalls;
use std::sync::LazyLock;

/// By number.
static BY_NUMBER: LazyLock<Vec<Option<&'static Call>>> = LazyLock::new(|| {
    let rows = [
        files::CALLS,
        memory::CALLS,
        network::CALLS,
        process::CALLS,
        plain::CALLS,
    ];
    let mut found = Vec::new();
    for call in rows.into_iter().flatten() {
        let Some(number) = syscalls::by_name(call.name).map(|known| known.number as usize) else {
            continue;
        };
        if found.len() <= number {
            found.resize(number + 1, None);
        }
        if let Some(place) = found.get_mut(number) {
            *place = Some(call);
        }
    }
    found
});

/// The description of the call with this number.
pub fn by_number(number: u32) -> Option<&'static Call> {
    BY_NUMBER.get(number as usize).copied().flatten()
}

/// The argument of a call that has this name in the kernel's source; `path` is the first file name
/// too, and `fd` the first descriptor. `None`: it has none.
pub fn parameter(number: u32, word: &str) -> Option<u8> {
    let is_it = |ty: &Type| match word {
        "path" => matches!(ty, Type::Path | Type::At(_, Type::Path)),
        "fd" => matches!(ty, Type::Fd),
        _ => false,
    };
    let names = syscalls::by_number(number).and_then(|call| call.parameters);
    let named = names.and_then(|all| all.iter().position(|one| one.name == word));
    let described = || by_number(number)?.parameters.iter().position(is_it);
    let at = named.or_else(described)?;
    u8::try_from(at).ok().filter(|at| *at < 6)
}

/// The description of the call with this name.
pub fn by_name(name: &str) -> Option<&'static Call> {
    by_number(syscalls::by_name(name)?.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_described() {
        let missing = syscalls::all()
            .iter()
            .filter(|call| by_number(call.number).is_none());
        let missing: Vec<_> = missing.map(|call| call.name).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn every_row_is_a_call() {
        let rows = [
            files::CALLS,
            memory::CALLS,
            network::CALLS,
            process::CALLS,
            plain::CALLS,
        ];
        for call in rows.into_iter().flatten() {
            assert!(syscalls::by_name(call.name).is_some(), "{}", call.name);
            assert!(
                std::ptr::eq(by_name(call.name).unwrap(), call),
                "{} twice",
                call.name
            );
        }
    }
}
