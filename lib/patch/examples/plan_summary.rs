//! Prints what the plan of an ELF file holds: `cargo run -p sptrace-patch --example plan_summary FILE`.
use sptrace_patch::read_plan::PlanReader;
fn main() {
    let path = std::env::args().nth(1).unwrap_or_default();
    let bytes = std::fs::read(&path).unwrap_or_default();
    let Ok(object) = sptrace_image::Object::parse(&bytes) else {
        return;
    };
    let analysis = sptrace_code::analyze(&object);
    let plan = sptrace_patch::build_plan(&object, &analysis);
    let Some(reader) = PlanReader::new(&plan) else {
        return;
    };
    println!("{:?}", reader.header());
    for f in &analysis.functions {
        let at = reader.function_flags(f.entry.0);
        if at & sptrace_wire::plan::FN_RESOLVER != 0 {
            let sites: Vec<_> = analysis.sites_of(f).collect();
            println!("resolver {f:x?} {sites:x?}");
        }
    }
    for s in reader.specials() {
        println!("{s:x?}");
    }
}
