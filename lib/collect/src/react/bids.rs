//! What payloads of a script bid is done ([`crate::bids`]).
//!
//! Given what was bidden since the last look; what begins, ends or dumps the recording is an event
//! like any other, and what changes levels is done by the collector. Must not know what a script
//! has asked before it has bidden.

use std::sync::atomic::Ordering;

use super::{follow_up, what_follows};
use crate::bids::Deed;
use crate::collector::Collector;
use crate::event::{Occurrence, Reaction, What};
use crate::output::Output;
use crate::shared::Shared;

/// Does what was bidden.
pub(super) fn heard(shared: &Shared, c: &mut Collector<Output>) {
    let all = shared.bids.take(&shared.arena);
    let first = |deed: Deed, after_tsc: u64| {
        let numbers = shared.bids.all_of(&deed);
        let its = all.iter().filter(|said| numbers.contains(&said.number));
        its.map(|said| said.tsc)
            .filter(|tsc| *tsc > after_tsc)
            .min()
    };
    // Before what threads have left is read, as that of one that has ended is where it begins.
    if let Some(start) = first(Deed::Start, 0) {
        c.heed_said(start, first(Deed::Stop, start));
    }
    for said in all {
        match shared.bids.deed(said.number) {
            Some(Deed::Level(glob, level)) => {
                let is_new = c.bid_level(&shared.arena, glob, *level);
                if is_new {
                    shared.bids.is_done(said.number);
                }
            }
            Some(_) => {
                let pid = c.pid_of(&shared.arena, said.process);
                for event in shared.reactor.armed.all(&What::Bid(said.number)) {
                    let occurrence = Occurrence {
                        event,
                        tsc: said.tsc,
                        pid,
                        detail: String::new(),
                    };
                    if has_followed(shared, c, &occurrence) {
                        shared.bids.is_done(said.number);
                    }
                }
            }
            None => {}
        }
    }
}

fn has_followed(shared: &Shared, c: &mut Collector<Output>, occurrence: &Occurrence) -> bool {
    let Ok(reaction) = what_follows(shared, c, occurrence) else {
        return false;
    };
    let made = || shared.reactor.made.load(Ordering::Acquire);
    let before = made();
    follow_up(shared, c, occurrence, reaction);
    reaction != Reaction::Dump || made() > before
}
