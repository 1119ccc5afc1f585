//! How deep into the kernel a recording looks, and what this machine lets it.
//!
//! Given a tracefs; says which levels there are, and why not the others.
//!
//! Must not know: how a level is recorded.

use crate::folder::Folder;
use crate::tracefs::Tracefs;

/// How much of the kernel is recorded. Events are, in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Calls of functions, by the tracer function_graph.
    Functions,
    /// Calls of functions, by a probe at each.
    Probes,
    /// Events: system calls, interrupts, waits.
    Events,
}

/// Why a level that looks into the kernel is not there. `Ok` names what is.
pub fn offered(tracefs: &Tracefs, level: Level) -> Result<&'static str, String> {
    let top = Folder::new(tracefs.root().to_owned());
    match level {
        Level::Events => Ok("events"),
        Level::Functions => {
            let tracers = top.read("available_tracers").unwrap_or_default();
            let has = tracers.split_whitespace().any(|t| t == "function_graph");
            let is_readable = std::fs::File::open(top.path("available_filter_functions")).is_ok();
            match has && is_readable {
                true => Ok("the tracer function_graph"),
                false => Err(why_not("CONFIG_FUNCTION_GRAPH_TRACER")),
            }
        }
        Level::Probes => match top.path("kprobe_events").exists() {
            true => Ok("kprobe_events"),
            false => Err(why_not("CONFIG_KPROBE_EVENTS")),
        },
    }
}

/// The deepest level that there is. Probes are slow to make: they are used if functions are named.
pub fn deepest(tracefs: &Tracefs, are_functions_named: bool) -> Level {
    let has = |level| offered(tracefs, level).is_ok();
    match (has(Level::Functions), has(Level::Probes)) {
        (true, _) => Level::Functions,
        (false, true) if are_functions_named => Level::Probes,
        _ => Level::Events,
    }
}

/// Locked down, or built without.
fn why_not(option: &str) -> String {
    let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    match lockdown.split(['[', ']']).nth(1) {
        None | Some("none" | "") => format!("the kernel is built without it ({option})"),
        Some(mode) => format!(
            "the kernel is locked down ({mode}), or built without it; boot without Secure Boot, or with lockdown=none"
        ),
    }
}
