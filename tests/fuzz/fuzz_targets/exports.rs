//! Any bytes as a trace, whose checksums are put right first: every export writes something or the
//! reader refuses it, never a panic.
#![no_main]

#[path = "../../../lib/export/tests/every_export/mod.rs"]
mod every_export;
#[path = "../../../lib/trace/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    hostile::mend_checksums(&mut bytes);
    let _ = every_export::export_all(&bytes);
});
