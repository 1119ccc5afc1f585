//! Any text as a script: refused at a place in it, or its payloads are compiled. Where the first
//! byte is odd, the others choose among words that scripts have; else they are the text itself.
#![no_main]

#[path = "../../../lib/script/tests/any_text/mod.rs"]
mod any_text;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    if first % 2 == 0 {
        any_text::load(&String::from_utf8_lossy(rest));
        return;
    }
    let mut rest = rest.iter();
    let mut below = |end: usize| {
        let mut byte = || rest.next().copied().map_or(0, usize::from);
        match end > 256 {
            true => (byte() << 8 | byte()) % end,
            false => byte() % end,
        }
    };
    any_text::load(&any_text::text(&mut below));
});
