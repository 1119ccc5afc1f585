//! From an image to its analysis: discovery, classification, listing of sites.

use sptrace_addr::Svma;
use sptrace_image::Object;

use crate::classify::{Classes, classify};
use crate::discover::{Discovery, discover};
use crate::model::{Analysis, Function, FunctionFlags, Summary};
use crate::parallel::map_chunks;
use crate::sites::{Listed, list_sites};

const REGIONS_PER_CHUNK: usize = 128;

/// Analyses all code of an image, on all processors. Deterministic.
pub fn analyze(object: &Object<'_>) -> Analysis {
    analyze_and(object, |_, _, _| ()).0
}

/// As [`analyze`], with something else that is made of what was found on the way.
pub(crate) fn analyze_and<T>(
    object: &Object<'_>,
    also: impl FnOnce(&Analysis, &Discovery, &Classes) -> T,
) -> (Analysis, T) {
    let discovery = discover(object);
    let classes = classify(object, &discovery);
    let indexes: Vec<usize> = (0..discovery.regions.len()).collect();
    let listed = map_chunks(&indexes, REGIONS_PER_CHUNK, |chunk| {
        let mut listed = Listed::default();
        for index in chunk {
            list_sites(object, &discovery, &classes, *index, &mut listed);
        }
        listed.sites.shrink_to_fit();
        listed
    });
    let analysis = assemble(object, &discovery, &classes, listed);
    let more = also(&analysis, &discovery, &classes);
    (analysis, more)
}

fn assemble(
    object: &Object<'_>,
    discovery: &Discovery,
    classes: &Classes,
    listed: Vec<Listed>,
) -> Analysis {
    let mut analysis = Analysis {
        links: classes.links.iter().map(|(_, target)| *target).collect(),
        summary: Summary {
            text_bytes: text_bytes(object),
            jump_tables: classes.jump_tables,
            unresolved_jumps: classes.unresolved_jumps,
            ..Summary::default()
        },
        ..Analysis::default()
    };
    let site_count = listed.iter().map(|l| l.sites.len()).sum();
    analysis.sites.reserve_exact(site_count);
    analysis.functions.reserve_exact(discovery.regions.len());
    let mut first_link = 0;
    for chunk in listed {
        for site_count in chunk.counts {
            let index = analysis.functions.len();
            let first_site = analysis
                .functions
                .last()
                .map_or(0, |f| f.first_site + f.site_count);
            let links = classes.links[first_link..]
                .iter()
                .take_while(|(source, _)| *source as usize == index)
                .count();
            let region = &discovery.regions[index];
            let mut flags = flags(classes, discovery, index);
            if links > usize::from(u16::MAX) {
                flags.insert(FunctionFlags::UNRESOLVED_JUMPS);
            }
            analysis.functions.push(Function {
                entry: Svma(region.start),
                end: Svma(region.end),
                first_site,
                site_count,
                first_link: first_link as u32,
                link_count: links.min(usize::from(u16::MAX)) as u16,
                flags,
            });
            analysis.summary.broken_paths += u64::from(region.seen.broken_paths);
            first_link += links;
        }
        analysis.sites.extend(chunk.sites.iter());
        analysis.system_calls.extend(chunk.system_calls.iter());
        analysis.plain_runs.extend(chunk.plain_runs);
        analysis.summary.instructions += chunk.instructions;
        analysis.summary.blocks += chunk.blocks;
        analysis.summary.overlapped_sites += chunk.overlapped;
    }
    analysis
}

fn flags(classes: &Classes, discovery: &Discovery, index: usize) -> FunctionFlags {
    let region = &discovery.regions[index];
    let mut flags = FunctionFlags::default();
    let bits = [
        (region.fde_start.is_some(), FunctionFlags::HAS_UNWIND),
        (region.seen.uses_red_zone(), FunctionFlags::RED_ZONE),
        (region.seen.uses_gs, FunctionFlags::USES_GS),
        (region.seen.sets_gs, FunctionFlags::SETS_GS),
        (region.seen.pops, FunctionFlags::POPS),
        (
            region.seen.frame.reads_return(),
            FunctionFlags::READS_RETURN,
        ),
        (classes.is_cold(index), FunctionFlags::COLD_PART),
        (classes.is_no_return(index), FunctionFlags::NO_RETURN),
        (classes.is_suspect(index), FunctionFlags::UNRESOLVED_JUMPS),
    ];
    for (_, bit) in bits.into_iter().filter(|(set, _)| *set) {
        flags.insert(bit);
    }
    flags
}

fn text_bytes(object: &Object<'_>) -> u64 {
    object
        .code_ranges
        .iter()
        .filter(|r| !r.is_plt)
        .map(|r| r.bytes.len() as u64)
        .sum()
}
