//! The rows of a module's plan, found by where their slots lie.
//!
//! Given a plan; gives what lies in a part of its patch area, when somebody looks there. A process
//! that has been started waits for its plans, and of most of their rows nobody ever asks. Must not
//! know what is looked up, and when.

use std::ops::Range;
use std::sync::OnceLock;

use super::place::{
    PLACE_ENTRY, PLACE_EXIT, PLACE_IN_ORDER, PLACE_INDIRECT, PLACE_OPEN, PLACE_TAIL, Place,
};
use sptrace_code::Plan;
use sptrace_wire::plan::*;

/// What is read of a plan.
#[derive(Debug, Default)]
pub struct Rows {
    plan: Option<Plan>,
    /// Hooks: slots, and whose entries they intercept, sorted. Their numbers come after those of
    /// sites.
    hooks: Vec<(u32, u32)>,
    /// Slots and numbers of sites, sorted, where they are in another order.
    by_slot: OnceLock<Box<[(u32, u32)]>>,
}

impl Rows {
    /// Those of a plan.
    pub fn of(plan: Plan) -> Self {
        let hooks = PlanView::new(&plan)
            .into_iter()
            .flat_map(PlanView::specials);
        let hooks = hooks.filter(|s| s.kind == SpecialKind::Root);
        let mut hooks: Vec<_> = hooks.map(|s| (s.slot, s.entry)).collect();
        hooks.sort_unstable();
        Self {
            hooks,
            plan: Some(plan),
            by_slot: OnceLock::new(),
        }
    }

