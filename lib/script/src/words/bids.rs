//! What payloads ask of the recording itself, for the manual, and for who writes it elsewhere.
//!
//! A payload is compiled and never evaluated, so whoever evaluates these words has written them
//! outside of one. Must not know how a payload is compiled.

use rhai::Dynamic;

use super::Vocabulary;
use crate::error::refuse;
use crate::sheets::Failure;

/// Adds them.
pub fn add(all: &mut Vocabulary<'_>) {
    all.section("What a payload asks of the recording");
    let words = [
        (
            "c.start()",
            "begin the recording, with this call: the program is followed from its start, as by `run --shadow`, \
             and payloads run, but nothing is recorded before. Once, and for `run` alone. With start(EVENT) \
             beside, whichever comes first",
        ),
        (
            "c.stop()",
            "end the recording, not the program, behind this call's beginning, or in on_exit behind its return: of \
             the thread that asks nothing later is in the trace, and of others what the host has not read yet \
             is cut at the same moment",
        ),
        (
            "c.dump()",
            "write out the ring, with this call, as dump(EVENT) does, and as often as times(N) says; needs \
             ring(SIZE). What is asked again before the host has looked is one dump. All four are asked from \
             a payload, under a condition on arguments, c.nth, variables of the thread, and in on_exit on c.result, \
             c.errno and c.elapsed. A call at whose beginning one is asked is recorded, as by c.record(), and takes \
             1 us; others cost what the condition costs. How often each was asked, and how often it was done, stands \
             at the end of the recording and in `report coverage`",
        ),
    ];
    for (form, text) in words {
        all.function(form, text, move || -> Result<(), Failure> {
            refuse(
                "this is asked by payloads",
                "write it in at(GLOB).on_enter(|c| ...), or give an event",
            )
        });
    }
    all.function(
        "c.level(GLOB, LEVEL)",
        "count the calls of functions (\"count\"), leave them out (\"off\"), record them again without the values that \
         values(SPEC) and results(SPEC) keep (\"record\"), or with them (\"values\"), in all \
         processes, from when the host has heard of it on: within some ms. A call that began with values ends with \
         its result. What is off costs nothing where an \
         instruction in the same module names the function, and is counted at all other places, as through \
         the PLT; what only such functions call is not reached. The last that was asked for a function counts. No \
         call is missed or counted twice meanwhile; calls through pointers stay recorded, and so do functions that \
         have payloads or values, since these need each call. Not with hot_limit(RATE) or short_limit(DURATION), nor \
         with what these do not go with",
        |_: Dynamic, _: &str, _: &str| -> Result<(), Failure> {
            refuse("this is asked by payloads", "write it in at(GLOB).on_enter(|c| ...)")
        },
    );
}
