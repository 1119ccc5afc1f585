//! A plan that was kept, for who may change it.
//!
//! Nothing of it is read or copied before somebody needs it: a program waits for it to come from
//! the cache into the memory of the recording. Must not know what a plan says.

use std::ops::Deref;

use crate::bytes::OwnBytes;
use crate::hash::hash_bytes;

/// The bytes of a plan.
#[derive(Debug)]
pub struct Plan {
    bytes: OwnBytes,
    /// Of all of them as they were kept; `None`: they are others now, behind the head.
    kept: Option<u64>,
}

impl Plan {
    pub(super) fn kept(bytes: OwnBytes, hash: u64) -> Self {
        Self {
            bytes,
            kept: Some(hash),
        }
    }

    /// Its first bytes, so many or all there are, to be changed.
    pub fn head_mut(&mut self, bytes: usize) -> &mut [u8] {
        let bytes = bytes.min(self.bytes.len());
        &mut self.bytes[..bytes]
    }

    /// All of it, to be changed.
    pub fn all_mut(&mut self) -> &mut [u8] {
        self.kept = None;
        &mut self.bytes
    }

    /// True if nothing has changed behind the head.
    pub fn is_as_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// A number by its bytes, and by `seed`: of the first `head_bytes` as they are, and of the
    /// others.
    pub fn hash(&self, seed: u64, head_bytes: usize) -> u64 {
        let hash = self.kept.unwrap_or_else(|| hash_bytes(0, &self.bytes));
        let head = self.bytes.get(..head_bytes).unwrap_or(&self.bytes);
        hash_bytes(hash_bytes(seed, head), &hash.to_le_bytes())
    }
}

impl From<Vec<u8>> for Plan {
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            bytes: bytes.into(),
            kept: None,
        }
    }
}

impl Deref for Plan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
