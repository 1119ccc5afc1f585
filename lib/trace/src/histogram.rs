//! A log-linear histogram of durations: eight buckets for each power of two, so that a quantile is
//! off by at most 6 %, in at most 2 KiB.

use crate::error::Malformed;
use crate::format::{Cursor, put_v};

/// Binary digits that are told apart below the highest one.
const DIGITS: u32 = 3;

/// Counts of durations.
#[derive(Clone, Default, Debug)]
pub struct Histogram {
    buckets: Vec<u32>,
}

impl Histogram {
    /// Counts a duration.
    pub fn add(&mut self, ticks: u64) {
        let bucket = bucket(ticks);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] = self.buckets[bucket].saturating_add(1);
    }

    /// The duration that a share of `percent` / 100 of all do not exceed, the middle of its
    /// bucket; 0 if there are none.
    pub fn percentile(&self, percent: u32) -> u64 {
        let count: u64 = self.buckets.iter().map(|&count| u64::from(count)).sum();
        let rank = (count * u64::from(percent)).div_ceil(100).max(1);
        let mut seen = 0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            seen += u64::from(count);
            if seen >= rank {
                return middle(bucket);
            }
        }
        0
    }
}

impl Histogram {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put_v(out, self.buckets.len() as u64);
        self.buckets
            .iter()
            .for_each(|&count| put_v(out, count.into()));
    }

    pub(crate) fn read(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let length = from.v()?;
        if length > bucket(u64::MAX) as u64 + 1 {
            return Err(Malformed("a histogram has too many buckets"));
        }
        let buckets = (0..length).map(|_| from.v32()).collect::<Result<_, _>>()?;
        Ok(Self { buckets })
    }
}

fn bucket(ticks: u64) -> usize {
    let highest = 63 - ticks.max(1).leading_zeros();
    if highest < DIGITS {
        return ticks as usize;
    }
    let shift = highest - DIGITS;
    (((shift + 1) << DIGITS) as usize) + ((ticks >> shift) as usize & ((1 << DIGITS) - 1))
}

fn middle(bucket: usize) -> u64 {
    let digits = 1u64 << DIGITS;
    let bucket = bucket as u64;
    if bucket < digits {
        return bucket;
    }
    let shift = bucket / digits - 1;
    let low = (digits + bucket % digits) << shift;
    low + ((1 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_bucket_is_in_it_and_close() {
        for ticks in (0..5000).chain([1 << 20, u64::MAX / 3, u64::MAX]) {
            let near = middle(bucket(ticks));
            assert_eq!(bucket(near), bucket(ticks), "{ticks}");
            assert!(near.abs_diff(ticks) <= ticks / 15 + 1, "{ticks} {near}");
        }
        assert!(bucket(u64::MAX) < 512);
    }

    #[test]
    fn percentiles() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(99), 0);
        (0..98).for_each(|_| histogram.add(100));
        (0..2).for_each(|_| histogram.add(100_000));
        assert!(histogram.percentile(50).abs_diff(100) < 7);
        assert!(histogram.percentile(98).abs_diff(100) < 7);
        assert!(histogram.percentile(99).abs_diff(100_000) < 6500);
    }
}
