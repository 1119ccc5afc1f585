//! What a process has mapped, opened and analysed.
//!
//! Given a mapping of a process; gives the path by which the file can be opened, and its analysis
//! and plan from the cache. Must not know who asks, or what becomes of it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sptrace_code::{self as cache, Analysis, Cached, CodeError, Places};
use sptrace_image::Object;
use sptrace_patch::system_calls::{system_calls, with_system_calls};
use sptrace_patch::{
    build_counting_plan, build_plan, build_plan_in_order, build_plan_mixed, build_plan_with_acts,
    build_plan_with_levels, build_plan_with_levels_in_order, build_plan_with_returns,
    build_plan_without_calls, creations_alone,
};
use sptrace_tracee::maps::Mapping;
use sptrace_tracee::proc::files;
use sptrace_wire::plan::{PLAN_MAGIC, PLAN_VERSION, PlanHeader};

/// Path by which we can open what the process has mapped, even from another mount namespace.
pub fn openable(pid: u32, m: &Mapping) -> Option<PathBuf> {
    let path = m.path.strip_suffix(" (deleted)").unwrap_or(&m.path);
    let same = |p: &Path| std::fs::metadata(p).is_ok_and(|meta| meta.ino() == m.file.1);
    let direct = PathBuf::from(path);
    if same(&direct) {
        return Some(direct);
    }
    let inside = files::inside(pid, path);
    if same(&inside) {
        return Some(inside);
    }
    let exe = files::program(pid);
    same(&exe).then_some(exe)
}

/// What the calls of a module are planned for. Each kind of plan is kept beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plans {
    /// They are recorded.
    Record,
    /// The same; what functions do at their calls may need no frame.
    Acts,
    /// The same; they keep their return addresses, and their ends are seen where they return to.
    Returns,
    /// They are counted.
    Count,
    /// They are recorded, those of some functions counted at times.
    Levels {
        /// Those of the kernel are recorded as well.
        system_calls: bool,
    },
    /// The same where those that are counted are recorded in order for that.
    LevelsInOrder {
        /// As above.
        system_calls: bool,
    },
    /// They are recorded in order, without stamps and ends.
    InOrder {
        /// As above.
        system_calls: bool,
    },
    /// They are recorded, those of some functions in order at times.
    Mixed {
        /// As above.
        system_calls: bool,
    },
    /// They are not looked at: system calls alone are recorded. Such plans are small, and quickly
    /// given to a process.
    SystemCalls,
}

const COUNTING_VERSION: u32 = PLAN_VERSION | 1 << 31;
const LEVELS_VERSION: u32 = PLAN_VERSION | 1 << 30;
const IN_ORDER_VERSION: u32 = PLAN_VERSION | 1 << 29;
const MIXED_VERSION: u32 = PLAN_VERSION | 1 << 27;
const SYSTEM_CALLS_VERSION: u32 = PLAN_VERSION | 1 << 28;
const ACTS_VERSION: u32 = PLAN_VERSION | 1 << 25;
const RETURNS_VERSION: u32 = PLAN_VERSION | 1 << 23;
const LEVELS_IN_ORDER_VERSION: u32 = PLAN_VERSION | 1 << 24;
/// Beside one of the others.
const WITH_SYSTEM_CALLS: u32 = 1 << 26;

/// Analysis and plan of a mapped file, in which calls are counted or recorded, and by which path
/// it can be opened.
pub fn load(
    places: &Places,
    pid: u32,
    m: &Mapping,
    plans: Plans,
) -> Option<(Arc<Cached>, PathBuf)> {
    let path = openable(pid, m)?;
    let (version, build) = kind(plans);
    let cached = cache::load_or_build(places, &path, version, &build);
    Some((Arc::new(cached.ok()?), path))
}

/// What is kept of a file, its plan included, if there is something.
pub fn kept(places: &Places, path: &Path, plans: Plans) -> Option<Arc<Cached>> {
    cache::kept(places, path, kind(plans).0).map(Arc::new)
}

/// Whether the plan of a file says of functions that must be intercepted. None: it is no plan.
pub fn has_specials(kept: &Cached) -> Option<bool> {
    let header = PlanHeader::read(kept.plan_bytes())?;
    (header.magic == PLAN_MAGIC && header.version == PLAN_VERSION).then_some(header.specials > 0)
}

