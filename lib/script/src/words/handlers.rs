//! What runs on the host, on the events of the trace.
//!
//! Must not know how events are made.

use rhai::{EvalAltResult, FnPtr, NativeCallContext};
use sptrace_payload::acts::Moment;
use sptrace_trace::check_pattern;
use sptrace_types::calls::Selection;

use super::Vocabulary;
use super::activation::settled;
use crate::compiled::Asked;
use crate::draft::{Handler, Shared, Wanted};
use crate::error::refuse;
use crate::event::Subject;
use crate::policy::{Functions, Names};

type Failure = Box<EvalAltResult>;

/// Handlers of a script, at most.
const MOST_HANDLERS: usize = 64;

/// Functions, or calls of them.
#[derive(Clone)]
pub struct Place(Functions);

/// System calls.
#[derive(Clone)]
pub struct CallPlace(Selection);

/// A pattern that is right.
pub fn pattern(text: &str) -> Result<&str, Failure> {
    match check_pattern(text) {
        Ok(()) => Ok(text),
        Err(why) => refuse(&why, "as \"/^parse_/\", or the glob \"parse_*\""),
    }
}

/// Names of functions that are right.
fn names(text: &str) -> Result<Names, Failure> {
    let names = Names::read(text);
    if names.glob.is_empty() {
        return refuse("an empty name fits nothing", "as \"parse_*\"");
    }
    pattern(names.module.as_deref().unwrap_or("*"))?;
    pattern(&names.glob)?;
    Ok(names)
}

fn handle(shared: &Shared, wanted: Wanted, function: FnPtr) -> Result<(), Failure> {
    settled(shared)?;
    let mut draft = shared.lock();
    if draft.handlers.len() >= MOST_HANDLERS {
        return refuse(
            &format!("more than {MOST_HANDLERS} handlers"),
            "decide by e.name in one handler",
        );
    }
    draft.handlers.push(Handler { wanted, function });
    Ok(())
}

/// Adds them.
pub fn add(all: &mut Vocabulary<'_>) {
    all.section("What is made of it: handlers");
    all.type_name::<Place>("place");
    all.type_name::<CallPlace>("place of system calls");
    let simple: [(&str, &str, Wanted); 3] = [
        (
            "on_event(|e| ...)",
            "at the end of every call of a function, and of every system call; what ran already when the \
             recording began, or was going on in the parent of a fork, is no call of it",
            Wanted::All,
        ),
        ("later(|e| ...)", "the same", Wanted::All),
        (
            "on_end(|| ...)",
            "once, after all; sheets that were not shown then print themselves",
            Wanted::End,
        ),
    ];
    for (form, text, wanted) in simple {
        let shared = all.shared.clone();
        all.function(form, text, move |function: FnPtr| {
            handle(&shared, wanted.clone(), function)
        });
    }
    add_happenings(all);
    let shared = all.shared.clone();
    all.function(
        "on_interval(DURATION, || ...)",
        "again and again, in the time of the trace",
        move |ns: i64, function: FnPtr| match u64::try_from(ns) {
            Ok(ns @ 1000..) => handle(&shared, Wanted::Interval(ns), function),
            _ => refuse("an interval of 1.us at least is wanted here", "as 1.s"),
        },
    );
    add_places(all);
    let shared = all.shared.clone();
    all.function(
        "now()",
        "nanoseconds from the recording's start to the event that is told",
        move || shared.lock().now_ns as i64,
    );
}

fn add_happenings(all: &mut Vocabulary<'_>) {
    let told: [(&str, &str, Wanted); 5] = [
        (
            "on_process(|p| ...)",
            "when a process begins, executes a program, or ends",
            Wanted::Happenings(Subject::Process),
        ),
        (
            "on_thread(|p| ...)",
            "when a thread begins or ends, as far as it was recorded",
            Wanted::Happenings(Subject::Thread),
        ),
        (
            "on_module(|p| ...)",
            "when a process has a module mapped: the program, a library, a plugin",
            Wanted::Happenings(Subject::Module),
        ),
        (
            "on_signal(|p| ...)",
            "when a signal is delivered to a handler; needs record_syscalls or \
             record_only_syscalls",
            Wanted::Happenings(Subject::Signal),
        ),
        (
            "on_counted(|c| ...)",
            "at the end, for each function and caller in each thread whose calls were counted and \
             not recorded: by hot_limit, or run --count",
            Wanted::Counted,
        ),
    ];
    for (form, text, wanted) in told {
        let shared = all.shared.clone();
        all.function(form, text, move |function: FnPtr| {
            handle(&shared, wanted.clone(), function)
        });
    }
}

