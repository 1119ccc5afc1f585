//! Keys as a terminal sends them.
//!
//! Given a key's name; gives the byte sequences that stand for it (ECMA-48 and xterm's, which the
//! Linux console and most others follow). [`tokens`] cuts what was read into keys. A terminal in
//! non-canonical mode sends no more about a key than these bytes: `ctrl-i` is `tab`.

use std::str::FromStr;

pub(crate) const ESCAPE: u8 = 0x1b;

/// Why a key cannot be waited for.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It has no such name.
    #[error(
        "'{0}' is no key: one character, f1 to f12, up, down, left, right, home, end, insert, delete, \
         pageup, pagedown, enter, tab, escape, space or backspace, after ctrl-, alt- or shift-"
    )]
    Unknown(String),
    /// The terminal keeps it.
    #[error("key:{0} never arrives: the terminal {1}")]
    Kept(String, &'static str),
}

/// A key with its modifiers.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    sequences: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Default)]
struct Modifiers {
    shift: bool,
    alt: bool,
    ctrl: bool,
}

impl Modifiers {
    /// Takes the modifiers off a key's name.
    fn of(mut name: &str) -> (Self, &str) {
        let mut found = Self::default();
        loop {
            let (flag, rest) = if let Some(rest) = name.strip_prefix("ctrl-") {
                (&mut found.ctrl, rest)
            } else if let Some(rest) = name.strip_prefix("alt-") {
                (&mut found.alt, rest)
            } else if let Some(rest) = name.strip_prefix("shift-") {
                (&mut found.shift, rest)
            } else {
                return (found, name);
            };
            if rest.is_empty() {
                return (found, name);
            }
            *flag = true;
            name = rest;
        }
    }

    /// xterm's number for them, 1: none.
    fn number(self) -> u8 {
        1 + u8::from(self.shift) + 2 * u8::from(self.alt) + 4 * u8::from(self.ctrl)
    }
}

/// Keys sent as `ESC [ number ~`.
const NUMBERED: [(&str, u8); 16] = [
    ("insert", 2),
    ("delete", 3),
    ("pageup", 5),
    ("pagedown", 6),
    ("f1", 11),
    ("f2", 12),
    ("f3", 13),
    ("f4", 14),
    ("f5", 15),
    ("f6", 17),
    ("f7", 18),
    ("f8", 19),
    ("f9", 20),
    ("f10", 21),
    ("f11", 23),
    ("f12", 24),
];
/// Keys sent as `ESC [ letter` or `ESC O letter`.
const LETTERED: [(&str, u8); 10] = [
    ("up", b'A'),
    ("down", b'B'),
    ("right", b'C'),
    ("left", b'D'),
    ("end", b'F'),
    ("home", b'H'),
    ("f1", b'P'),
    ("f2", b'Q'),
    ("f3", b'R'),
    ("f4", b'S'),
];
/// The Linux console's own, `ESC [ [ letter`.
const CONSOLE: [(&str, u8); 5] = [
    ("f1", b'A'),
    ("f2", b'B'),
    ("f3", b'C'),
    ("f4", b'D'),
    ("f5", b'E'),
];

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let wrong = || KeyError::Unknown(text.to_owned());
        let (modifiers, name) = Modifiers::of(text);
        let sequences = match plain(name) {
            Some(bytes) => simple(bytes, modifiers).ok_or_else(wrong)?,
            None => named(name, modifiers),
        };
        if sequences.is_empty() {
            return Err(wrong());
        }
        if let Some(why) = kept(&sequences) {
            return Err(KeyError::Kept(text.to_owned(), why));
        }
        Ok(Self { sequences })
    }
}

impl Key {
    /// Do these bytes stand for it?
    pub fn is(&self, token: &[u8]) -> bool {
        self.sequences.iter().any(|s| s == token)
    }

