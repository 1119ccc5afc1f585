//! The user's choice of functions: which are muted, and at which recording begins.
//!
//! Given a module's analysis and the globs of `run -N` and `run -F`; gives the plan that the agents
//! get: the module's own, or one with functions muted ([`sptrace_patch::mute`]) and hooks added
//! ([`sptrace_patch::roots`]). Counts what matched, so that a glob that matches nothing is told.
//! Globs are matched with the raw name, the demangled one, and that without its parameters, as
//! `report` does.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sptrace_addr::Svma;
use sptrace_code::{
    Analysis, Cached, FunctionFlags, Plan, Site, SiteFlags, SiteKind, analyze, names,
};
use sptrace_image::Object;
use sptrace_patch::ends::may_end_in;
use sptrace_patch::in_order_for_good;
use sptrace_patch::kept::{Keep, Kept};
use sptrace_patch::mute::mute;
use sptrace_patch::root_calls::add_root_calls;
use sptrace_patch::roots::{Hook, add_hooks, rendezvous};
use sptrace_patch::special;
use sptrace_patch::system_calls::without_system_calls;
use sptrace_trace::{demangle, glob_matches, without_parameters};
use sptrace_wire::plan::{
    FN_MUTED, FN_RETURN_ADDRESS, HookRules, PlanHeader, PlanView, SpecialKind,
};

use super::decide::{Decide, Decisions, make_leaves};
use crate::event::switch::Switch;

/// Where a program begins that a C library has started.
const MAIN: &str = "main";
/// By these alone a thread changes from a goroutine to the scheduler (Go's source,
/// `runtime/asm_amd64.s`).
const LEAVE_LANES: [&str; 2] = ["runtime.mcall*", "runtime.morestack*"];
/// Names shown of functions that cannot be hooked.
const NAMES_SHOWN: usize = 3;

/// Functions to be hooked.
#[derive(Debug)]
pub struct Choice {
    /// Fits their names.
    pub glob: String,
    /// What a call of them means: which rules it obeys, opens and closes.
    pub rules: HookRules,
    /// As the user wrote it, for remarks.
    what: String,
    is_found: AtomicBool,
}

impl Choice {
    /// Of `what` the user wrote.
    pub fn new(glob: &str, rules: HookRules, what: String) -> Self {
        Self {
            glob: glob.to_owned(),
            rules,
            what,
            is_found: AtomicBool::new(false),
        }
    }

    fn is_always(&self) -> bool {
        self.rules == HookRules::ALWAYS
    }

    fn is_missing(&self) -> bool {
        !self.is_found.load(Ordering::Relaxed)
    }
}

/// The globs, and what they matched so far.
#[derive(Default)]
pub struct Filters {
    hooked: Vec<Choice>,
    /// Their globs.
    globs: Vec<String>,
    without: Vec<String>,
    /// Who decides about each function.
    decide: Option<Decide>,
    /// Functions that it has left out, and made leaves.
    decided: [AtomicUsize; 2],
    /// Code that is not traced may load a library: it is not to be missed.
    is_partial: bool,
    /// Who calls main is left out: its entry is intercepted.
    begins_at_main: bool,
    /// Instructions that call the kernel are intercepted, wherever they are.
    has_system_calls: bool,
    /// Who leaves more functions out while it is recorded.
    switch: Option<Switch>,
    /// Those are that begin a new task.
    counts: bool,
    /// Plans are of calls with stamps or in order: they shall be in order.
    are_in_order: bool,
    /// Plans are of calls that keep their return addresses.
    keeps_returns: bool,
    muted: AtomicUsize,
    impossible: Mutex<Vec<String>>,
    /// For files by device and inode: whether they must be known early.
    looked_at: Mutex<HashMap<(String, u64), bool>>,
}