fn add_choices(all: &mut Vocabulary<'_>) {
    all.function(
        "at(GLOB)",
        "functions whose name fits; \"MODULE!GLOB\": of modules whose base name fits",
        |what: &str| {
            let names = names(what)?;
            let functions = Functions {
                names,
                ..Functions::default()
            };
            Ok::<_, Failure>(Place(functions))
        },
    );
    all.function(
        "place.called_by(GLOB)",
        "only calls that these functions make, as in at(\"malloc\").called_by(\"app!parse_*\"); payloads of \
         such calls add to sheets and do nothing else",
        |place: &mut Place, what: &str| {
            let caller = Some(names(what)?);
            let functions = place.0.clone();
            Ok::<_, Failure>(Place(Functions {
                caller,
                ..functions
            }))
        },
    );
    all.function(
        "place.in_file(GLOB)",
        "only functions that begin in such a file of the source, by its path or the last part of that: \
         at(\"*\").in_file(\"parse*.c\"); it is known where there is debug information",
        |place: &mut Place, file: &str| {
            let file = Some(pattern(file)?.to_owned());
            let functions = place.0.clone();
            Ok::<_, Failure>(Place(Functions { file, ..functions }))
        },
    );
}

fn add_places(all: &mut Vocabulary<'_>) {
    add_choices(all);
    let select = all.checks.system_calls;
    all.function(
        "syscalls(SET)",
        "system calls, named as by record_syscalls",
        move |set: &str| match select(set) {
            Ok(selection) => Ok(CallPlace(selection)),
            Err(why) => refuse(&why, ""),
        },
    );
    let shared = all.shared.clone();
    all.function(
        "place.later(|e| ...)",
        "at the end of each call of these functions, or of these system calls",
        move |place: &mut Place, function: FnPtr| {
            handle(&shared, Wanted::Calls(place.0.clone()), function)
        },
    );
    let shared = all.shared.clone();
    all.also(move |place: &mut CallPlace, function: FnPtr| {
        handle(&shared, Wanted::SystemCalls(place.0.clone()), function)
    });
    let shared = all.shared.clone();
    all.function(
        "place.begins(|e| ...)",
        "at the beginning of each call of these functions: elapsed and self_time are () then",
        move |place: &mut Place, function: FnPtr| {
            handle(&shared, Wanted::Begins(place.0.clone()), function)
        },
    );
    add_payloads(all);
    super::variables::add(all);
}

/// What a payload is, for the manual.
const ON_ENTER: &str = "inside of the program, compiled to native code, when one of these functions is called: \
     SHEET.add(...) to sheets of count, sum, min, max, histogram, slowest and table, with whole numbers, c.caller, c.stack(N) and c.str(N) as keys, and \
     c.record(), without which the call is not recorded. c.caller is the function that makes the call, or the jump, and is shown by \
     its name; ? where it is not known. c.stack(N) is the N innermost callers, 1 to 16, shown as e.callers(N) shows \
     them: calls that go on without a record are in no stack, nor is what lies behind 256 frames of such; a \
     thread begins with the place that has started it. c.str(N), or c.str(\"NAME\"), is the text that an argument points \
     to, at 1 us a call; of a longer one the first 256 bytes are shown, ? of what cannot be read. c.arg1, c.arg2 and so on are arguments as \
     whole registers, c.NAME those of the function's prototype, c.tid the thread, c.nth how often \
     the payload has been reached in its process, with this call; c.depth how many recorded calls \
     are open around this one, without what has jumped to it, at some 0.3 us and a little more for \
     each of them; i32(n), u8(n) and the like take the lower bits. c.NAME == TEXT and c.NAME.starts_with(TEXT) compare the text that an argument \
     points to, at 1 us a call. There are if, let, comparisons and + - * & | ^ << >>, and no loops \
     and functions; what is captured is constant. `sptrace script explain` shows instructions and \
     price. At recorded system calls, syscalls(SET), a payload runs too; their arguments have the \
     names of the kernel's source, and c.path is the first file name, c.fd the first descriptor. \
     With --allow-active, and not without, it changes what the program does: c.override(RESULT): \
     the call is not made, and gives this; c.deny(ERRNO) or c.deny(ERRNO, RESULT): it is not made, \
     and fails with \"ENOENT\" and the like; c.delay(DURATION): it is made so much later; \
     c.raise(SIGNAL): \"SIGUSR1\" and the like is raised in the thread before it. Each such call is \
     recorded, and marked INJECTED. c.print(TEXT, VALUE, ...) keeps a line, with what may be a key in the place of each {}, up to \
     four: the program prints nothing; lines are shown when the recording ends, and again by `report script`, with \
     the time and the thread, in the order of time. 1,000 of a thread are kept for each place in the script, and so \
     many rows of a table; how many had no room is said. c.start(), c.stop(), c.dump() and c.level(GLOB, LEVEL) ask something of the \
     recording; see below";

