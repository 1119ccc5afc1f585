//! The words of the language for editors: a definitions file of Rhai's language server.
//!
//! Given nothing; gives the text of `sptrace.d.rhai`, made of the words as the manual is. What a
//! word takes is not told by type: most take several. Must not know editors.

use std::collections::HashSet;
use std::fmt::Write;

use crate::reference::words;
use crate::word::Word;

/// The file.
pub fn file() -> String {
    let mut out = String::from(
        "// The words of sptrace's scripts, for the language server of Rhai: man sptrace-script\n\
         module static;\n",
    );
    let mut written = HashSet::new();
    for word in words() {
        let head = head(&word);
        // A word with two meanings, by what it stands behind, is shown once for each.
        if !written.insert(head.clone()) {
            continue;
        }
        let _ = write!(out, "\n/// `{}`: {}.\n{head};\n", word.form, word.text);
    }
    out
}

/// A word as it is declared.
fn head(word: &Word) -> String {
    let (path, list) = match word.form.split_once('(') {
        Some((path, rest)) => (path, Some(rest.strip_suffix(')').unwrap_or(rest))),
        None => (word.form, None),
    };
    let receiver = path.rsplit_once('.').map(|(owner, _)| {
        // Units stand behind numbers.
        match owner.starts_with(|c: char| c.is_ascii_digit()) {
            true => "number",
            false => owner,
        }
    });
    let Some(list) = list else {
        return format!("fn get {}({}: ?) -> ?", word.name, receiver.unwrap_or("of"));
    };
    let receiver = receiver.map(str::to_owned);
    let parameters = receiver.into_iter().chain(split(list).map(parameter));
    let parameters: Vec<_> = parameters.map(|name| format!("{name}: ?")).collect();
    format!("fn {}({}) -> ?", word.name, parameters.join(", "))
}

/// The parts between commas, but for those inside of brackets and closures.
fn split(list: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(list.get(start..at).unwrap_or(""));
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(list.get(start..).unwrap_or(""));
    parts
        .into_iter()
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

/// What a part of a form is called as a parameter.
fn parameter(part: &str) -> String {
    match part {
        closure if closure.starts_with('|') => "closure".to_owned(),
        list if list.starts_with('[') => {
            let first: String = list
                .chars()
                .skip(1)
                .take_while(|c| c.is_alphanumeric())
                .collect();
            format!("{first}s")
        }
        "default" => "preset".to_owned(),
        other => other.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_declared() {
        let file = file();
        for line in [
            "fn depth(n: ?) -> ?;",
            "fn option(name: ?, preset: ?, help: ?) -> ?;",
            "fn sum(title: ?, keys: ?, fields: ?) -> ?;",
            "fn on_enter(place: ?, closure: ?) -> ?;",
            "fn on_interval(duration: ?, closure: ?) -> ?;",
            "fn get elapsed(e: ?) -> ?;",
            "fn get ms(number: ?) -> ?;",
        ] {
            assert!(file.lines().any(|l| l == line), "{line} is not in\n{file}");
        }
        for word in words() {
            assert!(file.contains(word.text), "{}", word.form);
        }
    }

    /// What is declared has the characters of an identifier and nothing else where one is wanted.
    #[test]
    fn declarations_have_one_form() {
        for line in file().lines().filter(|l| l.starts_with("fn ")) {
            let inner = line
                .strip_prefix("fn ")
                .and_then(|l| l.strip_suffix(") -> ?;"));
            let (name, parameters) = inner.and_then(|l| l.split_once('(')).expect(line);
            let is_name = |text: &str| {
                !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_')
            };
            assert!(is_name(name.strip_prefix("get ").unwrap_or(name)), "{line}");
            for parameter in parameters.split(", ").filter(|p| !p.is_empty()) {
                let name = parameter.strip_suffix(": ?").expect(line);
                assert!(is_name(name), "{line}");
            }
        }
    }
}
