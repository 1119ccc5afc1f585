//! What is recorded: modules, functions, depth, system calls, and how much is kept.
//!
//! Must not know how a function is left out.

use rhai::{Dynamic, EvalAltResult, FnPtr};

use super::Vocabulary;
use super::activation::settled;
use crate::compiled::bids::{LEVELS, NO_SUCH_LEVEL};
use crate::error::refuse;
use crate::policy::{FunctionFacts, Level, Policy};

type Failure = Box<EvalAltResult>;

/// Adds them.
pub fn add(all: &mut Vocabulary<'_>) {
    all.section("What is recorded");
    type List = fn(&mut Policy) -> &mut Vec<String>;
    let lists: [(&str, &str, List); 6] = [
        (
            "module(GLOB)",
            "patch only modules whose file name fits (as -l); several add up",
            |policy| &mut policy.modules,
        ),
        (
            "only(GLOB)",
            "record only functions that fit, and what they call (as -F); several add up",
            |policy| &mut policy.only,
        ),
        (
            "leave_out(GLOB)",
            "leave out functions that fit, and what only they call (as -N)",
            |policy| &mut policy.without,
        ),
        (
            "not_below(GLOB)",
            "record functions that fit, and not what they call, as propagate does with a leaf",
            |policy| &mut policy.leaves,
        ),
        (
            "values(SPEC)",
            "record the arguments and results of these functions' calls, as in values(\"open@arg1/s\"): \
             SPEC as of -A",
            |policy| &mut policy.values,
        ),
        (
            "results(SPEC)",
            "record the results alone: SPEC as of -R",
            |policy| &mut policy.results,
        ),
    ];
    for (form, text, list) in lists {
        let shared = all.shared.clone();
        all.function(form, text, move |glob: &str| -> Result<(), Failure> {
            settled(&shared)?;
            if glob.is_empty() {
                return refuse("an empty name fits nothing", "as \"parse_*\"");
            }
            let glob = match form.contains("GLOB") {
                true => super::handlers::pattern(glob)?,
                false => glob,
            };
            list(&mut shared.lock().policy).push(glob.to_owned());
            Ok(())
        });
    }
    add_sizes(all);
    add_level(all);
    add_system_calls(all);
    add_propagate(all);
}

type Set = fn(&mut Policy, u64);
/// Words with a number: form, text, what it sets, and the least and the most.
const SIZES: [(&str, &str, Set, u64, u64); 6] = [
    (
        "depth(N)",
        "patch nothing that is first reached below this depth (as -D)",
        |policy, n| policy.depth = u32::try_from(n).ok(),
        1,
        u32::MAX as u64,
    ),
    (
        "string_limit(N)",
        "keep so many bytes of strings and buffers of system calls",
        |policy, n| policy.string_bytes = u32::try_from(n).ok(),
        0,
        16384,
    ),
    (
        "ring(SIZE)",
        "keep only the last so many bytes of the recording",
        |policy, n| policy.ring_bytes = Some(n),
        2 << 20,
        u64::MAX,
    ),
    (
        "max_size(SIZE)",
        "end the recording when its file has so many bytes",
        |policy, n| policy.most_bytes = Some(n),
        1,
        u64::MAX,
    ),
    (
        "hot_limit(RATE)",
        "count the calls of a function while it is called more than so many times a second, and \
         record those of all others (as --hot-limit). Functions that have payloads or values keep \
         each call. Not with between, only and record_only_syscalls, nor with a start that is a return or a slow call",
        |policy, n| policy.hot_limit = Some(n),
        1,
        1_000_000_000,
    ),
    (
        "short_limit(DURATION)",
        "the same only of functions whose calls last less than this on average (as \
         --short-limit), as in short_limit(2.us); without hot_limit while they are called more \
         than 1000 times a second. A function is recorded again for a moment now and then, to \
         be measured anew",
        |policy, n| policy.short_limit_ns = Some(n),
        1,
        1_000_000_000,
    ),
];

fn add_sizes(all: &mut Vocabulary<'_>) {
    for (form, text, set, least, most) in SIZES {
        let shared = all.shared.clone();
        all.function(form, text, move |n: i64| -> Result<(), Failure> {
            settled(&shared)?;
            match u64::try_from(n) {
                Ok(n) if (least..=most).contains(&n) => set(&mut shared.lock().policy, n),
                _ if most == u64::MAX => {
                    return refuse(&format!("at least {least} is wanted here"), "as 64.mb");
                }
                _ => return refuse(&format!("{least} to {most} is wanted here"), ""),
            }
            Ok(())
        });
    }
}

