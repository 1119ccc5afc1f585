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
use sptrace_wire::plan::{MOST_KEPT, RESULT_TEXT};

/// Words that the common routines keep.
const IN_ROUTINES: usize = 2;
/// Numbers of words between the last that is kept and the result.
const NO_WORDS: usize = RESULT_TEXT as usize - MOST_KEPT;

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
    let (words, count) = call_values::kept_for_exit(hot, f, vectors, callee, rsp);
    let words = words.get(..count).unwrap_or(&[]);
    if push_kept(hot, rsp, words, sys::tsc(), (head, callee)).is_err() {
        state::count_hole(hole::PAYLOADS);
    }
}

/// The same of these words, of a call at `rsp`: the first two stand where the common routines have
/// them, and the others below. Gives how many frames there are; or how many there were room for.
pub(super) fn push_kept(
    hot: &Hot,
    rsp: u64,
    words: &[u64],
    stamp: u64,
    (head, callee): (u64, u64),
) -> Result<usize, usize> {
    let (first, more) = words.split_at_checked(IN_ROUTINES).unwrap_or((words, &[]));
    let mut pair = [0; IN_ROUTINES];
    call_values::fill(&mut pair, first.iter().copied());
    let kept = more.iter().rev().chain(&pair).chain([&stamp]);
    let frames = kept.map(|word| (FRAME_KEPT, *word)).chain([(head, callee)]);
    let mut pushed = 0;
    for (id, word) in frames {
        if !deep::has_room(hot, rsp) {
            return Err(pushed);
        }
        shadow::push(hot, rsp - 1, id, word);
        pushed += 1;
    }
    Ok(pushed)
}

/// What a call has kept for its return, from its innermost frame on.
fn kept_words(head: FrameAt) -> [u64; MOST_KEPT] {
    let mut words = [0; MOST_KEPT];
    let stamp = head.below();
    let second = stamp.below();
    let first = second.below();
    let mut next = first;
    for (i, place) in words.iter_mut().enumerate() {
        let frame = match i {
            0 => first,
            1 => second,
            _ => {
                next = next.below();
                next
            }
        };
        if frame.id() != FRAME_KEPT {
            break;
        }
        *place = frame.callee();
    }
    words
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
        let mut words = [0; RESULT_TEXT as usize + 1];
        let kept = kept_words(head).into_iter().chain([0; NO_WORDS]);
        call_values::fill(&mut words, kept.chain([f.rax]));
        active::find_texts(hot, texts, (&words, head.rsp() + 1));
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
