//! Through which sites functions are called by pointers, in some records.
//!
//! Given the words of a chunk; tells of the calls through pointers at its start, up to the first
//! record that needs thought. A sample: what it misses is not counted as anything. Changes nothing.

use std::sync::atomic::{AtomicU32, Ordering};

use sptrace_trace::FunctionId;

use super::book::{AddressBook, LOW_HALF, Recent, Target};
use super::module::{PLACE_ENTRY, PLACE_INDIRECT};
use super::process::Areas;

/// Tells of each call its id and the callee.
pub fn sample(
    halves: &[AtomicU32],
    (areas, pid): (&Areas, u32),
    book: &AddressBook,
    mut tell: impl FnMut(u32, FunctionId),
) {
    let mut left = halves;
    while let [stamp, id, rest @ ..] = left {
        let id = id.load(Ordering::Relaxed);
        let place = areas
            .quick(id)
            .filter(|_| stamp.load(Ordering::Relaxed) != 0);
        let Some(place) = place else {
            return;
        };
        if place.is_plain() {
            left = rest;
            continue;
        }
        let ([low, after @ ..], PLACE_INDIRECT..) = (rest, place.kind()) else {
            return;
        };
        let target = LOW_HALF | u64::from(low.load(Ordering::Relaxed));
        let recent = &book.recent[Recent::slot(target)];
        match recent.callee {
            Target::Function(callee) if recent.target == target && recent.pid == pid => {
                if place.kind() == PLACE_ENTRY | PLACE_INDIRECT {
                    tell(id, callee);
                }
            }
            _ => return,
        }
        left = after;
    }
}
