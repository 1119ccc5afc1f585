//! Bit sets over all code bytes of an image, set by several threads at once.
//!
//! [`CodeBits`] numbers the bytes of the code ranges without the holes between them, so a file that
//! states far-apart ranges costs no more than its bytes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sptrace_image::CodeRange;

/// Numbers code bytes.
#[derive(Debug)]
pub(crate) struct CodeMap {
    /// Start, end, number of the first byte.
    ranges: Vec<(u64, u64, u64)>,
    total: u64,
}

impl CodeMap {
    pub fn new(ranges: &[CodeRange<'_>]) -> Self {
        let mut total = 0;
        let ranges = ranges
            .iter()
            .map(|r| {
                let first = total;
                // Rounded so that no two ranges share a word.
                total += (r.bytes.len() as u64).next_multiple_of(64);
                (r.start.0, r.end().0, first)
            })
            .collect();
        Self { ranges, total }
    }

    /// What to add, wrapping, to an address of the range that holds `svma` to get its number.
    pub fn delta_at(&self, svma: u64) -> Option<u64> {
        let after = self.ranges.partition_point(|r| r.0 <= svma);
        let (start, end, first) = self.ranges[after.checked_sub(1)?];
        (svma < end).then_some(first.wrapping_sub(start))
    }

    pub fn bits(&self) -> CodeBits {
        let words = self.total / 64 + 1;
        CodeBits {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

/// One bit for each code byte.
#[derive(Debug)]
pub(crate) struct CodeBits {
    words: Vec<AtomicU64>,
}

impl CodeBits {
    pub fn get(&self, bit: u64) -> bool {
        self.words[(bit / 64) as usize].load(Relaxed) >> (bit % 64) & 1 == 1
    }

    /// Sets a bit; gives whether it was set.
    pub fn set(&self, bit: u64) -> bool {
        let (word, mask) = (&self.words[(bit / 64) as usize], 1 << (bit % 64));
        // Most leaders are set many times: a plain load first spares the locked write.
        word.load(Relaxed) & mask != 0 || word.fetch_or(mask, Relaxed) & mask != 0
    }

    pub fn clear(&self, bits: std::ops::Range<u64>) {
        let mut bit = bits.start;
        while bit < bits.end {
            let count = (64 - bit % 64).min(bits.end - bit);
            let mask = (u64::MAX >> (64 - count)) << (bit % 64);
            self.words[(bit / 64) as usize].fetch_and(!mask, Relaxed);
            bit += count;
        }
    }

    /// The first set bit in `from..end`.
    pub fn next(&self, from: u64, end: u64) -> Option<u64> {
        let mut bit = from;
        while bit < end {
            let rest = self.words[(bit / 64) as usize].load(Relaxed) >> (bit % 64);
            if rest != 0 {
                return Some(bit + u64::from(rest.trailing_zeros())).filter(|found| *found < end);
            }
            bit = (bit / 64 + 1) * 64;
        }
        None
    }
}
