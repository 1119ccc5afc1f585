//! Functions whose calls are recorded between two events each (`--between GLOB START STOP`).
//!
//! Given the rules that the user asked for; says which functions the agents must hook for them,
//! arms them in the arena ([`sptrace_wire::control::Rule`]), and turns them at the host's events.
//! Calls that turn them are counted by the agents: those turns are found by looking, for the trace
//! and for what counts time from them.
//!
//! Must not know: how an event is recognised, or how a function is hooked.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use sptrace_wire::control::{Control, RULES, Rule as Shared, TURNS_KEPT};
use sptrace_wire::plan::HookRules;
use std::sync::atomic::Ordering;

use crate::event::rule::Rule;
use crate::event::{Event, EventError, What};
use crate::modules::filters::Choice;

/// Rules of a recording at most.
pub const MAX_RULES: usize = RULES;

/// A turn that was made since the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Which rule.
    pub rule: usize,
    /// It is open from here on.
    pub is_open: bool,
    /// When that was.
    pub tsc: u64,
    /// So many before it were too long ago to be known.
    pub missed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    turns: u64,
    since: Option<Instant>,
}

/// From when the time of an event counts that turns a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// It does not count now: the rule is to be turned the other way.
    Paused,
    /// The rule was not turned yet.
    RecordingStart,
    /// The last turn.
    At(Instant),
}

#[derive(Debug, Default)]
struct State {
    /// Changes whenever the clock that `time:` events count from is restarted.
    counting: u64,
    seen: [Seen; RULES],
}

/// The rules of a recording.
#[derive(Debug, Default)]
pub struct Between {
    rules: Vec<Rule>,
    times: u64,
    state: Mutex<State>,
}

impl Between {
    /// Each of them opens so often.
    ///
    /// # Errors
    /// They are too many.
    pub fn new(rules: Vec<Rule>, times: u64) -> Result<Self, EventError> {
        if rules.len() > RULES {
            return Err(EventError::TooManyRules(RULES));
        }
        Ok(Self {
            rules,
            times,
            state: Mutex::default(),
        })
    }

