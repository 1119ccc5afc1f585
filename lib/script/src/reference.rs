//! The manual of the language, made of its words.
//!
//! Given nothing; gives the roff of `sptrace-script(7)`. Must not know the command line.

use std::fmt::Write;

use crate::checks::Checks;
use crate::draft::Shared;
use crate::engine::engine;
use crate::load::header;
use crate::ready;
use crate::word::Word;

const BEFORE: &str = include_str!("reference/before.roff");
const AFTER: &str = include_str!("reference/after.roff");

/// All words, in the order of the manual.
pub fn words() -> Vec<Word> {
    let checks = Checks {
        event: |_| Ok(()),
        rule: |_| Ok(()),
        system_calls: |_| Err(String::new()),
    };
    engine(&Shared::default(), checks).1
}

fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

/// The page.
pub fn page() -> String {
    let mut page = BEFORE.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    let mut section = "";
    for word in words() {
        if word.section != section {
            section = word.section;
            let _ = writeln!(page, ".SH {}", roff(&section.to_uppercase()));
        }
        let _ = write!(
            page,
            ".TP\n\\fB{}\\fR\n{}.\n",
            roff(word.form),
            roff(word.text)
        );
    }
    page += ".SH READY SCRIPTS\n`sptrace script explain NAME` shows each one's text.\n";
    for (name, source) in ready::SCRIPTS {
        let header = header(source);
        let first = header.lines().next().unwrap_or("");
        let first = first.split_once(": ").map_or(first, |(_, rest)| rest);
        let _ = write!(page, ".TP\n\\fB{}\\fR\n{}\n", roff(name), roff(first));
    }
    page + AFTER
}
