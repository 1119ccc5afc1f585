//! Times that nobody knows: moments that lie evenly between two times.
//!
//! Calls that are recorded in order have none; what is known is between which times they happened.
//! Who records them and who reads them must come to the same ones, so both use this. Must not know
//! what happens.

/// Times are counted in such parts of a tick, if they leave room for so many bits.
const FRACTION_BITS: u32 = 32;

/// Moments that lie evenly between two times, which they leave out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread {
    from: u64,
    part: u64,
    fraction_bits: u32,
}

impl Spread {
    /// So many, between two times in ticks of which the later is not before the earlier.
    #[inline]
    pub fn new(from: u64, to: u64, moments: u64) -> Self {
        let all = to.saturating_sub(from);
        let fraction_bits = all.leading_zeros().min(FRACTION_BITS);
        Self {
            from,
            // What is shifted out is zero.
            part: (all << fraction_bits) / moments.saturating_add(1),
            fraction_bits,
        }
    }

    /// The time of a moment, the first being number 1; number 0 is the earlier time.
    #[inline]
    pub fn at(&self, number: u64) -> u64 {
        let passed = self.part.wrapping_mul(number) >> self.fraction_bits;
        self.from.saturating_add(passed)
    }
}

/// The time of the end number `number` of so many that lie evenly between an earlier time and a
/// later one, which they leave out.
#[inline]
pub fn end_between(earlier: u64, later: u64, number: u64, ends: u64) -> u64 {
    earlier + part_between(earlier, later, ends) * number
}

/// So far from each other are so many ends.
#[inline]
pub fn part_between(earlier: u64, later: u64, ends: u64) -> u64 {
    let all = later.saturating_sub(earlier);
    match ends {
        // All there may be are many, but so are ticks.
        2.. => all / ends.saturating_add(1),
        _ => all / 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_lie_evenly_between_and_leave_both_ends_out() {
        assert_eq!(end_between(1000, 1100, 1, 1), 1050);
        let ends: Vec<u64> = (1..=3).map(|i| end_between(1000, 1100, i, 3)).collect();
        assert_eq!(ends, [1025, 1050, 1075]);
        assert_eq!(end_between(7, 7, 1, 1), 7);
        assert!(end_between(0, u64::MAX, u64::MAX - 1, u64::MAX - 1) < u64::MAX);
    }

    #[test]
    fn moments_lie_evenly_between_and_leave_both_ends_out() {
        let spread = Spread::new(1000, 1100, 9);
        let times: Vec<u64> = (0..=9).map(|number| spread.at(number)).collect();
        assert_eq!(
            times,
            [1000, 1010, 1020, 1030, 1040, 1050, 1060, 1070, 1080, 1090]
        );
        let all = Spread::new(0, u64::MAX, 3);
        assert!(all.at(1) < all.at(2) && all.at(3) < u64::MAX);
        let none = Spread::new(5, 5, 4);
        assert_eq!((none.at(1), none.at(4)), (5, 5));
    }
}
