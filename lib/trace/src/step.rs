//! The step of the time stamp counter: on many processors every difference of two stamps is a
//! multiple of some number of ticks (26 on a 2.445 GHz Zen 3), so that times are shorter when
//! they are counted in steps. Found from the times of the block before; a time that is no
//! multiple (after a migration to another processor) is written in ticks, so nothing is lost.

use crate::format::Cursor;

/// Times below this are one byte.
pub(crate) const SHORT_TIMES: u64 = 224;

/// First byte of a time that is a number of its own.
pub(crate) const LONG_TIME: u8 = 255;

pub(crate) const TWO_BYTE_TIMES: u64 = (LONG_TIME as u64 - SHORT_TIMES) << 8;

/// Binary places of the reciprocal.
const SHIFT: u32 = 40;
/// Times that are counted in steps are below this; the reciprocal is exact there.
const MAX_TICKS: u64 = 1 << 20;
/// Times looked at, and times in each group whose common divisor is taken.
const SAMPLE: usize = 256;
const GROUP: usize = 8;
/// Steps above this are an accident of few samples.
const MAX_STEP: u64 = 256;

/// Ticks in a step and what makes the division cheap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    ticks: u64,
    reciprocal: u64,
}

impl Default for Step {
    fn default() -> Self {
        Self::new(1)
    }
}

impl Step {
    fn new(ticks: u64) -> Self {
        Self {
            ticks,
            reciprocal: (1 << SHIFT) / ticks + 1,
        }
    }

    /// Ticks in a step.
    pub fn ticks(self) -> u64 {
        self.ticks
    }

    /// Steps in `ticks`, `u64::MAX` if that is no whole number or too many.
    #[inline]
    pub fn count(self, ticks: u64) -> u64 {
        let steps = (ticks % MAX_TICKS * self.reciprocal) >> SHIFT;
        if steps * self.ticks == ticks {
            steps
        } else {
            u64::MAX
        }
    }

    /// The step that the encoded times of a block (counted in `self`) suggest.
    pub fn improved(self, times: &[u8]) -> Self {
        let sample = self.sample(times);
        if sample.len() < SAMPLE / 4 {
            return self;
        }
        let groups = sample.chunks_exact(GROUP);
        let divisors: Vec<u64> = groups
            .map(|group| group.iter().copied().fold(0, gcd))
            .collect();
        // The most frequent divisor: an odd time spoils its own group only.
        let frequency = |step: u64| divisors.iter().filter(|&&other| other == step).count();
        let best = divisors
            .iter()
            .copied()
            .max_by_key(|&step| frequency(step))
            .unwrap_or(1);
        let multiples = sample
            .iter()
            .filter(|&&ticks| best != 0 && ticks % best == 0)
            .count();
        if (1..=MAX_STEP).contains(&best) && multiples * 50 >= sample.len() * 49 {
            Self::new(best)
        } else {
            Self::default()
        }
    }

    /// The first times that are not zero, in ticks.
    fn sample(self, times: &[u8]) -> Vec<u64> {
        let mut from = Cursor::new(times);
        let mut sample = Vec::with_capacity(SAMPLE);
        while sample.len() < SAMPLE {
            match read_time(&mut from, self.ticks) {
                Ok(0) => {}
                Ok(ticks) => sample.push(ticks),
                Err(_) => break,
            }
        }
        sample
    }
}

/// Reads one encoded time, in ticks.
#[inline]
pub fn read_time(from: &mut Cursor<'_>, step: u64) -> Result<u64, crate::error::Malformed> {
    let first = from.u8()?;
    let short = u64::from(first);
    if short < SHORT_TIMES {
        return Ok(short.wrapping_mul(step));
    }
    if first == LONG_TIME {
        return from.v();
    }
    let second = u64::from(from.u8()?);
    Ok((SHORT_TIMES + ((short - SHORT_TIMES) << 8 | second)).wrapping_mul(step))
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact() {
        for ticks in 1..=MAX_STEP {
            let step = Step::new(ticks);
            for n in 0..MAX_TICKS / ticks {
                assert_eq!(step.count(n * ticks), n);
            }
            assert_eq!(
                step.count(ticks * 5 + 1),
                if ticks == 1 { 6 } else { u64::MAX }
            );
        }
        assert_eq!(Step::new(26).count(26 << 40), u64::MAX);
    }

    #[test]
    fn finds_a_step_in_spite_of_odd_times() {
        let mut times: Vec<u8> = (0..400u32).map(|n| ((n * 7 % 8 + 1) * 26) as u8).collect();
        times[100] = 3;
        assert_eq!(Step::default().improved(&times).ticks(), 26);
        let noise: Vec<u8> = (0..400u32).map(|n| (n * 37 % 223) as u8).collect();
        assert_eq!(Step::new(26).improved(&noise).ticks(), 26);
        assert_eq!(Step::default().improved(&noise).ticks(), 1);
    }
}
