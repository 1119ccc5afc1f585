//! Coverage and loss at the end of a recording: from the agent's counters to rows and to the two
//! lines on stderr.

use std::sync::atomic::Ordering;

use crate::bids::Bidden;
use crate::budget::Spent;
use crate::collector::Torn;
use sptrace_patch::{Refusal, Tactic};
use sptrace_trace::{
    BUDGET_ASKED, BUDGET_COUNTS, BUDGET_HOST, BUDGET_SPENT, BUDGET_SPENT_AT_START, Section, Summary,
};
use sptrace_wire::control::{Control, hole};

/// Reasons for holes, by number.
const HOLES: [(usize, &str); 25] = [
    (hole::JIT, "calls into code that belongs to no file"),
    (hole::NO_PLAN, "modules left out"),
    (hole::UNKNOWN_ENTRY, "callees unknown to the analysis"),
    (
        hole::NO_ANSWER,
        "questions without an answer in time, which ended a recording",
    ),
    (hole::NO_AREA, "modules without room for patches"),
    (hole::BYTES_DIFFER, "sites whose bytes are not the file's"),
    (hole::NOT_WRITABLE, "sites whose page cannot be written"),
    (
        hole::LOCK_BUSY,
        "callees passed over while another thread patched",
    ),
    (hole::TABLE_FULL, "tables full"),
    (
        hole::EXEC_UNSEEN,
        "programs started by exec and not followed",
    ),
    (hole::VERSION, "agent and host of different versions"),
    (hole::FORK_SHARED, "forked processes not followed further"),
    (hole::TOO_DEEP, "frames nested too deep"),
    (hole::OTHER_STACK, "changes to another stack"),
    (
        hole::SANDBOX,
        "processes not recorded further, in a sandbox or with their code locked",
    ),
    (
        hole::UNRESOLVED,
        "functions with jumps to unknown places, where calls may be unseen",
    ),
    (
        hole::GS,
        "processes not recorded further, using gs themselves",
    ),
    (
        hole::TEXT_WRITTEN,
        "functions left alone where the program writes to its code",
    ),
    (
        hole::IN_FLIGHT,
        "sites where a thread was when it was attached to",
    ),
    (
        hole::SYSTEM_CALLS,
        "instructions that call the kernel and are left alone",
    ),
    (
        hole::HANDLERS,
        "signal handlers left alone, whose signals are not seen",
    ),
    (
        hole::PAYLOADS,
        "calls of functions with a payload of a script that could not be run",
    ),
    (
        hole::NOT_COUNTED,
        "threads whose calls were not counted, for want of room",
    ),
    (
        hole::NO_CELL,
        "calls of a kind that was not counted, for want of room",
    ),
    (
        hole::LANES,
        "changes to a goroutine that were told as the thread's",
    ),
];

/// What a script has done to calls, by the numbers of its counters.
const CHANGES: [(usize, &str); 4] = [
    (hole::NOT_CALLED, "calls not made"),
    (hole::DELAYED, "calls delayed"),
    (hole::RAISED, "signals raised"),
    (
        hole::NOT_CHANGED,
        "calls to which not all could be done that was wanted",
    ),
];

