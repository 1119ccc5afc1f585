//! Which functions may end as another one: that runs with the return address that they were called
//! with, and returns in their place.
//!
//! Given the analysis and the entries of the others; must not know of patches.

use std::collections::HashSet;

use sptrace_addr::Svma;
use sptrace_code::{Analysis, SiteKind};

/// Indexes of the functions that end, by whatever chain of jumps, in one of `ends` or in one that
/// is not known here: behind a pointer, in another module.
pub fn may_end_in(analysis: &Analysis, ends: &HashSet<Svma>) -> HashSet<usize> {
    let functions = &analysis.functions;
    let entry_of = |target: Svma| {
        let index = analysis.function_at(target)?;
        (functions[index].entry == target).then_some(index)
    };
    let mut found = HashSet::new();
    let mut jumps: Vec<(usize, usize)> = Vec::new();
    for (from, function) in functions.iter().enumerate() {
        let links = analysis.links_of(function).iter();
        let mut targets: Vec<Option<usize>> = links.map(|to| Some(*to as usize)).collect();
        targets.extend(
            analysis
                .sites_of(function)
                .filter_map(|site| match site.kind {
                    SiteKind::CallDirect | SiteKind::CallIndirect | SiteKind::SystemCall => None,
                    SiteKind::TailIndirect => Some(None),
                    SiteKind::TailDirect | SiteKind::TailConditional => Some(entry_of(site.target)),
                }),
        );
        for target in targets {
            match target {
                Some(to) if !ends.contains(&functions[to].entry) => jumps.push((from, to)),
                _ => _ = found.insert(from),
            }
        }
    }
    loop {
        let before = found.len();
        jumps.retain(|(from, to)| {
            let leads = found.contains(to);
            if leads {
                found.insert(*from);
            }
            !leads
        });
        if found.len() == before {
            return found;
        }
    }
}
