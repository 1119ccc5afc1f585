//! A plan that says whose calls are recorded with values.
//!
//! Given a plan and what its section says ([`sptrace_wire::plan::ValuesHead`]); gives a copy with
//! it, in which the functions are marked. Must not know what is recorded of them.

use sptrace_wire::plan::{
    FN_VALUES, FunctionValues, PlanFunction, PlanHeader, PlanView, SYSTEM_ENTRIES, ValuesHead,
    ValuesView,
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
    Some(out)
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
