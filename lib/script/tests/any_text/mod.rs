//! Texts that are scripts, nearly so, or not at all, and what has to be true of each.
//!
//! Given numbers from somewhere: this crate's tests take them from a seed, the fuzz target from the
//! bytes that it is given. A text is refused at a place in it, or its payloads are compiled.
#![allow(dead_code, reason = "each user needs its part")]

use sptrace_payload::acts::{FAILURE, Moment, RESULT};
use sptrace_payload::acts_code::{Entry, Thread, acts_code, exit_code};
use sptrace_payload::program::Source;
use sptrace_payload::tables::Tables;
use sptrace_script::policy::Payload;
use sptrace_script::{Checks, Script};
use sptrace_types::calls::Selection;

/// How something is written, and how it seldom can be.
type Forms = (&'static [&'static str], &'static [&'static str]);

/// What payloads are about, before them.
const BEFORE: &str = "let t = count(\"t\", [\"k\"]); let n = count(\"n\", []); \
     let m = sum(\"m\", [\"a\", \"b\"], [\"v\"]); let h = histogram(\"h\", [\"k\"], \"v\"); \
     let r = table(\"r\", [\"a\", \"b\"]); let w = slowest(\"w\", 3, [\"m\", \"k\"]); let s = stats(\"s\", [\"k\"], \"v\"); let x = 7; let yes = true; let text = \"/etc\"; \
     fn f(n) { n + 1 }\n";
/// Payloads, with a place for what they do.
const HEADS: Forms = (
    &[
        "at(\"f\").on_enter(|c| { @ });\n",
        "at(\"f\").on_exit(|c| { @ });\n",
        "at(\"libc*!mem*\").on_enter(|c| @);\n",
        "syscalls(\"%file\").on_enter(|c| { @ });\n",
        "at(\"*\").on_exit(|x| { @ });\n",
    ],
    &[
        "at(\"f\").on_enter(|c, d| { @ });\n",
        "at(\"f\").later(|e| { @ });\n",
        "{ @ }\n",
    ],
);
/// What a payload may do. `@` is another of these, `#` a value, `?` a condition.
const STATEMENTS: Forms = (
    &[
        "t.add(#);",
        "n.add([]);",
        "m.add([#, #], #);",
        "h.add(#, #);",
        "w.add(#, [#]);",
        "t.add(c.str(1));",
        "t.add(c.result_str());",
        "r.add([#, #]);",
        "c.print(\"{} and {}\", #, #);",
        "if ? { @ }",
        "if ? { @ } else { @ }",
        "if ? { @ } else if ? { @ } else { @ }",
        "let a = #; @",
        "let a = #; a = #; @",
        "let b = ?; if b { @ }",
        "c.record();",
        "c.deny(\"EIO\", #);",
        "c.override(#);",
        "c.delay(#);",
        "c.raise(#);",
        "{ @ } @",
    ],
    &[
        "a = #;",
        "a += #;",
        "s.add(#, #);",
        "print(#);",
        "t.add([#]);",
        "w.add(#);",
        "r.add(#);",
        "c.print(\"{}\");",
        "return;",
        "for i in 0..3 { @ }",
        "@ @",
    ],
);
/// Values.
const VALUES: Forms = (
    &[
        "0",
        "1",
        "c.arg1",
        "c.arg2",
        "c.arg(7)",
        "c.arg(22)",
        "c.arg6",
        "c.tid",
        "c.nth",
        "c.size",
        "x",
        "# + #",
        "# - #",
        "# * #",
        "(# & #)",
        "# >> #",
        "# << 3",
        "-#",
        "u8(#)",
        "i32(#)",
        "5.us",
        "10.kb",
        "0x7fffffffffffffff",
        "'c'",
        "-9223372036854775807",
    ],
    &[
        "c.result",
        "c.errno",
        "c.elapsed",
        "c.self_time",
        "c.depth",
        "c.caller",
        "a",
        "9223372036854775807.s",
        "\"text\"",
        "1.5",
        "f(#)",
        "if ? { # } else { # }",
        "c.arg(99)",
        "c.arg0",
        "c",
        "[#, #]",
    ],
);
/// Conditions.
const CONDITIONS: Forms = (
    &[
        "true",
        "yes",
        "# == #",
        "# != #",
        "# < #",
        "# >= #",
        "(? && ?)",
        "(? || ?)",
        "!(?)",
        "c.path == \"/etc/passwd\"",
        "c.path.starts_with(text)",
        "c.nth == 3",
        "c.result == \"yes\"",
        "c.arg2 == text",
        "? == ?",
    ],
    &[
        "text != c.arg1",
        "c.arg3.starts_with(\"x\")",
        "b",
        "#",
        "c.size.starts_with(\"\")",
    ],
);
/// What stands where it should not.
const STRAY: [&str; 24] = [
    "{",
    "}",
    "(",
    ")",
    "|",
    "||",
    ";",
    "\"",
    "'",
    "`",
    "${",
    "/*",
    "//",
    "\\",
    "#{",
    "?.",
    "..",
    "\u{0}",
    "\u{e9}",
    "\u{1f600}",
    "\n",
    "let",
    "fn",
    "@",
];

