//! Takes keys out of what is typed.
//!
//! Given the keys that events wait for and the bytes as they are read; gives the bytes that remain,
//! in order and unchanged, and the events of those that were taken. A key may be cut anywhere by
//! reads, so what may become one that is waited for is held back until the rest comes, or for
//! [`PATIENCE`]: who presses escape alone waits so long, if a key is waited for that begins with
//! it. Pasted text holds no keys.
//!
//! Must not know: where bytes come from and go to.

use crate::key::{ESCAPE, Key, length};
use std::time::{Duration, Instant};

/// The bytes of one key come within this.
const PATIENCE: Duration = Duration::from_millis(30);
/// Around pasted text, if the program has asked for them (xterm's bracketed paste).
const PASTE_BEGINS: &[u8] = b"\x1b[200~";
const PASTE_ENDS: &[u8] = b"\x1b[201~";

/// What stands between the terminal and the program.
pub struct Sieve {
    keys: Vec<(usize, Key)>,
    /// A key that has begun; its first `given` bytes have passed.
    begun: Vec<u8>,
    given: usize,
    since: Option<Instant>,
    is_pasting: bool,
}

impl Sieve {
    /// For these keys and their events.
    pub fn new(keys: Vec<(usize, Key)>) -> Self {
        Self {
            keys,
            begun: Vec::new(),
            given: 0,
            since: None,
            is_pasting: false,
        }
    }

    /// Adds to `passed` what is not taken of `read`, and to `events` whose keys were taken.
    pub fn feed(&mut self, read: &[u8], passed: &mut Vec<u8>, events: &mut Vec<usize>) {
        let mut bytes = std::mem::take(&mut self.begun);
        bytes.extend_from_slice(read);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let cut = length(rest);
            if cut > rest.len() || is_open(rest) {
                self.begin(rest, passed);
                return;
            }
            let (token, after) = rest.split_at(cut.max(1));
            self.whole(token, passed, events);
            rest = after;
        }
        self.since = None;
    }

    /// When to ask [`Sieve::late`].
    pub fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + PATIENCE)
    }

    /// What was held back for so long is a key of its own.
    pub fn late(&mut self, passed: &mut Vec<u8>, events: &mut Vec<usize>) {
        if self.due().is_some_and(|due| due <= Instant::now()) {
            let token = std::mem::take(&mut self.begun);
            self.since = None;
            self.whole(&token, passed, events);
        }
    }

    fn begin(&mut self, token: &[u8], passed: &mut Vec<u8>) {
        let may_be = |key: &Key| key.is(token) || key.begins(token);
        let is_awaited = !self.is_pasting && self.keys.iter().any(|(_, key)| may_be(key));
        if !is_awaited || self.given > 0 {
            passed.extend_from_slice(&token[self.given..]);
            self.given = token.len();
        }
        self.begun = token.to_vec();
        self.since = Some(Instant::now());
    }

    fn whole(&mut self, token: &[u8], passed: &mut Vec<u8>, events: &mut Vec<usize>) {
        let given = std::mem::take(&mut self.given);
        let meant = self.keys.iter().filter(|(_, key)| key.is(token));
        let meant: Vec<_> = meant.map(|(event, _)| *event).collect();
        if meant.is_empty() || self.is_pasting || given > 0 {
            passed.extend_from_slice(&token[given..]);
        } else {
            events.extend(meant);
        }
        self.is_pasting = (self.is_pasting || token == PASTE_BEGINS) && token != PASTE_ENDS;
    }
}

/// Whole as it is, but the beginning of others, too.
fn is_open(token: &[u8]) -> bool {
    matches!(token, [ESCAPE] | [ESCAPE, b'O'] | [ESCAPE, b'[', b'['])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sieve(keys: &[&str]) -> Sieve {
        let keys = keys.iter().map(|name| name.parse().expect("a key"));
        Sieve::new(keys.enumerate().collect())
    }

    fn feed(sieve: &mut Sieve, read: &[u8]) -> (Vec<u8>, Vec<usize>) {
        let (mut passed, mut events) = (Vec::new(), Vec::new());
        sieve.feed(read, &mut passed, &mut events);
        (passed, events)
    }

    fn late(sieve: &mut Sieve) -> (Vec<u8>, Vec<usize>) {
        std::thread::sleep(PATIENCE);
        let (mut passed, mut events) = (Vec::new(), Vec::new());
        sieve.late(&mut passed, &mut events);
        (passed, events)
    }

    #[test]
    fn keys_are_taken_wherever_reads_are_cut() {
        let input = b"a\x14b\x1b[15~c\x1b[15;5~\x1bs\xc3\xbc\x1b[A\x1b[27;5;116~\x1bOPx";
        let expected = b"abc\x1b[15;5~\xc3\xbc\x1b[A\x1bOPx";
        for step in 1..input.len() {
            let mut sieve = sieve(&["ctrl-t", "f5", "alt-s"]);
            let (mut passed, mut events) = (Vec::new(), Vec::new());
            for read in input.chunks(step) {
                sieve.feed(read, &mut passed, &mut events);
            }
            assert_eq!(passed, expected, "{step}");
            assert_eq!(events, [0, 1, 2, 0], "{step}");
            assert_eq!(sieve.due(), None);
        }
    }

    #[test]
    fn a_letter_inside_of_another_key_is_none() {
        for cut in 1..4 {
            let mut sieve = sieve(&["A"]);
            let (first, second) = b"\x1b[A\x1bA".split_at(cut);
            // Nothing that is waited for begins so: it passes at once.
            assert_eq!(feed(&mut sieve, first), (first.to_vec(), vec![]));
            assert_eq!(feed(&mut sieve, second), (second.to_vec(), vec![]));
            assert_eq!(feed(&mut sieve, b"A"), (vec![], vec![0]));
        }
    }

    #[test]
    fn what_does_not_go_on_is_given_soon() {
        let mut sieve = sieve(&["f5"]);
        for begun in [&b"\x1b"[..], b"\x1b[", b"\x1b[1"] {
            assert_eq!(feed(&mut sieve, begun), (vec![], vec![]));
            assert!(sieve.due().is_some());
            assert_eq!(late(&mut sieve), (begun.to_vec(), vec![]));
            assert_eq!(sieve.due(), None);
            assert_eq!(feed(&mut sieve, b"[15~"), (b"[15~".to_vec(), vec![]));
        }
        assert_eq!(feed(&mut sieve, b"\x1b[1"), (vec![], vec![]));
        assert_eq!(feed(&mut sieve, b"7~"), (b"\x1b[17~".to_vec(), vec![]));
    }

    #[test]
    fn escape_waits_for_nothing_that_is_rare() {
        let mut sieve = sieve(&["ctrl-t"]);
        assert_eq!(feed(&mut sieve, b"\x1b"), (b"\x1b".to_vec(), vec![]));
    }

    #[test]
    fn escape_alone_can_be_waited_for() {
        let mut sieve = sieve(&["escape"]);
        assert_eq!(feed(&mut sieve, b"\x1b"), (vec![], vec![]));
        assert_eq!(late(&mut sieve), (vec![], vec![0]));
        assert_eq!(feed(&mut sieve, b"\x1b[A"), (b"\x1b[A".to_vec(), vec![]));
    }

    #[test]
    fn pasted_text_passes() {
        let mut sieve = sieve(&["ctrl-t"]);
        let pasted = b"\x1b[200~x\x14y\x1b[201~";
        assert_eq!(feed(&mut sieve, pasted), (pasted.to_vec(), vec![]));
        assert_eq!(feed(&mut sieve, b"\x14"), (vec![], vec![0]));
    }
}
