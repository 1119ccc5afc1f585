//! Texts at random, most of which are no scripts: each is refused at its place, or compiled.

mod any_text;

/// Numbers that are the same in each run (xorshift64).
fn numbers(mut state: u64) -> impl FnMut(usize) -> usize {
    move |end| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % end as u64) as usize
    }
}

#[test]
fn any_text_is_refused_or_compiled() {
    let mut below = numbers(0x5c21);
    const TEXTS: usize = 1_500;
    let all = (0..TEXTS).filter(|_| any_text::load(&any_text::text(&mut below)));
    let scripts = all.count();
    assert!(scripts > TEXTS / 10, "{scripts}");
}

#[test]
fn a_script_of_ours_that_is_spoilt_is_refused_or_compiled() {
    let mut below = numbers(0xdead);
    let source = include_str!("../../../scripts/arguments.rhai");
    for _ in 0..300 {
        let mut bytes = source.as_bytes().to_vec();
        for _ in 0..=below(4) {
            let at = below(bytes.len());
            match below(3) {
                0 => bytes[at] = below(128) as u8,
                1 => drop(bytes.drain(at..(at + below(40)).min(bytes.len()))),
                _ => bytes.insert(at, bytes[below(bytes.len())]),
            }
        }
        any_text::load(&String::from_utf8_lossy(&bytes));
    }
}
