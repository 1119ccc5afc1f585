//! What an event says.
//!
//! Must not know how it was found out.

use rhai::{Array, Dynamic, EvalAltResult, ImmutableString, Map};

use super::Vocabulary;
use crate::error::refuse;
use crate::event::{Counted, Event, ProcessEvent, argument_names};
use sptrace_types::names;

type Failure = Box<EvalAltResult>;

fn known(ns: Option<u64>) -> Dynamic {
    ns.map_or(Dynamic::UNIT, |ns| Dynamic::from(ns as i64))
}

/// Adds it.
pub fn add(all: &mut Vocabulary<'_>) {
    all.type_name::<Event>("event of a trace");
    all.type_name::<ProcessEvent>("event of a process");
    all.section("An event, in later(|e| ...)");
    let kinds: [ImmutableString; 2] = ["call".into(), "syscall".into()];
    all.property("e.kind", "\"call\" or \"syscall\"", move |e: &mut Event| {
        let [call, system_call] = &kinds;
        match e.0.call() {
            None => call.clone(),
            Some(_) => system_call.clone(),
        }
    });
    all.property(
        "e.name",
        "of the function, demangled, or of the system call",
        |e: &mut Event| e.0.name.clone(),
    );
    all.property(
        "e.module",
        "the base name of the function's file",
        |e: &mut Event| e.0.module.clone(),
    );
    all.property(
        "e.caller",
        "who called it; empty if that was not seen",
        |e: &mut Event| e.0.caller.clone(),
    );
    all.property(
        "e.caller_module",
        "the base name of that one's file",
        |e: &mut Event| e.0.caller_module.clone(),
    );
    add_stacks(all);
    add_times(all);
    add_system_calls(all);
    add_processes(all);
}

fn add_stacks(all: &mut Vocabulary<'_>) {
    let shared = all.shared.clone();
    all.property(
        "e.stack",
        "names of who was running, the outermost first, without itself",
        move |e: &mut Event| -> Result<Array, Failure> {
            let draft = shared.lock();
            if draft.serial != e.0.serial {
                return refuse(
                    "the stack of an event is known only while it is told",
                    "keep e.stack, not e",
                );
            }
            let open = draft.stack.iter();
            let names = open.filter_map(|at| draft.names.get(*at)?.clone());
            Ok(names.map(Dynamic::from).collect())
        },
    );
    let shared = all.shared.clone();
    all.function(
        "e.callers(N)",
        "the N innermost of them as a text, `main > parse`, made much faster than of e.stack; 0: all",
        move |e: &mut Event, most: i64| -> Result<ImmutableString, Failure> {
            let mut draft = shared.lock();
            if draft.serial != e.0.serial {
                return refuse(
                    "the callers of an event are known only while it is told",
                    "keep e.callers(N), not e",
                );
            }
            Ok(draft.callers(usize::try_from(most).unwrap_or(0)))
        },
    );
}

fn add_times(all: &mut Vocabulary<'_>) {
    all.property(
        "e.depth",
        "how many functions are open below it",
        |e: &mut Event| i64::from(e.0.depth),
    );
    all.property(
        "e.start",
        "nanoseconds from the recording's start to it",
        |e: &mut Event| e.0.start_ns as i64,
    );
    all.property(
        "e.elapsed",
        "how long it took, in nanoseconds; () if its end was not seen",
        |e: &mut Event| known(e.0.elapsed_ns),
    );
    all.property(
        "e.self_time",
        "the part of it outside of what it called; () if that is not known",
        |e: &mut Event| known(e.0.self_ns),
    );
    all.property(
        "e.end",
        "how it ended: \"return\", \"jump\" (an exception, longjmp), \"process\" (it ran until the \
         process ended or executed another program), \"?\" if that was not seen",
        |e: &mut Event| e.0.end.to_owned(),
    );
    all.property("e.pid", "its process", |e: &mut Event| i64::from(e.0.pid));
    all.property("e.tid", "its thread", |e: &mut Event| i64::from(e.0.tid));
    all.property("e.thread", "the name of the thread", |e: &mut Event| {
        e.0.thread.clone()
    });
}

