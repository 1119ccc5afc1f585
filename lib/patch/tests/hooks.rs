//! Hooks added to the plan of a real program: the plan stays one, no two patches cover the same
//! byte, and the sites among the first instructions keep slots that the hooks lead to.

use sptrace_code::analyze;
use sptrace_image::Object;
use sptrace_patch::build_plan;
use sptrace_patch::roots::{Hook, add_hooks};
use sptrace_wire::plan::*;

#[test]
fn every_function_of_this_program_is_hooked_or_refused() {
    let bytes = std::fs::read("/proc/self/exe").unwrap();
    let object = Object::parse(&bytes).unwrap();
    let analysis = analyze(&object);
    let plan = build_plan(&object, &analysis);
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
        } else if !new.is_any(SITE_KEEP_OPCODE) {
            covered.push((new.start, new.start + u32::from(new.span)));
        }
    }
    assert!(joined > 0, "no site lies under a hook");
    covered.sort_unstable();
    let overlap = covered.windows(2).find(|w| w[0].1 > w[1].0);
    assert_eq!(overlap, None, "two patches cover the same bytes");
}