/// What is compiled, and runs inside of the program.
fn add_payloads(all: &mut Vocabulary<'_>) {
    let shared = all.shared.clone();
    all.function(
        "place.on_enter(|c| ...)",
        ON_ENTER,
        move |context: NativeCallContext<'_>, place: Place, function: FnPtr| {
            ask(&shared, Moment::Call, &context, place, function)
        },
    );
    let shared = all.shared.clone();
    all.also(
        move |context: NativeCallContext<'_>, place: CallPlace, function: FnPtr| {
            ask_of_kernel(&shared, Moment::Call, &context, place, function)
        },
    );
    let shared = all.shared.clone();
    all.function(
        "place.on_exit(|c| ...)",
        "the same when one of these functions returns, with what is known then: c.result, as wide \
         as the function's prototype says or as a whole register, c.elapsed in nanoseconds (compare \
         it with 5.us), c.self_time, which is c.elapsed less the time of those calls inside at whose return \
         a payload asks for c.self_time, too (with at(\"*\") all that are seen; it takes one of the six \
         arguments and two of the variables), c.errno, which means something where the result says that the call has \
         failed, and of the call's arguments six, as they were when it began; where more than two are used, each call takes \
         some microseconds. c.str(N), fields, and comparisons with texts see \
         what is there at the return, up to the first zero byte; c.result_str() is the text that the result points to, and c.result == TEXT \
         compares it. c.record() is refused: \
         the beginning of the call has passed. A call that an exception or longjmp leaves does not \
         return, and one that a fork takes to a child is none of the child's. Of recorded system calls, \
         syscalls(SET), c.result is what the kernel gives, a negative errno where it fails, and \
         c.errno is that number, or 0; the return of what makes a task that shares memory (vfork) is counted \
         as one whose payload could not run",
        move |context: NativeCallContext<'_>, place: Place, function: FnPtr| {
            ask(&shared, Moment::Return, &context, place, function)
        },
    );
    let shared = all.shared.clone();
    all.also(
        move |context: NativeCallContext<'_>, place: CallPlace, function: FnPtr| {
            ask_of_kernel(&shared, Moment::Return, &context, place, function)
        },
    );
}

fn ask(
    shared: &Shared,
    moment: Moment,
    context: &NativeCallContext<'_>,
    place: Place,
    closure: FnPtr,
) -> Result<(), Failure> {
    settled(shared)?;
    let mut draft = shared.lock();
    if draft.payloads.len() >= MOST_HANDLERS {
        return refuse(&format!("more than {MOST_HANDLERS} payloads"), "use globs");
    }
    draft.payloads.push(Asked {
        functions: place.0,
        calls: None,
        moment,
        closure,
        at: context.call_position(),
    });
    Ok(())
}

fn ask_of_kernel(
    shared: &Shared,
    moment: Moment,
    context: &NativeCallContext<'_>,
    CallPlace(calls): CallPlace,
    closure: FnPtr,
) -> Result<(), Failure> {
    settled(shared)?;
    let mut draft = shared.lock();
    if draft.payloads.len() >= MOST_HANDLERS {
        return refuse(&format!("more than {MOST_HANDLERS} payloads"), "use sets");
    }
    draft.payloads.push(Asked {
        functions: Functions::default(),
        calls: Some(calls),
        moment,
        closure,
        at: context.call_position(),
    });
    Ok(())
}