impl Filters {
    /// Recording begins at functions that match `within`, and at others by rules (everywhere, if
    /// there are neither), and leaves out those that match `without`. `is_limited`: and what is
    /// reached deep down, or other modules. `begins_at_main`: main is seen though nobody calls it
    /// whose calls are. `system_calls`: they are recorded, with functions (false) or alone (true).
    pub fn new(
        within: &[String],
        ruled: Vec<Choice>,
        without: &[String],
        is_limited: bool,
        begins_at_main: bool,
        system_calls: Option<bool>,
        decide: Option<Decide>,
    ) -> Self {
        let within = within
            .iter()
            .map(|glob| Choice::new(glob, HookRules::ALWAYS, format!("-F {glob}")));
        let hooked: Vec<_> = within.chain(ruled).collect();
        Self {
            globs: hooked.iter().map(|choice| choice.glob.clone()).collect(),
            without: without.to_vec(),
            is_partial: is_limited
                || !hooked.is_empty()
                || !without.is_empty()
                || decide.is_some()
                || system_calls.is_some(),
            decide,
            begins_at_main: begins_at_main && hooked.is_empty() && system_calls != Some(true),
            has_system_calls: system_calls.is_some(),
            hooked,
            ..Self::default()
        }
    }

    /// Calls are counted or recorded in order, or not: plans are made for that then.
    #[must_use]
    pub fn counting(self, counts: bool) -> Self {
        Self {
            is_partial: self.is_partial || counts,
            counts,
            ..self
        }
    }

    /// Where recording begins at functions, or is ruled by some, calls shall be in order.
    #[must_use]
    pub fn in_order(self, are_in_order: bool) -> Self {
        Self {
            are_in_order,
            ..self
        }
    }

    /// Calls keep their return addresses: those of functions at which recording begins are patched
    /// early.
    #[must_use]
    pub fn keeping_returns(self, keeps_returns: bool) -> Self {
        Self {
            keeps_returns,
            ..self
        }
    }

    /// Who looks at the recording may leave functions out.
    #[must_use]
    pub fn switched(self, switch: Option<Switch>) -> Self {
        Self { switch, ..self }
    }

    /// Are entries of functions intercepted, or at least where ld.so tells of new modules?
    pub fn makes_hooks(&self) -> bool {
        self.is_partial
    }

    /// Recording begins at functions, or is ruled by some.
    pub fn has_hooks(&self) -> bool {
        !self.hooked.is_empty()
    }

    /// The plan of a module for this recording, made of its own; `file` is the module's, as it can
    /// be opened, and `path` what the process calls it. Of one that is left out nothing stays but
    /// its special functions.
    pub fn plan(
        &self,
        cached: &Cached,
        mut plan: Plan,
        (file, path): (&Path, &str),
        is_left_out: bool,
    ) -> Plan {
        if !self.has_system_calls
            && !self.counts
            && let Some(header) = without_system_calls(&plan)
        {
            plan.head_mut(PlanHeader::BYTES)
                .copy_from_slice(&header.to_bytes());
        }
        if is_left_out {
            mute(plan.all_mut(), &|_| true, &|_| false);
        }
        let symbol = |svma: u64| cached.named_at(Svma(svma)).map_or("", |n| n.1);
        if !is_left_out && !self.without.is_empty() {
            let leaves_out = |symbol: &str, svma| fits(&self.without, symbol, svma);
            let muted = mute(
                plan.all_mut(),
                &|svma| leaves_out(symbol(svma), svma),
                &|slot| {
                    let import = cached.import_at(Svma(slot));
                    let import = import.and_then(|name| name.strip_suffix("@plt"));
                    import.is_some_and(|name| leaves_out(name, 0))
                },
            );
            self.muted.fetch_add(muted, Ordering::Relaxed);
        }
        let is_switched = !is_left_out && self.mute_switched(cached, &mut plan);
        let decide = self.decide.as_ref().filter(|_| !is_left_out);
        let decisions = decide.map(|decide| decide.ask(cached, &plan, (file, path)));
        if let Some(Decisions { skipped, leaves }) = &decisions {
            if !skipped.is_empty() {
                mute(
                    plan.all_mut(),
                    &|at| skipped.binary_search(&at).is_ok(),
                    &|_| false,
                );
            }
            for (sum, more) in self.decided.iter().zip([skipped.len(), leaves.len()]) {
                sum.fetch_add(more, Ordering::Relaxed);
            }
        }
        if (self.is_partial || is_switched)
            && let Some(hooked) = self.hooked_plan(cached, &plan, file, is_left_out)
        {
            plan = hooked.into();
        }
        if self.are_in_order && self.has_hooks() {
            in_order_for_good(plan.all_mut());
        }
        // Last: recording may begin at a leaf, too.
        if let Some(decisions) = decisions.filter(|d| !d.leaves.is_empty()) {
            make_leaves(plan.all_mut(), &decisions.leaves);
        }
        plan
    }

