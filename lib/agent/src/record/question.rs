//! Questions to the host, over the slots of the arena.
//!
//! Given a kind and an argument; waits for six words of answer. A host that is dead, or shows no
//! life, is waited for no longer: then nothing is recorded any more. Must not know what the answers
//! mean.

use crate::memory::{host, state, sys};
use crate::record::silence;
use core::sync::atomic::{AtomicU32, Ordering};
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

/// A slot for a question, the asker's until its state says otherwise.
#[derive(Clone, Copy)]
struct Slot(*mut Question);

impl Slot {
    fn number(i: usize) -> Self {
        let first = (state::process().arena() + QUESTIONS_OFFSET) as *mut Question;
        Self(first.wrapping_add(i % QUESTIONS))
    }

    fn state(self) -> &'static AtomicU32 {
        // SAFETY: the slots lie in the arena, which is mapped for life.
        unsafe { &(*self.0).state }
    }

    /// True if it was `old`, and is `new` now.
    fn turns(self, old: u32, new: u32) -> bool {
        let turned = self
            .state()
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed);
        turned.is_ok()
    }

    /// Puts the question down.
    fn fill(self, kind: u32, argument: u64) {
        // A vfork child asks about memory that is its parent's.
        let pid = match kind {
            ASK_MODULE | ASK_MAPPED | ASK_TEXT => state::process().pid.get(),
            _ => sys::pid(),
        };
        let (tid, process) = (sys::tid(), state::process().number.get());
        // SAFETY: the slot is ours: it was free, and we have taken it.
        unsafe {
            (*self.0).kind = kind;
            (*self.0).pid = pid;
            (*self.0).tid = tid;
            (*self.0).process = process;
            (*self.0).argument = argument;
        }
    }

    fn answer(self) -> [u64; 6] {
        // SAFETY: as in state.
        let answer = unsafe { &(*self.0).answer };
        answer.each_ref().map(|word| word.load(Ordering::Relaxed))
    }
}

/// A free slot for a question.
fn take_slot() -> Option<Slot> {
    let take = |slot: &Slot| slot.turns(QUESTION_FREE, QUESTION_TAKEN);
    for waited in 0..ANSWER_SLICES {
        let slot = (0..QUESTIONS).map(Slot::number).find(take);
        if slot.is_some() || waits_in_vain(waited) {
            return slot;
        }
        sys::futex_wait(Slot::number(0).state(), QUESTION_ASKED, SLICE_MS);
    }
    None
}

/// Asks the host and waits. None: no slot, no host, or no answer in time. Without an answer about a
/// module nothing is recorded any more: its stack walkers would meet our return addresses, and a
/// sandbox that it enters would not be noticed.
pub fn question(kind: u32, argument: u64) -> Option<[u64; 6]> {
    let answer = take_slot().and_then(|slot| ask_in(slot, kind, argument));
    let goes_on = kind == ASK_TEXT;
    let needs_it = matches!(kind, ASK_MODULE | ASK_MAPPED);
    if answer.is_none() && (needs_it || host_is_dead() && !goes_on) {
        silence::fall_silent();
    }
    answer
}

fn ask_in(slot: Slot, kind: u32, argument: u64) -> Option<[u64; 6]> {
    slot.fill(kind, argument);
    slot.state().store(QUESTION_ASKED, Ordering::Release);
    host::ring_for_answer();
    let mut waited = 0;
    loop {
        let state = slot.state().load(Ordering::Acquire);
        if state == QUESTION_ANSWERED {
            break;
        }
        if waits_in_vain(waited) {
            // The host may answer in this very moment: only one of us gets the slot back.
            if slot.turns(state, QUESTION_ABANDONED) {
                return None;
            }
            continue;
        }
        sys::futex_wait(slot.state(), state, SLICE_MS);
        waited += 1;
    }
    let answer = slot.answer();
    slot.state().store(QUESTION_FREE, Ordering::Release);
    Some(answer)
}