    /// The rules, by number.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The functions to be hooked, and what a call of them means.
    pub fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        for (number, rule) in self.rules.iter().enumerate() {
            let what = format!("--between '{}'", rule.glob);
            let (none, bit) = (HookRules::default(), 1 << number);
            let mut choose = |glob: &str, rules, what| {
                choices.push(Choice::new(glob, rules, what));
            };
            for (event, rules) in [
                (rule.start.as_ref(), HookRules { opens: bit, ..none }),
                (
                    Some(&rule.stop),
                    HookRules {
                        closes: bit,
                        ..none
                    },
                ),
            ] {
                if let Some(event) = event
                    && let What::Call(glob) = &event.what
                {
                    choose(glob, rules, format!("{} of {what}", event.text));
                }
            }
            choose(&rule.glob, HookRules { obeys: bit, ..none }, what);
        }
        choices
    }

    /// Arms them, before any program sees the arena.
    pub fn arm(&self, control: &Control) {
        let calls = |event: Option<&Event>| match event.map(|e| (&e.what, e.every)) {
            Some((What::Call(_), every)) => every,
            _ => 0,
        };
        for (rule, shared) in self.rules.iter().zip(&control.rules) {
            let set = |word: &std::sync::atomic::AtomicU64, to| word.store(to, Ordering::Relaxed);
            set(&shared.opening_calls, calls(rule.start.as_ref()));
            set(&shared.closing_calls, calls(Some(&rule.stop)));
            set(&shared.last_turn, self.times.saturating_mul(2));
            if rule.start.is_none() {
                shared.turn(0, 0);
            }
        }
        self.look(control);
    }

    /// An event opens or closes a rule now. False: it is so, or must not be any more.
    pub fn turn(&self, control: &Control, rule: usize, is_opening: bool, tsc: u64) -> bool {
        let Some(shared) = control.rules.get(rule) else {
            return false;
        };
        let turns = shared.turns.load(Ordering::Acquire);
        is_opening == (turns & 1 == 0) && shared.turn(turns, tsc)
    }

    /// Is it open, as far as the last look has shown?
    pub fn is_open(&self, rule: usize) -> bool {
        let seen = self.state().seen;
        seen.get(rule).is_some_and(|seen| seen.turns & 1 != 0)
    }

    /// The turns since the last look.
    pub fn look(&self, control: &Control) -> Vec<Turn> {
        let mut turned = Vec::new();
        let shared = &control.rules;
        let turns = |shared: &Shared| shared.turns.load(Ordering::Acquire);
        let mut state = self.state();
        for (rule, shared) in shared.iter().enumerate().take(self.rules.len()) {
            let (now, seen) = (turns(shared), &mut state.seen[rule]);
            let first = seen.turns.max(now.saturating_sub(TURNS_KEPT as u64));
            let mut missed = first - seen.turns;
            for turn in first..now {
                let tsc = &shared.turned_tsc[turn as usize % TURNS_KEPT];
                turned.push(Turn {
                    rule,
                    is_open: turn & 1 == 0,
                    tsc: tsc.load(Ordering::Acquire),
                    missed: std::mem::take(&mut missed),
                });
            }
            if now != seen.turns {
                let since = Some(Instant::now());
                *seen = Seen { turns: now, since };
                state.counting += 1;
            }
        }
        turned
    }

    /// Changes whenever the clock that `time:` events count from is restarted.
    pub fn counting(&self) -> u64 {
        self.state().counting
    }

    /// From when time counts that opens a rule, or closes it.
    pub fn since(&self, rule: usize, is_opening: bool) -> Since {
        match self.state().seen.get(rule) {
            Some(seen) if is_opening == (seen.turns & 1 == 0) => {
                seen.since.map_or(Since::RecordingStart, Since::At)
            }
            _ => Since::Paused,
        }
    }

    /// What the user should know of rules that never opened.
    pub fn remarks(&self) -> Vec<String> {
        let state = self.state();
        let rules = self.rules.iter().zip(&state.seen);
        let never = rules.filter(|(_, seen)| seen.turns == 0);
        never
            .filter_map(|(rule, _)| {
                let start = &rule.start.as_ref()?.text;
                let glob = &rule.glob;
                Some(format!(
                    "no call of --between '{glob}' was recorded: {start} did not happen"
                ))
            })
            .collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: &[[&str; 3]], times: u64) -> Between {
        let rules = rules
            .iter()
            .map(|[glob, start, stop]| Rule::parse(glob, start, stop));
        let rules = rules.collect::<Result<_, _>>().expect("rules");
        Between::new(rules, times).expect("not too many")
    }

    fn control() -> Box<Control> {
        // SAFETY: numbers and atomics, for which zero is a value.
        unsafe { Box::new(std::mem::zeroed()) }
    }

    #[test]
    fn a_rule_opens_and_closes_as_often_as_asked_and_each_turn_is_seen_once() {
        let (between, control) = (rules(&[["f", "ctl:a", "ctl:b"]], 2), control());
        between.arm(&control);
        assert_eq!(between.look(&control), []);
        assert!(!between.turn(&control, 0, false, 1), "it is closed");
        for n in 0..2 {
            let last = between.state().seen[0].since;
            let since = last.map_or(Since::RecordingStart, Since::At);
            assert_eq!(between.since(0, true), since);
            assert!(between.turn(&control, 0, true, 10 + n));
            assert!(!between.turn(&control, 0, true, 11 + n), "it is open");
            let turn = |is_open, tsc| Turn {
                rule: 0,
                is_open,
                tsc,
                missed: 0,
            };
            assert_eq!(between.look(&control), [turn(true, 10 + n)]);
            assert!(between.is_open(0) && control.rules[0].is_open());
            assert_eq!(between.since(0, true), Since::Paused);
            assert!(between.turn(&control, 0, false, 20 + n));
            assert_eq!(between.look(&control), [turn(false, 20 + n)]);
        }
        assert!(!between.turn(&control, 0, true, 30), "twice is enough");
        assert_eq!(
            (between.look(&control), between.remarks()),
            (vec![], vec![])
        );
    }

    #[test]
    fn of_many_turns_the_last_are_known() {
        let (between, control) = (rules(&[["f", "ctl:a", "ctl:b"]], 100), control());
        between.arm(&control);
        let kept = TURNS_KEPT as u64;
        (0..kept + 3).for_each(|n| assert!(control.rules[0].turn(n, 1000 + n)));
        let turned = between.look(&control);
        assert_eq!(turned.len() as u64, kept);
        assert_eq!(
            (turned[0].tsc, turned[0].missed, turned[1].missed),
            (1003, 3, 0)
        );
        assert_eq!(
            turned.last().map(|t| (t.tsc, t.is_open)),
            Some((1002 + kept, true))
        );
    }

    #[test]
    fn what_is_hooked_obeys_opens_and_closes() {
        let between = rules(
            &[["f*", "start", "call:g#3"], ["h", "call:f", "time:1s"]],
            1,
        );
        let found: Vec<_> = between
            .choices()
            .into_iter()
            .map(|c| (c.glob, (c.rules.obeys, c.rules.opens, c.rules.closes)))
            .collect();
        let expected = [
            ("g", (0, 0, 1)),
            ("f*", (1, 0, 0)),
            ("f", (0, 2, 0)),
            ("h", (2, 0, 0)),
        ];
        assert_eq!(
            found,
            expected.map(|(glob, rules)| (glob.to_owned(), rules))
        );
        let control = control();
        between.arm(&control);
        assert!(control.rules[0].is_open() && !control.rules[1].is_open());
        let words = |n: usize| {
            let rule = &control.rules[n];
            [&rule.opening_calls, &rule.closing_calls, &rule.last_turn]
                .map(|w| w.load(Ordering::Relaxed))
        };
        assert_eq!((words(0), words(1)), ([0, 3, 2], [1, 0, 2]));
        assert_eq!(between.remarks().len(), 1);
    }

    #[test]
    fn wrong_rules_are_refused() {
        for (start, stop) in [
            ("exit", "exit"),
            ("crash", "exit"),
            ("soon", "exit"),
            ("start", "start"),
        ] {
            Rule::parse("f", start, stop).expect_err(start);
        }
        let rule = Rule::parse("f", "start", "exit").expect("a rule");
        Between::new(vec![rule.clone(); RULES], 1).expect("so many");
        Between::new(vec![rule; RULES + 1], 1).expect_err("one more");
    }
}
