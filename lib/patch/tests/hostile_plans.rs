//! A plan whose bytes were changed or cut gives no panic and no endless loop, whatever is asked of
//! it: the reader refuses it or answers within its bytes.

use sptrace_image::Object;
use sptrace_patch::build_plan;
use sptrace_wire::plan::{PlanHeader, PlanView};

struct XorShift(u64);

impl XorShift {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// The plan of a real program.
fn plan() -> Vec<u8> {
    let file = std::fs::read("/bin/ls").unwrap();
    let object = Object::parse(&file).unwrap();
    build_plan(&object, &sptrace_code::analyze(&object))
}

/// Asks everything.
fn ask(bytes: &[u8]) -> Option<usize> {
    let view = PlanView::new(bytes)?;
    let header = view.header();
    let mut answered = 0;
    for i in (0..header.sites.min(3000)).chain([header.sites, u32::MAX]) {
        if let Some(site) = view.site(i) {
            answered += usize::from(view.ids(&site).is_some());
            answered += usize::from(view.callee(&site).is_some());
            answered += usize::from(view.got_slot(&site).is_some());
            answered += usize::from(view.springboard(&site).is_some());
        }
    }
    for f in view.functions().take(3000) {
        answered += view.sites_of(&f).take(3000).count() + view.links_of(&f).count();
    }
    answered += view.specials().take(3000).count();
    for offset in [0, 0x4000, u32::MAX] {
        answered += usize::from(view.function_at(offset).is_some());
    }
    Some(answered)
}

#[test]
fn an_unchanged_plan_answers() {
    assert!(ask(&plan()).unwrap() > 100);
}

#[test]
fn a_plan_cut_anywhere_is_refused() {
    let plan = plan();
    let mut random = XorShift(0x5eed);
    for length in (0..200).chain((0..200).map(|_| random.below(plan.len() as u64) as usize)) {
        assert_eq!(ask(&plan[..length]), None, "{length} bytes");
    }
}

#[test]
fn a_changed_header_is_refused_or_answers_within_the_plan() {
    let plan = plan();
    for at in 0..PlanHeader::BYTES {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = plan.clone();
            changed[at] = value;
            ask(&changed);
        }
        for value in [0u32, u32::MAX, u32::MAX - 15, 1 << 31] {
            let mut changed = plan.clone();
            changed[at & !3..(at & !3) + 4].copy_from_slice(&value.to_le_bytes());
            ask(&changed);
        }
    }
}

#[test]
fn changed_bytes_anywhere_are_survived() {
    let plan = plan();
    let mut random = XorShift(0xfee1);
    for _ in 0..600 {
        let mut changed = plan.clone();
        for _ in 0..1 + random.below(64) {
            let at = random.below(plan.len() as u64) as usize;
            changed[at] = random.below(256) as u8;
        }
        ask(&changed);
    }
}
