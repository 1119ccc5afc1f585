//! Options of a script, given after its name; and small helpers.
//!
//! Must not know where they were written.

use rhai::{Dynamic, EvalAltResult};
use sptrace_render::units::Duration;
use sptrace_trace::glob_matches;

use super::Vocabulary;
use super::activation::settled;
use crate::error::refuse;
use crate::policy::ScriptOption;

type Failure = Box<EvalAltResult>;

/// A number with a unit as the command line has it: `5ms`, `64k`, `10`.
fn number(text: &str) -> Option<f64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "k" | "kb" => 1024.0,
        "m" | "mb" => 1_048_576.0,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

fn read(name: &str, given: &str, default: &Dynamic) -> Result<Dynamic, Failure> {
    let wrong = |form: &str| {
        refuse(
            &format!("--{name}={given} is no {form}"),
            &format!("as --{name}={default}"),
        )
    };
    if default.is_int() {
        return match number(given) {
            Some(n) => Ok(Dynamic::from(n.round() as i64)),
            None => wrong("number (with ns, us, ms, s, k or m)"),
        };
    }
    if default.is_float() {
        return match number(given) {
            Some(n) => Ok(Dynamic::from(n)),
            None => wrong("number"),
        };
    }
    if default.is_bool() {
        return match given {
            "" | "true" | "yes" => Ok(Dynamic::from(true)),
            "false" | "no" => Ok(Dynamic::from(false)),
            _ => wrong("yes or no"),
        };
    }
    Ok(Dynamic::from(given.to_owned()))
}

/// Adds them.
pub fn add(all: &mut Vocabulary<'_>) {
    all.section("Options of a script");
    let shared = all.shared.clone();
    all.function(
        "option(NAME, default, HELP)",
        "the value given by --NAME=VALUE after the script's name, or the default, whose type it \
         has; durations and sizes may have units (5ms, 64k)",
        move |name: &str, default: Dynamic, help: &str| -> Result<Dynamic, Failure> {
            settled(&shared)?;
            let mut draft = shared.lock();
            draft.policy.options.push(ScriptOption {
                name: name.to_owned(),
                default: default.to_string(),
                help: help.to_owned(),
            });
            match draft.untaken.remove(name) {
                Some(given) => {
                    let value = read(name, &given, &default)?;
                    draft.policy.given.insert(name.to_owned(), given);
                    Ok(value)
                }
                None => Ok(default),
            }
        },
    );
    all.section("Helpers");
    all.function(
        "matches(TEXT, GLOB)",
        "does the text fit the glob (`*` any characters, `?` one), or the regular expression: \
         matches(f.name, \"/^parse_/\")?",
        |text: &str, glob: &str| {
            Ok::<_, Failure>(glob_matches(super::handlers::pattern(glob)?, text))
        },
    );
    all.function("duration(NS)", "a duration as text: 1.234 ms", |ns: i64| {
        Duration(ns.max(0) as u64).to_string().trim_end().to_owned()
    });
}
