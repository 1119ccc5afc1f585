//! Any bytes as payloads and calls: what is compiled of them does what its interpretation does, in
//! results, in tables, and in what cannot be read.
#![no_main]

#[path = "../../../lib/payload/tests/beside/mod.rs"]
mod beside;

use beside::acts::{Met, compare_at_calls, compare_at_returns};
use beside::programs::{Pages, compare, compare_in_place};
use beside::{Choices, CodePages, Seeded};

/// What is chosen by bytes; behind their end each choice is the first.
struct Bytes<'a>(&'a [u8]);

impl Choices for Bytes<'_> {
    fn next(&mut self) -> u64 {
        let (word, rest) = self.0.split_at(self.0.len().min(8));
        self.0 = rest;
        word.iter()
            .rev()
            .fold(0, |all, byte| all << 8 | u64::from(*byte))
    }

    fn below(&mut self, end: u64) -> u64 {
        if end > 256 {
            return self.next() % end;
        }
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        u64::from(*first) % end
    }
}

thread_local! {
    static PAGES: (Pages, CodePages) = (Pages::new(&mut Seeded(0x5eed)), CodePages::new());
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    PAGES.with(|(pages, code)| {
        let mut choices = Bytes(bytes);
        match choices.below(4) {
            0 => drop(compare(&mut choices, pages)),
            1 => drop(compare_in_place(&mut choices, pages)),
            2 => drop(compare_at_calls(&mut choices, code, &mut Met::default())),
            _ => drop(compare_at_returns(&mut choices, code, &mut Met::default())),
        }
    });
});
