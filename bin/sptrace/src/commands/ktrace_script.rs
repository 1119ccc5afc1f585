//! `sptrace ktrace -S`: what a script asks of the kernel.
//!
//! Given a script; adds what it says to the options, and gives what the kernel itself is to run.
//! What cannot be done for functions of the kernel is refused at its place in the script, before
//! anything is started.

use std::sync::Arc;

use sptrace_collect::event::Event;
use sptrace_kernel::counts::{Asked, Payload};
use sptrace_script::{Policy, Script, ScriptError};

use crate::commands::ktrace_turns::TurnArgs;
use crate::commands::script::{Refused, complain, load};
use crate::commands::selection;
use crate::talk::say;

/// Options that a script adds to.
pub struct Asks<'a> {
    /// -S
    pub script: Option<&'a str>,
    /// --eval
    pub eval: Option<&'a str>,
    /// Events.
    pub turns: &'a mut TurnArgs,
    /// -F
    pub filters: &'a mut Vec<String>,
    /// -N
    pub notrace: &'a mut Vec<String>,
    /// -D
    pub depth: &'a mut Option<u32>,
    /// -s
    pub string_limit: &'a mut u32,
}

/// What the kernel is to do for a script.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    /// The script, if there is one.
    pub script: Option<Arc<Script>>,
    /// What runs in the kernel.
    pub counts: Option<Asked>,
    /// System calls that are recorded; all if there are none.
    pub system_calls: Vec<u32>,
    /// No functions are asked for.
    pub is_without_functions: bool,
}

/// Loads the script of -S or --eval, and adds what it asks for to the options. `None`: its help was
/// asked for, and printed.
///
/// # Errors
/// It cannot be used; all has been said.
pub fn follow(asks: Asks<'_>) -> Result<Option<Followed>, Refused> {
    let is_asked = asks.script.is_some() || asks.eval.is_some();
    let Some(script) = load(asks.script, asks.eval)? else {
        return Ok((!is_asked).then(Followed::default));
    };
    script.take_early().lines().for_each(say);
    let refused = refusal(&script);
    if let Some(error) = refused {
        complain(&error);
        return Err(Refused);
    }
    let followed = add(asks, Arc::new(script));
    followed.map(Some).map_err(|why| {
        say(&why);
        Refused
    })
}

/// What says that calls are counted.
fn level_word(policy: &Policy) -> &'static str {
    match (policy.hot_limit, policy.short_limit_ns) {
        (Some(_), _) => "hot_limit(",
        (_, Some(_)) => "short_limit(",
        _ => "level(",
    }
}

/// The first thing that cannot be done, where it stands.
fn refusal(script: &Script) -> Option<ScriptError> {
    let policy = &script.policy;
    let words = [
        (
            !policy.modules.is_empty(),
            "module(",
            "files of programs have no part in a recording of the kernel",
            "name functions of the kernel by only(GLOB)",
        ),
        (
            !policy.between.is_empty(),
            "between(",
            "ktrace records all functions of a recording from its beginning to its end",
            "write start(EVENT) and stop(EVENT)",
        ),
        (
            policy.times.is_some(),
            "times(",
            "ktrace records one stretch, and dumps at each event",
            "leave it out",
        ),
        (
            policy.most_bytes.is_some(),
            "max_size(",
            "the size of a trace of the kernel is bounded by a ring alone",
            "write ring(SIZE)",
        ),
        (
            policy.has_limit() || !policy.levels.is_empty(),
            level_word(policy),
            "functions of the kernel are traced or not: their calls are not counted instead",
            "count them with at(GLOB).on_enter(|c| SHEET.add(...))",
        ),
        (
            policy.decides_functions(),
            "propagate(",
            "the kernel is told once which functions are traced, and asks no more",
            "write only(GLOB), leave_out(GLOB) and depth(N)",
        ),
    ];
    if let Some((_, word, reason, hint)) = words.into_iter().find(|(is_there, ..)| *is_there) {
        return Some(script.error_at(word, None, reason, hint));
    }
    if let Some(of_programs) = policy.payloads.iter().find(|p| p.needs_program()) {
        let reason = "the kernel's probes compare no texts, count no calls and change nothing, and \
                      system calls have none";
        let line = Some(of_programs.line);
        return Some(script.error_at("on_enter", line, reason, "use `sptrace run`"));
    }
    let (number, refused) = asked(policy)?.refused()?;
    let line = policy.payloads.get(number).map(|payload| payload.line);
    Some(script.error_at("on_enter", line, refused.reason, refused.hint))
}

/// What the kernel is to run.
fn asked(policy: &Policy) -> Option<Asked> {
    let payloads = policy.payloads.iter().map(|payload| Payload {
        module: payload.functions.names.module.clone(),
        glob: payload.functions.names.glob.clone(),
        acts: payload.acts.clone(),
        names: payload.names.clone(),
    });
    let tables = policy.tables.iter();
    let tables = tables.map(|table| (table.title.clone(), table.kind, table.keys));
    (!policy.payloads.is_empty()).then(|| Asked {
        payloads: payloads.collect(),
        tables: tables.collect(),
    })
}

fn add(asks: Asks<'_>, script: Arc<Script>) -> Result<Followed, String> {
    let policy = &script.policy;
    let read = |texts: &[String]| {
        let events = texts.iter().map(|text| text.parse::<Event>());
        let events: Result<Vec<_>, _> = events.collect();
        events.map_err(|e| format!("{}: {e}", script.name))
    };
    let turns = asks.turns;
    turns.start_on.extend(read(&policy.start)?);
    turns.stop_on.extend(read(&policy.stop)?);
    turns.dump_on.extend(read(&policy.dump)?);
    turns.ring = turns.ring.or(policy.ring_bytes);
    if !turns.dump_on.is_empty() && turns.ring.is_none() {
        let name = &script.name;
        return Err(format!(
            "{name}: dump(...) needs ring(SIZE): what is written out"
        ));
    }
    asks.filters.extend_from_slice(&policy.only);
    asks.notrace.extend_from_slice(&policy.without);
    *asks.depth = asks.depth.or(policy.depth);
    *asks.string_limit = policy.string_bytes.unwrap_or(*asks.string_limit);
    let mut system_calls = Vec::new();
    if let Some(set) = &policy.system_calls {
        let wanted = selection::parse(set)?;
        system_calls.extend((0..1024).filter(|number| wanted.contains(*number)));
        if system_calls.len() > MOST_CALLS {
            // A filter of so many would be refused.
            let count = system_calls.len();
            system_calls.clear();
            if count < ALL_CALLS {
                say(&format!(
                    "{}: '{set}' are {count} system calls, more than a filter of the kernel's \
                     takes: all are recorded",
                    script.name
                ));
            }
        }
    }
    Ok(Followed {
        counts: asked(policy),
        system_calls,
        is_without_functions: policy.system_calls_only && asks.filters.is_empty(),
        script: Some(Arc::clone(&script)),
    })
}

/// Numbers that a filter of the kernel's may have.
const MOST_CALLS: usize = 100;
/// A set with so many is all there are.
const ALL_CALLS: usize = 350;
