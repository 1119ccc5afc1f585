//! What events do to the functions that are recorded between two of them ([`crate::between`]).
//!
//! Given an event's time, and turns that agents have made; turns the rule, and notes all turns in
//! the trace. Must not know how an event is recognised.

use sptrace_trace::{Note, Turn};

use crate::collector::Collector;
use crate::event::Reaction;
use crate::output::Output;
use crate::shared::Shared;

/// Opens a rule, or closes it.
pub(super) fn turn(
    shared: &Shared,
    c: &mut Collector<Output>,
    rule: usize,
    is_opening: bool,
    tsc: u64,
    used_up: impl Fn() -> String,
) -> String {
    let between = &shared.reactor.between;
    if !between.turn(shared.arena.control(), rule, is_opening, tsc) {
        return used_up();
    }
    noted(shared, c);
    let glob = between.rules().get(rule).map_or("", |rule| &rule.glob);
    match is_opening {
        true => format!("calls of {glob} are recorded"),
        false => format!("calls of {glob} are not recorded any more"),
    }
}

/// Notes the turns of rules in the trace; what counts from them begins to.
pub(super) fn noted(shared: &Shared, c: &mut Collector<Output>) {
    let reactor = &shared.reactor;
    for turn in reactor.between.look(shared.arena.control()) {
        let Some(rule) = reactor.between.rules().get(turn.rule) else {
            continue;
        };
        let start = rule.start.as_ref().map_or("start", |event| &event.text);
        let (event, next) = match turn.is_open {
            true => (start, Reaction::Close(turn.rule)),
            false => (rule.stop.text.as_str(), Reaction::Open(turn.rule)),
        };
        c.note(&Note::Recording {
            pid: 0,
            tsc: turn.tsc,
            turn: Turn::Between {
                glob: rule.glob.clone(),
                is_opening: turn.is_open,
                event: event.to_owned(),
                missed: turn.missed,
            },
        });
        reactor.armed.count_anew(next);
        reactor.wake();
    }
}
