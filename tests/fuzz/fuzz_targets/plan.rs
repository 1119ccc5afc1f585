//! Any bytes as a plan: refused, or every answer within the bytes.
#![no_main]

use sptrace_patch::read_plan::PlanReader;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(reader) = PlanReader::new(bytes) else {
        return;
    };
    let header = reader.header();
    for i in 0..header.sites {
        if let Some(site) = reader.site(i) {
            let _ = reader.ids(&site);
        }
    }
    let _ = (reader.specials(), reader.function_flags(header.base_svma));
});
