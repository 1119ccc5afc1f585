//! What recordings have learned of a module's calls: which functions were called, and whose calls
//! are short (`--stamps auto`).
//!
//! Given the bytes that the last recording has kept; gives the functions that are instrumented as
//! soon as the module is known, and has the sites that lead to short calls begin in order. All of
//! it is a guess about the next run: what else is called is instrumented then, and whose calls turn
//! out to be long gets stamps again. Must not know how that is found out, and where it is kept.
//!
//! ```text
//! all little-endian, 4 bytes: magic, number of short functions, of sites, and of functions met;
//! then short functions, as offsets of their entries, ascending; numbers of sites, ascending; and
//! functions met, as the short ones
//! ```

use std::collections::BTreeSet;

use sptrace_wire::plan::{MET_BEFORE, PlanSite, PlanView, TWIN_BEGINS};

const MAGIC: u32 = u32::from_le_bytes(*b"spl2");
const HEAD_WORDS: usize = 4;

/// Of one module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// Functions whose calls are short: offsets of their entries.
    pub functions: BTreeSet<u32>,
    /// Sites that lead to such: their numbers in the plan.
    pub sites: BTreeSet<u32>,
    /// Functions that were called, or instrumented with such: offsets of their entries.
    pub met: BTreeSet<u32>,
}

impl Learned {
    /// As it was kept; `None`: the bytes are no such.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<4>();
        let mut words = words.iter().map(|word| u32::from_le_bytes(*word));
        let [magic, functions, sites, met] = [(); HEAD_WORDS].map(|()| words.next());
        let (functions, sites, met) = (functions? as usize, sites? as usize, met? as usize);
        let listed = functions.checked_add(sites)?.checked_add(met)?;
        let length = HEAD_WORDS.checked_add(listed)?;
        if magic? != MAGIC || !rest.is_empty() || bytes.len() / 4 != length {
            return None;
        }
        Some(Self {
            functions: words.by_ref().take(functions).collect(),
            sites: words.by_ref().take(sites).collect(),
            met: words.collect(),
        })
    }

    /// To be kept.
    pub fn to_bytes(&self) -> Vec<u8> {
        let lists = [&self.functions, &self.sites, &self.met];
        let lengths = lists.map(|list| list.len() as u32);
        let head = [MAGIC].into_iter().chain(lengths);
        let all = head.chain(lists.into_iter().flatten().copied());
        all.flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Some calls are known to be short.
    pub fn has_short(&self) -> bool {
        !self.functions.is_empty() || !self.sites.is_empty()
    }

    /// A byte for each function of a plan, [`MET_BEFORE`] of those that were met.
    pub fn met_in(&self, plan: &[u8]) -> Vec<u8> {
        let functions = PlanView::new(plan)
            .into_iter()
            .flat_map(PlanView::functions);
        let met = functions.map(|f| match self.met.contains(&f.entry) {
            true => MET_BEFORE,
            false => 0,
        });
        met.collect()
    }

    /// Has these sites of a plan begin in order, where they can be.
    pub fn mark(&self, plan: &mut [u8]) {
        let Some(view) = PlanView::new(plan) else {
            return;
        };
        let h = *view.header();
        for site in self.sites.range(..h.twins) {
            let at = (site + h.twins) as usize * PlanSite::BYTES + PlanSite::VERDICT_OFFSET;
            if let Some(verdict) = plan.get_mut(h.sites_offset as usize + at) {
                *verdict |= TWIN_BEGINS;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sptrace_image::Object;

    #[test]
    fn what_is_kept_is_what_was_learned() {
        let learned = Learned {
            functions: [0x1000, 0x2040].into(),
            sites: [3, 5, 70_000].into(),
            met: [0, 0x1000, 0x3000].into(),
        };
        let bytes = learned.to_bytes();
        assert_eq!(Learned::read(&bytes), Some(learned));
        for length in 0..bytes.len() {
            assert_eq!(Learned::read(&bytes[..length]), None, "{length}");
        }
        let longer = [&bytes[..], &[0; 4]].concat();
        assert_eq!(Learned::read(&longer), None);
        let mut huge = bytes;
        huge[4..16].fill(0xff);
        assert_eq!(Learned::read(&huge), None);
    }

    #[test]
    fn marked_sites_begin_by_their_twins_and_no_others() {
        let file = std::fs::read("/bin/ls").unwrap();
        let object = Object::parse(&file).unwrap();
        let analysis = sptrace_code::analyze(&object);
        let mut plan = sptrace_patch::build_plan_mixed(&object, &analysis);
        let begins = |plan: &[u8]| -> Vec<u32> {
            let view = PlanView::new(plan).unwrap();
            let all = 0..view.header().twins;
            let begins = |i: &u32| view.twin(*i).is_some_and(|twin| twin.begins());
            all.filter(begins).collect()
        };
        assert_eq!(begins(&plan), []);
        let view = PlanView::new(&plan).unwrap();
        let with_twin: Vec<u32> = (0..view.header().twins)
            .filter(|i| view.twin(*i).is_some())
            .step_by(3)
            .collect();
        let learned = Learned {
            sites: with_twin.iter().copied().chain([u32::MAX]).collect(),
            ..Learned::default()
        };
        learned.mark(&mut plan);
        assert!(with_twin.len() > 100);
        assert_eq!(begins(&plan), with_twin);
    }
}
