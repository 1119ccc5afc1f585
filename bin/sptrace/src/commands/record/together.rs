//! Which options of a recording do not go together, beyond what the command line says by itself.
//!
//! Given the options; gives what is wrong with them in words for the user. Must not know what the
//! options do.

use super::RecordArgs;
use crate::commands::levels::Beside;
use crate::commands::selection;
use crate::commands::stamps::Stamps;
use sptrace_collect::acts::Payloads;
use sptrace_collect::bids::{self, Bid};
use sptrace_collect::event::{Event, What};
use sptrace_collect::request::Limit;
use sptrace_script::{Deed, Script, ScriptError};

impl RecordArgs {
    /// Payloads of system calls run at those that are recorded.
    pub(super) fn check_system_payloads(&self, script: &Script) -> Result<(), String> {
        let all = script.policy.payloads.iter();
        let mut wanted = all.filter_map(|payload| payload.calls.as_ref()).peekable();
        if wanted.peek().is_none() {
            return Ok(());
        }
        let set = self.syscalls.as_ref().or(self.syscalls_only.as_ref());
        let recorded = set.map(|set| selection::parse(set)).transpose()?;
        let is_recorded = |number: u32| recorded.as_ref().is_some_and(|set| set.contains(number));
        let mut calls = wanted.flat_map(|set| {
            let all = sptrace_types::syscalls::all().iter();
            all.filter(move |call| set.contains(call.number))
        });
        match calls.find(|call| !is_recorded(call.number)) {
            None => Ok(()),
            Some(call) => Err(format!(
                "{}: a payload of {} needs it to be recorded: write record_syscalls(\"{}\"), or \
                 record_only_syscalls for no functions",
                script.name, call.name, call.name
            )),
        }
    }

    /// What payloads ask of the recording that cannot be had: at its place in the script.
    pub fn refused_bids(&self, script: &Script, is_launched: bool) -> Option<ScriptError> {
        let is_start = |deed: &Deed| *deed == Deed::Start;
        let is_level = |deed: &Deed| matches!(deed, Deed::Level(..));
        let at = |is_it: &dyn Fn(&Deed) -> bool, (reason, hint)| {
            script.error_at_bid(is_it, reason, hint)
        };
        if self.ring.is_none() && script.policy.ring_bytes.is_none() {
            let why = (
                "there is no ring that could be written out",
                "write ring(SIZE), as ring(16.mb)",
            );
            if let Some(error) = at(&|deed| *deed == Deed::Dump, why) {
                return Some(error);
            }
        }
        if !is_launched {
            let why = (
                "a running program is recorded at once",
                "leave it out, or use `sptrace run`",
            );
            return at(&is_start, why);
        }
        if self.times > 1 || script.policy.times.is_some_and(|times| times > 1) {
            let why = (
                "payloads run until the recording ends, so they begin it once",
                "leave times(N) out, or begin it by start(EVENT)",
            );
            if let Some(error) = at(&is_start, why) {
                return Some(error);
            }
        }
        let starts = script.policy.bids.iter().any(|bid| is_start(&bid.deed));
        let (reason, hint) = self.refuses_levels(script, starts)?;
        match script.policy.levels.is_empty() {
            true => at(&is_level, (reason, hint)),
            false => Some(script.error_at("level(", None, reason, hint)),
        }
    }

    /// Why functions cannot have another level while the program runs, and what to write instead.
    fn refuses_levels(
        &self,
        script: &Script,
        starts: bool,
    ) -> Option<(&'static str, &'static str)> {
        let policy = &script.policy;
        let are_alone = self.syscalls_only.is_some() || policy.system_calls_only;
        Some(if self.levels.count {
            ("all calls are counted", "leave --count out")
        } else if self.levels.limit().is_some() || policy.has_limit() {
            (
                "a limit says already which functions are counted",
                "leave one of them out",
            )
        } else if are_alone || self.live.is_some() && self.syscalls.is_none() {
            (
                "no functions are recorded, whose level could change",
                "record system calls beside functions, with --syscalls or record_syscalls(SET)",
            )
        } else if starts {
            (
                "the program is followed by its recorded calls up to c.start()",
                "leave one of them out",
            )
        } else if self.top {
            ("--top would not show counted calls", "leave it out")
        } else {
            return None;
        })
    }

    /// Whether what comes before the recording is followed, as asked for: a payload that begins it
    /// runs before that.
    pub(super) fn is_followed(&self, start: &[Event], shadow: bool) -> Result<bool, String> {
        let shadow = shadow || start.iter().any(Event::is_bidden);
        self.check_levels(start, shadow).map(|()| shadow)
    }

    /// Which functions are counted at times.
    pub(super) fn limit(&self) -> Option<Limit> {
        let is_level = |bid: &Bid| matches!(bid.deed, bids::Deed::Level(..));
        let is_bidden = !self.first_levels.is_empty() || self.bids.iter().any(is_level);
        let bidden = is_bidden.then_some(Limit::Bidden);
        self.levels.limit().or(bidden)
    }

