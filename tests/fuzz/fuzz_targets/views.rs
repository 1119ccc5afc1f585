//! Any bytes as a trace, whose checksums are put right first: every view shows something or the
//! reader refuses it, never a panic.
#![no_main]

#[path = "../../../lib/render/tests/every_view/mod.rs"]
mod every_view;
#[path = "../../../lib/trace/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    hostile::mend_checksums(&mut bytes);
    let _ = every_view::show_all(&bytes);
});
