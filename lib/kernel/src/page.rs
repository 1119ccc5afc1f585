//! Pages of the kernel's ring buffer, as `trace_pipe_raw` gives them.
//!
//! Given the bytes of one page; gives its records in order, each with its time, and how many events
//! were lost before them. The layout is the kernel's: `events/header_page` and
//! `events/header_event` in tracefs state it, kernel/trace/ring_buffer.c (struct buffer_data_page,
//! struct ring_buffer_event) says the rest. Torn and hostile pages end early; nothing outside the
//! page is read.
//!
//! Must not know: what a record means.

/// Bytes before the records: a time stamp and the commit word.
const HEADER_BYTES: usize = 16;
/// Of the commit word: events were lost before this page.
const MISSED_EVENTS: u64 = 1 << 31;
/// Of the commit word: how many is stored behind the records.
const MISSED_STORED: u64 = 1 << 30;
/// Of the commit word: bytes of records.
const COMMITTED: u64 = (1 << 20) - 1;

/// Numbers of `type_len` that are no length.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of the time since the event before; a [`TIME_EXTEND`] has those above.
const DELTA_BITS: u32 = 27;
/// Upper bits of a time that a [`TIME_STAMP`] does not hold.
const STAMP_BITS: u32 = 59;

/// Events that the buffer had no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// None.
    Nothing,
    /// So many.
    Events(u64),
    /// Some; the page has no room to say how many.
    Some,
}

/// One page.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    records: &'a [u8],
    start: u64,
    lost: Lost,
}

/// A record and when it was made, by the clock that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Ticks of the clock.
    pub time: u64,
    /// Its bytes; the first two are the number of its event.
    pub data: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u32::from_le_bytes(*b))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u64::from_le_bytes(*b))
}

impl<'a> Page<'a> {
    /// `None`: it is too short for what it says of itself.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let (start, commit) = (long(bytes, 0)?, long(bytes, 8)?);
        let end = HEADER_BYTES.checked_add((commit & COMMITTED) as usize)?;
        let records = bytes.get(HEADER_BYTES..end)?;
        let lost = match (commit & MISSED_EVENTS != 0, commit & MISSED_STORED != 0) {
            (false, _) => Lost::Nothing,
            (true, true) => long(bytes, end).map_or(Lost::Some, Lost::Events),
            (true, false) => Lost::Some,
        };
        Some(Self {
            records,
            start,
            lost,
        })
    }

    /// What was lost before its first record.
    pub fn lost(&self) -> Lost {
        self.lost
    }

    /// Its records, oldest first.
    pub fn records(&self) -> Records<'a> {
        Records {
            rest: self.records,
            time: self.start,
        }
    }
}

/// See [`Page::records`].
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    time: u64,
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        loop {
            let head = word(self.rest, 0)?;
            let (kind, delta) = (head & 31, u64::from(head >> 5));
            let first = word(self.rest, 4);
            let (data, total) = match kind {
                // The rest of the page is empty.
                PADDING if delta == 0 => return None,
                // An event that was discarded: its time still counts.
                PADDING => (None, 4 + first? as usize),
                TIME_EXTEND => {
                    self.time = self.time.wrapping_add(u64::from(first?) << DELTA_BITS);
                    (None, 8)
                }
                TIME_STAMP => {
                    let stamp = u64::from(first?) << DELTA_BITS | delta;
                    self.time = newer(self.time, stamp);
                    self.rest = self.rest.get(8..)?;
                    continue;
                }
                // The length counts itself.
                0 => {
                    let bytes = first? as usize;
                    (Some(8..4 + bytes), 4 + bytes)
                }
                words => {
                    let end = 4 + words as usize * 4;
                    (Some(4..end), end)
                }
            };
            self.time = self.time.wrapping_add(delta);
            let whole = self.rest;
            // Whatever a page claims, each step goes on by four bytes at least.
            self.rest = whole.get(total.max(4).next_multiple_of(4)..)?;
            if let Some(range) = data {
                return Some(Record {
                    time: self.time,
                    data: whole.get(range)?,
                });
            }
        }
    }
}

