//! When it is recorded: events, and what follows from them.
//!
//! Events become what the command line has for them, and are read by the same reader. Must not know
//! how an event is waited for.

use rhai::{Array, Dynamic, EvalAltResult};

use super::Vocabulary;
use crate::draft::Shared;
use crate::error::refuse;

/// An event, as the command line writes it.
#[derive(Clone, Debug)]
pub struct Event(pub String);

type Failure = Box<EvalAltResult>;
type Check = fn(&str) -> Result<(), String>;

/// One event or a list of them, of which any counts.
fn texts(what: Dynamic, check: Check) -> Result<Vec<String>, Failure> {
    if let Some(event) = what.clone().try_cast::<Event>() {
        return Ok(vec![event.0]);
    }
    if let Some(list) = what.clone().try_cast::<Array>() {
        let lists = list.into_iter().map(|one| texts(one, check));
        return Ok(lists.collect::<Result<Vec<_>, _>>()?.concat());
    }
    match what.into_string() {
        Ok(text) => Ok(vec![checked(text, check)?.0]),
        Err(kind) => refuse(
            &format!("an event is wanted here, not {kind}"),
            "as start(called(\"main\")) or start(\"call:main\")",
        ),
    }
}

fn checked(text: String, check: Check) -> Result<Event, Failure> {
    match check(&text) {
        Ok(()) => Ok(Event(text)),
        Err(why) => refuse(&why, ""),
    }
}

/// Refuses what comes after the script's top level.
pub fn settled(shared: &Shared) -> Result<(), Failure> {
    match shared.lock().is_settled {
        true => refuse(
            "a handler cannot change what is recorded: it runs when that is over",
            "write it at the script's top level",
        ),
        false => Ok(()),
    }
}

fn duration_text(ns: i64) -> Result<String, Failure> {
    match ns {
        1.. => Ok(format!("{ns}ns")),
        _ => refuse("a duration above 0 is wanted here", "as 200.ms"),
    }
}

/// Adds them.
pub fn add(all: &mut Vocabulary<'_>) {
    all.type_name::<Event>("event");
    all.section("When it is recorded");
    let check = all.checks.event;
    type List = fn(&mut crate::policy::Policy) -> &mut Vec<String>;
    let lists: [(&str, &str, List); 3] = [
        (
            "start(event)",
            "begin the recording at this event, or at any of a list; of `attach` it begins at once",
            |policy| &mut policy.start,
        ),
        (
            "stop(event)",
            "end the recording, not the program, at this event",
            |policy| &mut policy.stop,
        ),
        (
            "dump(event)",
            "write out the ring at this event; needs ring(SIZE)",
            |policy| &mut policy.dump,
        ),
    ];
    for (form, text, list) in lists {
        let shared = all.shared.clone();
        all.function(form, text, move |what: Dynamic| -> Result<(), Failure> {
            settled(&shared)?;
            let texts = texts(what, check)?;
            list(&mut shared.lock().policy).extend(texts);
            Ok(())
        });
    }
    add_rules(all, check);
    add_events(all, check);
    add_composition(all, check);
}

fn add_rules(all: &mut Vocabulary<'_>, check: Check) {
    let (shared, rule) = (all.shared.clone(), all.checks.rule);
    all.function(
        "between(GLOB, start, stop)",
        "record calls of these functions, and what they call, only from one event to the other; \
         start may be \"start\": from the beginning. Several rules give different functions \
         different times",
        move |glob: &str, start: Dynamic, stop: Dynamic| -> Result<(), Failure> {
            settled(&shared)?;
            let one = |what: Dynamic| match what.clone().into_string() {
                Ok(text) if text == "start" => Ok(text),
                _ => match texts(what, check)?.as_slice() {
                    [event] => Ok(event.clone()),
                    _ => refuse(
                        "a rule begins at one event and ends at one",
                        "write two rules",
                    ),
                },
            };
            let words = [glob.to_owned(), one(start)?, one(stop)?];
            if let Err(why) = rule(&words) {
                return refuse(&why, "");
            }
            shared.lock().policy.between.push(words);
            Ok(())
        },
    );
    let shared = all.shared.clone();
    all.function(
        "times(N)",
        "how often dumps, rules, and recordings from start to stop happen; else once",
        move |n: i64| -> Result<(), Failure> {
            settled(&shared)?;
            match u64::try_from(n) {
                Ok(n @ 1..) => shared.lock().policy.times = Some(n),
                _ => return refuse("it happens once at least", "as times(3)"),
            }
            Ok(())
        },
    );
}

fn add_events(all: &mut Vocabulary<'_>, check: Check) {
    all.section("Events");
    all.function(
        "time(DURATION)",
        "so long after the recording's start, and again and again; of start: after the command's",
        move |ns: i64| checked(format!("time:{}", duration_text(ns)?), check),
    );
    let named: [(&str, &str, &str); 5] = [
        ("called(GLOB)", "such a function is called", "call"),
        ("returned(GLOB)", "such a function returns", "return"),
        (
            "signal(NAME)",
            "sptrace receives a signal: \"USR1\", \"HUP\"",
            "signal",
        ),
        (
            "key(KEY)",
            "a key on the controlling terminal: \"ctrl-t\", \"f5\"",
            "key",
        ),
        (
            "ctl(WORD)",
            "`sptrace ctl WORD` from another terminal",
            "ctl",
        ),
    ];
    for (form, text, kind) in named {
        all.function(form, text, move |what: &str| {
            checked(format!("{kind}:{what}"), check)
        });
    }
    all.function(
        "slow(GLOB, DURATION)",
        "a call of such a function has taken longer",
        move |glob: &str, ns: i64| checked(format!("slow:{glob}>{}", duration_text(ns)?), check),
    );
    all.function(
        "crash()",
        "the command or a process that it started is killed by a signal",
        move || checked("crash".to_owned(), check),
    );
    all.function("exit()", "the command ends", move || {
        checked("exit".to_owned(), check)
    });
}

fn add_composition(all: &mut Vocabulary<'_>, check: Check) {
    all.function(
        "event.every(N)",
        "only its every Nth time counts",
        move |event: &mut Event, n: i64| match (n, event.0.contains('#')) {
            _ if [" & ", " then "].iter().any(|s| event.0.contains(s)) => refuse(
                "events that are put together are not counted",
                "count each of them",
            ),
            (1.., false) => checked(format!("{}#{n}", event.0), check),
            (1.., true) => refuse("it is counted already", "multiply the two numbers"),
            _ => refuse("an event is counted from 1", "as called(\"f\").every(10)"),
        },
    );
    all.function(
        "any([event, ...])",
        "whichever of them happens",
        move |list: Array| -> Result<Array, Failure> {
            let texts = texts(Dynamic::from(list), check)?;
            Ok(texts.into_iter().map(|t| Dynamic::from(Event(t))).collect())
        },
    );
    all.function(
        "all([event, ...])",
        "when all of them have happened, in any order; again when all have happened again",
        move |list: Array| -> Result<Event, Failure> {
            let texts = texts(Dynamic::from(list), check)?;
            checked(texts.join(" & "), check)
        },
    );
    all.function(
        "event.after(event)",
        "only if it happens when the other has: called(\"serve\").after(signal(\"USR1\"))",
        move |event: &mut Event, first: Event| {
            checked(format!("{} then {}", first.0, event.0), check)
        },
    );
}