    /// Mutes what was left out meanwhile; false: nothing was.
    fn mute_switched(&self, cached: &Cached, plan: &mut Plan) -> bool {
        let left_out = self.switch.as_ref().map(Switch::left_out);
        let left_out = left_out.unwrap_or_default();
        if left_out.is_empty() {
            return false;
        }
        let is_named = |symbol: &str| {
            let name = demangle(symbol);
            let names = [symbol, &name, without_parameters(&name)];
            names.iter().any(|name| left_out.contains(*name))
        };
        let leaves_out = |svma: u64| match cached.named_at(Svma(svma)).map_or("", |n| n.1) {
            "" => left_out.contains(&format!("sub_{svma:x}")),
            symbol => is_named(symbol),
        };
        mute(plan.all_mut(), &leaves_out, &|slot| {
            let import = cached.import_at(Svma(slot));
            let import = import.and_then(|name| name.strip_suffix("@plt"));
            import.is_some_and(is_named)
        });
        true
    }

    /// Must the agent know this file before control comes there: could recording begin in it, or
    /// has it special functions (an exec, an unwinder)? By its names only, which is quick; a glob
    /// that fits the names of functions without a symbol makes it yes for all. ld.so tells of new
    /// modules.
    ///
    /// `has_specials` says whether it has such functions, if that is known without reading it.
    pub fn must_be_known(
        &self,
        id: &(String, u64),
        file: &Path,
        has_specials: &dyn Fn() -> Option<bool>,
    ) -> bool {
        if self.has_system_calls
            || is_loader(file)
            || self.globs.iter().any(|glob| may_be_unnamed(glob))
        {
            return true;
        }
        let known = |known: &Mutex<HashMap<_, bool>>| known.lock().ok()?.get(id).copied();
        if let Some(known) = known(&self.looked_at) {
            return known;
        }
        let read = || {
            let bytes = std::fs::read(file);
            bytes.is_ok_and(|bytes| {
                Object::parse(&bytes).is_ok_and(|object| {
                    let has_specials = !special::entries(&object).is_empty();
                    has_specials || self.may_begin_in(&object, file)
                })
            })
        };
        let known = self.globs.is_empty().then(has_specials).flatten();
        let must = known.unwrap_or_else(read);
        if let Ok(mut known) = self.looked_at.lock() {
            known.insert(id.clone(), must);
        }
        must
    }

    /// Fits a glob the name of a function?
    fn may_begin_in(&self, object: &Object<'_>, file: &Path) -> bool {
        let is_it = |name: &str, svma| match name.strip_suffix("@plt") {
            // Calls of it are patched early.
            Some(name) => self.keeps_returns && fits(&self.globs, name, svma),
            None => fits(&self.globs, name, svma),
        };
        // Names are many, and to make them readable takes long.
        !self.globs.is_empty() && names(object, file).iter().any(|n| is_it(&n.name, n.svma.0))
    }

