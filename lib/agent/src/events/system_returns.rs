//! Payloads of the returns of calls of the kernel.
//!
//! Given such a call when it begins and when it is over; keeps when it began, and runs the payload
//! over its result. The kernel leaves the registers of arguments as they were. A call that does not
//! return is counted where its place is needed for another. Must not know what is added.

use crate::events::call_values::{self, SystemExit};
use crate::events::exits;
use crate::memory::frame::{Frame, Vectors};
use crate::memory::rows::UNDECIDED;
use crate::memory::thread::{FRAME_HELD, Hot};
use crate::memory::{state, sys};
use sptrace_wire::control::hole;
use sptrace_wire::plan::MOST_KEPT;
use sptrace_wire::values::ERRORS;

/// A call with a payload is about to be made at a place of the slot `id`: `rsp` is the stack
/// pointer there.
pub fn begun(hot: &Hot, id: u64, number: u32, rsp: u64) {
    if call_values::exit_of_system(hot, id, number).is_none() {
        return;
    }
    let all = &hot.system_begun;
    let is_at = |at: u64| all.iter().find(|begun| begun.get()[0] == at);
    let Some(place) = is_at(rsp).or_else(|| is_at(0)).or(all.first()) else {
        return;
    };
    if place.get()[0] != 0 {
        // It was jumped out of, or more are open than there is room for.
        state::count_hole(hole::PAYLOADS);
    }
    place.set([rsp, sys::tsc()]);
}

/// A call is about to be made whose return is not told from that of a child.
pub fn missed(hot: &Hot, id: u64, number: u32) {
    if call_values::exit_of_system(hot, id, number).is_some() {
        state::count_hole(hole::PAYLOADS);
    }
}

/// A call is over that was made at `rsp`; its frame is gone.
pub fn run(
    hot: &Hot,
    f: &Frame,
    vectors: &Vectors,
    (number, arguments): (u32, &[u64; 6]),
    rsp: u64,
) {
    let Some(exit) = call_values::exit_of_system(hot, f.id, number) else {
        return;
    };
    let begun = hot.system_begun.iter().find(|begun| begun.get()[0] == rsp);
    // A fork's child has not begun it.
    let Some([_, stamp]) = begun.map(|begun| begun.get()) else {
        return;
    };
    begun.into_iter().for_each(|begun| begun.set([0; 2]));
    if hot.muted.get() != 0 {
        return;
    }
    let result = f.rax as i64;
    hot.errno.set(match ERRORS.contains(&result) {
        true => result.unsigned_abs(),
        false => 0,
    });
    if given(hot, f, vectors, (&exit, arguments), (rsp, stamp)) == UNDECIDED {
        state::count_hole(hole::PAYLOADS);
    }
}

/// The code finds what it needs of the call in the innermost frames.
fn given(
    hot: &Hot,
    f: &Frame,
    vectors: &Vectors,
    (exit, arguments): (&SystemExit, &[u64; 6]),
    (rsp, stamp): (u64, u64),
) -> u32 {
    let word = |source: u8| arguments.get(usize::from(source)).copied().unwrap_or(0);
    let mut words = [0; MOST_KEPT];
    let count = call_values::fill(&mut words, exit.of.kept_sources().map(word));
    let words = words.get(..count).unwrap_or(&[]);
    let pushed = exits::push_kept(hot, rsp, words, stamp, (FRAME_HELD, 0));
    let given = match exit.code != 0 && pushed.is_ok() {
        true => {
            exits::find_texts(hot, exit.texts, f);
            exits::run_at(hot, exit.code, f, vectors)
        }
        false => UNDECIDED,
    };
    for _ in 0..pushed.unwrap_or_else(|pushed| pushed) {
        hot.pop();
    }
    given
}
