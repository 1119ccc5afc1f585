//! Which bytes of a module's text are changed already.
//!
//! Is given a plan, and what is to be changed beside it; says whether a range is still free. Knows
//! nothing of why a byte is changed.

use rustc_hash::FxHashMap;
use sptrace_wire::plan::{PlanView, SiteForm};

/// Ranges may hold one another, but none is longer.
const LONGEST: u32 = 64;

/// Ranges of text, as offsets in the module.
#[derive(Debug, Default)]
pub(crate) struct Covered {
    /// Sorted.
    ranges: Vec<(u32, u32)>,
    /// A bit for each byte of those that came one by one, by the number of 64 bytes.
    single: FxHashMap<u32, u64>,
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

    /// Adds one range, in which none was.
    pub fn insert(&mut self, range: (u32, u32)) {
        for (word, bits) in words(range) {
            *self.single.entry(word).or_default() |= bits;
        }
    }

    /// Takes out a range that was inserted.
    pub fn remove(&mut self, range: (u32, u32)) {
        for (word, bits) in words(range) {
            *self.single.entry(word).or_default() &= !bits;
        }
    }

    /// True if no byte of the range is covered.
    pub fn is_free(&self, start: u32, end: u32) -> bool {
        let first = self.ranges.partition_point(|c| c.0 + LONGEST <= start);
        let mut near = self.ranges[first..].iter().take_while(|c| c.0 < end);
        let is_in =
            |(word, bits): (u32, u64)| self.single.get(&word).is_some_and(|w| w & bits != 0);
        !near.any(|c| c.1 > start) && !words((start, end)).any(is_in)
    }
}

/// The bytes of a range, by words of 64.
fn words((start, end): (u32, u32)) -> impl Iterator<Item = (u32, u64)> {
    (start / 64..end.div_ceil(64)).map(move |word| {
        let from = start.max(word * 64) % 64;
        let bytes = end.min(word.saturating_mul(64).saturating_add(64)) - start.max(word * 64);
        (word, u64::MAX >> (64 - bytes) << from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_covered_from_the_first_to_the_last() {
        let mut covered = Covered::default();
        covered.add([(10, 14)].into_iter());
        covered.insert((60, 70));
        covered.insert((128, 192));
        for (start, end, is_free) in [
            (0, 10, true),
            (0, 11, false),
            (13, 14, false),
            (14, 60, true),
            (59, 61, false),
            (69, 71, false),
            (70, 128, true),
            (191, 200, false),
            (192, 300, true),
            (0, 1000, false),
        ] {
            assert_eq!(covered.is_free(start, end), is_free, "{start} to {end}");
        }
        covered.remove((60, 70));
        assert!(covered.is_free(14, 128));
    }
}
