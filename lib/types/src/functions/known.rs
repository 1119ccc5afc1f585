//! Functions that are known by their names: those of the C library and of some others.
//!
//! The table (`known.conf`) has the form that [`super::parse`] reads; a line is read when its
//! function is asked for. Must not know where a function is.

use super::parse::{Defined, prototype};
use super::prototype::Prototype;
use std::collections::HashMap;
use std::sync::LazyLock;

static TABLE: &str = include_str!("known.conf");

/// Lines by the names of their functions.
static LINES: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| {
    let lines = TABLE.lines().filter(|line| !line.starts_with(['#', ';']));
    let named = |line: &'static str| Some((name_of(line)?, line));
    lines.filter_map(named).collect()
});

/// The name in a line.
fn name_of(line: &str) -> Option<&str> {
    if line.starts_with("sys ") {
        return line.rsplit(' ').next();
    }
    let head = line.split_once('(')?.0;
    head.rsplit([' ', '*', '!']).next()
}

/// All names.
pub fn names() -> impl Iterator<Item = &'static str> {
    LINES.keys().copied()
}

/// The line of a function, by a symbol: `open64@GLIBC_2.2.5` and `__open` are `open`, too.
pub fn line(symbol: &str) -> Option<&'static str> {
    let name = symbol.split('@').next().unwrap_or(symbol);
    let known = |name: &str| LINES.get(name).copied();
    let bare = generic(name).unwrap_or(name).trim_start_matches('_');
    let without = |prefix| bare.strip_prefix(prefix);
    known(name)
        .or_else(|| known(bare))
        .or_else(|| known(without("libc_")?))
        .or_else(|| known(without("GI_")?.trim_start_matches('_')))
        .or_else(|| known(without("IO_")?))
}

/// The function that a body for one kind of processor stands for: `strlen` of `__strlen_evex`,
/// `memmove` of `__memmove_avx_unaligned_erms`. `None`: it is no such body.
pub fn generic(symbol: &str) -> Option<&str> {
    const KINDS: [&str; 6] = ["_avx", "_sse", "_evex", "_erms", "_ssse", "_unaligned"];
    let first = KINDS.iter().filter_map(|kind| symbol.find(kind)).min()?;
    symbol.get(..first)?.strip_prefix("__")
}

/// The function of the C library that has the same bodies, and the same arguments.
pub fn same_body(name: &str) -> Option<&'static str> {
    const PAIRS: [(&str, &str); 4] = [
        ("memcpy", "memmove"),
        ("memcmp", "bcmp"),
        ("strchr", "index"),
        ("strrchr", "rindex"),
    ];
    PAIRS.iter().find_map(|&(one, other)| match name {
        _ if name == one => Some(other),
        _ if name == other => Some(one),
        _ => None,
    })
}

/// The prototype of a function.
pub fn by_symbol(symbol: &str) -> Option<Prototype> {
    prototype(line(symbol)?, &Defined::new()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood_and_is_found() {
        let mut count = 0;
        for line in TABLE.lines().filter(|line| !line.starts_with(['#', ';'])) {
            if line.is_empty() {
                continue;
            }
            let one =
                prototype(line, &Defined::new()).unwrap_or_else(|e| panic!("{}", e.shown(line)));
            assert_eq!(Some(one.name.as_str()), name_of(line), "{line}");
            assert!(by_symbol(&one.name).is_some(), "{line}");
            count += 1;
        }
        assert_eq!(count, names().count(), "a function has two lines");
    }

    #[test]
    fn a_body_for_one_kind_of_processor_has_the_name_of_its_function() {
        assert_eq!(generic("__strlen_evex"), Some("strlen"));
        assert_eq!(generic("__memmove_avx_unaligned_erms"), Some("memmove"));
        assert_eq!(generic("strlen"), None);
        assert_eq!(generic("my_avx_sum"), None);
    }

    #[test]
    fn functions_with_one_body_name_each_other() {
        assert_eq!(same_body("memcpy"), Some("memmove"));
        assert_eq!(same_body("memmove"), Some("memcpy"));
        assert_eq!(same_body("strlen"), None);
    }

    #[test]
    fn other_names_of_a_function_are_known() {
        for symbol in [
            "open",
            "__open",
            "open@@GLIBC_2.2.5",
            "__libc_open",
            "__open_avx2",
        ] {
            assert_eq!(
                by_symbol(symbol).map(|one| one.name),
                Some("open".to_owned())
            );
        }
        assert!(by_symbol("no_such_function").is_none());
    }
}
