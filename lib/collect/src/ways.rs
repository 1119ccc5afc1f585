//! In which way calls are recorded: what options and events mean for the agents.
//!
//! Given the options, and the events that are waited for; gives the arena, which says it all. Must
//! not know how a recording goes.

use sptrace_tracee::TraceeError;
use sptrace_tracee::arena::{Arena, ArenaOptions};

use crate::captures;
use crate::react::reactor::Reactor;
use crate::request::{Options, Stamps};

/// Is only what happens in some calls recorded?
pub(crate) fn has_roots(options: &Options, reactor: &Reactor) -> bool {
    !options.within.is_empty() || !reactor.between().rules().is_empty()
}

/// Is all recorded that a command does, from its start on? Otherwise what was called before may be
/// left out now, which is so where it is not reached.
fn is_plain(options: &Options, reactor: &Reactor) -> bool {
    let is_all =
        options.modules.is_empty() && options.without.is_empty() && options.levels.is_empty();
    let has_acts = options.values.is_some() || options.payloads.is_some();
    let is_whole = !has_roots(options, reactor) && options.depth_limit == 0;
    let is_now = !reactor.attaches() && reactor.gates().is_empty();
    is_all && is_whole && is_now && !has_acts && options.decide.is_none()
}

/// Are there frames whose ends are told, whatever becomes of calls?
pub(crate) fn has_ends(options: &Options, reactor: &Reactor) -> bool {
    options.system_calls.is_some() || has_roots(options, reactor) || reactor.attaches()
}

/// The arena of a recording.
///
/// # Errors
/// It cannot be made.
pub(crate) fn arena_of(
    options: &Options,
    reactor: &Reactor,
    tsc_hz: u64,
) -> Result<Arena, TraceeError> {
    let (stamps, has_ends) = (options.stamps_of_slots(), has_ends(options, reactor));
    let counts_records = options.counts_records;
    let arena = Arena::new(ArenaOptions {
        chunks: options.chunks,
        drop_when_full: options.drop_when_full,
        depth_limit: match stamps {
            Stamps::Full => options.depth_limit,
            // It is not known there how deep a call in order is.
            Stamps::Auto | Stamps::None => 0,
        },
        loader: options.loader,
        memory_limit: options.at_start.memory_limit(),
        counts: options.counts && !counts_records,
        levels: options.limit.is_some() && !counts_records,
        in_order: stamps == Stamps::None && !has_ends,
        mixed: stamps == Stamps::Auto || stamps == Stamps::None && has_ends,
        counted_in_order: options.limit.is_some() && counts_records,
        keeps_returns: options.keeps_returns,
        roots_only: has_roots(options, reactor),
        ahead: is_plain(options, reactor),
    })?;
    if let Some(asked) = &options.system_calls {
        let payloads = options.payloads.as_ref().map_or(&[][..], |all| &all.all);
        let has_payload = |number: u32| payloads.iter().any(|one| one.runs_at(number));
        arena.set_captures(&captures::table(asked, tsc_hz, &has_payload));
    }
    if let Some(payloads) = &options.payloads {
        arena.set_tables(payloads.tables.set_bytes);
    }
    arena.set_bids(options.bids.len());
    reactor.between().arm(arena.control());
    Ok(arena)
}
