//! Any bytes as a program: reader, analysis, relocator and plan give no panic; each plan is
//! accepted.
#![no_main]

use sptrace_patch::{build_counting_plan, build_plan, build_plan_mixed, build_plan_with_levels};
use sptrace_wire::plan::PlanView;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(object) = sptrace_image::Object::parse(bytes) else {
        return;
    };
    let analysis = sptrace_code::analyze(&object);
    for build in [build_plan, build_counting_plan, build_plan_with_levels, build_plan_mixed] {
        let plan = build(&object, &analysis);
        let view = PlanView::new(&plan).expect("our own plan");
        for i in 0..view.header().sites {
            let site = view.site(i).expect("a site that the header counts");
            let _ = view.ids(&site);
        }
    }
});
