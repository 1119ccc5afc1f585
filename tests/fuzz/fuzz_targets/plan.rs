//! Any bytes as a plan: refused, or every answer lies within the bytes.
#![no_main]

use sptrace_wire::plan::PlanView;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(view) = PlanView::new(bytes) else {
        return;
    };
    let header = view.header();
    for i in (0..header.sites.min(3000)).chain([header.sites, u32::MAX]) {
        if let Some(site) = view.site(i) {
            let _ = (view.ids(&site), view.callee(&site));
            let _ = (view.got_slot(&site), view.springboard(&site));
        }
    }
    for function in view.functions().take(3000) {
        view.sites_of(&function).take(3000).count();
        view.links_of(&function).take(3000).count();
    }
    view.specials().take(3000).count();
    for offset in [0, 0x4000, u32::MAX] {
        view.function_at(offset);
    }
});