/// What was seen and what was not.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Sites patched, by tactic.
    pub patched: Vec<(&'static str, u64)>,
    /// Sites left alone, by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// Other blind spots.
    pub holes: Vec<(&'static str, u64)>,
    /// What a script has done to calls.
    pub changes: Vec<(&'static str, u64)>,
    /// What payloads of a script have bidden.
    pub bidden: Vec<Bidden>,
    /// Modules that are not traced, each with the reason.
    pub left_out: Vec<(String, &'static str)>,
    /// Programs that are not followed, each with the reason, and how often.
    pub unfollowed: Vec<(String, u64)>,
    /// Modules that are seen in part, each with the reason, and how many of their calls have no
    /// recorded end.
    pub seen_in_part: Vec<(String, u64)>,
    /// Why calls have no recorded end, and how many.
    pub without_end: Vec<(&'static str, u64)>,
    /// Sites that keep their return addresses, by where the ends of their calls are seen.
    pub ends: Vec<(&'static str, u64)>,
    /// Functions instrumented when they were called, and ahead of that.
    pub functions: [u64; 2],
    /// Events in the trace, which are those of all kinds that its reader counts.
    pub events: u64,
    /// Bytes of the records that they came from.
    pub record_bytes: u64,
    /// Calls of the kernel that were not recorded, since they are on other descriptors than those
    /// asked for, or on such as lead to other paths.
    pub on_others: u64,
    /// Calls of the kernel that were left out for what became of them.
    pub not_chosen: u64,
    /// Events lost.
    pub lost: u64,
    /// Words that could not be read.
    pub torn: Torn,
    /// Events before the recording's start, followed and left out; `None`: there was no shadow
    /// mode.
    pub followed: Option<u64>,
    /// Events recorded and overwritten by later ones (`--ring`).
    pub overwritten: u64,
    /// What was spent of a budget, if there is one.
    pub spent: Option<Spent>,
}

/// Where the ends of calls are seen whose return addresses stay: as the agent counts them.
const ENDS: [&str; 2] = [
    "sites whose calls end where they return to",
    "sites whose ends are implied by what comes next",
];

/// What came of what a payload bids.
fn bidden_text(what: &str, times: u64, done: u64) -> String {
    match (times, done) {
        (0, _) => format!("{what}: never"),
        _ => format!("{what}: {times} times, done {done}"),
    }
}

/// What the summary calls them.
const ON_OTHERS: &str = "system calls left out by -e fd= or -P";
const NOT_CHOSEN: &str = "system calls left out by their result or --min-time";

/// Of functions that were called in an earlier recording, or process.
const INSTRUMENTED_AHEAD: &str = "instrumented ahead, since they were called before";

impl Outcome {
    /// Reads the agent's counters.
    pub fn read(control: &Control) -> Self {
        let get = |a: &std::sync::atomic::AtomicU64| a.load(Ordering::Relaxed);
        let named = |list: Vec<(&'static str, u64)>| list.into_iter().filter(|r| r.1 > 0).collect();
        Self {
            patched: named(
                Tactic::ALL
                    .iter()
                    .map(|t| (t.name(), get(&control.patched[*t as usize])))
                    .collect(),
            ),
            refused: named(
                Refusal::ALL
                    .iter()
                    .map(|r| (r.name(), get(&control.refused[*r as usize])))
                    .collect(),
            ),
            holes: named(
                HOLES
                    .iter()
                    .map(|(i, n)| (*n, get(&control.holes[*i])))
                    .collect(),
            ),
            changes: named(
                CHANGES
                    .iter()
                    .map(|(i, n)| (*n, get(&control.holes[*i])))
                    .collect(),
            ),
            ends: named(
                ENDS.iter()
                    .zip(&control.kept)
                    .map(|(name, sites)| (*name, get(sites)))
                    .collect(),
            ),
            functions: [&control.functions, &control.functions_ahead].map(get),
            on_others: get(&control.calls_on_others),
            not_chosen: get(&control.calls_not_chosen),
            lost: get(&control.lost),
            ..Self::default()
        }
    }

    /// What could not be read, by reason.
    /// Calls of the kernel that were left out, each with the reason.
    fn left_out_calls(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [(ON_OTHERS, self.on_others), (NOT_CHOSEN, self.not_chosen)];
        all.into_iter().filter(|(_, n)| *n > 0)
    }

    /// Functions instrumented, by when.
    fn instrumented(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let [at_their_call, ahead] = self.functions;
        let at_their_call = [("instrumented", at_their_call)].into_iter();
        let ahead = [(INSTRUMENTED_AHEAD, ahead)].into_iter();
        at_their_call.chain(ahead.filter(|(_, n)| *n > 0))
    }

    fn torn_words(&self) -> [(&'static str, u64); 3] {
        [
            ("torn words", self.torn.nonsense),
            (
                "words of processes forked from unknown ones",
                self.torn.unknown_process,
            ),
            (
                "last records cut off with their threads",
                self.torn.unfinished,
            ),
        ]
    }

    /// Sites patched in all.
    pub fn sites_patched(&self) -> u64 {
        self.patched.iter().map(|r| r.1).sum()
    }

    /// Sites reached in all.
    pub fn sites_reached(&self) -> u64 {
        self.sites_patched() + self.refused.iter().map(|r| r.1).sum::<u64>()
    }

    /// As rows of the trace's summary.
    pub fn summary(&self, end_tsc: u64) -> Summary {
        let mut s = Summary {
            end_tsc,
            ..Summary::default()
        };
        for (name, n) in &self.patched {
            s.row(Section::Sites, &format!("patched: {name}"), *n);
        }
        for (name, n) in &self.refused {
            s.row(Section::Refused, name, *n);
        }
        for (name, n) in &self.holes {
            s.row(Section::Hole, name, *n);
        }
        for (path, why) in &self.left_out {
            s.row(Section::LeftOut, &format!("{path}: {why}"), 1);
        }
        for (what, times) in &self.unfollowed {
            s.row(Section::NotFollowed, what, *times);
        }
        for (why, calls) in &self.seen_in_part {
            s.row(Section::SeenInPart, why, *calls);
        }
        for (why, calls) in self.without_end.iter().filter(|(_, calls)| *calls > 0) {
            s.row(Section::WithoutEnd, why, *calls);
        }
        for (name, n) in &self.ends {
            s.row(Section::Ends, name, *n);
        }
        for (name, n) in &self.changes {
            s.row(Section::Changed, name, *n);
        }
        for bidden in &self.bidden {
            s.row(Section::Bidden, &bidden.text, bidden.times);
            let done = format!("{}: done", bidden.text);
            s.row(Section::Bidden, &done, bidden.done);
        }
        self.add_seen(&mut s);
        if let Some(followed) = self.followed {
            s.row(
                Section::Shadow,
                "events before the start, followed and left out",
                followed,
            );
        }
        if self.overwritten > 0 {
            s.row(Section::Ring, "events dropped by --ring", self.overwritten);
        }
        self.add_budget(&mut s);
        s
    }

    /// What was seen, and what it took.
    fn add_seen(&self, s: &mut Summary) {
        for (name, n) in self.instrumented() {
            s.row(Section::Functions, name, n);
        }
        s.row(Section::Events, "recorded", self.events);
        for (name, n) in self.left_out_calls() {
            s.row(Section::Events, name, n);
        }
        s.row(Section::Memory, "bytes of records", self.record_bytes);
        s.row(Section::Loss, "events dropped", self.lost);
        for (name, n) in self.torn_words() {
            s.row(Section::Loss, name, n);
        }
    }

    /// What a budget has come to, if there was one.
    fn add_budget(&self, s: &mut Summary) {
        if let Some(spent) = self.spent {
            let key = match spent.is_steady {
                true => BUDGET_SPENT,
                false => BUDGET_SPENT_AT_START,
            };
            let shares = [
                (BUDGET_ASKED, spent.budget),
                (key, spent.share),
                (BUDGET_COUNTS, spent.by_counts),
                (BUDGET_HOST, spent.by_host),
            ];
            for (what, share) in shares {
                s.row(Section::Budget, what, (share * 1e6).round() as u64);
            }
        }
    }

    /// The coverage line.
    pub fn coverage_line(&self) -> String {
        let (patched, reached) = (self.sites_patched(), self.sites_reached());
        let join = |list: &[(&str, u64)]| {
            list.iter()
                .map(|(n, c)| format!("{c} {n}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let mut line = match reached {
            0 => "coverage: no call sites were reached".to_owned(),
            _ => {
                let percent = patched as f64 * 100.0 / reached as f64;
                format!(
                    "coverage: {patched} of {reached} call sites reached are patched ({percent:.2} %)"
                )
            }
        };
        if !self.patched.is_empty() {
            line += &format!(" [{}]", join(&self.patched));
        }
        let missing: Vec<_> = self.refused.iter().chain(&self.holes).copied().collect();
        if !missing.is_empty() {
            line += &format!("; not seen: {}", join(&missing));
        }
        let file = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let left_out = self.left_out.iter();
        let left_out: Vec<_> = left_out
            .map(|(path, why)| format!("{}: {why}", file(path)))
            .collect();
        if !left_out.is_empty() {
            line += &format!(" ({})", left_out.join("; "));
        }
        if !self.changes.is_empty() {
            line += &format!("; changed by the script: {}", join(&self.changes));
        }
        for bidden in &self.bidden {
            line += &format!("; {}", bidden_text(&bidden.text, bidden.times, bidden.done));
        }
        for (what, times) in &self.unfollowed {
            let times = if *times > 1 {
                format!("{times} times ")
            } else {
                String::new()
            };
            line += &format!("; not followed: {times}{what}");
        }
        for (why, _) in &self.seen_in_part {
            line += &format!("; seen in part: {}", file(why));
        }
        line
    }

    /// What was spent of the budget; `None`: there is none.
    pub fn budget_line(&self) -> Option<String> {
        let spent = self.spent?;
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let over = match spent.share > spent.budget {
            false => "",
            true if spent.by_counts > spent.budget => ": counted calls alone are over it",
            true => ": over it",
        };
        let when = match spent.is_steady {
            true => "in steady state",
            false => "in its start",
        };
        Some(format!(
            "budget: {} of {} spent {when} ({} by counted calls, {} by sptrace itself){over}",
            percent(spent.share),
            percent(spent.budget),
            percent(spent.by_counts),
            percent(spent.by_host)
        ))
    }

    /// The loss line.
    pub fn loss_line(&self) -> String {
        let torn = self.torn_words().into_iter().filter(|(_, n)| *n > 0);
        let torn: String = torn.map(|(name, n)| format!(", {n} {name}")).collect();
        let ring = if self.overwritten > 0 {
            format!(", the first {} dropped by --ring", self.overwritten)
        } else {
            String::new()
        };
        let before = self.followed.map_or(String::new(), |n| {
            format!(", {n} before the start left out (shadow mode)")
        });
        let others = self.left_out_calls();
        let others: String = others.map(|(name, n)| format!(", {n} {name}")).collect();
        format!(
            "events: {} recorded, {} lost{torn}{ring}{before}{others}",
            self.events, self.lost
        )
    }
}