/// By which version plans of this kind are kept, and how they are made.
fn kind(plans: Plans) -> (u32, Planned) {
    match plans {
        Plans::Record => (PLAN_VERSION, planned),
        Plans::Acts => (ACTS_VERSION, planned_with_acts),
        Plans::Returns => (RETURNS_VERSION, planned_with_returns),
        Plans::Count => (COUNTING_VERSION, build_counting_plan),
        Plans::InOrder { system_calls } => with(
            system_calls,
            (IN_ORDER_VERSION, planned_in_order),
            planned_in_order_with_system_calls,
        ),
        Plans::Mixed { system_calls } => with(
            system_calls,
            (MIXED_VERSION, planned_mixed),
            planned_mixed_with_system_calls,
        ),
        Plans::SystemCalls => (SYSTEM_CALLS_VERSION, planned_system_calls),
        Plans::Levels { system_calls } => with(
            system_calls,
            (LEVELS_VERSION, planned_with_levels),
            planned_with_levels_and_system_calls,
        ),
        Plans::LevelsInOrder { system_calls } => with(
            system_calls,
            (LEVELS_IN_ORDER_VERSION, planned_with_levels_in_order),
            planned_with_levels_in_order_and_system_calls,
        ),
    }
}

/// Makes the plan that is kept beside an analysis.
type Planned = fn(&Object<'_>, &Analysis) -> Vec<u8>;

/// A kind of plan, or what it is with all system calls.
fn with(system_calls: bool, without: (u32, Planned), all: Planned) -> (u32, Planned) {
    match system_calls {
        true => (without.0 | WITH_SYSTEM_CALLS, all),
        false => without,
    }
}

/// Analyses an image for all users of this machine; see [`cache::fill`].
///
/// # Errors
/// As there.
pub fn fill(folder: &Path, image: &Path) -> Result<bool, CodeError> {
    cache::fill(folder, image, PLAN_VERSION, &planned)
}

/// Analyses an image for this user, unless that is kept already.
///
/// # Errors
/// It cannot be read, or is no image.
pub fn fill_own(places: &Places, image: &Path) -> Result<(), CodeError> {
    cache::load_or_build(places, image, PLAN_VERSION, &planned).map(drop)
}

/// The plan that is kept beside an analysis.
fn planned(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    with_all_system_calls(object, analysis, build_plan(object, analysis))
}

/// The same where what functions do at their calls may need no frame.
fn planned_with_acts(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    with_all_system_calls(object, analysis, build_plan_with_acts(object, analysis))
}

/// The same where calls keep their return addresses.
fn planned_with_returns(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    with_all_system_calls(object, analysis, build_plan_with_returns(object, analysis))
}

/// The same where nothing but system calls is recorded.
fn planned_system_calls(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    with_all_system_calls(object, analysis, build_plan_without_calls(object, analysis))
}

fn with_all_system_calls(object: &Object<'_>, analysis: &Analysis, plan: Vec<u8>) -> Vec<u8> {
    let found = system_calls(object, analysis, &plan);
    with_system_calls(&plan, &found).unwrap_or(plan)
}

/// The same where calls are recorded in order.
fn planned_in_order(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    let plan = build_plan_in_order(object, analysis);
    creations_alone(object, analysis, plan)
}

fn planned_in_order_with_system_calls(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    with_all_system_calls(object, analysis, build_plan_in_order(object, analysis))
}

/// The same where calls of some functions are counted at times.
fn planned_with_levels(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    let plan = build_plan_with_levels(object, analysis);
    creations_alone(object, analysis, plan)
}

fn planned_with_levels_and_system_calls(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    with_all_system_calls(object, analysis, build_plan_with_levels(object, analysis))
}

/// The same where those that are counted are recorded in order for that.
fn planned_with_levels_in_order(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    let plan = build_plan_with_levels_in_order(object, analysis);
    creations_alone(object, analysis, plan)
}

fn planned_with_levels_in_order_and_system_calls(
    object: &Object<'_>,
    analysis: &Analysis,
) -> Vec<u8> {
    let plan = build_plan_with_levels_in_order(object, analysis);
    with_all_system_calls(object, analysis, plan)
}

/// The same where those of some functions are recorded in order at times.
fn planned_mixed(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    let plan = build_plan_mixed(object, analysis);
    creations_alone(object, analysis, plan)
}

fn planned_mixed_with_system_calls(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    with_all_system_calls(object, analysis, build_plan_mixed(object, analysis))
}