/// The time whose lower bits are `stamp`, and which is not before `time` (`rb_fix_abs_ts`).
fn newer(time: u64, stamp: u64) -> u64 {
    let upper = time >> STAMP_BITS << STAMP_BITS;
    let whole = upper | stamp & ((1 << STAMP_BITS) - 1);
    if upper != 0 && whole < time {
        return whole.wrapping_add(1 << STAMP_BITS);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of these words.
    fn page(start: u64, flags: u64, words: &[u32]) -> Vec<u8> {
        let mut bytes = start.to_le_bytes().to_vec();
        bytes.extend(((words.len() as u64 * 4) | flags).to_le_bytes());
        bytes.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        bytes.resize(4096, 0);
        bytes
    }

    fn times_and_firsts(bytes: &[u8]) -> Vec<(u64, u32, usize)> {
        let page = Page::new(bytes).unwrap();
        let of = |r: Record<'_>| (r.time, word(r.data, 0).unwrap_or(0), r.data.len());
        page.records().map(of).collect()
    }

    #[test]
    fn small_records_follow_each_other() {
        let bytes = page(1000, 0, &[2 | 5 << 5, 7, 8, 1 | 6 << 5, 9]);
        assert_eq!(times_and_firsts(&bytes), [(1005, 7, 8), (1011, 9, 4)]);
    }

    #[test]
    fn a_long_record_says_its_length_itself() {
        let mut words = vec![3 << 5, 4 + 120, 77];
        words.extend([0; 29]);
        words.extend([1 | 2 << 5, 5]);
        assert_eq!(
            times_and_firsts(&page(0, 0, &words)),
            [(3, 77, 120), (5, 5, 4)]
        );
    }

    #[test]
    fn long_times_and_whole_times() {
        let extend = [30 | 1 << 5, 2, 1 | 4 << 5, 1];
        assert_eq!(
            times_and_firsts(&page(100, 0, &extend)),
            [(100 + (2 << 27) + 1 + 4, 1, 4)]
        );
        let stamp = [31 | 9 << 5, 3, 1, 2];
        let upper = 1 << 60;
        assert_eq!(
            times_and_firsts(&page(upper | 5, 0, &stamp)),
            [(upper | 3 << 27 | 9, 2, 4)]
        );
    }

    #[test]
    fn discarded_events_are_left_out_and_the_end_is_the_end() {
        let words = [29 | 1 << 5, 8, 0, 1 | 1 << 5, 6, 29, 1, 1];
        assert_eq!(times_and_firsts(&page(0, 0, &words)), [(2, 6, 4)]);
    }

    #[test]
    fn lost_events_are_counted_where_the_page_says_how_many() {
        let mut bytes = page(0, MISSED_EVENTS | MISSED_STORED, &[1, 1]);
        bytes[24..32].copy_from_slice(&39745u64.to_le_bytes());
        assert_eq!(Page::new(&bytes).unwrap().lost(), Lost::Events(39745));
        let bytes = page(0, MISSED_EVENTS, &[1, 1]);
        assert_eq!(Page::new(&bytes).unwrap().lost(), Lost::Some);
        let bytes = page(0, 0, &[1, 1]);
        assert_eq!(Page::new(&bytes).unwrap().lost(), Lost::Nothing);
    }

    #[test]
    fn hostile_pages_end() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        for length in 0..64 {
            assert!(Page::new(&vec![0xff; length]).is_none());
        }
        for _ in 0..2000 {
            let mut bytes: Vec<u8> = (0..512).flat_map(|_| random().to_le_bytes()).collect();
            bytes[8..16].copy_from_slice(&(random() % 5000).to_le_bytes());
            if let Some(page) = Page::new(&bytes) {
                assert!(page.records().count() <= 1024);
            }
        }
    }
}
