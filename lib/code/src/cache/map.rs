//! Bytes of a file, mapped, or of memory.

#![allow(
    unsafe_code,
    reason = "mapping a file is unsafe; this is the only place that does it"
)]

use std::fs::File;

use memmap2::Mmap;

/// Read-only bytes.
#[derive(Debug)]
pub(crate) enum Bytes {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Bytes {
    /// Maps the whole file.
    pub fn map(file: &File) -> std::io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(Self::Owned(Vec::new()));
        }
        // SAFETY: the bytes must not change while they are borrowed. Cache files are ours alone
        // (owner and mode are checked) and only ever replaced by rename. Images are replaced by
        // rename too: by linkers and package managers, as running them requires; no reader here
        // depends on reading the same value twice for its memory safety.
        let mapped = unsafe { Mmap::map(file) }?;
        Ok(Self::Mapped(mapped))
    }

    /// Takes bytes that were built in memory.
    pub fn owned(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(mapped) => mapped,
            Self::Owned(bytes) => bytes,
        }
    }
}
