//! Lists of names that come from outside of images.
//!
//! Symbol files of users, in lines:
//!
//! ```text
//! 401130 parse_header        address and name, hexadecimal, with or without 0x
//! 0000000000401130 T parse   what nm(1) prints; only functions are taken
//! 401130 0000001c T parse    what nm -S prints, with sizes
//! libfoo.so:                 what follows is of this module: its file name, path or build id
//! # a comment
//! ```
//!
//! And perf's maps, which JIT compilers write to `/tmp/perf-PID.map` (the kernel's
//! `tools/perf/Documentation/jit-interface.txt`): lines of start and size, hexadecimal, and a name
//! to the line's end; what comes later counts more, as code is replaced. Given bytes; gives names.
//! Lines that are none are counted, not guessed at.

/// A longer name is cut.
const MOST_NAME_BYTES: usize = 4096;
/// What nm(1) calls functions: of the text, weak, and chosen at start.
const FUNCTIONS: &str = "TtWwVvi";

/// What an address is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Where it begins: stated in a symbol file, actual in a map.
    pub address: u64,
    /// 0: not known.
    pub size_bytes: u64,
    /// Its name, as it is written.
    pub name: String,
}

/// The names of one module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Its file name, path or build id; `None`: the file does not say.
    pub module: Option<String>,
    /// In the order of the file.
    pub names: Vec<Named>,
}

/// Reads a symbol file; gives also how many lines are none of the known forms.
pub fn read_symbol_file(bytes: &[u8]) -> (Vec<Listed>, u64) {
    let mut all = vec![Listed::default()];
    let mut unknown = 0;
    for line in bytes.split(|&byte| byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(module) = line.strip_suffix(':') {
            all.push(Listed {
                module: Some(module.to_owned()),
                names: Vec::new(),
            });
            continue;
        }
        match symbol(line) {
            Line::Name(named) => {
                if let Some(listed) = all.last_mut() {
                    listed.names.push(named);
                }
            }
            Line::Other => {}
            Line::Unknown => unknown += 1,
        }
    }
    all.retain(|listed| !listed.names.is_empty());
    (all, unknown)
}

enum Line {
    Name(Named),
    /// A variable, or a symbol without an address.
    Other,
    Unknown,
}

fn symbol(line: &str) -> Line {
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default();
    if matches!(first, "U" | "w" | "v") && words.clone().count() == 1 {
        return Line::Other;
    }
    let Some(address) = number(first) else {
        return Line::Unknown;
    };
    let rest: Vec<&str> = words.collect();
    let is_kind = |word: &str| word.len() == 1 && word.chars().all(char::is_alphabetic);
    let (size_bytes, kind, name) = match rest.as_slice() {
        [] => return Line::Unknown,
        [size, kind, name @ ..] if !name.is_empty() && is_kind(kind) && number(size).is_some() => {
            (number(size).unwrap_or(0), Some(*kind), name)
        }
        [kind, name @ ..] if !name.is_empty() && is_kind(kind) => (0, Some(*kind), name),
        name => (0, None, name),
    };
    if kind.is_some_and(|kind| !FUNCTIONS.contains(kind)) {
        return Line::Other;
    }
    Line::Name(Named {
        address,
        size_bytes,
        name: cut(&name.join(" ")),
    })
}

/// What of a perf map is at the given addresses, sorted: the entry in which each lies.
pub fn read_perf_map(bytes: &[u8], addresses: &[u64]) -> Vec<Option<Named>> {
    let mut found: Vec<Option<Named>> = vec![None; addresses.len()];
    for line in bytes.split(|&byte| byte == b'\n') {
        // Only lines that concern an address are made text of.
        let mut parts = line.splitn(3, |&byte| byte == b' ');
        let mut hex = || number(std::str::from_utf8(parts.next()?).ok()?);
        let (Some(address), Some(size_bytes)) = (hex(), hex()) else {
            continue;
        };
        let Some(name) = parts.next() else { continue };
        let end = address.saturating_add(size_bytes.max(1));
        let first = addresses.partition_point(|&at| at < address);
        let after = addresses.partition_point(|&at| at < end);
        for place in found.get_mut(first..after).unwrap_or_default() {
            *place = Some(Named {
                address,
                size_bytes,
                name: cut(String::from_utf8_lossy(name).trim()),
            });
        }
    }
    found
}

/// Hexadecimal, with or without 0x.
fn number(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let is_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u64::from_str_radix(digits, 16).ok())?
}

fn cut(name: &str) -> String {
    let mut end = name.len().min(MOST_NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Listed, Named, read_perf_map, read_symbol_file};

    fn named(address: u64, size_bytes: u64, name: &str) -> Named {
        Named {
            address,
            size_bytes,
            name: name.to_owned(),
        }
    }

    #[test]
    fn symbol_files_have_plain_lines_and_those_of_nm() {
        let text = "# mine\n401000 start here\n0x401010 parse(int)\n\
            0000000000401020 T main\n0000000000401030 0000000000000010 t helper\n\
            0000000000404000 B buffer\n                 U puts\n                 w __gmon_start__\n\
            nonsense\n\nlibfoo.so:\n10 f\n";
        let (listed, unknown) = read_symbol_file(text.as_bytes());
        assert_eq!(unknown, 1);
        let of_none = vec![
            named(0x40_1000, 0, "start here"),
            named(0x40_1010, 0, "parse(int)"),
            named(0x40_1020, 0, "main"),
            named(0x40_1030, 0x10, "helper"),
        ];
        let of_foo = Listed {
            module: Some("libfoo.so".to_owned()),
            names: vec![named(0x10, 0, "f")],
        };
        assert_eq!(
            listed,
            [
                Listed {
                    module: None,
                    names: of_none
                },
                of_foo
            ]
        );
    }

    #[test]
    fn of_a_map_the_last_entry_counts() {
        let text = b"7f00 20 LazyCompile:~f a.js:1\n7f00 10 LazyCompile:*f a.js:1\nzz 1 x\n\n7f80 8\n8000 0 stub\n";
        let found = read_perf_map(text, &[0x7eff, 0x7f00, 0x7f18, 0x7f80, 0x8000, 0x8001]);
        let expected = [
            None,
            Some(named(0x7f00, 0x10, "LazyCompile:*f a.js:1")),
            Some(named(0x7f00, 0x20, "LazyCompile:~f a.js:1")),
            None,
            Some(named(0x8000, 0, "stub")),
            None,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn hostile_lists_give_few_names_and_no_panic() {
        let long = format!("1 {}\n", "\u{e4}".repeat(10_000));
        let (listed, _) = read_symbol_file(long.as_bytes());
        assert!(listed[0].names[0].name.len() <= super::MOST_NAME_BYTES);
        for text in [
            &b"\xff\xfe\n: \n:\n0x \n0xg f\nffffffffffffffffff f\n"[..],
            b"ffffffffffffffff ffffffffffffffff all\n",
        ] {
            read_symbol_file(text);
            read_perf_map(text, &[0, u64::MAX]);
        }
    }
}
