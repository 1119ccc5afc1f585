//! A plan as it is kept in the cache: the same bytes in an order that compresses to a third.
//!
//! Functions and sites are records that begin with three words, sorted by address. Here each table
//! is turned, in place: first the lowest bytes of all first words, then the next ones, and so on;
//! words hold the distance from the record before, so that high bytes are mostly zero. What follows
//! the words comes after them, record by record, as it was. All other bytes of a plan stay where
//! they are. Must not know what compresses it.

use std::ops::Range;

use sptrace_wire::plan::*;

/// Words that are spread; the rest of a record is kept as it is.
const WORDS: usize = 3;
const WORDS_BYTES: usize = 4 * WORDS;

/// One table of a plan.
struct Table {
    /// Where it lies.
    place: Range<usize>,
    /// Bytes of a record.
    record_bytes: usize,
    /// Whether the third word of a record counts from the last record for which this was so too.
    is_chained: fn(&[u8]) -> bool,
}

/// Turns the tables of a plan, so that it compresses well. `None`: these bytes are no plan.
pub fn to_columns(mut plan: Vec<u8>) -> Option<Vec<u8>> {
    for table in tables(&plan)? {
        let rows = plan.get(table.place.clone())?.to_vec();
        spread(&rows, plan.get_mut(table.place.clone())?, &table);
    }
    Some(plan)
}

/// Turns them back. `None`: these bytes are no plan.
pub fn from_columns(mut plan: Vec<u8>) -> Option<Vec<u8>> {
    for table in tables(&plan)? {
        let columns = plan.get(table.place.clone())?.to_vec();
        gather(&columns, plan.get_mut(table.place.clone())?, &table);
    }
    Some(plan)
}

fn tables(plan: &[u8]) -> Option<[Table; 2]> {
    let view = PlanView::new(plan)?;
    let h = view.header();
    let table = |offset: u32, count: u32, record_bytes: usize, is_chained| {
        let start = offset as usize;
        let place = start..start + count as usize * record_bytes;
        Table {
            place,
            record_bytes,
            is_chained,
        }
    };
    // Templates follow one another; other arguments do not.
    let has_template = |record: &[u8]| {
        let form = record.get(PlanSite::FORM_OFFSET);
        form == Some(&(SiteForm::Template as u8)) || form == Some(&(SiteForm::Return as u8))
    };
    let (functions, sites) = (PlanFunction::BYTES, PlanSite::BYTES);
    Some([
        table(h.functions_offset, h.functions, functions, |_| true),
        table(h.sites_offset, h.sites, sites, has_template),
    ])
}

fn words(record: &[u8]) -> [u32; WORDS] {
    let (words, _) = record.as_chunks::<4>();
    std::array::from_fn(|k| words.get(k).map_or(0, |w| u32::from_le_bytes(*w)))
}

fn spread(rows: &[u8], columns: &mut [u8], table: &Table) {
    let rest_bytes = table.record_bytes - WORDS_BYTES;
    let count = rows.len() / table.record_bytes;
    let mut before = [0; WORDS];
    for (i, record) in rows.chunks_exact(table.record_bytes).enumerate() {
        let now = words(record);
        let is_chained = (table.is_chained)(record);
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
        let rest = WORDS_BYTES * count + rest_bytes * i;
        columns[rest..rest + rest_bytes].copy_from_slice(&record[WORDS_BYTES..]);
    }
}

fn gather(columns: &[u8], rows: &mut [u8], table: &Table) {
    let rest_bytes = table.record_bytes - WORDS_BYTES;
    let count = rows.len() / table.record_bytes;
    let (spread, rest) = columns.split_at(WORDS_BYTES * count);
    // A program waits for this: of its plan, which may have a million records, as little is done
    // for each as can be.
    let of_word = |k: usize| -> [&[u8]; 4] {
        std::array::from_fn(|b| &spread[(4 * k + b) * count..][..count])
    };
    let words: [[&[u8]; 4]; WORDS] = std::array::from_fn(of_word);
    let mut before = [0u32; WORDS];
    let records = rows.chunks_exact_mut(table.record_bytes);
    for (i, (record, rest)) in records.zip(rest.chunks_exact(rest_bytes)).enumerate() {
        record[WORDS_BYTES..].copy_from_slice(rest);
        let is_chained = (table.is_chained)(record);
        for (k, [a, b, c, d]) in words.iter().enumerate() {
            let distance = u32::from_le_bytes([a[i], b[i], c[i], d[i]]);
            let counts = k < 2 || is_chained;
            let word = distance.wrapping_add(if counts { before[k] } else { 0 });
            if counts {
                before[k] = word;
            }
            record[4 * k..4 * k + 4].copy_from_slice(&word.to_le_bytes());
        }
    }
}
