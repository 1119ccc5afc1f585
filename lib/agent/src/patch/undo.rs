//! Puts the text of an attached process back when it is detached from, and says what must wait.
//!
//! Given modules, and where interrupted code will go on; writes the program's own bytes wherever
//! bytes of ours stand and no thread is in the middle of them. Whole pages are copied, changed and
//! put in place ([`Writer`]). Places that could not be put back are counted. Must not know stacks.

use crate::memory::table::{Module, UNTOUCHED};
use crate::memory::{stopped, sys};
use crate::patch::pages::{Copied, PAGE};
use crate::patch::site;
use crate::plans::patched::{Patch, Springboard, Stands, Text};
use crate::plans::{padding, patched, plan};
use sptrace_wire::plan::*;

/// Written at once.
const WINDOW_BYTES: u64 = 64 * PAGE;

/// Text being written: a copy of contiguous pages that all hold something to write.
#[derive(Default)]
pub(crate) struct Writer {
    copied: Option<Copied>,
    pub(crate) failed: bool,
}

impl Writer {
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        let first = at & !(PAGE - 1);
        let end = (at + bytes.len() as u64 + PAGE - 1) & !(PAGE - 1);
        let range = self.copied.as_ref().map_or(0..0, Copied::range);
        if first < range.start || first > range.end || end - range.start > WINDOW_BYTES {
            self.close();
        }
        if self.copied.is_none() {
            self.copied = Copied::begin(first, WINDOW_BYTES);
        }
        match &mut self.copied {
            Some(copied) => {
                copied.take_up_to(end);
                copied.write(at, bytes);
            }
            None => self.failed = true,
        }
    }

    /// Puts the copy in the place of the pages; where nobody else can execute, its bytes alone.
    pub(crate) fn close(&mut self) {
        if let Some(copied) = self.copied.take() {
            let is_done = match sys::alone() {
                true => copied.put_in_place(),
                false => copied.put_over(),
            };
            self.failed |= !is_done;
        }
    }
}

/// Contexts of interrupted code at most; with more of them nothing is certain.
pub(crate) const CONTEXTS: usize = 512;

/// Where interrupted code in the text goes on.
pub(crate) struct Contexts {
    rips: [u64; CONTEXTS],
    count: usize,
}

impl Contexts {
    pub(crate) fn none() -> Self {
        Self {
            rips: [0; CONTEXTS],
            count: 0,
        }
    }

    pub(crate) fn add(&mut self, rip: u64) -> bool {
        if let Some(free) = self.rips.get_mut(self.count) {
            *free = rip;
            self.count += 1;
        }
        self.count < CONTEXTS
    }

    pub(crate) fn any_within(&self, start: u64, end: u64) -> bool {
        let rips = self.rips.get(..self.count).unwrap_or(&[]);
        rips.iter().any(|rip| *rip > start && *rip < end)
    }
}

pub(crate) struct Undo {
    pub(crate) writer: Writer,
    pub(crate) contexts: Contexts,
    pub(crate) foreign: u64,
    pub(crate) busy: u64,
}

impl Undo {
    pub(crate) fn begin() -> Self {
        Self {
            writer: Writer::default(),
            contexts: Contexts::none(),
            foreign: 0,
            busy: 0,
        }
    }

    pub(crate) fn specials(&mut self, m: &Module) {
        for s in plan::specials(m) {
            let Some(p) = Patch::of_special(m, &s) else {
                continue;
            };
            match Springboard::of_special(m, &s) {
                Some(spring) => self.springboard(m, &p, &spring),
                None => {
                    self.put_back(m, p.at, p.ours.bytes(), p.overwritten());
                }
            }
        }
    }

    pub(crate) fn sites(&mut self, m: &Module) {
        for (i, f) in plan::functions(m) {
            if m.function(i) == UNTOUCHED {
                continue;
            }
            let are_lenders_free = self.borrowers(m, f);
            for (s, twin) in plan::sites_with_twins(m, f) {
                let (point, twin) = match twin {
                    Some(twin) if twin.is_return() => (Some(twin), None),
                    twin => (None, twin),
                };
                if let Some(point) = point.filter(|point| !point.borrows())
                    && (are_lenders_free || !point.is_any(SITE_LENDS))
                {
                    self.site(m, &point);
                }
                if let Some(p) = twin.and_then(|twin| Patch::of_site(m, &twin))
                    && m.stands(p.at, p.ours.bytes())
                {
                    self.put_back(m, p.at, p.ours.bytes(), p.overwritten());
                    continue;
                }
                if !s.is_any(SITE_IN_HOOK) {
                    self.site(m, &s);
                }
            }
        }
    }