    /// Whether calls can be counted with what else is asked for.
    pub(super) fn check_levels(&self, start: &[Event], shadow: bool) -> Result<(), String> {
        let is_followed = |e: &Event| matches!(e.what, What::Return(_) | What::Slow(..));
        let mut noticed = self.stop_on.iter().chain(&self.dump_on);
        let is_live = self.live.is_some();
        let are_alone = self.syscalls_only.is_some() || is_live && self.syscalls.is_none();
        let asked = [
            (!self.within.is_empty(), Beside::Within),
            (self.depth.is_some(), Beside::Depth),
            (!self.between.is_empty(), Beside::Between),
            (shadow || start.iter().any(is_followed), Beside::Shadow),
            (self.ring.is_some(), Beside::Ring),
            (self.max_size.is_some(), Beside::MaxSize),
            (noticed.any(Event::needs_ends), Beside::EndEvent),
            (are_alone, Beside::SystemCallsAlone),
            (self.syscalls.is_some() || is_live, Beside::SystemCalls),
            (
                !self.arguments.is_empty() || !self.results.is_empty(),
                Beside::Values,
            ),
            (self.top, Beside::Top),
            (self.decide.is_some(), Beside::Decides),
            (self.payloads.is_some(), Beside::Payloads),
        ];
        self.levels.refused(asked).map_or(Ok(()), Err)
    }

    /// Whether calls that are counted are recorded for that: which of them are wanted depends on
    /// what is around them, or they are events.
    pub(super) fn counts_records(&self) -> bool {
        let has_roots = !self.within.is_empty() || !self.between.is_empty();
        let is_call = |e: &Event| e.parts().iter().any(|e| matches!(e.what, What::Call(_)));
        let mut noticed = self.stop_on.iter().chain(&self.dump_on);
        match self.levels.count {
            true => has_roots || self.depth.is_some() || noticed.any(is_call),
            false => has_roots && self.limit().is_some(),
        }
    }

    /// What calls cannot be recorded in order beside, all or the short ones: whether it is asked
    /// for, and its option.
    pub fn beside_stamps(&self, stamps: Stamps) -> [(bool, &'static str); 8] {
        let are_none = stamps == Stamps::None;
        let need_ends = |events: &[Event]| events.iter().any(Event::needs_ends);
        [
            (self.levels.count, "--count"),
            (
                self.levels.limit().is_some(),
                "--hot-limit, --short-limit and --budget",
            ),
            (
                need_ends(&self.stop_on),
                "--stop-on of a return or a slow call",
            ),
            (
                need_ends(&self.dump_on),
                "--dump-on of a return or a slow call",
            ),
            (are_none && !self.arguments.is_empty(), "-A"),
            (are_none && !self.results.is_empty(), "-R"),
            (self.payloads.is_some(), "on_enter and on_exit"),
            (!self.first_levels.is_empty(), "level(GLOB, LEVEL)"),
        ]
    }

    /// What calls cannot be recorded by their return points beside, as above.
    pub fn beside_return_points(&self) -> [(bool, &'static str); 3] {
        [
            (self.levels.count, "--count"),
            (
                self.levels.limit().is_some(),
                "--hot-limit, --short-limit and --budget",
            ),
            (!self.first_levels.is_empty(), "level(GLOB, LEVEL)"),
        ]
    }

    /// Whether something is asked for that is slower beside return points, or sees less: what is
    /// asked at each call has a slow way there, and where functions run unrecorded others of the
    /// ends are not seen at once.
    pub fn is_better_without_return_points(&self) -> bool {
        let filters = [&self.within, &self.without, &self.module, &self.between];
        let values = [&self.arguments, &self.results];
        let mut lists = filters.iter().chain(&values);
        lists.any(|list| !list.is_empty())
            || self.depth.is_some()
            || self.decide.is_some()
            || self.payloads.is_some()
            || self.syscalls_only.is_some()
    }

    /// What the command line would refuse of options alone.
    pub(super) fn check_together(&self, has_start: bool) -> Result<(), String> {
        let filters = [&self.within, &self.without, &self.module, &self.between];
        let values = [&self.arguments, &self.results];
        let mut lists = filters.iter().chain(&values);
        let has_functions = lists.any(|list| !list.is_empty())
            || self.depth.is_some()
            || self.decide.is_some()
            || self
                .payloads
                .as_ref()
                .is_some_and(Payloads::act_on_functions);
        let has_repeated = !self.dump_on.is_empty() || !self.between.is_empty() || has_start;
        let refused = if !self.dump_on.is_empty() && self.ring.is_none() {
            "dump(...) needs ring(SIZE): what is written out"
        } else if self.ring.is_some() && self.max_size.is_some() {
            "ring(SIZE) has a size already; leave max_size(SIZE) out"
        } else if self.syscalls_only.is_some() && has_functions {
            "record_only_syscalls(SET) records no functions; use record_syscalls(SET), or choose none"
        } else if self.times > 1 && !has_repeated {
            "times(N) needs what happens so often: start, dump or between"
        } else {
            return Ok(());
        };
        Err(refused.to_owned())
    }
}
