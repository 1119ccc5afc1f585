//! Hooks added to the plan of a real program: the plan stays one, no two patches cover the same
//! byte, and the sites among the first instructions keep slots that the hooks lead to.

use sptrace_code::{Analysis, analyze};
use sptrace_image::Object;
use sptrace_patch::root_calls::add_root_calls;
use sptrace_patch::roots::{Hook, add_hooks};
use sptrace_patch::{build_plan, build_plan_with_returns};
use sptrace_wire::plan::*;

type Build = fn(&Object<'_>, &Analysis) -> Vec<u8>;

#[test]
fn every_function_of_this_program_is_hooked_or_refused() {
    for build in [build_plan as Build, build_plan_with_returns] {
        all_are_hooked_or_refused(build);
    }
}

fn all_are_hooked_or_refused(build: Build) {
    let bytes = std::fs::read("/proc/self/exe").unwrap();
    let object = Object::parse(&bytes).unwrap();
    let analysis = analyze(&object);
    let plan = build(&object, &analysis);
    let hooks: Vec<Hook> = analysis
        .functions
        .iter()
        .map(|f| Hook {
            entry: f.entry,
            end: f.end,
            kind: SpecialKind::Root,
            rules: HookRules::ALWAYS,
            linked: Vec::new(),
        })
        .collect();
    let made = add_hooks(&object, &plan, &hooks).unwrap();
    let (before, after) = (
        PlanView::new(&plan).unwrap(),
        PlanView::new(&made.plan).unwrap(),
    );
    let specials: Vec<_> = after.specials().collect();
    let roots = specials.iter().filter(|s| s.kind == SpecialKind::Root);
    let roots: Vec<_> = roots.collect();
    assert_eq!(roots.len() + made.impossible.len(), hooks.len());
    assert!(roots.len() > hooks.len() / 2, "{} hooks", roots.len());
    assert!(specials.is_sorted_by_key(|s| s.slot), "special_of searches");
    assert_eq!(before.header().sites, after.header().sites);

    let mut covered: Vec<(u32, u32)> = roots.iter().map(|r| (r.start, r.start + 5)).collect();
    let mut joined = 0;
    for i in 0..after.header().sites {
        let (old, new) = (before.site(i).unwrap(), after.site(i).unwrap());
        if new.form == SiteForm::Refused {
            continue;
        }
        assert!(new.slot > old.slot, "the slots of sites moved");
        assert_eq!(
            (new.start, new.argument, new.span),
            (old.start, old.argument, old.span)
        );
        if new.is_any(SITE_IN_HOOK) {
            joined += 1;
            assert_eq!(
                new.flags | SITE_JUMP_LAST,
                old.flags | SITE_IN_HOOK | SITE_JUMP_LAST
            );
        } else if !new.is_any(SITE_KEEP_OPCODE) {
            covered.push((new.start, new.start + u32::from(new.span)));
        }
    }
    assert!(joined > 0, "no site lies under a hook");
    covered.sort_unstable();
    let overlap = covered.windows(2).find(|w| w[0].1 > w[1].0);
    assert_eq!(overlap, None, "two patches cover the same bytes");
}

#[test]
fn the_calls_of_roots_are_noted_and_nothing_else_is_changed() {
    let bytes = std::fs::read("/proc/self/exe").unwrap();
    let object = Object::parse(&bytes).unwrap();
    let analysis = analyze(&object);
    let plan = build_plan_with_returns(&object, &analysis);
    let before = PlanView::new(&plan).unwrap();
    let direct = |site: &PlanSite| !site.is_any(SITE_TAIL) && before.callee(site).is_some();
    let one = before
        .sites()
        .find(|site| site.form != SiteForm::Refused && direct(site));
    let root = before.callee(&one.unwrap()).unwrap();
    let made = add_root_calls(&plan, &|svma| svma == root, &|_| false, &|_| false).unwrap();
    let after = PlanView::new(&made).unwrap();
    assert!(before.sites().eq(after.sites()));
    let (calls, others): (Vec<_>, Vec<_>) = after
        .specials()
        .partition(|s| s.kind == SpecialKind::RootCall);
    assert_eq!(others, before.specials().collect::<Vec<_>>());
    for call in &calls {
        let site = after.site(call.entry).unwrap();
        assert_eq!((site.start, after.callee(&site)), (call.start, Some(root)));
    }
    let all = before
        .sites()
        .filter(|site| direct(site) && before.callee(site) == Some(root));
    assert_eq!(calls.len(), all.count());
    assert!(add_root_calls(&plan, &|_| false, &|_| false, &|_| false).is_none());
}
