//! What each place in a patch area means.
//!
//! Given the rows of a plan; tells for the id of a record which event it is, and of which function,
//! once that is known. Must not know whose area it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::place::{PLACE_INDIRECT, Place};
use super::rows::Rows;
use sptrace_trace::FunctionId;

/// The places of a patch area, by 8 bytes of it, as far as somebody has looked. Shared by all
/// processes that have one.
#[derive(Clone, Debug, Default)]
pub struct Places {
    table: Arc<Box<[AtomicU32]>>,
    rows: Arc<Rows>,
}

/// So many bytes of an area are read at a time.
const PART_BYTES: u32 = 1024;

/// So many zeroes. They are memory once they are touched, which of a large program few are.
fn zeroes(count: usize) -> Box<[AtomicU32]> {
    let words = vec![0; count].into_boxed_slice();
    let words: *mut [u32] = Box::into_raw(words);
    // SAFETY: a box was made into it just now, and an AtomicU32 is in memory what a u32 is.
    unsafe { Box::from_raw(words as *mut [AtomicU32]) }
}

impl Places {
    /// Those of an area of so many bytes.
    pub(super) fn new(area_bytes: u32, rows: Rows) -> Self {
        Self {
            table: Arc::new(zeroes(area_bytes as usize / 8)),
            rows: Arc::new(rows),
        }
    }

    /// What lies at `offset` of the patch area.
    #[inline]
    pub fn at(&self, offset: u32) -> Option<Place> {
        match self
            .table
            .get((offset >> 3) as usize)?
            .load(Ordering::Relaxed)
        {
            0 => self.read(offset),
            place => Some(Place(place)),
        }
    }

    #[cold]
    fn read(&self, offset: u32) -> Option<Place> {
        let start = offset & !(PART_BYTES - 1);
        self.rows
            .tell(start..start.saturating_add(PART_BYTES), |at, place| {
                if let Some(p) = self.table.get((at >> 3) as usize) {
                    // What is there may be more than the plan says: a function has its number.
                    let _ = p.compare_exchange(0, place.0, Ordering::Relaxed, Ordering::Relaxed);
                }
            });
        let place = self
            .table
            .get((offset >> 3) as usize)?
            .load(Ordering::Relaxed);
        (place != 0).then_some(Place(place))
    }

    /// What lies there, if somebody has looked.
    fn known(&self, offset: u32) -> Option<Place> {
        let place = self.table.get((offset >> 3) as usize)?;
        let place = Place(place.load(Ordering::Relaxed));
        (place != Place::default()).then_some(place)
    }

    /// The number of the site with this id, if its calls go through a pointer and can be recorded
    /// in two ways; and whether it is the id of calls in order.
    pub(crate) fn through_pointer(&self, offset: u32) -> Option<(u32, bool)> {
        let place = self.known(offset)?;
        let is_one = place.kind() & PLACE_INDIRECT != 0 && place.callee().is_none();
        let number = is_one.then_some(place.number())?;
        let twins = self.rows.view()?.header().twins;
        match number.checked_sub(twins) {
            Some(site) => Some((site, true)),
            None => (!place.is_in_order()).then_some((number, false)),
        }
    }

    /// The rows that they are read from.
    pub(super) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// A table with just these: offset, bits `PLACE_*`, and the callee, if it is known.
    pub fn of(places: &[(u32, u8, Option<FunctionId>)]) -> Self {
        let table = Self::new(4096, Rows::default());
        for (offset, kind, callee) in places {
            let place = Place::of_site(*kind, 0);
            table.set(*offset, callee.map_or(place, |callee| place.named(callee)));
        }
        table
    }