fn add_system_calls(all: &mut Vocabulary<'_>) {
    all.section("Of system calls also, and of functions whose values are recorded");
    all.property(
        "e.result",
        "what it returned, of system calls errors below 0; () if it did not return, or that was \
         not recorded",
        |e: &mut Event| e.0.result(),
    );
    all.property(
        "e.failed",
        "did it return an error, or of functions set errno?",
        |e: &mut Event| e.0.error().is_some(),
    );
    all.property(
        "e.errno",
        "the error's name as \"ENOENT\", or \"\"",
        |e: &mut Event| e.0.errno().to_owned(),
    );
    all.property(
        "e.errno_text",
        "the error in words, or \"\"",
        |e: &mut Event| {
            let known = e.0.error().and_then(names::error);
            known.map_or("", |(_, text)| text).to_owned()
        },
    );
    all.property(
        "e.injected",
        "what a payload has done to the call, in words (\"not called, -1 ENOENT\"), or \"\"",
        |e: &mut Event| e.0.injected.clone(),
    );
    add_arguments(all);
}

fn add_arguments(all: &mut Vocabulary<'_>) {
    let given = |found: Result<Dynamic, String>| match found {
        Ok(value) => Ok(value),
        Err(why) => match why.split_once('\t') {
            Some((why, hint)) => refuse::<Dynamic>(why, hint),
            None => refuse::<Dynamic>(&why, ""),
        },
    };
    all.function(
        "e.arg(NAME)",
        "an argument by the name it has in the kernel's source (\"filename\", \"count\") or in the \
         function's prototype, or a part of what it leads to (\"statbuf.st_size\"): a number or a \
         text; () if its memory was not recorded, and of a function if values(...) does not name it",
        move |e: &mut Event, name: &str| given(e.0.argument(name)),
    );
    all.function(
        "e.arg(N)",
        "the same by number, from 1; of system calls the register itself",
        move |e: &mut Event, number: i64| given(e.0.numbered(number)),
    );
    all.property("e.args", "all arguments by name", |e: &mut Event| -> Map {
        let names = argument_names(&e.0);
        let values = names.into_iter().map(|name| {
            let value = e.0.argument(&name).unwrap_or(Dynamic::UNIT);
            (name.as_str().into(), value)
        });
        values.collect()
    });
    all.property(
        "e.path",
        "the path it names, or what its descriptor leads to: a path, a peer as 127.0.0.1:80, \
         \"pipe\"; as far as recorded calls tell",
        |e: &mut Event| e.0.path(),
    );
    all.property(
        "e.peer",
        "the address it names: 127.0.0.1:80, [::1]:80, unix:PATH; or \"\"",
        |e: &mut Event| {
            let peer = e.0.call().and_then(crate::descriptors::peer);
            peer.unwrap_or_default()
        },
    );
    all.property(
        "e.line",
        "the call as strace prints it, of functions as ltrace does",
        |e: &mut Event| e.0.line().unwrap_or_else(|| e.0.name.to_string()),
    );
}

fn add_processes(all: &mut Vocabulary<'_>) {
    all.section("A process, thread, module or signal, in on_process(|p| ...) and the like");
    all.property(
        "p.kind",
        "\"begin\", \"exec\" or \"exit\"; of modules \"map\", of signals \"signal\"",
        |p: &mut ProcessEvent| p.kind.to_owned(),
    );
    all.property("p.pid", "the process", |p: &mut ProcessEvent| {
        i64::from(p.pid)
    });
    all.property(
        "p.tid",
        "the thread; of a process its first",
        |p: &mut ProcessEvent| i64::from(p.tid),
    );
    all.property(
        "p.ppid",
        "its parent, 0 if not known",
        |p: &mut ProcessEvent| i64::from(p.ppid),
    );
    all.property(
        "p.time",
        "nanoseconds from the recording's start",
        |p: &mut ProcessEvent| p.time_ns as i64,
    );
    all.property(
        "p.path",
        "of exec the program, of modules the file, of signals the name as \"SIGUSR1\"",
        |p: &mut ProcessEvent| p.path.clone(),
    );
    all.property(
        "p.thread",
        "the name of the thread, of processes of the first one",
        |p: &mut ProcessEvent| p.thread.clone(),
    );
    all.property(
        "p.status",
        "of a process's exit: \"0\", \"1\", \"signal 9\"",
        |p: &mut ProcessEvent| p.status.clone(),
    );
    all.type_name::<Counted>("counted calls");
    all.section("Counted calls, in on_counted(|c| ...)");
    all.property("c.name", "the function", |c: &mut Counted| c.name.clone());
    all.property(
        "c.module",
        "the base name of its file",
        |c: &mut Counted| c.module.clone(),
    );
    all.property(
        "c.caller",
        "who called it; empty if that is not known",
        |c: &mut Counted| c.caller.clone(),
    );
    all.property("c.calls", "how often", |c: &mut Counted| c.calls as i64);
    all.property("c.tid", "the thread", |c: &mut Counted| i64::from(c.tid));
}