    /// The return points of a function whose long jumps stand in the patches of others. False: not
    /// all of these jumps are gone, so the others must stay.
    fn borrowers(&mut self, m: &Module, f: PlanFunction) -> bool {
        let points = || plan::twins_of(m, f).map(|(_, twin)| twin);
        let mut are_gone = true;
        for point in points().filter(PlanSite::borrows) {
            let patch = Patch::of_site(m, &point);
            let Some((p, spring)) = patch.zip(Springboard::of_site(m, &point)) else {
                continue;
            };
            if patched::standing(m, p.at, p.ours.bytes(), p.overwritten()) == Stands::Original
                || !m.stands(spring.at, &spring.jump)
            {
                continue;
            }
            let original = site::lender(m, &spring, points()).and_then(|lender| {
                let behind = lender
                    .original
                    .bytes()
                    .get((spring.at - lender.at) as usize..)?;
                Text::of(behind.get(..JUMP_BYTES)?)
            });
            // Somebody may stand at the long jump, which only we know of.
            are_gone &= original.is_some_and(|original| {
                !self.is_busy(spring.at.wrapping_sub(1), spring.at + JUMP_BYTES as u64)
                    && self.put_back(m, p.at, p.ours.bytes(), p.overwritten())
                    && self.put_back(m, spring.at, &spring.jump, original.bytes())
            });
        }
        are_gone
    }

    /// A site, or a return point.
    fn site(&mut self, m: &Module, s: &PlanSite) {
        let Some(p) = Patch::of_site(m, s) else {
            return;
        };
        match Springboard::of_site(m, s) {
            Some(spring) => self.springboard(m, &p, &spring),
            None => {
                self.put_back(m, p.at, p.ours.bytes(), p.overwritten());
            }
        }
    }

    pub(crate) fn springboard(&mut self, m: &Module, p: &Patch, spring: &Springboard) {
        match patched::standing(m, p.at, p.ours.bytes(), p.overwritten()) {
            Stands::Ours => {}
            // Its short jump went when the recording ended: see [`crate::patch::unpatch`].
            Stands::Original if spring.room.is_none() => {}
            _ => return,
        }
        // Somebody may stand at the long jump, which only we know of.
        if self.is_busy(spring.at.wrapping_sub(1), spring.at + 5) {
            return;
        }
        self.put_back(m, p.at, p.ours.bytes(), p.overwritten());
        let Some(room) = spring.room else {
            if let Some(padding) = padding::padding(spring.at) {
                self.put_back(m, spring.at, &spring.jump, &padding);
            }
            return;
        };
        let end = room.start + room.original.len() as u64;
        if self.is_busy(room.start, end)
            || patched::standing(m, spring.at, &spring.jump, &[]) != Stands::Ours
        {
            return;
        }
        if patched::standing(m, room.start, &room.jump, room.original) == Stands::Ours {
            self.writer.write(room.start, room.original);
        } else {
            self.foreign += 1;
        }
    }

    /// True: the original bytes stand there from here on.
    pub(crate) fn put_back(&mut self, m: &Module, at: u64, ours: &[u8], original: &[u8]) -> bool {
        match patched::standing(m, at, ours, original) {
            Stands::Ours if !self.is_busy(at, at + original.len() as u64) => {
                self.writer.write(at, original);
                true
            }
            Stands::Original => true,
            Stands::Ours => false,
            Stands::Foreign => {
                self.foreign += 1;
                false
            }
        }
    }

    pub(crate) fn is_busy(&mut self, start: u64, end: u64) -> bool {
        let busy = stopped::is_in_flight(start, end) || self.contexts.any_within(start, end);
        self.busy += u64::from(busy);
        busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_context_between_the_first_and_the_last_byte_is_in_the_way() {
        let mut contexts = Contexts::none();
        assert!(contexts.add(0x1004));
        assert!(contexts.any_within(0x1000, 0x1005));
        // It begins there, or stands behind it.
        assert!(!contexts.any_within(0x1004, 0x1009));
        assert!(!contexts.any_within(0x1000, 0x1004));
        // Places that are not filled are no contexts.
        assert!(!contexts.any_within(u64::MAX, 1) && contexts.any_within(0, u64::MAX));
    }

    #[test]
    fn with_too_many_contexts_nothing_is_certain() {
        let mut contexts = Contexts::none();
        assert!((1..CONTEXTS).all(|k| contexts.add(k as u64)));
        assert!(!contexts.add(9) && !contexts.add(9));
        assert_eq!(contexts.count, CONTEXTS);
    }
}
