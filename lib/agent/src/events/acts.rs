//! Payloads at events of the slow path: what the common routines have not run themselves.
//!
//! Given the registers of a call that the slow path deals with; runs the payload of the callee, if
//! it has one that adds to tables, and if no routine has done so on the way here. Gives whether the
//! call goes on without a record. What could not be added is counted. Must not know what is added.

use crate::events::active::{self, Orders};
use crate::events::call_values::{self, ActsAt};
use crate::frames::shadow::FRAME_DONE;
use crate::memory::frame::{Frame, Vectors};
use crate::memory::rows::{HELD, HELD_RECORDED, PASSED, UNDECIDED};
use crate::memory::thread::Hot;
use crate::memory::{state, sys};
use crate::record::settle;
use crate::routines::acts::{Registers, run};
use sptrace_wire::control::hole;

/// Words of the stack that a payload may name, with the page that they are copied to.
const STACK_WORDS: usize = 16;

/// Arguments on the stack, where they lie in one page.
#[repr(C, align(256))]
struct Stack([u64; STACK_WORDS + 8]);

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Acted {
    /// It goes on without a record.
    pub is_quiet: bool,
    /// Its return has a payload.
    pub is_held: bool,
    /// What is to be done to it.
    pub orders: Orders,
}

/// A call of `callee`, of which `rsp` was the stack pointer before: runs its payload.
pub fn act(hot: &Hot, f: &Frame, vectors: &Vectors, callee: u64, rsp: u64) -> Acted {
    run_among(hot, f, vectors, (callee, rsp), true)
}

/// The same. A payload walks the frames: those that have ended go before, and of a call that
/// `is_new` one at its own place is such.
fn run_among(
    hot: &Hot,
    f: &Frame,
    vectors: &Vectors,
    (callee, rsp): (u64, u64),
    is_new: bool,
) -> Acted {
    let acted = hot.acted.get();
    hot.acted.set(0);
    let mut given = 0;
    let mut orders = Orders::default();
    if let Some(at) = call_values::acts_at(hot, callee) {
        given = match (acted, at.code) {
            (1, _) if at.has_exit => HELD_RECORDED,
            (1, _) => 0,
            (2, _) => HELD,
            (_, 0) => UNDECIDED,
            (_, code) => {
                settle::settle(hot, if is_new { rsp } else { rsp - 1 }, is_new);
                let arguments = active::arguments(f);
                let words = (&arguments, vectors, rsp, f.id);
                match &at.slowly {
                    None => run_called(hot, code, words),
                    Some(of) => {
                        Orders::prepare(hot, (&arguments, rsp), of);
                        let given = run_called(hot, code, words);
                        orders = Orders::take(hot);
                        given
                    }
                }
            }
        };
    }
    if given == UNDECIDED {
        state::count_hole(hole::PAYLOADS);
    }
    Acted {
        is_quiet: given == PASSED || given == HELD,
        is_held: given == HELD || given == HELD_RECORDED,
        orders,
    }
}

/// A call of the kernel is about to be made, at a place of this slot: runs its payload.
pub fn act_of_system(
    hot: &Hot,
    id: u64,
    (number, arguments): (u32, &[u64; 6]),
    (vectors, rsp): (&Vectors, u64),
) -> Orders {
    let Some(ActsAt { code, slowly, .. }) = call_values::acts_of_system(hot, id, number) else {
        return Orders::default();
    };
    let given = match (code, &slowly) {
        (1.., Some(of)) => {
            Orders::prepare(hot, (arguments, rsp), of);
            run_at(code, (arguments, vectors, rsp, id))
        }
        _ => UNDECIDED,
    };
    if given == UNDECIDED {
        state::count_hole(hole::PAYLOADS);
        return Orders::default();
    }
    Orders::take(hot)
}

/// The same of a tail jump: what a call without a record becomes has none either.
pub fn jumped(hot: &Hot, f: &Frame, vectors: &Vectors, callee: u64, rsp: u64) -> Acted {
    let acted = run_among(hot, f, vectors, (callee, rsp), false);
    let has_values = state::process().has_values.get();
    Acted {
        is_quiet: acted.is_quiet || has_values && settle::is_quiet(hot, rsp),
        ..acted
    }
}

/// Arguments, vector registers, the stack pointer before the call, and the place that makes it.
type Words<'a> = (&'a [u64; 6], &'a Vectors, u64, u64);

/// Runs it at a call: one that comes by way of the lazy resolver is its caller's, and the stack has
/// that place once, in front, though its frame is there already.
fn run_called(hot: &Hot, code: u64, words: Words<'_>) -> u32 {
    let (arguments, vectors, rsp, id) = words;
    let Some(frame) = call_values::resolved(hot, id, rsp) else {
        return run_at(code, words);
    };
    let own = frame.get();
    frame.mark(FRAME_DONE);
    let given = run_at(code, (arguments, vectors, rsp, own.id));
    frame.set(own);
    given
}

fn run_at(code: u64, (arguments, vectors, rsp, caller): Words<'_>) -> u32 {
    let mut stack = Stack([0; STACK_WORDS + 8]);
    // What cannot be read is 0, as it is for values.
    if let Some(words) = stack.0.get_mut(1..=STACK_WORDS) {
        let _ = sys::read_words(rsp, words);
    }
    let vector = |i: usize| vectors.0.get(i).map_or(0, |vector| vector[0]);
    let registers = Registers {
        arguments: *arguments,
        rsp: stack.0.as_ptr() as u64 + 8,
        result: 0,
        vectors: core::array::from_fn(vector),
        caller,
    };
    // SAFETY: the row's code is the host's, whose plan says that it adds to tables; the slow path
    // runs with signals blocked and the thread's block in gs.
    unsafe { run(code, &registers) }
}
