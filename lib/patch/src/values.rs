//! A plan that says whose calls are recorded with values.
//!
//! Given a plan and what its section says ([`sptrace_wire::plan::ValuesHead`]); gives a copy with
//! it, in which the functions are marked, and direct calls of those that have acts for slots get
//! such slots, in the place of theirs. Must not know what is recorded of them.

use sptrace_wire::plan::{
    FN_VALUES, FunctionValues, PlanFunction, PlanHeader, PlanSite, PlanView, SITE_KEEP_CALL,
    SYSTEM_ENTRIES, SiteForm, ValuesHead, ValuesView,
};

const PAGE_BYTES: u32 = 4096;

/// Adds the section. `None`: it is not a plan.
pub fn with_values(plan: &[u8], section: &[u8]) -> Option<Vec<u8>> {
    let view = PlanView::new(plan)?;
    let asked = ValuesView::new(section)?;
    let mut out = plan.to_vec();
    out.resize(plan.len().next_multiple_of(8), 0);
    let header = PlanHeader {
        values_offset: u32::try_from(out.len()).ok()?,
        values_bytes: u32::try_from(section.len()).ok()?,
        total_bytes: u32::try_from(out.len() + section.len()).ok()?,
        area_bytes: area_bytes(view.header().area_bytes, asked)?,
        ..*view.header()
    };
    out.extend(section);
    for entry in (0..asked.head.functions).map_while(|i| asked.get(i)) {
        if entry.entry >= SYSTEM_ENTRIES {
            break;
        }
        let i = view.function_at(entry.entry)?;
        let function = view.function(i)?;
        let flags = function.flags | FN_VALUES;
        let at = header.functions_offset as usize + i as usize * PlanFunction::BYTES;
        let bytes = PlanFunction { flags, ..function }.to_bytes();
        out.get_mut(at..at + bytes.len())?.copy_from_slice(&bytes);
    }
    out.get_mut(..PlanHeader::BYTES)?
        .copy_from_slice(&header.to_bytes());
    put_acts_into_slots(&mut out, view, asked)?;
    Some(out)
}

/// The text of such a call keeps its opcode: nobody sees another return address. Not where a site
/// has two ways, between which it is changed.
fn put_acts_into_slots(out: &mut [u8], view: PlanView<'_>, asked: ValuesView<'_>) -> Option<()> {
    if view.header().twins != 0 {
        return Some(());
    }
    let first = view.header().sites_offset as usize;
    for (i, site) in view.sites().enumerate() {
        let acts = || asked.of(site.argument).map(|of| of.slot_acts);
        if site.form != SiteForm::Direct || acts().is_none_or(|acts| acts.bytes == 0) {
            continue;
        }
        let site = PlanSite {
            form: SiteForm::Acts,
            flags: site.flags | SITE_KEEP_CALL,
            ..site
        };
        let at = first + i * PlanSite::BYTES;
        out.get_mut(at..at + PlanSite::BYTES)?
            .copy_from_slice(&site.to_bytes());
    }
    Some(())
}

/// Bytes of a patch area that has room for the code of functions, too. `None`: more than an area
/// can have.
fn area_bytes(without: u32, asked: ValuesView<'_>) -> Option<u32> {
    let functions = (0..asked.head.functions).map_while(|i| asked.get(i));
    let mut ends = functions.map(|f| f.code_to.checked_add(f.code_bytes() as u32));
    ends.try_fold(without, |most, end| Some(most.max(end?)))?
        .checked_next_multiple_of(PAGE_BYTES)
}

/// The section, from its functions in the order of their entries and what they point to: offsets
/// count from the section's first byte, at which the head and the functions stand.
pub fn section(head: ValuesHead, functions: &[FunctionValues], rest: &[u8]) -> Vec<u8> {
    let head = ValuesHead {
        functions: functions.len() as u32,
        ..head
    };
    let rows = functions.iter().flat_map(|row| row.to_bytes());
    let mut out: Vec<u8> = head.to_bytes().into_iter().chain(rows).collect();
    out.extend(rest);
    out
}

/// Where the rest begins of a section with so many functions.
pub const fn rest_at(functions: usize) -> usize {
    ValuesHead::BYTES + functions * FunctionValues::BYTES
}
