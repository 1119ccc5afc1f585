//! Payloads of returns at events of the slow path.
//!
//! Given a call whose return has a payload; keeps what that needs in frames a byte below the call's
//! own, and runs it when the call returns, as `crate::routines::values` does for calls that nothing
//! but the payload looks at. What a payload has missed is counted. Must not know what is added.

use crate::events::active;
use crate::events::acts::Acted;
use crate::events::call_values;
use crate::frames::shadow;
use crate::memory::frame::{Frame, Vectors};
use crate::memory::rows::UNDECIDED;
use crate::memory::thread::{
    FRAME_HELD, FRAME_HELD_RECORDED, FRAME_KEPT, FRAME_QUIET, FRAME_QUIET_HELD, FrameAt, Hot,
    KEPT_FRAMES,
};
use crate::memory::{state, sys};
use crate::record::{deep, settle};
use crate::routines::acts::{Registers, run};
use sptrace_wire::control::hole;

/// A call: of which function, and the stack pointer before it.
#[derive(Clone, Copy)]
pub struct Call {
    /// Where the function begins.
    pub callee: u64,
    /// See there.
    pub rsp: u64,
}

/// A call has begun that has no record. False: there is no room for its frame.
pub fn enter_quietly(hot: &Hot, f: &Frame, vectors: &Vectors, call: Call, acted: Acted) -> bool {
    let has_room = settle::enter_quietly(hot, call.rsp, acted.is_held.then_some(f.id));
    if has_room && acted.is_held {
        push(hot, f, vectors, call, FRAME_HELD);
    }
    has_room
}

/// A call has begun that is recorded, or another has become one of `callee` by a jump: its return
/// is waited for, if it has a payload.
pub fn enter(hot: &Hot, f: &Frame, vectors: &Vectors, call: Call, acted: Acted) {
    if !acted.is_held || hot.muted.get() != 0 || hot.overflow.get() != 0 {
        return;
    }
    // Nobody sees the end of what has no frame.
    let frame = hot.top();
    if frame.rsp() != call.rsp && frame.rsp() != call.rsp - 1 {
        state::count_hole(hole::PAYLOADS);
        return;
    }
    push(hot, f, vectors, call, FRAME_HELD_RECORDED);
}

/// The end of such a call will not be seen.
pub fn missed(acted: Acted) {
    if acted.is_held {
        state::count_hole(hole::PAYLOADS);
    }
}

/// Pushes words, the time stamp, and the innermost frame of a held call.
fn push(hot: &Hot, f: &Frame, vectors: &Vectors, call: Call, head: u64) {
    let Call { callee, rsp } = call;
    let [first, second] = call_values::kept_for_exit(hot, f, vectors, callee, rsp);
    let kept = [first, second, sys::tsc()].map(|word| (FRAME_KEPT, word));
    for (id, word) in kept.into_iter().chain([(head, callee)]) {
        if !deep::has_room(hot, rsp) {
            state::count_hole(hole::PAYLOADS);
            return;
        }
        shadow::push(hot, rsp - 1, id, word);
    }
}

/// The call at `rsp` returns: payloads of its return run, and its values are recorded. True: it has
/// no record.
pub fn leave(hot: &Hot, f: &Frame, vectors: &Vectors, rsp: u64) -> bool {
    if !state::process().has_values.get() {
        return false;
    }
    settle::settle(hot, rsp - 1, false);
    let is_own = call_values::is_its_return(hot, f.id, rsp);
    let mut is_quiet = false;
    while hot.top().rsp() == rsp - 1 {
        let top = hot.top();
        match top.id() {
            FRAME_QUIET => {
                is_quiet = true;
                hot.pop();
            }
            FRAME_QUIET_HELD => {
                is_quiet = is_own;
                hot.pop();
            }
            FRAME_HELD | FRAME_HELD_RECORDED => {
                match is_own {
                    true => returned(hot, f, vectors, top.callee()),
                    false => state::count_hole(hole::PAYLOADS),
                }
                for _ in 0..KEPT_FRAMES {
                    hot.pop();
                }
            }
            FRAME_KEPT => hot.pop(),
            _ => call_values::leave(hot, f, vectors, rsp),
        }
        if hot.top() == top {
            break;
        }
    }
    is_quiet
}

fn returned(hot: &Hot, f: &Frame, vectors: &Vectors, callee: u64) {
    if has_run(hot) {
        return;
    }
    let given = match call_values::exit_at(hot, callee) {
        Some((code, errno, texts)) => {
            hot.errno.set(errno);
            find_texts(hot, texts, f);
            run_at(hot, code, f, vectors)
        }
        None => UNDECIDED,
    };
    if given == UNDECIDED {
        state::count_hole(hole::PAYLOADS);
    }
}

/// Finds texts out at what the call has kept in the innermost frames, and at its result.
pub(super) fn find_texts(hot: &Hot, texts: u64, f: &Frame) {
    if texts != 0 {
        let head = hot.top();
        let second = head.below().below();
        let words = [second.below(), second].map(FrameAt::callee);
        let [first, second] = words;
        active::find_texts(hot, texts, (&[first, second, f.rax], head.rsp() + 1));
    }
}

/// Has the common routine run the payload of this return, which has bidden something?
fn has_run(hot: &Hot) -> bool {
    let bidden_at = hot.has_bidden.get();
    hot.has_bidden.set(0);
    bidden_at != 0 && bidden_at == hot.ssp.get()
}

/// Runs the code of a return, with what the call has kept in the innermost frames.
pub(super) fn run_at(hot: &Hot, code: u64, f: &Frame, vectors: &Vectors) -> u32 {
    let vector = |i: usize| vectors.0.get(i).map_or(0, |vector| vector[0]);
    let registers = Registers {
        arguments: [f.rdi, f.rsi, f.rdx, f.rcx, f.r8, 0],
        rsp: 0,
        result: f.rax,
        vectors: core::array::from_fn(vector),
        caller: 0,
    };
    // SAFETY: the code is the host's, whose plan says that it adds to tables at a return, and the
    // call's frames are the innermost ones; the slow path runs with signals blocked and the
    // thread's block in gs.
    let given = unsafe { run(code, &registers) };
    hot.has_bidden.set(0);
    given
}
