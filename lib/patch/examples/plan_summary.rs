//! Prints what the plan of an ELF file holds: `cargo run -p sptrace-patch --example plan_summary
//! FILE`.
use sptrace_wire::plan::{FN_RESOLVER, PlanView};
fn main() {
    let path = std::env::args().nth(1).unwrap_or_default();
    let bytes = std::fs::read(&path).unwrap_or_default();
    let Ok(object) = sptrace_image::Object::parse(&bytes) else {
        return;
    };
    let analysis = sptrace_code::analyze(&object);
    let plan = sptrace_patch::build_plan(&object, &analysis);
    let Some(view) = PlanView::new(&plan) else {
        return;
    };
    println!("{:?}", view.header());
    for f in &analysis.functions {
        let offset = f.entry.0.wrapping_sub(view.header().base_svma) as u32;
        let planned = view.function_at(offset).and_then(|i| view.function(i));
        if planned.is_some_and(|p| p.is_any(FN_RESOLVER)) {
            let sites: Vec<_> = analysis.sites_of(f).collect();
            println!("resolver {f:x?} {sites:x?}");
        }
    }
    for s in view.specials() {
        println!("{s:x?}");
    }
}