    /// The plan.
    pub fn view(&self) -> Option<PlanView<'_>> {
        PlanView::new(self.plan.as_ref()?)
    }

    /// Tells of the places whose ids may lie in this part of the area, and of some others.
    pub fn tell(&self, part: Range<u32>, mut told: impl FnMut(u32, Place)) {
        let Some(view) = self.view() else {
            return;
        };
        self.each_in(view, part.clone(), |number, site| {
            let Some((entry, exit)) = view.ids(&site) else {
                return;
            };
            for (offset, kind) in [(entry, kind_of(&site)), (exit, PLACE_EXIT)] {
                if offset != 0 {
                    let at = site.slot.wrapping_add(u32::from(offset));
                    told(at, Place::of_site(kind, number));
                }
            }
        });
        let hooks = self.hooks.iter().zip(view.header().sites..);
        let from = self.hooks_until(part.start).saturating_sub(1);
        let hooks = hooks
            .skip(from)
            .take_while(|((slot, _), _)| *slot < part.end);
        for ((slot, _), number) in hooks {
            for (offset, kind) in [(HOOK_ENTRY_ID, PLACE_ENTRY), (HOOK_EXIT_ID, PLACE_EXIT)] {
                let at = slot.wrapping_add(offset as u32);
                told(at, Place::of_site(kind, number));
            }
        }
    }

    /// Where the direct callee of a site or hook begins.
    pub fn callee(&self, number: u32) -> Option<u64> {
        let view = self.view()?;
        match view.site(number) {
            Some(site) => view.callee(&site),
            None => {
                let hook = number.checked_sub(view.header().sites)?;
                let (_, entry) = self.hooks.get(hook as usize)?;
                Some(view.header().base_svma + u64::from(*entry))
            }
        }
    }

    /// The number of the site that `offset` of the area belongs to; a return point belongs to its
    /// call. `None`: to a hook, whose caller nobody knows.
    pub fn site_at(&self, offset: u32) -> Option<u32> {
        let view = self.view()?;
        let (slot, number) = self.last_until(view, offset)?;
        let hook = self.hooks_until(offset).checked_sub(1);
        if hook.is_some_and(|last| self.hooks[last].0 >= slot) {
            return None;
        }
        let twins = twins_of(view);
        Some(match twins.contains(&number) {
            true => number - view.header().twins,
            false => number,
        })
    }

    /// How many hooks have slots that begin at or before `offset`.
    fn hooks_until(&self, offset: u32) -> usize {
        self.hooks.partition_point(|(slot, _)| *slot <= offset)
    }

    /// Tells of the sites whose slots lie in this part of the area. Slots do not meet, so one that
    /// begins before it may be such, in each run the last.
    fn each_in<'a>(
        &'a self,
        view: PlanView<'a>,
        part: Range<u32>,
        mut told: impl FnMut(u32, PlanSite),
    ) {
        if let Some(sorted) = self.sorted(view) {
            let after = sorted.partition_point(|(slot, _)| *slot <= part.start);
            let rest = sorted.get(after.saturating_sub(1)..).unwrap_or(&[]).iter();
            for (_, number) in rest.take_while(|(slot, _)| *slot < part.end) {
                if let Some(site) = view.site(*number) {
                    told(*number, site);
                }
            }
            return;
        }
        for run in [sites_of(view), twins_of(view)] {
            let after = first(view, &run, |slot| slot > part.start);
            let rest = (after.saturating_sub(1).max(run.start)..run.end)
                .map_while(|number| Some((number, view.site(number)?)));
            rest.take_while(|(_, site)| site.slot < part.end)
                .for_each(|(number, site)| told(number, site));
        }
    }

    /// The last slot that begins at or before `offset`, and its site's number.
    fn last_until(&self, view: PlanView<'_>, offset: u32) -> Option<(u32, u32)> {
        if let Some(sorted) = self.sorted(view) {
            let after = sorted.partition_point(|(slot, _)| *slot <= offset);
            return sorted.get(after.checked_sub(1)?).copied();
        }
        let last = |run: Range<u32>| {
            let after = first(view, &run, |slot| slot > offset);
            let number = after.checked_sub(1).filter(|n| run.contains(n))?;
            Some((view.site(number)?.slot, number))
        };
        let (site, twin) = (last(sites_of(view)), last(twins_of(view)));
        match (site, twin) {
            (Some(site), Some(twin)) if twin.0 > site.0 => Some(twin),
            (site, twin) => site.or(twin),
        }
    }

    /// `None`: the rows are in the order of their slots.
    fn sorted(&self, view: PlanView<'_>) -> Option<&[(u32, u32)]> {
        let sort = || {
            let row = |number| {
                let site = view.site(number)?;
                (site.form != SiteForm::Refused).then_some((site.slot, number))
            };
            // Sites that have their twins' slots for good are in order among the twins: with those
            // hardly anything is left to be sorted.
            let first = twins_of(view)
                .find_map(row)
                .map_or(u32::MAX, |(slot, _)| slot);
            let (mut all, mut among_twins) = (Vec::new(), Vec::new());
            let twins = twins_of(view).map(Some).chain(std::iter::repeat(None));
            for (number, twin) in sites_of(view).zip(twins) {
                let own = row(number);
                let is_among = own.is_some_and(|(slot, _)| slot >= first);
                all.extend(own.filter(|_| !is_among));
                among_twins.extend(own.filter(|_| is_among));
                among_twins.extend(twin.and_then(row));
            }
            all.append(&mut among_twins);
            all.sort_unstable();
            all.into()
        };
        (view.header().in_slot_order == 0).then(|| &**self.by_slot.get_or_init(sort))
    }
}

/// Numbers of the sites.
pub(super) fn sites_of(view: PlanView<'_>) -> Range<u32> {
    let h = view.header();
    0..h.sites.saturating_sub(h.twins)
}

/// Numbers of their twins.
fn twins_of(view: PlanView<'_>) -> Range<u32> {
    sites_of(view).end..view.header().sites
}

/// The first row of a run whose slot is such a one; those of all that follow are.
fn first(view: PlanView<'_>, run: &Range<u32>, is_such: impl Fn(u32) -> bool) -> u32 {
    let Range { mut start, mut end } = *run;
    while start < end {
        let middle = start + (end - start) / 2;
        match view.site(middle) {
            Some(site) if !is_such(site.slot) => start = middle + 1,
            _ => end = middle,
        }
    }
    start
}

/// What the entry of a site is.
pub(super) fn kind_of(site: &PlanSite) -> u8 {
    let bits = [
        (SITE_TAIL, PLACE_TAIL),
        (SITE_INDIRECT, PLACE_INDIRECT),
        (SITE_ENTRY_ONLY, PLACE_OPEN),
        (SITE_IN_ORDER, PLACE_IN_ORDER),
    ];
    let set = bits.iter().filter(|(flag, _)| site.is_any(*flag));
    set.fold(PLACE_ENTRY, |kind, (_, bit)| kind | bit)
}
