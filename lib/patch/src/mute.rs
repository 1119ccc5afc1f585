//! Filters that act before anything is patched: a copy of a plan in which chosen functions are
//! muted. Their own sites are left alone, and so are direct calls and jumps to them, but for jumps to
//! those that read their return address, or may end so: these must be seen to give it back.

use std::collections::HashSet;

use sptrace_wire::plan::*;

use crate::read_plan::PlanReader;
use crate::tactic::Refusal;

/// Mutes the functions for which `is_muted` says so, given their svma, and the calls through the PLT
/// stubs for which `is_muted_import` says so, given the svma of the GOT slot. Gives how many functions
/// and imports there were.
pub fn mute(
    plan: &mut [u8],
    is_muted: &dyn Fn(u64) -> bool,
    is_muted_import: &dyn Fn(u64) -> bool,
) -> usize {
    let Some(reader) = PlanReader::new(plan) else {
        return 0;
    };
    let h = reader.header();
    let muted: HashSet<u64> = (0..h.functions)
        .filter_map(|i| reader.function_entry(i))
        .filter(|entry| is_muted(*entry))
        .collect();
    let may_read =
        |entry: &u64| reader.function_flags(*entry) & (FN_RETURN_ADDRESS | FN_TAILS) != 0;
    let readers: HashSet<u64> = muted.iter().copied().filter(may_read).collect();
    let sites: Vec<u32> = (0..h.sites)
        .filter(|i| {
            let Some(site) = reader.site(*i) else {
                return false;
            };
            let callee = reader.ids(&site).and_then(|ids| ids.2);
            let is_needed =
                site.flags & SITE_TAIL != 0 && callee.is_some_and(|c| readers.contains(&c));
            callee.is_some_and(|c| muted.contains(&c)) && !is_needed
                || reader.got_slot(&site).is_some_and(is_muted_import)
        })
        .collect();
    let functions: Vec<u32> = (0..h.functions)
        .filter(|i| {
            reader
                .function_entry(*i)
                .is_some_and(|e| muted.contains(&e))
        })
        .collect();
    let refused = sites.len();
    for i in functions {
        let at = (h.functions_offset + i * 16) as usize + 15;
        plan[at] |= FN_MUTED;
    }
    for i in sites {
        let at = (h.sites_offset + i * 16) as usize;
        plan[at + 13] = FORM_REFUSED;
        plan[at + 14] = Refusal::Filtered as u8;
    }
    muted.len() + refused
}