    /// Can more bytes after these make it this key? After a single one only if its usual form
    /// begins so: what is rarely sent must not hold up the escape key.
    pub fn begins(&self, token: &[u8]) -> bool {
        let longer = |s: &&Vec<u8>| s.len() > token.len() && s.starts_with(token);
        let count = if token.len() > 1 { usize::MAX } else { 1 };
        self.sequences.iter().take(count).any(|s| longer(&s))
    }
}

/// The bytes of a key that sends no escape sequence.
fn plain(name: &str) -> Option<Vec<Vec<u8>>> {
    let bytes: &[&[u8]] = match name {
        "enter" => &[b"\r", b"\n"],
        "tab" => &[b"\t"],
        "escape" => &[&[ESCAPE]],
        "space" => &[b" "],
        "backspace" => &[&[0x7f], &[0x08]],
        _ => {
            let mut characters = name.chars();
            let first = characters.next().filter(|c| !c.is_control())?;
            let one = characters.next().is_none();
            return one.then(|| vec![first.to_string().into_bytes()]);
        }
    };
    Some(bytes.iter().map(|b| b.to_vec()).collect())
}

fn simple(mut sequences: Vec<Vec<u8>>, modifiers: Modifiers) -> Option<Vec<Vec<u8>>> {
    let spelt = spelt_out(&sequences, modifiers);
    if modifiers.shift {
        // A terminal sends the other character instead, and nobody knows which.
        return None;
    }
    if modifiers.ctrl {
        let [key] = &mut sequences[..] else {
            return None;
        };
        let &[byte] = &key[..] else {
            return None;
        };
        *key = match byte.to_ascii_uppercase() {
            b' ' => vec![0],
            upper @ b'@'..=b'_' => vec![upper & 0x1f],
            _ => return None,
        };
    }
    if modifiers.alt {
        for sequence in &mut sequences {
            sequence.insert(0, ESCAPE);
        }
    }
    sequences.extend(spelt);
    Some(sequences)
}

/// What is sent for a character with modifiers to a program that has asked for it: xterm's
/// modifyOtherKeys, in its two formats (vim asks for it).
fn spelt_out(sequences: &[Vec<u8>], modifiers: Modifiers) -> Vec<Vec<u8>> {
    let text = sequences.first().and_then(|s| str::from_utf8(s).ok());
    let character = text.and_then(|s| s.chars().next());
    let Some(code) = character.filter(|_| modifiers.number() > 1) else {
        return Vec::new();
    };
    let (code, number) = (u32::from(code.to_ascii_lowercase()), modifiers.number());
    let formats = [
        format!("\x1b[27;{number};{code}~"),
        format!("\x1b[{code};{number}u"),
    ];
    formats.map(String::into_bytes).to_vec()
}

fn named(name: &str, modifiers: Modifiers) -> Vec<Vec<u8>> {
    let number = modifiers.number();
    let mut sequences: Vec<String> = Vec::new();
    for (_, code) in NUMBERED.iter().filter(|known| known.0 == name) {
        sequences.push(match number {
            1 => format!("\x1b[{code}~"),
            _ => format!("\x1b[{code};{number}~"),
        });
    }
    for (_, letter) in LETTERED.iter().filter(|known| known.0 == name) {
        let letter = char::from(*letter);
        match number {
            1 => sequences.extend([format!("\x1b[{letter}"), format!("\x1bO{letter}")]),
            _ => sequences.push(format!("\x1b[1;{number}{letter}")),
        }
    }
    for (_, letter) in CONSOLE.iter().filter(|k| k.0 == name && number == 1) {
        sequences.push(format!("\x1b[[{}", char::from(*letter)));
    }
    sequences.into_iter().map(String::into_bytes).collect()
}

/// Why a key never arrives with the settings that terminals begin with.
fn kept(sequences: &[Vec<u8>]) -> Option<&'static str> {
    let &[byte] = &sequences.first()?[..] else {
        return None;
    };
    match byte {
        0x03 => Some("makes it SIGINT (signal:INT)"),
        0x1c => Some("makes it SIGQUIT (signal:QUIT)"),
        0x1a => Some("stops the job by it"),
        0x13 | 0x11 => Some("stops and continues its output by it"),
        _ => None,
    }
}

