//! What a plan says of the functions of an unwinder, which are left alone: which of them call
//! nothing.

use sptrace_image::Object;
use sptrace_patch::build_plan;
use sptrace_wire::plan::{FN_CALLS_NOTHING, FN_MUTED, PlanView};

#[test]
fn small_functions_of_libgcc_call_nothing_and_its_unwinder_does() {
    let Ok(bytes) = std::fs::read("/lib/x86_64-linux-gnu/libgcc_s.so.1") else {
        return;
    };
    let object = Object::parse(&bytes).unwrap();
    let plan = build_plan(&object, &sptrace_code::analyze(&object));
    let plan = PlanView::new(&plan).unwrap();
    let flags_of = |name: &str| {
        let symbol = object.symbols.iter().find(|s| s.name.starts_with(name));
        let offset = symbol.unwrap().svma.0 - plan.header().base_svma;
        let function = plan.function_at(offset as u32).unwrap();
        plan.function(function).unwrap().flags & (FN_MUTED | FN_CALLS_NOTHING)
    };
    assert_eq!(flags_of("__popcountdi2"), FN_MUTED | FN_CALLS_NOTHING);
    assert_eq!(flags_of("_Unwind_RaiseException"), FN_MUTED);
}
