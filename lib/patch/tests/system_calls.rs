//! Interceptions of the instructions that call the kernel, in libraries as they are installed.

use sptrace_code::{Analysis, analyze};
use sptrace_image::Object;
use sptrace_patch::Refusal;
use sptrace_patch::build_plan::{build_plan, build_plan_without_calls};
use sptrace_patch::roots::{Hook, add_hooks};
use sptrace_patch::system_calls::{
    SystemCalls, system_calls, with_system_calls, without_system_calls,
};
use sptrace_wire::plan::*;

fn found(bytes: &[u8]) -> (SystemCalls, Analysis, Vec<u8>) {
    let object = Object::parse(bytes).expect("an image");
    let analysis = analyze(&object);
    let plan = build_plan(&object, &analysis);
    let found = system_calls(&object, &analysis, &plan);
    (found, analysis, plan)
}

/// Occurrences of the two bytes, in whatever they are a part of.
fn occurrences(bytes: &[u8]) -> usize {
    let object = Object::parse(bytes).expect("an image");
    let code = object.code_ranges.iter().map(|r| r.bytes);
    code.map(|c| c.windows(2).filter(|w| *w == [0x0f, 0x05]).count())
        .sum()
}

#[test]
fn nearly_all_of_the_c_library_and_the_loader_have_room() {
    for name in ["libc.so.6", "ld-linux-x86-64.so.2"] {
        let Ok(bytes) = std::fs::read(format!("/lib/x86_64-linux-gnu/{name}")) else {
            continue;
        };
        let (found, analysis, _) = found(&bytes);
        let all = analysis.system_calls.len();
        println!(
            "{name}: {} of {all}, refused: {:x?}",
            found.taken.len(),
            found.refused
        );
        assert_eq!(found.taken.len() + found.refused.len(), all);
        // What control is known to reach is nearly all that is there.
        assert!(all * 100 >= occurrences(&bytes) * 95, "{name}: {all}");
        // Each has one end of a signal handler, which is left alone.
        let others = found
            .refused
            .iter()
            .filter(|r| r.why != Refusal::SignalReturn);
        assert_eq!(others.count(), 0, "{name}: {:x?}", found.refused);
    }
}

#[test]
fn a_plan_without_calls_has_the_same_interceptions_and_nothing_else() {
    let Ok(bytes) = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6") else {
        return;
    };
    let object = Object::parse(&bytes).expect("an image");
    let (with_calls, analysis, full) = found(&bytes);
    let plan = build_plan_without_calls(&object, &analysis);
    let alone = system_calls(&object, &analysis, &plan);
    let at = |found: &SystemCalls| found.taken.iter().map(|t| t.at).collect::<Vec<_>>();
    // A call that lies under a site's jump is free where there are no sites.
    assert!(at(&with_calls).iter().all(|at_| at(&alone).contains(at_)));
    let plan = with_system_calls(&plan, &alone).expect("a plan");
    let (view, full) = (PlanView::new(&plan), PlanView::new(&full));
    let (view, full) = (view.expect("a plan"), full.expect("a plan"));
    assert_eq!((view.functions().count(), view.sites().count()), (0, 0));
    let others = |s: &PlanSpecial| !s.kind.is_for_system_calls();
    let entries = |view: &PlanView<'_>| {
        let found = view.specials().filter(others);
        found.map(|s| s.entry).collect::<Vec<_>>()
    };
    assert_eq!(entries(&view), entries(&full));
}

/// They once vanished: memory that went away by such a call was taken for memory that is there.
#[test]
fn a_call_that_a_hook_takes_the_place_of_is_said_to_be_left_alone() {
    let Ok(bytes) = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6") else {
        return;
    };
    let object = Object::parse(&bytes).expect("an image");
    let (calls, _, plan) = found(&bytes);
    let plan = with_system_calls(&plan, &calls).expect("a plan");
    let named = |name: &str| object.symbols.iter().find(|s| s.name == name);
    let symbol = named("munmap").expect("the C library has it");
    let hook = Hook {
        entry: symbol.svma,
        end: sptrace_addr::Svma(symbol.svma.0 + symbol.size_bytes),
        kind: SpecialKind::Root,
        rules: HookRules::ALWAYS,
        linked: Vec::new(),
    };
    let made = add_hooks(&object, &plan, &[hook]).expect("a plan");
    assert_eq!(made.impossible, []);
    let left_alone = |plan: &[u8]| {
        let view = PlanView::new(plan).expect("a plan");
        let is_it = |s: &PlanSpecial| s.kind == SpecialKind::SystemCallRefused;
        let all = view.specials().filter(is_it);
        all.map(|s| s.call_number()).collect::<Vec<_>>()
    };
    let (before, after) = (left_alone(&plan), left_alone(&made.plan));
    assert_eq!(after, [before, vec![Some(11)]].concat());
}

