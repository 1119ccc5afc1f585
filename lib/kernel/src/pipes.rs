//! The records of all processors, in the order of their times.
//!
//! Given folders of tracefs; reads the pages of each processor's buffer as far as they have been
//! written, and gives their records merged. A record is held back until no earlier one can come any
//! more: what was made before a reading of the clock has been read when each buffer was read empty
//! after that reading, or up to a later record.
//!
//! Must not know: what records mean.

use crate::error::KernelError;
use crate::folder::Folder;
use crate::page::{Lost, Page};
use nix::fcntl::OFlag;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

/// No page of a ring buffer is longer.
const PAGE_BYTES: usize = 64 << 10;
/// Pages of a processor that are read before the next one has its turn.
const PAGES_AT_ONCE: usize = 256;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Ticks of the clock.
    pub time: u64,
    /// The processor that made it.
    pub processor: u32,
    /// In the order in which that processor made them.
    number: u64,
    /// Its bytes.
    pub data: Vec<u8>,
}

impl Ord for Record {
    /// The earliest is the greatest, which a heap gives first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |r: &Self| (r.time, r.processor, r.number);
        key(other).cmp(&key(self))
    }
}

impl PartialOrd for Record {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The buffers of some folders, being read.
pub struct Pipes {
    pipes: Vec<(u32, File)>,
    /// By pipe: the time of the last record that was read.
    last: Vec<u64>,
    page: Vec<u8>,
    waiting: BinaryHeap<Record>,
    number: u64,
    /// Events that the buffers had no room for.
    pub lost: u64,
    /// Pages that did not say how many were lost before them.
    pub lost_unknown: u64,
}

impl Pipes {
    /// Opens them.
    ///
    /// # Errors
    /// One cannot be opened.
    pub fn open(folders: &[&Folder]) -> Result<Self, KernelError> {
        let open = |(folder, processor): (&Folder, u32)| {
            let path = folder.path(&format!("per_cpu/cpu{processor}/trace_pipe_raw"));
            let mut how = File::options();
            how.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
            let file = how.open(&path).map_err(KernelError::of(&path))?;
            Ok((processor, file))
        };
        let buffers = folders
            .iter()
            .flat_map(|f| f.processors().into_iter().map(move |p| (*f, p)));
        let pipes = buffers.map(open).collect::<Result<Vec<_>, KernelError>>()?;
        Ok(Self {
            last: vec![0; pipes.len()],
            pipes,
            page: vec![0; PAGE_BYTES],
            waiting: BinaryHeap::new(),
            number: 0,
            lost: 0,
            lost_unknown: 0,
        })
    }

    /// Reads what was made before `until`, a reading of the clock, and some more. It ends also
    /// where records are made faster than they are read.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn fill_until(&mut self, until: u64) -> Result<(), KernelError> {
        for i in 0..self.pipes.len() {
            while self.last.get(i).is_some_and(|last| *last < until) && !self.fill_from(i)? {}
        }
        Ok(())
    }

    fn fill_from(&mut self, i: usize) -> Result<bool, KernelError> {
        let Some((processor, file)) = self.pipes.get_mut(i) else {
            return Ok(true);
        };
        for _ in 0..PAGES_AT_ONCE {
            let got = match file.read(&mut self.page) {
                Ok(0) => return Ok(true),
                Ok(got) => got,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(KernelError::of("trace_pipe_raw".as_ref())(e)),
            };
            let Some(page) = self.page.get(..got).and_then(Page::new) else {
                self.lost_unknown += 1;
                continue;
            };
            match page.lost() {
                Lost::Nothing => {}
                Lost::Events(events) => self.lost += events,
                Lost::Some => self.lost_unknown += 1,
            }
            for record in page.records() {
                self.number += 1;
                if let Some(last) = self.last.get_mut(i) {
                    *last = record.time;
                }
                self.waiting.push(Record {
                    time: record.time,
                    processor: *processor,
                    number: self.number,
                    data: record.data.to_vec(),
                });
            }
        }
        Ok(false)
    }

    /// The next record that was made before `until`.
    pub fn next_before(&mut self, until: u64) -> Option<Record> {
        if self.waiting.peek()?.time >= until {
            return None;
        }
        self.waiting.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_by_time_and_those_of_one_processor_in_their_order() {
        let record = |time, processor, number| Record {
            time,
            processor,
            number,
            data: Vec::new(),
        };
        let mut pipes = Pipes {
            pipes: Vec::new(),
            last: Vec::new(),
            page: Vec::new(),
            waiting: BinaryHeap::new(),
            number: 0,
            lost: 0,
            lost_unknown: 0,
        };
        for r in [
            record(5, 1, 4),
            record(3, 0, 1),
            record(5, 1, 3),
            record(9, 0, 2),
        ] {
            pipes.waiting.push(r);
        }
        let mut order = Vec::new();
        while let Some(r) = pipes.next_before(9) {
            order.push((r.time, r.number));
        }
        assert_eq!(order, [(3, 1), (5, 3), (5, 4)]);
        assert_eq!(pipes.next_before(10).map(|r| r.time), Some(9));
    }
}
