//! The user's choice of functions: which are muted, and at which recording begins.
//!
//! Given a module's analysis and the globs of `run -N` and `run -F`; gives the plan that the agents
//! get: the analysis's own, or a copy with functions muted ([`sptrace_patch::mute`]) and hooks added
//! ([`sptrace_patch::roots`]). Counts what matched, so that a glob that matches nothing is told.
//! Globs are matched with the raw name, the demangled one, and that without its parameters, as
//! `report` does.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sptrace_addr::Svma;
use sptrace_code::{Cached, FunctionFlags, SiteKind};
use sptrace_image::Object;
use sptrace_patch::mute::mute;
use sptrace_patch::read_plan::PlanReader;
use sptrace_patch::roots::{Hook, add_hooks, rendezvous};
use sptrace_trace::{demangle, glob_matches, without_parameters};
use sptrace_wire::plan::{FN_MUTED, FN_RETURN_ADDRESS, SPECIAL_ROOT, SPECIAL_ROOT_OPEN};

/// Names shown of functions that cannot be hooked.
const NAMES_SHOWN: usize = 3;

/// The globs, and what they matched so far.
#[derive(Default)]
pub struct Filters {
    within: Vec<String>,
    without: Vec<String>,
    muted: AtomicUsize,
    hooked: AtomicUsize,
    impossible: Mutex<Vec<String>>,
}

impl Filters {
    /// Recording begins at functions that match `within` (everywhere, if that is empty) and leaves
    /// out those that match `without`.
    pub fn new(within: &[String], without: &[String]) -> Self {
        Self {
            within: within.to_vec(),
            without: without.to_vec(),
            ..Self::default()
        }
    }

    /// The plan of a module for this recording; `file` is the module's.
    pub fn plan<'a>(&self, cached: &'a Cached, file: &Path) -> Cow<'a, [u8]> {
        let mut plan = Cow::Borrowed(cached.plan());
        let symbol = |svma: u64| cached.named_at(Svma(svma)).map_or("", |n| n.1);
        if !self.without.is_empty() {
            let leaves_out = |symbol: &str, svma| fits(&self.without, symbol, svma);
            let muted = mute(
                plan.to_mut(),
                &|svma| leaves_out(symbol(svma), svma),
                &|site| {
                    let target = cached.site(site as usize).map_or(0, |s| s.target.0);
                    let import = symbol(target).strip_suffix("@plt");
                    import.is_some_and(|name| leaves_out(name, 0))
                },
            );
            self.muted.fetch_add(muted, Ordering::Relaxed);
        }
        if !self.within.is_empty()
            && let Some(hooked) = self.hooked_plan(cached, &plan, file)
        {
            plan = Cow::Owned(hooked);
        }
        plan
    }

    /// `None`: nothing is to be hooked.
    fn hooked_plan(&self, cached: &Cached, plan: &[u8], file: &Path) -> Option<Vec<u8>> {
        let mut hooks = self.roots(cached, plan);
        let is_loader = file
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("ld-"));
        if hooks.is_empty() && !is_loader {
            return None;
        }
        let bytes = std::fs::read(file).ok()?;
        let object = Object::parse(&bytes).ok()?;
        if object.keeps_stack_maps {
            hooks.iter_mut().for_each(|h| h.kind = SPECIAL_ROOT_OPEN);
        }
        drop_parts(cached, &object, &mut hooks);
        let roots = hooks.len();
        if let Some(hook) = rendezvous(&object)
            && let Err(place) = hooks.binary_search_by_key(&hook.entry, |h| h.entry)
        {
            hooks.insert(place, hook);
        }
        let made = add_hooks(&object, plan, &hooks)?;
        self.hooked.fetch_add(
            roots.saturating_sub(made.impossible.len()),
            Ordering::Relaxed,
        );
        if let Ok(mut names) = self.impossible.lock() {
            names.extend(made.impossible.iter().map(|svma| cached.name_of(*svma)));
        }
        Some(made.plan)
    }

    fn roots(&self, cached: &Cached, plan: &[u8]) -> Vec<Hook> {
        let Some(reader) = PlanReader::new(plan) else {
            return Vec::new();
        };
        let h = reader.header();
        let mut linked = links_to(cached);
        let plt = h.base_svma + u64::from(h.plt_start)..h.base_svma + u64::from(h.plt_end);
        // The plan has the functions of the analysis in their order.
        let functions =
            (0..cached.functions().len()).filter_map(|i| Some((i as u32, cached.function(i)?)));
        functions
            .filter(|(_, f)| {
                !f.flags.contains(FunctionFlags::COLD_PART) && !plt.contains(&f.entry.0)
            })
            .filter(|(_, f)| {
                let symbol = cached.named_at(f.entry).map_or("", |n| n.1);
                !symbol.ends_with(".cold") && fits(&self.within, symbol, f.entry.0)
            })
            .filter_map(|(i, f)| {
                let flags = reader.flags(i);
                let is_plain =
                    f.flags.contains(FunctionFlags::HAS_UNWIND) && flags & FN_RETURN_ADDRESS == 0;
                let kind = if is_plain {
                    SPECIAL_ROOT
                } else {
                    SPECIAL_ROOT_OPEN
                };
                (flags & FN_MUTED == 0).then_some((i, f, kind))
            })
            .map(|(i, f, kind)| Hook {
                entry: f.entry,
                end: f.end,
                kind,
                linked: linked.remove(&i).unwrap_or_default(),
            })
            .collect()
    }

    /// What the user should know of globs without effect.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
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
        if !self.within.is_empty()
            && impossible.is_empty()
            && self.hooked.load(Ordering::Relaxed) == 0
        {
            remarks.push(format!(
                "no function matches -F {}: nothing was recorded (names: sptrace analyze --functions)",
                self.within.join(" -F ")
            ));
        }
        remarks
    }
}

