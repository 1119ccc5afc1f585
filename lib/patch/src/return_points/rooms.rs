//! Room for the long jump of a return point, where there is none nearby: instructions are moved
//! away, and it stands behind the jump that leads to them.
//!
//! Given runs of instructions in one block ([`Analysis::plain_runs`]), which may be another
//! function's: code that is aligned to nothing has its functions one behind the other. Who patches
//! such a return point must know that nobody stands in what is moved. A function's first
//! instructions stay, since a hook may be wanted there.
//!
//! [`Analysis::plain_runs`]: sptrace_code::Analysis::plain_runs

use iced_x86::{Decoder, DecoderOptions};
use sptrace_addr::Svma;

use super::{Finder, Patch, Place, SHORT_JUMP_BYTES, end_of};
use crate::movable::movable;
use crate::tactic::JUMP_BYTES;

/// Room for two jumps: to what is moved away, and to the slot.
const ROOM_BYTES: u64 = 2 * JUMP_BYTES;
/// A two-byte jump reaches this far from its end.
const REACH_BYTES: u64 = 127;

impl Finder<'_> {
    /// What is put behind a call, and where room is made for it.
    pub(super) fn with_made_room(&mut self, place: &Place<'_>) -> Option<Patch> {
        let start = end_of(&place.site);
        let run = self.run(place, SHORT_JUMP_BYTES);
        if run.stopped.is_some() || !self.has_short_room(start, &run) {
            return None;
        }
        let runs = &self.analysis.plain_runs;
        let first = runs.partition_point(|r| r.1.0 + 2 * REACH_BYTES < start);
        let near = runs.get(first..)?.iter();
        let near = near.take_while(|r| r.0.0 < start + 2 * REACH_BYTES);
        let mut rooms: Vec<(u64, u64)> = near.filter_map(|r| self.room_in(*r, start)).collect();
        // Nobody else has to be asked about the function itself.
        let own = place.function.entry.0..place.function.end.0;
        rooms.sort_by_key(|room| !own.contains(&room.0));
        rooms.into_iter().find_map(|room| {
            let moved = (Svma(room.0), Svma(room.1));
            let patch = self.patch_and(&place.site, &run, SHORT_JUMP_BYTES, |t| {
                t.make_room(self.object, moved, Svma(start))
            })?;
            self.covered
                .insert((self.offset(room.0), self.offset(room.1)));
            self.cover(&place.site, &patch);
            // Of what is moved away.
            Some(Patch {
                of_several: true,
                ..patch
            })
        })
    }

    /// The last whole instructions of a run that can be moved and are in reach of a short jump at
    /// `start`.
    fn room_in(&self, run: (Svma, Svma), start: u64) -> Option<(u64, u64)> {
        let code = self.object.code_from(run.0)?;
        let code = code.get(..(run.1.0 - run.0.0) as usize)?;
        let from = run.0.0.max(self.first_behind_hook(run.0));
        let mut decoder = Decoder::with_ip(64, code, run.0.0, DecoderOptions::NONE);
        let (mut starts, mut last) = (Vec::new(), run.0.0);
        while decoder.can_decode() {
            let i = decoder.decode();
            if i.ip() >= from {
                starts.push(i.ip());
            }
            last = i.next_ip();
            if !movable(&i) {
                starts.clear();
            }
        }
        starts.push(last);
        let is_near = |at: u64| (at + JUMP_BYTES).abs_diff(start + SHORT_JUMP_BYTES) <= REACH_BYTES;
        let room = |at: &u64| {
            let end = *starts.iter().find(|end| **end >= at + ROOM_BYTES)?;
            let inside = self.stated.partition_point(|svma| svma <= at);
            let is_led_to = self.stated.get(inside).is_some_and(|svma| *svma < end);
            let is_apart = *at >= start + SHORT_JUMP_BYTES || end <= start;
            let is_room = is_near(*at) && is_apart && !is_led_to && self.is_free(*at, end);
            is_room.then_some((*at, end))
        };
        starts.iter().rev().find_map(room)
    }

    /// Behind what a hook at the entry of the function around `svma` would cover.
    fn first_behind_hook(&self, svma: Svma) -> u64 {
        const ENDBR_BYTES: u64 = 4;
        const LONGEST_BYTES: u64 = 15;
        let Some(number) = self.analysis.function_at(svma) else {
            return u64::MAX;
        };
        let entry = self.analysis.functions[number].entry.0;
        let wanted = entry + ENDBR_BYTES + JUMP_BYTES;
        let mut decoder = self.decoder(entry, wanted + LONGEST_BYTES);
        let mut end = entry;
        while end < wanted && decoder.can_decode() {
            end = decoder.decode().next_ip();
        }
        end
    }
}
