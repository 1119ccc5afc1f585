//! Calls that were recorded in order to be counted, and nothing else.
//!
//! Part of the [`Decoder`]. Where only what happens in some functions is recorded, calls that are
//! counted are recorded in order, as a thread that is outside of them records nothing. Such a call
//! needs no time and no place among others: it is one more of its edge, which is named as the cells
//! of the arena are ([`sptrace_wire::counts`]). Must not know who calls whom by an edge.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use sptrace_wire::counts::edge;

use super::Decoder;
use super::sink::Sink;

/// Edges that are kept at hand; a power of two.
const AT_HAND: usize = 1 << 10;

/// How often the calls of edges were made.
#[derive(Clone, Default)]
pub(super) struct Edges {
    /// Those that were met last, with what is not added to the others yet.
    at_hand: Vec<(u64, u64)>,
    calls: HashMap<u64, u64>,
}

impl Edges {
    #[inline(always)]
    fn add(&mut self, edge: u64) {
        let mixed = (edge ^ edge >> 32) as u32;
        let slot = mixed.wrapping_mul(0x9E37_79B1) as usize >> 16 & (AT_HAND - 1);
        match self.at_hand.get_mut(slot) {
            Some(known) if known.0 == edge => known.1 += 1,
            _ => self.change(slot, edge),
        }
    }

    #[cold]
    #[inline(never)]
    fn change(&mut self, slot: usize, edge: u64) {
        if self.at_hand.is_empty() {
            self.at_hand.resize(AT_HAND, (0, 0));
        }
        let (former, calls) = std::mem::replace(&mut self.at_hand[slot], (edge, 1));
        if calls > 0 {
            *self.calls.entry(former).or_default() += calls;
        }
    }

    /// All that were met, and how often, in the order of their numbers.
    pub(super) fn all(&self) -> Vec<(u64, u64)> {
        let mut sums = self.calls.clone();
        for (edge, calls) in self.at_hand.iter().filter(|(_, calls)| *calls > 0) {
            *sums.entry(*edge).or_default() += calls;
        }
        let mut all: Vec<_> = sums.into_iter().collect();
        all.sort_unstable();
        all
    }
}

impl<S: Sink> Decoder<'_, S> {
    /// Counts the calls from `at` on that were recorded in order, and gives where there is another
    /// record. None: what comes from there on is not wanted.
    pub(super) fn add_to_edges(
        &mut self,
        halves: &[AtomicU32],
        mut at: usize,
        wide_callee: &mut Option<u64>,
    ) -> Option<usize> {
        if !self.sink.come_to(self.cursor.earliest(), 0) {
            return None;
        }
        let mut edges = std::mem::take(&mut self.cursor.edges);
        if let Some(edges) = &mut edges {
            while let Some((looked, length)) = self.look_up_in_order(halves, at) {
                let low = halves.get(at + 2).filter(|_| length > 2);
                match low.map(|low| low.load(Ordering::Relaxed)) {
                    Some(0) => self.torn.count(self.areas),
                    low => edges.add(edge(looked.id, low.unwrap_or(0))),
                }
                at += length;
            }
        }
        // Functions are told by the low halves of their addresses, as where slots count.
        *wide_callee = None;
        self.cursor.edges = edges;
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_have_their_sums_however_they_change() {
        let mut edges = Edges::default();
        for round in 0..5_u64 {
            for id in 0x1_0000..0x1_2000_u32 {
                for _ in 0..=round {
                    edges.add(edge(id, id % 3));
                }
            }
        }
        let all = edges.all();
        assert_eq!(all.len(), 0x2000);
        assert!(all.iter().all(|(_, calls)| *calls == 15));
        assert_eq!(all.first(), Some(&(edge(0x1_0002, 0), 15)));
    }
}
