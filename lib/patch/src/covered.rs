//! Which bytes of a module's text are changed already.
//!
//! Is given a plan, and what is to be changed beside it; says whether a range is still free. Knows
//! nothing of why a byte is changed.

use std::collections::BTreeSet;

use sptrace_wire::plan::{PlanView, SiteForm};

/// Ranges may hold one another, but none is longer.
const LONGEST: u32 = 64;

/// Ranges of text, as offsets in the module.
#[derive(Debug, Default)]
pub(crate) struct Covered {
    /// Sorted.
    ranges: Vec<(u32, u32)>,
    /// Those that came one by one.
    single: BTreeSet<(u32, u32)>,
}

impl Covered {
    /// What the sites and the special functions of a plan change.
    pub fn by(plan: PlanView<'_>) -> Self {
        let sites = plan.sites().filter(|s| s.form != SiteForm::Refused);
        let of_sites = sites.flat_map(|s| {
            let own = Some((s.start, s.start + u32::from(s.span)));
            let moved_away = plan.template_of(&s).and_then(|t| {
                let (start, _) = plan.springboard(&s)?;
                Some((start, start + u32::from(t.room?.0.bytes)))
            });
            [own, plan.springboard(&s), moved_away]
        });
        let specials = plan.specials();
        let mut covered = Self::default();
        covered.add(of_sites.flatten());
        covered.add(specials.map(|s| (s.start, s.start + u32::from(s.span))));
        covered
    }

    /// Adds ranges, each from its start to its end.
    pub fn add(&mut self, ranges: impl Iterator<Item = (u32, u32)>) {
        self.ranges.extend(ranges);
        self.ranges.sort_unstable();
    }

    /// Adds one range.
    pub fn insert(&mut self, range: (u32, u32)) {
        self.single.insert(range);
    }

    /// Takes out a range that was inserted.
    pub fn remove(&mut self, range: (u32, u32)) {
        self.single.remove(&range);
    }

    /// True if no byte of the range is covered.
    pub fn is_free(&self, start: u32, end: u32) -> bool {
        let first = self.ranges.partition_point(|c| c.0 + LONGEST <= start);
        let near = self.ranges[first..].iter().take_while(|c| c.0 < end);
        let single = self
            .single
            .range((start.saturating_sub(LONGEST), 0)..(end, 0));
        !near.chain(single).any(|c| c.1 > start)
    }
}
