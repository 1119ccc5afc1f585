//! What payloads of a script bid the host do.
//!
//! Given what a script may bid, by numbers, and the slots of the arena in which agents say that it
//! was bidden ([`sptrace_wire::bids`]); gives what was said since it was asked last, and in the end
//! how often each was bidden and what came of it. Must not know how any of it is done.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sptrace_trace::Level;
use sptrace_tracee::arena::Arena;
use sptrace_wire::bids::{BID_FREE, BID_SAID, BID_TAKEN};

/// What a payload may bid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bid {
    /// What is to be done.
    pub deed: Deed,
    /// As the user has written it, and where.
    pub text: String,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// The recording begins.
    Start,
    /// It ends.
    Stop,
    /// Its ring is written out.
    Dump,
    /// Calls of the functions that the glob matches have this level from here on.
    Level(String, Level),
}

/// It was bidden, once at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// What, by its number.
    pub number: usize,
    /// Number of the process in the recording.
    pub process: u32,
    /// When: of what begins the recording before the event of the call, so that it is in it, and of
    /// all else after it. Of a level the last time, since the last one counts.
    pub tsc: u64,
}

/// How often something was bidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bidden {
    /// As the user has written it.
    pub text: String,
    /// How often.
    pub times: u64,
    /// How often it has changed something.
    pub done: u64,
}

/// What a script may bid, and what came of it.
#[derive(Debug, Default)]
pub struct Bids {
    all: Vec<Bid>,
    done: Vec<AtomicU64>,
    /// Since when agents have been writing.
    taken: Mutex<Vec<Option<Instant>>>,
}

/// Who writes for so long was killed meanwhile.
const LONGEST: Duration = Duration::from_secs(1);

impl Bids {
    /// Nothing was bidden yet.
    pub fn new(all: Vec<Bid>) -> Self {
        let done = all.iter().map(|_| AtomicU64::new(0)).collect();
        let taken = Mutex::new(vec![None; all.len()]);
        Self { all, done, taken }
    }

    /// What is done when it is bidden.
    pub fn deed(&self, number: usize) -> Option<&Deed> {
        self.all.get(number).map(|bid| &bid.deed)
    }

    /// The numbers of those that ask for this.
    pub fn all_of(&self, deed: &Deed) -> Vec<usize> {
        let all = self.all.iter().enumerate();
        let all = all.filter(|(_, bid)| bid.deed == *deed);
        all.map(|(number, _)| number).collect()
    }

    /// It has changed something.
    pub fn is_done(&self, number: usize) {
        if let Some(done) = self.done.get(number) {
            done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Is there anything to take?
    pub fn are_said(&self, arena: &Arena) -> bool {
        (0..self.all.len()).any(|number| is_said(arena, number))
    }

    /// What was said, the oldest first; whoever asks again gets what is said from here on.
    pub fn take(&self, arena: &Arena) -> Vec<Said> {
        let mut all = Vec::new();
        for (number, bid) in self.all.iter().enumerate() {
            self.free_if_left(arena, number);
            if !is_said(arena, number) {
                continue;
            }
            let slot = arena.bid(number);
            let process = slot.process.load(Ordering::Relaxed);
            let (before, after) = (&slot.before_tsc, &slot.after_tsc);
            let (before, after) = (
                before.load(Ordering::Relaxed),
                after.load(Ordering::Relaxed),
            );
            slot.state.store(BID_FREE, Ordering::Release);
            let last = slot.last_tsc.load(Ordering::Acquire);
            let tsc = match bid.deed {
                Deed::Start => before,
                Deed::Stop | Deed::Dump => after,
                Deed::Level(..) => last,
            };
            all.push(Said {
                number,
                process,
                tsc,
            });
        }
        all.sort_by_key(|said| said.tsc);
        all
    }

    /// An agent that was killed while it wrote keeps a slot from the others.
    fn free_if_left(&self, arena: &Arena, number: usize) {
        let state = &arena.bid(number).state;
        let Ok(mut taken) = self.taken.lock() else {
            return;
        };
        let Some(since) = taken.get_mut(number) else {
            return;
        };
        if state.load(Ordering::Acquire) != BID_TAKEN {
            *since = None;
        } else if since.get_or_insert_with(Instant::now).elapsed() > LONGEST {
            *since = None;
            let (now, next) = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = state.compare_exchange(BID_TAKEN, BID_FREE, now, next);
        }
    }

    /// How often each was bidden by now.
    pub fn bidden(&self, arena: &Arena) -> Vec<Bidden> {
        let all = self.all.iter().enumerate().zip(&self.done);
        all.map(|((number, bid), done)| Bidden {
            text: bid.text.clone(),
            times: arena.bid(number).times.load(Ordering::Acquire),
            done: done.load(Ordering::Relaxed),
        })
        .collect()
    }
}

fn is_said(arena: &Arena, number: usize) -> bool {
    arena.bid(number).state.load(Ordering::Acquire) == BID_SAID
}