    /// `None`: nothing is to be hooked.
    fn hooked_plan(
        &self,
        cached: &Cached,
        plan: &[u8],
        file: &Path,
        is_left_out: bool,
    ) -> Option<Vec<u8>> {
        let may_have_main = self.begins_at_main && !is_left_out;
        let globs = match may_have_main {
            true => &[MAIN.to_owned()],
            false => &self.globs[..],
        };
        let mut roots = entries(cached, PlanView::new(plan)?, globs);
        if roots.is_empty() && !is_loader(file) {
            return self.with_root_calls(cached, plan, &[], is_left_out);
        }
        let bytes = std::fs::read(file).ok()?;
        let object = Object::parse(&bytes).ok()?;
        if may_have_main && object.interpreter.is_none() {
            // A library; or a static program, whose main is called by code of its own.
            roots.clear();
        }
        let mut hooks = match roots.is_empty() {
            true => Vec::new(),
            false => hooks(cached, &object, &roots),
        };
        for hook in &mut hooks {
            hook.rules = self.rules_of(cached, hook.entry);
            if self.keeps_returns {
                // Nothing on the stack is replaced.
                hook.kind = SpecialKind::Root;
            }
        }
        if let Some(hook) = rendezvous(&object) {
            // What it tells is needed more than it itself, if a glob fits it, too.
            match hooks.binary_search_by_key(&hook.entry, |h| h.entry) {
                Ok(place) => hooks[place] = hook,
                Err(place) => hooks.insert(place, hook),
            }
        }
        let made = add_hooks(&object, plan, &hooks)?;
        let impossible: HashSet<&Svma> = made.impossible.iter().collect();
        let made_hooks = hooks.iter().filter(|h| !impossible.contains(&h.entry));
        let all = made_hooks.fold(HookRules::default(), |all, hook| all.with(hook.rules));
        for choice in self.hooked.iter().filter(|c| all.contains(c.rules)) {
            choice.is_found.store(true, Ordering::Relaxed);
        }
        if let Ok(mut names) = self.impossible.lock() {
            names.extend(made.impossible.iter().map(|svma| cached.name_of(*svma)));
        }
        let with_calls = self.with_root_calls(cached, &made.plan, &hooks, is_left_out);
        Some(with_calls.unwrap_or(made.plan))
    }

    /// With the calls that lead to these hooks, or to what is hooked in other modules, where they
    /// are patched early. `None`: there are none.
    fn with_root_calls(
        &self,
        cached: &Cached,
        plan: &[u8],
        hooks: &[Hook],
        is_left_out: bool,
    ) -> Option<Vec<u8>> {
        if !self.keeps_returns || is_left_out || self.hooked.is_empty() {
            return None;
        }
        let at = |svma| hooks.binary_search_by_key(&Svma(svma), |hook| hook.entry);
        let is_root = |svma| at(svma).is_ok_and(|i| hooks[i].kind == SpecialKind::Root);
        let is_root_import = |slot| {
            let import = cached.import_at(Svma(slot));
            let import = import.and_then(|name| name.strip_suffix("@plt"));
            import.is_some_and(|name| fits(&self.globs, name, 0))
        };
        // A thread that leaves its lane unseen would keep it from the one that goes on with it.
        let leave_lanes = match PlanView::new(plan)?.header().lane_number {
            0 => &[][..],
            _ => &LEAVE_LANES.map(str::to_owned)[..],
        };
        let leave_lanes = entries(cached, PlanView::new(plan)?, leave_lanes);
        let leaves_lane = |entry| leave_lanes.contains_key(&Svma(entry));
        add_root_calls(plan, &is_root, &is_root_import, &leaves_lane)
    }

    /// What a call of this function means, of which it is known that one of the globs fits it.
    fn rules_of(&self, cached: &Cached, entry: Svma) -> HookRules {
        if self.hooked.iter().all(Choice::is_always) {
            return HookRules::ALWAYS;
        }
        let symbol = cached.named_at(entry).map_or("", |n| n.1);
        let fitting = self
            .hooked
            .iter()
            .filter(|c| fits(std::slice::from_ref(&c.glob), symbol, entry.0));
        fitting.fold(HookRules::default(), |all, choice| all.with(choice.rules))
    }