/// A text.
pub fn text(below: &mut dyn FnMut(usize) -> usize) -> String {
    let mut text = BEFORE.to_owned();
    for _ in 0..=below(3) {
        let head = one_of(HEADS, below);
        text.push_str(&filled(head, below, 0));
    }
    // Some are spoilt.
    if below(4) == 0 {
        let stray = STRAY[below(STRAY.len())];
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        text.insert_str(places[below(places.len())], stray);
    }
    text
}

fn one_of((usual, odd): Forms, below: &mut dyn FnMut(usize) -> usize) -> &'static str {
    let all = if below(16) == 15 { odd } else { usual };
    all[below(all.len())]
}

fn filled(form: &str, below: &mut dyn FnMut(usize) -> usize, depth: usize) -> String {
    let mut text = String::new();
    for letter in form.chars() {
        let forms = match letter {
            '@' => STATEMENTS,
            '#' => VALUES,
            '?' => CONDITIONS,
            _ => {
                text.push(letter);
                continue;
            }
        };
        let chosen = match depth > 6 {
            true => forms.0[0].replace('#', "1"),
            false => filled(one_of(forms, below), below, depth + 1),
        };
        text.push_str(&chosen);
    }
    text
}

/// Loads a text: it is refused, with a place that is there, or is a script. Gives whether it is.
pub fn load(source: &str) -> bool {
    let checks = Checks {
        event: |_| Ok(()),
        rule: |_| Ok(()),
        system_calls: |text| {
            let selection = Selection::parse(text, &|_, _| Ok(false));
            selection.map_err(|error| error.cause)
        },
    };
    let script = match Script::load("any", source, &[], checks) {
        Ok(script) => script,
        Err(error) => {
            assert!(!error.reason.is_empty(), "{source}");
            assert!(
                error.line <= source.lines().count() + 1,
                "{error}\n{source}"
            );
            let _ = (error.to_string(), error.picture());
            return false;
        }
    };
    let _ = (script.compiled(), script.handlers(), script.header());
    let _ = script.refuse_changes("not here");
    let tables = script.policy.tables.iter();
    let tables = Tables::telling(tables.map(|table| (table.kind, table.keys, table.told)));
    for payload in &script.policy.payloads {
        compile(payload, &tables, source);
    }
    true
}

/// A payload that was read can be compiled, or its expressions need more room than there is.
fn compile(payload: &Payload, tables: &Tables, source: &str) {
    const THREAD: Thread = Thread {
        tables: 0,
        muted: 8,
        tid: 16,
        top_frame: 24,
        errno: 32,
        active: 40,
        texts: 80,
        counters: 112,
        told: 120,
        key: 128,
        stack_page: 136,
        bids: 144,
        has_bidden: 152,
    };
    let mut acts = payload.acts.clone();
    let of = |number: u8| match number {
        RESULT => Some(Source::Result.into()),
        FAILURE => Some(u64::MAX.into()),
        number => Some(Source::Argument(number % 6).into()),
    };
    acts.resolve(&of).expect("each name has a place");
    let made = match payload.moment {
        Moment::Call => acts_code(&acts, tables, THREAD, Entry::default()),
        // Names may be more words than are kept, once they are known.
        Moment::Return if acts.keep().is_err() => return,
        Moment::Return => exit_code(&acts, tables, THREAD, 1 << 32),
    };
    made.unwrap_or_else(|error| panic!("{error}: {acts:?}\n{source}"));
}
