//! The call sites of some functions are patched in their other way: counted, or recorded again.
//!
//! Given functions by their addresses; has the text of all call sites that certainly lead to them,
//! in functions that are instrumented, lead to the site's other slot. Given a site through a
//! pointer by its id; does the same with that. Other threads may be anywhere meanwhile: both ways
//! differ in one instruction, and a frame that was recorded when it began returns to its own slot.
//! Under the propagation lock. Must not know why, and who asks.

use crate::memory::sys;
use crate::memory::table::{INSTRUMENTED, Module};
use crate::patch::{site, text};
use crate::plans::patched::Patch;
use crate::plans::plan;
use sptrace_wire::levels::RECORDED;
use sptrace_wire::plan::*;

/// So many functions are looked for at once.
pub const WISHES: usize = 64;

/// Functions or sites, and the level that each is to have.
pub struct Wishes {
    wishes: [(u64, u32); WISHES],
    count: usize,
}

impl Wishes {
    /// None.
    pub const fn none() -> Self {
        Self {
            wishes: [(0, 0); WISHES],
            count: 0,
        }
    }

    /// One more, which counts more than those before; false: there is no room.
    pub fn add(&mut self, avma: u64, level: u32) -> bool {
        let taken = self.wishes.get_mut(..self.count).unwrap_or(&mut []);
        if let Some(known) = taken.iter_mut().find(|wish| wish.0 == avma) {
            known.1 = level;
            return true;
        }
        let place = self.wishes.get_mut(self.count);
        place.is_some_and(|place| {
            *place = (avma, level);
            self.count += 1;
            true
        })
    }

    fn level_of(&self, avma: u64) -> Option<u32> {
        let all = self.wishes.get(..self.count).unwrap_or(&[]);
        let found = all.iter().find(|wish| wish.0 == avma);
        found.map(|wish| wish.1)
    }
}

/// Carries them out in the text of a module.
pub fn carry_out(m: &Module, wishes: &Wishes) {
    let Some(plan) = m.plan().filter(|_| m.is_planned() && !m.doubtful.get()) else {
        return;
    };
    let mut batch = text::Batch::of(m);
    for (i, f) in plan::functions(m) {
        if m.function(i) != INSTRUMENTED {
            continue;
        }
        for (recorded, counted) in plan.twins_of(&f) {
            let level = match callee(m, &plan, &recorded) {
                Some(callee) => wishes.level_of(callee),
                // It is named as its last calls were: recorded, or counted.
                None => [&recorded, &counted]
                    .into_iter()
                    .find_map(|s| wishes.level_of(id(m, &plan, s)?)),
            };
            if let Some(level) = level {
                lead(m, (&recorded, &counted), level, &mut batch);
            }
        }
    }
    batch.flush();
}

/// Where the calls of a site certainly lead: the callee that it names, or that the linker has put
/// into its slot of the global offset table.
fn callee(m: &Module, plan: &PlanView<'_>, s: &PlanSite) -> Option<u64> {
    let in_process = |svma: u64| svma.wrapping_sub(plan.header().base_svma) + m.base.get();
    match plan.callee(s) {
        Some(callee) => Some(in_process(callee)),
        None => sys::read_word(in_process(plan.got_slot(s)?)),
    }
}

/// By which the calls of a site are recorded, or counted.
fn id(m: &Module, plan: &PlanView<'_>, s: &PlanSite) -> Option<u64> {
    let (entry, _) = plan.ids(s)?;
    Some(m.area_start() + u64::from(s.slot) + u64::from(entry))
}

/// Back to being recorded only where both have the same bytes before their last instruction: a
/// thread may stand between them.
fn lead(
    m: &Module,
    (recorded, counted): (&PlanSite, &PlanSite),
    level: u32,
    batch: &mut text::Batch,
) {
    let patches = (Patch::of_site(m, recorded), Patch::of_site(m, counted));
    let (Some(records), Some(counts)) = patches else {
        return;
    };
    let stands = |p: &Patch| m.stands(p.at, p.ours.bytes());
    if level != RECORDED {
        if stands(&records) && site::write_slot(m, counted) {
            batch.add(&counts);
        }
    } else if counts.ours.bytes().len() == records.ours.bytes().len() && stands(&counts) {
        batch.add(&records);
    }
}
