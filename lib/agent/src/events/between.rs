//! Rules that say when calls of hooked functions are recorded (`run --between`).
//!
//! Given the rules that a hook obeys, opens and closes; counts its calls, and makes the turns that
//! follow from them. The host makes those that follow from other events. Must not know what
//! recording is.

use crate::memory::{host, state, sys};
use core::sync::atomic::Ordering;
use sptrace_wire::plan::*;

/// A hooked function is called: opens and closes rules before it obeys one itself.
pub fn called(rules: HookRules) {
    if rules.opens | rules.closes == 0 {
        return;
    }
    for (number, rule) in state::control().rules.iter().enumerate() {
        let turns = rule.turns.load(Ordering::Acquire);
        let (needed, changes) = match turns & 1 {
            0 => (&rule.opening_calls, rules.opens),
            _ => (&rule.closing_calls, rules.closes),
        };
        let needed = needed.load(Ordering::Relaxed);
        if needed == 0 || changes >> number & 1 == 0 {
            continue;
        }
        let calls = rule.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if calls >= needed && rule.turn(turns, sys::tsc()) {
            host::ring();
        }
    }
}

/// Is a call of this hooked function recorded, if it begins now?
pub fn is_open(hooked: HookRules) -> bool {
    let rules = state::control().rules.iter().enumerate();
    hooked.obeys >> RULE_ALWAYS & 1 != 0
        || rules
            .filter(|(number, _)| hooked.obeys >> number & 1 != 0)
            .any(|(_, rule)| rule.is_open())
}
