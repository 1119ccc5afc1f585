//! Through which sites functions are called by pointers, in some records.
//!
//! Given the words of a chunk; tells of the calls through pointers among its first records. It is a
//! sample: what it misses is not counted as anything. Changes nothing.

use std::sync::atomic::AtomicU32;

use sptrace_trace::FunctionId;

use super::book::{AddressBook, LOW_HALF, Recent, Target};
use super::module::{PLACE_ENTRY, PLACE_INDIRECT};
use super::process::Areas;
use super::record::{Record, Valued};

/// So many records are looked at.
const RECORDS: usize = 2000;

/// Tells of each call its id and the callee.
pub fn sample(
    halves: &[AtomicU32],
    (areas, pid): (&Areas, u32),
    book: &AddressBook,
    mut tell: impl FnMut(u32, FunctionId),
) {
    let mut at = 0;
    for _ in 0..RECORDS {
        if at >= halves.len() {
            return;
        }
        let (record, length) = Record::read(halves, at, areas);
        at += length;
        let call = match record {
            Record::Unfinished => return,
            Record::Call(call) | Record::Valued(Valued { call, .. }) => call,
            _ => continue,
        };
        const CALL: u8 = PLACE_ENTRY | PLACE_INDIRECT;
        if call.place.kind() & CALL != CALL {
            continue;
        }
        let target = LOW_HALF | u64::from(call.low);
        let recent = &book.recent[Recent::slot(target)];
        if let Target::Function(callee) = recent.callee
            && (recent.target, recent.pid) == (target, pid)
        {
            tell(call.id, callee);
        }
    }
}
