//! Patterns by which functions and modules are chosen: globs, and regular expressions between
//! slashes.
//!
//! Must not know what is chosen by them.

use std::cell::RefCell;
use std::collections::HashMap;

use regex_lite::{Regex, RegexBuilder};

/// A compiled expression grows to no more than this.
const MOST_BYTES: usize = 1 << 20;
/// Expressions that a thread keeps.
const MOST_KEPT: usize = 256;

thread_local! {
    /// What was compiled: a pattern is compared with the names of all functions, one by one.
    static KEPT: RefCell<HashMap<String, Option<Regex>>> = RefCell::default();
}

/// The regular expression of a pattern that is one: `/^parse_/`.
pub fn expression(pattern: &str) -> Option<&str> {
    pattern.strip_prefix('/')?.strip_suffix('/')
}

/// True if a pattern may fit several texts.
pub fn is_pattern(pattern: &str) -> bool {
    pattern.contains(['*', '?', '[']) || expression(pattern).is_some()
}

/// What is wrong with a pattern: globs are always right, and expressions are as they are read.
///
/// # Errors
/// A sentence.
pub fn check(pattern: &str) -> Result<(), String> {
    match expression(pattern).map(compiled) {
        None | Some(Ok(_)) => Ok(()),
        Some(Err(error)) => Err(format!("{pattern} is no regular expression: {error}")),
    }
}

fn compiled(text: &str) -> Result<Regex, regex_lite::Error> {
    RegexBuilder::new(text).size_limit(MOST_BYTES).build()
}

/// Does a text fit a pattern? Of a glob all of the text, of an expression any part of it. One that
/// is wrong fits nothing.
pub fn glob_matches(pattern: &str, text: &str) -> bool {
    match expression(pattern) {
        None => matches(pattern, text),
        Some(expression) => fits(expression, text),
    }
}

fn fits(expression: &str, text: &str) -> bool {
    KEPT.with_borrow_mut(|kept| {
        if !kept.contains_key(expression) {
            if kept.len() >= MOST_KEPT {
                kept.clear();
            }
            kept.insert(expression.to_owned(), compiled(expression).ok());
        }
        let regex = kept.get(expression).and_then(Option::as_ref);
        regex.is_some_and(|regex| regex.is_match(text))
    })
}

/// Does all of `text` match a glob of `*` (any bytes) and `?` (any one byte)?
fn matches(glob: &str, text: &str) -> bool {
    let (glob, text) = (glob.as_bytes(), text.as_bytes());
    let (mut g, mut t) = (0, 0);
    // Where to go on when the last star has to take one byte more.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if glob.get(g) == Some(&b'*') {
            star = Some((g + 1, t));
            g += 1;
        } else if glob
            .get(g)
            .is_some_and(|&byte| byte == b'?' || byte == text[t])
        {
            g += 1;
            t += 1;
        } else if let Some((after, taken)) = star {
            star = Some((after, taken + 1));
            g = after;
            t = taken + 1;
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        for (pattern, text, expected) in [
            ("/^pri/", "price", true),
            ("/ice/", "price", true),
            ("/^ice/", "price", false),
            ("/^(a|b)$/", "b", true),
            ("//", "x", true),
            ("/", "x", false),
            ("/(/", "(", false),
            ("/usr/*", "/usr/bin", true),
        ] {
            assert_eq!(glob_matches(pattern, text), expected, "{pattern} {text}");
        }
        assert!(check("/(/").is_err() && check("(").is_ok() && check("/a|b/").is_ok());
        assert!(is_pattern("/a/") && is_pattern("a*") && !is_pattern("/usr/bin/a"));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        for n in 0..2 * MOST_KEPT {
            assert!(glob_matches(&format!("/^a{n}$/"), &format!("a{n}")));
        }
        assert!(KEPT.with_borrow(|kept| kept.len() <= MOST_KEPT));
    }

    #[test]
    fn globs() {
        for (glob, text, expected) in [
            ("main", "main", true),
            ("main", "main2", false),
            ("", "", true),
            ("*", "", true),
            ("m*n", "main", true),
            ("m*n", "mainx", false),
            ("*ab*ab", "xabyabzab", true),
            ("?ain", "main", true),
            ("?", "", false),
            ("a*b*c*d", "aXXbXXcXX", false),
        ] {
            assert_eq!(glob_matches(glob, text), expected, "{glob} {text}");
        }
    }
}
