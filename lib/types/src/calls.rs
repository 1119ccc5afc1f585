//! The description of every system call: one row a call, by subject.
//!
//! Given a number or a name; gives the call's [`Call`]. Names of parameters are in
//! [`crate::syscalls`]; a call that no row describes shows its arguments by their C types.
//!
//! Must not know: how anything is read or shown.

mod basic;
pub mod descriptors;
mod files;
mod memory;
mod network;
mod plain;
mod process;
mod select;
mod structs;

pub use select::{Matcher, Selection, SelectionError};

use crate::decode::types::Call;
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