#[test]
fn no_byte_is_covered_twice() {
    let Ok(bytes) = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6") else {
        return;
    };
    let (found, _, plan) = found(&bytes);
    let plan = PlanView::new(&plan).expect("a plan");
    let own = found
        .taken
        .iter()
        .map(|t| (t.start, t.start + u32::from(t.span)));
    let sites = plan.sites().filter(|s| s.form != SiteForm::Refused);
    let sites = sites.map(|s| (s.start, s.start + u32::from(s.span)));
    let specials = plan
        .specials()
        .map(|s| (s.start, s.start + u32::from(s.span)));
    let mut all: Vec<_> = own.chain(sites).chain(specials).collect();
    all.sort_unstable();
    let twice: Vec<_> = all.windows(2).filter(|w| w[0].1 > w[1].0).collect();
    // Two sites may share what is moved for both; an interception shares nothing.
    let is_ours = |range: &(u32, u32)| found.taken.iter().any(|t| t.start == range.0);
    let ours: Vec<_> = twice
        .iter()
        .filter(|w| is_ours(&w[0]) || is_ours(&w[1]))
        .collect();
    assert!(ours.is_empty(), "{ours:x?}");
}

#[test]
fn a_slot_executes_the_instruction_itself_and_goes_back_behind_it() {
    let Ok(bytes) = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6") else {
        return;
    };
    let (found, ..) = found(&bytes);
    for taken in &found.taken {
        let is_long = usize::from(taken.span) >= JUMP_BYTES;
        assert!(is_long || taken.has_springboard, "{taken:x?}");
        let calls = taken
            .template
            .windows(2)
            .filter(|w| *w == [0x0f, 0x05])
            .count();
        // In the original bytes, and in the slot.
        assert!(calls >= 2, "{taken:x?}");
    }
}

/// dash registers its handlers with sigaction, libm none.
#[test]
fn functions_whose_address_is_taken_are_kept_ready_where_handlers_are_registered() {
    let Ok(bytes) = std::fs::read("/bin/dash") else {
        return;
    };
    let (found, _, plan) = found(&bytes);
    assert!(!found.handlers.is_empty());
    let with = with_system_calls(&plan, &found).expect("a plan");
    let view = PlanView::new(&with).expect("a plan");
    let ready = |s: &PlanSpecial| s.kind == SpecialKind::Handler;
    assert_eq!(view.specials().filter(ready).count(), found.handlers.len());
    let changes_text = |s: &PlanSpecial| s.kind != SpecialKind::SystemCallRefused;
    let specials = view.specials().filter(changes_text);
    let mut all: Vec<_> = specials
        .map(|s| (s.start, s.start + u32::from(s.span)))
        .collect();
    all.sort_unstable();
    assert!(all.windows(2).all(|w| w[0].1 <= w[1].0), "{all:x?}");
    if let Ok(bytes) = std::fs::read("/lib/x86_64-linux-gnu/libm.so.6") {
        assert!(self::found(&bytes).0.handlers.is_empty());
    }
}

/// libunwind has one instruction that calls the kernel, the end of a signal handler.
#[test]
fn without_them_a_plan_has_the_area_and_the_special_functions_that_it_had() {
    for name in [
        "libc.so.6",
        "ld-linux-x86-64.so.2",
        "libunwind.so.8",
        "libm.so.6",
    ] {
        let Ok(bytes) = std::fs::read(format!("/lib/x86_64-linux-gnu/{name}")) else {
            continue;
        };
        let (found, _, plan) = found(&bytes);
        let mut with = with_system_calls(&plan, &found).expect("a plan");
        let header = without_system_calls(&with);
        let has_some = PlanView::new(&with)
            .is_some_and(|with| with.specials().any(|s| s.kind.is_for_system_calls()));
        assert_eq!(header.is_some(), has_some, "{name}");
        if let Some(header) = header {
            with[..PlanHeader::BYTES].copy_from_slice(&header.to_bytes());
        }
        let (before, after) = (PlanView::new(&plan), PlanView::new(&with));
        let (before, after) = (before.expect("a plan"), after.expect("a plan"));
        assert_eq!(
            before.header().area_bytes,
            after.header().area_bytes,
            "{name}"
        );
        assert!(before.specials().eq(after.specials()), "{name}");
        assert!(before.sites().eq(after.sites()), "{name}");
    }
}