/// Keeps what is known to be entered by calls: where unwind information begins as at an entry, and
/// without any, what has a name or is called directly. The rest may be a landing pad or another part
/// of a function, where no return address lies on top of the stack.
fn drop_parts(cached: &Cached, object: &Object<'_>, hooks: &mut Vec<Hook>) {
    let sites = (0..cached.sites().len()).filter_map(|i| cached.site(i));
    let called: HashSet<Svma> = sites
        .filter(|s| s.kind == SiteKind::CallDirect)
        .map(|s| s.target)
        .collect();
    let unwinder = unwinder_parts(cached, object);
    hooks.retain(|h| !unwinder.contains(&h.entry));
    hooks.retain(|h| match object.unwind.fde_at(h.entry) {
        Some(fde) if fde.start == h.entry => fde.entry_like && !fde.is_signal_frame,
        _ => called.contains(&h.entry) || cached.named_at(h.entry).is_some_and(|n| !n.1.is_empty()),
    });
}

/// What the entry points of an unwinder call: one of these takes their frame's place and its own
/// return address for the start of the walk.
fn unwinder_parts(cached: &Cached, object: &Object<'_>) -> HashSet<Svma> {
    let entries = object.unwind.eh_return_functions();
    let functions = entries.iter().filter_map(|svma| cached.function_at(*svma));
    let functions = functions.filter_map(|i| cached.function(i));
    functions
        .flat_map(|f| {
            cached
                .sites_of(&f)
                .map(|(_, site)| site.target)
                .collect::<Vec<_>>()
        })
        .collect()
}

/// For each function that others jump into: where these begin and end.
fn links_to(cached: &Cached) -> HashMap<u32, Vec<(Svma, Svma)>> {
    let mut linked: HashMap<u32, Vec<(Svma, Svma)>> = HashMap::new();
    let functions = (0..cached.functions().len()).filter_map(|i| cached.function(i));
    for f in functions {
        for to in cached.links_of(&f) {
            linked.entry(*to).or_default().push((f.entry, f.end));
        }
    }
    linked
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
