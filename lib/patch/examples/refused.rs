//! Prints the refused sites of an ELF file with the bytes around them.
use sptrace_patch::{Verdict, tactic::choose};
fn main() {
    let path = std::env::args().nth(1).unwrap_or_default();
    let bytes = std::fs::read(&path).unwrap_or_default();
    let Ok(object) = sptrace_image::Object::parse(&bytes) else {
        return;
    };
    let analysis = sptrace_code::analyze(&object);
    let mut total = 0;
    for f in &analysis.functions {
        for s in analysis.sites_of(f) {
            total += 1;
            if let Verdict::Refused(r) = choose(s, f.flags, false) {
                let code = object.code_from(s.address).unwrap_or(&[]);
                println!(
                    "{:x} {:?} len {} window {} {:?} | {:02x?}",
                    s.address.0,
                    s.kind,
                    s.length,
                    s.window_bytes(),
                    r,
                    &code[..code.len().min(8)]
                );
            }
        }
    }
    println!("{total} sites");
}