    /// What the user should know of globs without effect.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.decide.is_some() {
            let [skipped, leaves] = &self.decided;
            let (skipped, leaves) = (
                skipped.load(Ordering::Relaxed),
                leaves.load(Ordering::Relaxed),
            );
            remarks.push(format!(
                "propagate left {skipped} functions out, and what {leaves} others call"
            ));
        }
        if !self.without.is_empty() && self.muted.load(Ordering::Relaxed) == 0 {
            remarks.push(format!(
                "no function matches -N {}: nothing was left out (names: sptrace report functions)",
                self.without.join(" -N ")
            ));
        }
        let impossible = match self.impossible.lock() {
            Ok(names) => names.clone(),
            Err(_) => Vec::new(),
        };
        if !impossible.is_empty() {
            let shown: Vec<_> = impossible
                .iter()
                .take(NAMES_SHOWN)
                .map(String::as_str)
                .collect();
            let more = impossible.len() - shown.len();
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            remarks.push(format!(
                "recording could not begin at {}{more}: no jump can be put at the entry (name a caller)",
                shown.join(", ")
            ));
        }
        if impossible.is_empty() {
            let (within, ruled): (Vec<_>, Vec<_>) = self.hooked.iter().partition(|c| c.is_always());
            if !within.is_empty() && within.iter().all(|c| c.is_missing()) {
                let within: Vec<_> = within.iter().map(|c| c.what.as_str()).collect();
                remarks.push(format!(
                    "no function matches {}: nothing was recorded (names: sptrace analyze --functions)",
                    within.join(" ")
                ));
            }
            let missing = ruled.into_iter().filter(|c| c.is_missing());
            remarks.extend(missing.map(|c| {
                let what = &c.what;
                format!("no function matches {what} (names: sptrace analyze --functions)")
            }));
        }
        remarks
    }
}

fn is_loader(file: &Path) -> bool {
    file.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("ld-"))
}

/// The functions of a plan whose names fit one of the globs, and their flags there.
pub(crate) fn entries(cached: &Cached, plan: PlanView<'_>, globs: &[String]) -> HashMap<Svma, u16> {
    if globs.is_empty() {
        return HashMap::new();
    }
    let h = plan.header();
    let plt = h.base_svma + u64::from(h.plt_start)..h.base_svma + u64::from(h.plt_end);
    plan.functions()
        .filter(|f| !f.is_any(FN_MUTED))
        .map(|f| (Svma(h.base_svma + u64::from(f.entry)), f.flags))
        .filter(|(entry, _)| !plt.contains(&entry.0))
        .filter(|(entry, _)| {
            let symbol = cached.named_at(*entry).map_or("", |n| n.1);
            let is_part = symbol.ends_with(".cold") || symbol.ends_with("@plt");
            !is_part && fits(globs, symbol, entry.0)
        })
        .collect()
}