/// Cuts what was read at once into keys.
pub fn tokens(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (token, rest) = bytes.split_at(length(bytes).clamp(1, bytes.len()));
        found.push(token);
        bytes = rest;
    }
    found
}

/// How long the key is that bytes begin with; more than there are: its end is missing.
pub(super) fn length(bytes: &[u8]) -> usize {
    let character = |at: usize| match bytes.get(at) {
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xff) => 4,
        _ => 1,
    };
    match bytes {
        [ESCAPE, b'[', b'[', _, ..] => 4,
        [ESCAPE, b'[', rest @ ..] => {
            // Parameters and intermediates, then one final byte (ECMA-48, 5.4).
            let body = rest.iter().take_while(|b| (0x20..0x40).contains(*b));
            3 + body.count()
        }
        [ESCAPE, b'O', _, ..] => 3,
        [ESCAPE, _, ..] => 1 + character(1),
        _ => character(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        name.parse().expect(name)
    }

    #[test]
    fn keys_are_what_terminals_send() {
        for (name, bytes) in [
            ("s", &b"s"[..]),
            ("S", b"S"),
            ("-", b"-"),
            ("\u{fc}", "\u{fc}".as_bytes()),
            ("ctrl-t", b"\x14"),
            ("ctrl-T", b"\x14"),
            ("ctrl-space", b"\0"),
            ("alt-s", b"\x1bs"),
            ("ctrl-alt-x", b"\x1b\x18"),
            ("alt--", b"\x1b-"),
            ("f5", b"\x1b[15~"),
            ("f1", b"\x1bOP"),
            ("f1", b"\x1b[11~"),
            ("f1", b"\x1b[[A"),
            ("ctrl-f5", b"\x1b[15;5~"),
            ("shift-up", b"\x1b[1;2A"),
            ("up", b"\x1bOA"),
            ("enter", b"\n"),
            ("escape", b"\x1b"),
            ("ctrl-t", b"\x1b[27;5;116~"),
            ("ctrl-t", b"\x1b[116;5u"),
            ("alt-enter", b"\x1b[27;3;13~"),
        ] {
            assert!(key(name).is(bytes), "{name}");
        }
        assert!(!key("s").is(b"\x1bs"));
        assert!(!key("f5").is(b"\x1b[15;5~"));
    }

    #[test]
    fn keys_that_cannot_be_seen_are_refused() {
        for (name, hint) in [
            ("ctrl-c", "signal:INT"),
            ("ctrl-\\", "signal:QUIT"),
            ("ctrl-z", "stops"),
            ("ctrl-s", "output"),
            ("f13", "no key"),
            ("ctrl-", "no key"),
            ("shift-a", "no key"),
            ("ctrl-1", "no key"),
            ("ctrl-enter", "no key"),
            ("escap", "no key"),
            ("\u{7}", "no key"),
        ] {
            let error = name.parse::<Key>().expect_err(name).to_string();
            assert!(error.contains(hint), "{name}: {error}");
        }
    }

    #[test]
    fn input_is_cut_into_keys() {
        let input = b"a\x1b[15~\x1bs\x1bOP\x1b[[A\xc3\xbc\x1b[1;5A\x1b\xc3\xbc\x1b";
        let expected: [&[u8]; 9] = [
            b"a",
            b"\x1b[15~",
            b"\x1bs",
            b"\x1bOP",
            b"\x1b[[A",
            b"\xc3\xbc",
            b"\x1b[1;5A",
            b"\x1b\xc3\xbc",
            b"\x1b",
        ];
        assert_eq!(tokens(input), expected);
        assert_eq!(tokens(b"\xc3"), [b"\xc3"]);
        assert_eq!(tokens(b"\x1b["), [b"\x1b["]);
    }
}
