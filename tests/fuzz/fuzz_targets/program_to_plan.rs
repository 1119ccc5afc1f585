//! Any bytes as a program: reader, analysis, relocator and plan give no panic; the plan is
//! accepted.
#![no_main]

use sptrace_patch::{build_plan, read_plan::PlanReader};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(object) = sptrace_image::Object::parse(bytes) else {
        return;
    };
    let plan = build_plan(&object, &sptrace_code::analyze(&object));
    let reader = PlanReader::new(&plan).expect("our own plan");
    for i in 0..reader.header().sites {
        let site = reader.site(i).expect("a site that the header counts");
        let _ = reader.ids(&site);
    }
});