/// The hooks at those of the functions in `roots` that are known to be entered by calls: where
/// unwind information begins as at an entry, and without any, what has a name or is called
/// directly. The rest may be a landing pad or another part of a function, where no return address
/// lies on top of the stack. The analysis is made anew: its functions are kept nowhere.
pub(crate) fn hooks(cached: &Cached, object: &Object<'_>, roots: &HashMap<Svma, u16>) -> Vec<Hook> {
    let analysis = analyze(object);
    let sites = analysis.functions.iter().flat_map(|f| analysis.sites_of(f));
    let calls = sites.filter(|s| s.kind == SiteKind::CallDirect);
    let (takers, calls): (Vec<Site>, Vec<Site>) =
        calls.partition(|s| s.flags.contains(SiteFlags::CALL_NEXT_POP));
    let called: HashSet<Svma> = calls.iter().map(|s| s.target).collect();
    // These take their return address off the stack.
    let takers: HashSet<Svma> = takers.iter().map(|s| s.target).collect();
    let unwinder = unwinder_parts(&analysis, object);
    let kept = Kept::of(object, &analysis);
    // A hook's return finds its place by the stack pointer that a plain `ret` leaves.
    let functions = analysis.functions.iter();
    let pops: HashSet<Svma> = functions
        .filter(|f| f.flags.contains(FunctionFlags::POPS))
        .map(|f| f.entry)
        .collect();
    let may_pop = match pops.is_empty() {
        true => HashSet::new(),
        false => may_end_in(&analysis, &pops),
    };
    let mut linked = links_to(&analysis);
    let mut hooks = Vec::new();
    for (i, f) in analysis.functions.iter().enumerate() {
        let Some(flags) = roots.get(&f.entry) else {
            continue;
        };
        let is_called = called.contains(&f.entry);
        let is_entered = match object.unwind.fde_at(f.entry) {
            Some(fde) if fde.start == f.entry => fde.entry_like && !fde.is_signal_frame,
            _ => is_called || cached.named_at(f.entry).is_some_and(|n| !n.1.is_empty()),
        };
        if !is_entered || f.flags.contains(FunctionFlags::COLD_PART) || unwinder.contains(&f.entry)
        {
            continue;
        }
        let name = cached.named_at(f.entry).map_or("", |n| n.1);
        let may_replace = !special::returns_twice(name)
            && kept.in_function(f) == Keep::Nothing
            && flags & FN_RETURN_ADDRESS == 0
            && !takers.contains(&f.entry)
            && !pops.contains(&f.entry)
            && !may_pop.contains(&i)
            && (is_called || f.flags.contains(FunctionFlags::HAS_UNWIND));
        hooks.push(Hook {
            entry: f.entry,
            end: f.end,
            kind: match may_replace {
                true => SpecialKind::Root,
                false => SpecialKind::RootOpen,
            },
            rules: HookRules::default(),
            linked: linked.remove(&(i as u32)).unwrap_or_default(),
        });
    }
    hooks
}

/// What the entry points of an unwinder call: one of these takes their frame's place and its own
/// return address for the start of the walk.
fn unwinder_parts(analysis: &Analysis, object: &Object<'_>) -> HashSet<Svma> {
    let entries = object.unwind.eh_return_functions();
    let functions = entries
        .iter()
        .filter_map(|svma| analysis.function_at(*svma));
    functions
        .filter_map(|i| analysis.functions.get(i))
        .flat_map(|f| analysis.sites_of(f))
        .map(|site| site.target)
        .collect()
}

/// For each function that others jump into: where these begin and end.
fn links_to(analysis: &Analysis) -> HashMap<u32, Vec<(Svma, Svma)>> {
    let mut linked: HashMap<u32, Vec<(Svma, Svma)>> = HashMap::new();
    for f in &analysis.functions {
        for to in analysis.links_of(f) {
            linked.entry(*to).or_default().push((f.entry, f.end));
        }
    }
    linked
}

/// True if the glob may fit the name of a function without a symbol (`sub_<hex svma>`).
fn may_be_unnamed(glob: &str) -> bool {
    let fits = |b: u8| b"sub_*?".contains(&b) || b.is_ascii_hexdigit();
    // What an expression fits is not known.
    glob.starts_with('/') || glob.bytes().all(fits)
}

fn fits(globs: &[String], symbol: &str, svma: u64) -> bool {
    let name = match symbol {
        "" => sptrace_code::unnamed(Svma(svma)),
        _ => demangle(symbol),
    };
    let short = without_parameters(&name);
    let fits = |glob: &String| {
        let names = [name.as_str(), symbol, short];
        names.iter().any(|n| glob_matches(glob, n))
    };
    globs.iter().any(fits)
}