    pub(super) fn set(&self, offset: u32, place: Place) {
        if let Some(p) = self.table.get((offset >> 3) as usize) {
            p.store(place.0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::callers::{Caller, Callers};
    use crate::decode::place::{PLACE_ENTRY, PLACE_EXIT};
    use crate::decode::rows::{kind_of, sites_of};
    use sptrace_image::Object;
    use sptrace_patch::roots::{Hook, add_hooks};
    use sptrace_wire::plan::*;
    use std::collections::HashMap;

    /// All places, and who calls from them, of a plan that is read from its beginning to its end.
    fn all(view: PlanView<'_>) -> HashMap<u32, (Place, Option<Caller>)> {
        let base = view.header().base_svma;
        let mut all = HashMap::new();
        let functions: Vec<_> = view.functions().collect();
        for (number, site) in (0..).zip(view.sites()) {
            let Some((entry, exit)) = view.ids(&site) else {
                continue;
            };
            let call = match number < sites_of(view).end {
                true => number,
                false => number - view.header().twins,
            };
            let of = functions
                .iter()
                .find(|f| (f.first_site..f.first_site + f.site_count).contains(&call));
            let caller = of.map(|f| Caller {
                svma: base + u64::from(f.entry),
                keeps_returns: f.is_any(FN_RUNTIME),
            });
            for (offset, kind) in [(entry, kind_of(&site)), (exit, PLACE_EXIT)] {
                if offset != 0 {
                    let place = Place::of_site(kind, number);
                    let before = all.insert(site.slot + u32::from(offset), (place, caller));
                    assert_eq!(before, None, "site {number}");
                }
            }
        }
        all
    }

    #[test]
    fn hooks_are_found_and_nobody_calls_from_them() {
        let file = std::fs::read("/bin/ls").unwrap();
        let object = Object::parse(&file).unwrap();
        let analysis = sptrace_code::analyze(&object);
        let plan = sptrace_patch::build_plan(&object, &analysis);
        let hooks = analysis.functions.iter().map(|f| Hook {
            entry: f.entry,
            end: f.end,
            kind: SpecialKind::Root,
            rules: HookRules::ALWAYS,
            linked: Vec::new(),
        });
        let plan = add_hooks(&object, &plan, &hooks.collect::<Vec<_>>())
            .unwrap()
            .plan;
        let view = PlanView::new(&plan).unwrap();
        let base = view.header().base_svma;
        let places = Places::new(view.header().area_bytes, Rows::of(plan.clone().into()));
        let roots = view.specials().filter(|s| s.kind == SpecialKind::Root);
        let mut found = 0;
        for root in roots {
            for (id, kind) in [(HOOK_ENTRY_ID, PLACE_ENTRY), (HOOK_EXIT_ID, PLACE_EXIT)] {
                let offset = root.slot + id as u32;
                let place = places.at(offset).unwrap();
                assert_eq!(place.kind(), kind);
                let callee = places.rows().callee(place.number());
                assert_eq!(callee, Some(base + u64::from(root.entry)));
                assert_eq!(places.rows().site_at(offset), None);
                found += 1;
            }
        }
        assert!(found > 100, "{found}");
        look_up(plan);
    }

    /// Looks everything up that is there, from the end on, and what is not there.
    fn look_up(plan: Vec<u8>) {
        let view = PlanView::new(&plan).unwrap();
        let (expected, area_bytes) = (all(view), view.header().area_bytes);
        assert!(expected.len() > 100);
        let places = Places::new(area_bytes, Rows::of(plan.clone().into()));
        let callers = Callers::of(view);
        for offset in (0..area_bytes).rev() {
            let place = places.at(offset);
            let Some((wanted, caller)) = expected.get(&offset) else {
                continue;
            };
            assert_eq!(place, Some(*wanted), "at {offset:#x}");
            let site = places.rows().site_at(offset);
            assert_eq!(site.and_then(|site| callers.at(site)), *caller);
        }
        assert_eq!(places.at(area_bytes - 8), None);
    }

    #[test]
    fn what_is_looked_up_is_what_the_whole_plan_says() {
        let file = std::fs::read("/bin/ls").unwrap();
        let object = Object::parse(&file).unwrap();
        let analysis = sptrace_code::analyze(&object);
        let is_in_order = |plan: &[u8]| PlanView::new(plan).unwrap().header().in_slot_order != 0;
        for build in [
            sptrace_patch::build_plan,
            sptrace_patch::build_plan_with_returns,
            sptrace_patch::build_plan_with_levels,
        ] {
            let plan = build(&object, &analysis);
            assert!(is_in_order(&plan));
            look_up(plan);
        }
        let mixed = sptrace_patch::build_plan_mixed(&object, &analysis);
        assert!(!is_in_order(&mixed));
        look_up(mixed);
    }

    #[test]
    fn without_a_plan_nothing_is_found() {
        let rows = Rows::default();
        assert_eq!((rows.site_at(64), rows.callee(0)), (None, None));
        assert_eq!(Places::new(4096, rows).at(64), None);
    }
}
