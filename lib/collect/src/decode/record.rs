//! One record of a chunk, read from its bytes.
//!
//! Given the halves of a chunk's words and the patch areas of its process; gives what stands at a
//! place and how long that is. Must not know what a record means to anybody. `sptrace_wire::record`
//! has the layout.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use sptrace_wire::{record, values};

use super::book::CalledFrom;
use super::hole;
use super::module::{PLACE_INDIRECT, Place};
use super::process::Areas;

/// What stands at a place of a chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// Reserved and not completed.
    Unfinished,
    /// What stands there is to be passed over, as the agent says.
    Nothing,
    /// Where the stack pointer stood at the call whose record follows.
    Placed(u32),
    /// It makes no sense.
    Torn,
    /// The full address that the next call through a pointer leads to.
    WideCallee(u64),
    /// Not a call, but something about the thread.
    Control { stamp: u32, id: u32, payload: u64 },
    /// A slot's entry or exit.
    Call(Call),
    /// A slot's entry or exit together with its values.
    Valued(Valued),
    /// Before or after a call of the kernel: where its bytes are, in halves.
    Values {
        stamp: u32,
        id: u32,
        low: u32,
        bytes: Range<usize>,
    },
}

/// A record that a slot has made.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) stamp: u32,
    pub(super) id: u32,
    /// What the slot is.
    pub(super) place: Place,
    pub(super) from: CalledFrom,
    /// Of a call through a pointer: the low half of the callee's address.
    pub(super) low: u32,
}

/// A record that a slot has made, with its values.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Valued {
    pub(super) call: Call,
    /// That of their description.
    pub(super) number: u32,
    /// Where the words are, in halves.
    pub(super) words: Range<usize>,
}

impl Record {
    /// What stands at `at`, and how many halves it takes.
    pub(super) fn read(halves: &[AtomicU32], at: usize, areas: &Areas) -> (Self, usize) {
        let half = |at: usize| halves.get(at).map_or(0, |h| h.load(Ordering::Relaxed));
        let (stamp, id) = (half(at), half(at + 1));
        if stamp == 0 {
            let next = hole::after(halves, at, &|id| length_of(areas, id));
            if next != at {
                return (Self::Unfinished, next - at);
            }
        }
        let payload = || u64::from(half(at + 2)) | u64::from(half(at + 3)) << 32;
        match id {
            0 => (Self::Unfinished, 2),
            record::NOTHING | record::LEFT_OUT => (Self::Nothing, 2),
            record::NOTHING_NARROW => (Self::Nothing, 3),
            record::PLACED => (Self::Placed(stamp), 2),
            record::ENDED => (Self::one_closed(stamp), 2),
            record::WIDE_CALLEE => (Self::WideCallee(payload()), 4),
            record::SYSTEM_CALL..=record::ACTED => {
                let length = half(at + 3) as usize / 4;
                let (first, end) = (at + 4, at + 4 + length);
                if length == 0 || end > halves.len() {
                    return (Self::Torn, 1);
                }
                if half(end - 1) != values::END {
                    return (Self::Unfinished, end - at);
                }
                let bytes = first..end - 1;
                let low = half(at + 2);
                let values = Self::Values {
                    stamp,
                    id,
                    low,
                    bytes,
                };
                (values, end - at)
            }
            1..record::WIDE_CALLEE | record::LANE => {
                let payload = payload();
                (Self::Control { stamp, id, payload }, 4)
            }
            // What makes no sense is no measure of length: one half further may be a record.
            _ if id < record::CONTROL_IDS => (Self::Torn, 1),
            _ if record::VALUED_IDS.contains(&id) => Self::valued(halves, at, areas),
            _ => match areas.place(id) {
                None => (Self::Torn, 1),
                Some((place, area, offset)) => {
                    let module = area.module;
                    let call = Call {
                        stamp,
                        id,
                        place,
                        from: CalledFrom { module, offset },
                        low: half(at + 2),
                    };
                    (Self::Call(call), length(place))
                }
            },
        }
    }

    /// One frame has ended, which is told in less room than several are.
    fn one_closed(stamp: u32) -> Self {
        Self::Control {
            stamp,
            id: record::CLOSED,
            payload: 1,
        }
    }

    /// A call or return with its values.
    fn valued(halves: &[AtomicU32], at: usize, areas: &Areas) -> (Self, usize) {
        let half = |at: usize| halves.get(at).map_or(0, |h| h.load(Ordering::Relaxed));
        let (stamp, id, slot) = (half(at), half(at + 1), half(at + 2));
        let number = hole::number_of(id);
        let length = 2 + (id & record::VALUED_HALVES) as usize;
        if number == record::NO_VALUED_NUMBER {
            return (Self::Unfinished, length);
        }
        let Some((place, area, offset)) = areas.place(slot) else {
            return (Self::Torn, 1);
        };
        let module = area.module;
        let call = Call {
            stamp,
            id: slot,
            place,
            from: CalledFrom { module, offset },
            low: half(at + 3),
        };
        let words = at + 1 + self::length(place)..at + length;
        if words.start > words.end || words.end > halves.len() {
            return (Self::Torn, 1);
        }
        let valued = Valued {
            call,
            number,
            words,
        };
        (Self::Valued(valued), length)
    }
}

/// True if a call or return with its values stands at `at`, as its id says.
pub(super) fn is_valued(halves: &[AtomicU32], at: usize) -> bool {
    let id = halves.get(at + 1);
    id.is_some_and(|id| record::VALUED_IDS.contains(&id.load(Ordering::Relaxed)))
}

/// True if the call of the kernel whose record ends at `at` is left out, as what follows says.
pub(super) fn is_left_out(halves: &[AtomicU32], at: usize) -> bool {
    let id = halves.get(at + 1);
    id.is_some_and(|id| id.load(Ordering::Relaxed) == record::LEFT_OUT)
}

/// Halves of the records with this id; None: there is no such id.
fn length_of(areas: &Areas, id: u32) -> Option<usize> {
    areas.place(id).map(|(place, ..)| length(place))
}

fn length(place: Place) -> usize {
    2 + usize::from(place.kind() & PLACE_INDIRECT != 0)
}