fn add_level(all: &mut Vocabulary<'_>) {
    let shared = all.shared.clone();
    all.function(
        "level(GLOB, LEVEL)",
        "count the calls of functions that fit (\"count\"), or leave them out as soon as one of them was seen (\"off\"), \
         from the beginning; \"record\" makes an exception of an earlier glob, as in level(\"*\", \"count\"); \
         level(\"parse_*\", \"record\"), and leaves out the values that values(SPEC) and results(SPEC) keep; \"values\" \
         keeps them. The last one that fits counts. Some milliseconds of calls may be recorded \
         first. What holds of c.level(GLOB, LEVEL), by which payloads change it, holds here",
        move |glob: &str, level: &str| -> Result<(), Failure> {
            settled(&shared)?;
            let glob = super::handlers::pattern(glob)?;
            let Some(level) = Level::named(level) else {
                return refuse(NO_SUCH_LEVEL, LEVELS);
            };
            shared.lock().policy.levels.push((glob.to_owned(), level));
            Ok(())
        },
    );
}

fn add_system_calls(all: &mut Vocabulary<'_>) {
    let ways: [(&str, &str, bool); 2] = [
        (
            "record_syscalls(SET)",
            "record system calls too: \"all\", or names and sets as strace's -e trace= has them \
             (\"openat,read\", \"%file\", \"/^get/\")",
            false,
        ),
        (
            "record_only_syscalls(SET)",
            "record these system calls, and no functions",
            true,
        ),
    ];
    for (form, text, only) in ways {
        let (shared, select) = (all.shared.clone(), all.checks.system_calls);
        all.function(form, text, move |set: &str| -> Result<(), Failure> {
            settled(&shared)?;
            if let Err(why) = select(set) {
                return refuse(&why, "");
            }
            let policy = &mut shared.lock().policy;
            if policy.system_calls.is_some() {
                return refuse("system calls are chosen twice", "write one set with commas");
            }
            policy.system_calls = Some(set.to_owned());
            policy.system_calls_only = only;
            Ok(())
        });
    }
}

fn add_propagate(all: &mut Vocabulary<'_>) {
    let shared = all.shared.clone();
    all.function(
        "propagate(|f| ...)",
        "decide about each function of a module, once, when its plan is made: the closure gives \
         record (as without it), skip (it is left out, as by leave_out), or leaf (its calls are \
         recorded, but not what it calls)",
        move |decide: FnPtr| -> Result<(), Failure> {
            settled(&shared)?;
            let policy = &mut shared.lock().policy;
            if policy.propagate.is_some() {
                return refuse("there is a propagate already", "decide all in one closure");
            }
            policy.propagate = Some(decide);
            Ok(())
        },
    );
    all.type_name::<FunctionFacts>("function");
    all.section("A function, in propagate(|f| ...)");
    let text = |text: &str| Dynamic::from(text.to_owned());
    all.property(
        "f.name",
        "demangled; sub_ADDRESS without a name",
        move |f: &mut FunctionFacts| text(&f.name),
    );
    all.property(
        "f.symbol",
        "as the file has it",
        move |f: &mut FunctionFacts| text(&f.symbol),
    );
    all.property(
        "f.module",
        "the base name of its file",
        move |f: &mut FunctionFacts| text(f.path.rsplit('/').next().unwrap_or("")),
    );
    all.property(
        "f.path",
        "the path of its file",
        move |f: &mut FunctionFacts| text(&f.path),
    );
    all.property(
        "f.address",
        "where it begins, as the file states addresses",
        |f: &mut FunctionFacts| f.address as i64,
    );
    all.property(
        "f.size",
        "bytes up to the next function",
        |f: &mut FunctionFacts| f.size_bytes as i64,
    );
    all.property(
        "f.calls",
        "calls and tail jumps in it; 0: it calls nothing",
        |f: &mut FunctionFacts| f.calls as i64,
    );
    add_details(all);
}

fn add_details(all: &mut Vocabulary<'_>) {
    all.property(
        "f.leaf",
        "true if it calls nothing: `if f.leaf { skip }`",
        |f: &mut FunctionFacts| f.calls == 0,
    );
    all.property(
        "f.loops",
        "true if it jumps back inside of itself: calls in it may be made again and again",
        |f: &mut FunctionFacts| f.more.0.as_ref().is_some_and(|more| more.has_loops()),
    );
    let line = |f: &FunctionFacts| f.more.0.as_ref().and_then(|more| more.line());
    all.property(
        "f.file",
        "the file of the source in which it begins, as the compiler was given it; \"\": not known, as without \
         debug information",
        move |f: &mut FunctionFacts| line(f).map_or(String::new(), |line| line.0),
    );
    all.property(
        "f.line",
        "the line in that file; 0: not known",
        move |f: &mut FunctionFacts| line(f).map_or(0, |line| i64::from(line.1)),
    );
    all.property(
        "f.prototype",
        "what it takes and gives, as debug information has it: `long price(int kind, long count)`; or \"\"",
        |f: &mut FunctionFacts| {
            let more = f.more.0.as_ref();
            more.and_then(|more| more.prototype()).unwrap_or_default()
        },
    );
}
