//! A plan as it is kept in the cache: the same bytes in an order that compresses to a third.
//!
//! Functions and sites are records of 16 bytes, sorted by address. Here each table is turned, in
//! place: first the lowest bytes of all first words, then the next ones, and so on; words hold the
//! distance from the record before, so that high bytes are mostly zero. The last four bytes of the
//! records follow as they were. All other bytes of a plan stay where they are. Must not know what
//! compresses it.

use sptrace_wire::plan::*;

use crate::read_plan::PlanReader;

const RECORD_BYTES: usize = 16;
type Record = [u8; RECORD_BYTES];
/// Words that are spread; the fourth is kept as it is.
const WORDS: usize = 3;

/// Whether the third word of a record counts from the last record for which this was so too.
type IsChained = fn(&Record) -> bool;

/// Turns the tables of a plan, so that it compresses well. `None`: these bytes are no plan.
pub fn to_columns(mut plan: Vec<u8>) -> Option<Vec<u8>> {
    for (table, is_chained) in tables(&plan)? {
        let rows = plan.get(table.clone())?.to_vec();
        spread(&rows, plan.get_mut(table)?, is_chained);
    }
    Some(plan)
}

/// Turns them back. `None`: these bytes are no plan.
pub fn from_columns(mut plan: Vec<u8>) -> Option<Vec<u8>> {
    for (table, is_chained) in tables(&plan)? {
        let columns = plan.get(table.clone())?.to_vec();
        gather(&columns, plan.get_mut(table)?, is_chained);
    }
    Some(plan)
}

fn tables(plan: &[u8]) -> Option<[(std::ops::Range<usize>, IsChained); 2]> {
    let h = PlanReader::new(plan)?.header();
    let table = |offset: u32, count: u32| {
        let (start, bytes) = (offset as usize, count as usize * RECORD_BYTES);
        start..start + bytes
    };
    // Templates follow one another; other arguments do not.
    let has_template = |site: &Record| site[13] == FORM_TEMPLATE;
    let sites = table(h.sites_offset, h.sites);
    Some([
        (table(h.functions_offset, h.functions), |_| true),
        (sites, has_template),
    ])
}

fn words(record: &Record) -> [u32; WORDS] {
    std::array::from_fn(|k| {
        let bytes = &record[4 * k..4 * k + 4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    })
}

fn spread(rows: &[u8], columns: &mut [u8], is_chained: IsChained) {
    let (records, _) = rows.as_chunks::<RECORD_BYTES>();
    let count = records.len();
    let mut before = [0; WORDS];
    for (i, record) in records.iter().enumerate() {
        let now = words(record);
        let is_chained = is_chained(record);
        for k in 0..WORDS {
            let counts = k < 2 || is_chained;
            let distance = now[k].wrapping_sub(if counts { before[k] } else { 0 });
            for (b, byte) in distance.to_le_bytes().into_iter().enumerate() {
                columns[(4 * k + b) * count + i] = byte;
            }
            if counts {
                before[k] = now[k];
            }
        }
        let last = 4 * WORDS * count + 4 * i;
        columns[last..last + 4].copy_from_slice(&record[4 * WORDS..]);
    }
}

fn gather(columns: &[u8], rows: &mut [u8], is_chained: IsChained) {
    let (records, _) = rows.as_chunks_mut::<RECORD_BYTES>();
    let count = records.len();
    let mut before = [0u32; WORDS];
    for (i, record) in records.iter_mut().enumerate() {
        let last = 4 * WORDS * count + 4 * i;
        record[4 * WORDS..].copy_from_slice(&columns[last..last + 4]);
        let is_chained = is_chained(record);
        for k in 0..WORDS {
            let byte = |b| columns[(4 * k + b) * count + i];
            let distance = u32::from_le_bytes(std::array::from_fn(byte));
            let counts = k < 2 || is_chained;
            let word = distance.wrapping_add(if counts { before[k] } else { 0 });
            if counts {
                before[k] = word;
            }
            record[4 * k..4 * k + 4].copy_from_slice(&word.to_le_bytes());
        }
    }
}
