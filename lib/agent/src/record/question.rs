//! Questions to the host, over the slots of the arena.
//!
//! Given a kind and an argument; waits for six words of answer. A host that is dead, or shows no
//! life, is waited for no longer: then nothing is recorded any more. Must not know what the answers
//! mean.

use crate::memory::{host, state, sys};
use crate::record::silence;
use core::sync::atomic::Ordering;
use sptrace_wire::control::*;

/// A host whose heart beats may take this long, for it answers one question after the other and may
/// have a large module to analyse: a minute.
const ANSWER_SLICES: u32 = 1200;
/// One whose heart does not beat: two seconds.
const SILENCE_SLICES: u32 = 40;
const SLICE_MS: u64 = 50;

fn host_is_dead() -> bool {
    state::control().host_alive.load(Ordering::Relaxed) & FUTEX_OWNER_DIED != 0
}

fn waits_in_vain(slices: u32) -> bool {
    host_is_dead() || slices >= ANSWER_SLICES || slices >= SILENCE_SLICES && host::host_is_stopped()
}

/// A free slot for a question.
fn take_slot() -> Option<*mut Question> {
    // SAFETY: the slots lie in the arena.
    unsafe {
        let slots = (*state::process()).arena.add(QUESTIONS_OFFSET as usize) as *mut Question;
        let take = |&q: &*mut Question| {
            let (free, taken) = (QUESTION_FREE, QUESTION_TAKEN);
            (*q).state
                .compare_exchange(free, taken, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        };
        for waited in 0..ANSWER_SLICES {
            let slot = (0..QUESTIONS).map(|i| slots.add(i)).find(take);
            if slot.is_some() || waits_in_vain(waited) {
                return slot;
            }
            sys::futex_wait((*slots).state.as_ptr(), QUESTION_ASKED, SLICE_MS);
        }
        None
    }
}

/// Asks the host and waits. None: no slot, no host, or no answer in time. Without an answer about a
/// module nothing is recorded any more: its stack walkers would meet our return addresses, and a
/// sandbox that it enters would not be noticed.
pub fn question(kind: u32, argument: u64) -> Option<[u64; 6]> {
    // SAFETY: the slot is ours while its state says so.
    unsafe {
        let answer = take_slot().and_then(|slot| ask_in(slot, kind, argument));
        let goes_on = kind == ASK_TEXT;
        let needs_it = matches!(kind, ASK_MODULE | ASK_MAPPED);
        if answer.is_none() && (needs_it || host_is_dead() && !goes_on) {
            silence::fall_silent();
        }
        answer
    }
}

unsafe fn ask_in(slot: *mut Question, kind: u32, argument: u64) -> Option<[u64; 6]> {
    // SAFETY: as in question.
    unsafe {
        (*slot).kind = kind;
        // A vfork child asks about memory that is its parent's.
        (*slot).pid = if matches!(kind, ASK_MODULE | ASK_MAPPED | ASK_TEXT) {
            (*state::process()).pid
        } else {
            sys::pid()
        };
        (*slot).tid = sys::tid();
        (*slot).process = (*state::process()).number;
        (*slot).argument = argument;
        (*slot).state.store(QUESTION_ASKED, Ordering::Release);
        host::ring();
        let mut waited = 0;
        loop {
            let state = (*slot).state.load(Ordering::Acquire);
            if state == QUESTION_ANSWERED {
                break;
            }
            if waits_in_vain(waited) {
                // The host may answer in this very moment: only one of us gets the slot back.
                let (here, given_up) = (Ordering::AcqRel, QUESTION_ABANDONED);
                let back = &(*slot).state;
                if back
                    .compare_exchange(state, given_up, here, Ordering::Relaxed)
                    .is_ok()
                {
                    return None;
                }
                continue;
            }
            sys::futex_wait((*slot).state.as_ptr(), state, SLICE_MS);
            waited += 1;
        }
        let answer = core::array::from_fn(|i| match (*slot).answer.get(i) {
            Some(a) => a.load(Ordering::Relaxed),
            None => 0,
        });
        (*slot).state.store(QUESTION_FREE, Ordering::Release);
        Some(answer)
    }
}
