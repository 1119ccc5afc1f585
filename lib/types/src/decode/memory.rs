//! The traced program's memory, as far as it was captured.
//!
//! Must not know: what the bytes mean.

use super::types::Phase;

/// Answers bytes of address ranges.
pub trait Memory {
    /// The bytes from an address on, at most `bytes` of them, as they were in a phase; fewer or
    /// none where memory was missing or not captured.
    fn read(&self, phase: Phase, address: u64, bytes: usize) -> &[u8];
}

/// Bytes captured at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// When.
    pub phase: Phase,
    /// Where.
    pub address: u64,
    /// What; fewer than asked for if memory ended.
    pub bytes: Vec<u8>,
}

/// What was captured for a call.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    /// In the order of capture.
    pub chunks: Vec<Chunk>,
}

impl Memory for Captured {
    fn read(&self, phase: Phase, address: u64, bytes: usize) -> &[u8] {
        let mut best: &[u8] = &[];
        for chunk in &self.chunks {
            let same = (chunk.phase == Phase::Entry) == (phase == Phase::Entry);
            let Some(start) = address.checked_sub(chunk.address) else {
                continue;
            };
            if let (true, Ok(start)) = (same, usize::try_from(start))
                && let Some(rest) = chunk.bytes.get(start..)
                && rest.len() > best.len()
            {
                best = rest;
            }
        }
        best.get(..bytes).unwrap_or(best)
    }
}
