//! Bytes of a file, mapped, or of memory: to be read, or to be changed by who has them.

#![allow(
    unsafe_code,
    reason = "mapping a file is unsafe; this is the only place that does it"
)]

use std::fs::File;
use std::io::Read;
use std::ops::{Deref, DerefMut, Range};
use std::path::Path;

use memmap2::{Mmap, MmapMut, MmapOptions, UncheckedAdvice};

/// Read-only bytes of an image.
#[derive(Debug)]
pub struct Bytes(Source);

#[derive(Debug)]
enum Source {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Bytes {
    /// The bytes of the file at `path`: mapped, so that what is not looked at takes no memory; read
    /// where it is no regular file (a pipe).
    ///
    /// # Errors
    /// When it cannot be opened, read or mapped.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let mut file = File::open(path)?;
        if file.metadata()?.is_file() {
            return Self::map(&file);
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(Self::owned(bytes))
    }

    /// Maps the whole file.
    pub(crate) fn map(file: &File) -> std::io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(Self::owned(Vec::new()));
        }
        // SAFETY: the bytes must not change while they are borrowed. Cache files are ours alone
        // (owner and mode are checked) and only ever replaced by rename. Images are replaced by
        // rename too: by linkers and package managers, as running them requires; no reader here
        // depends on reading the same value twice for its memory safety.
        let mapped = unsafe { Mmap::map(file) }?;
        Ok(Self(Source::Mapped(mapped)))
    }

    /// Takes bytes that were built in memory.
    pub(crate) fn owned(bytes: Vec<u8>) -> Self {
        Self(Source::Owned(bytes))
    }

    /// All of them.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Source::Mapped(mapped) => mapped,
            Source::Owned(bytes) => bytes,
        }
    }
    /// Lets go the pages that were read so far. Reading one again maps it again from the kernel's
    /// cache, so call it between passes over different parts: memory held at the peak is what
    /// counts.
    pub fn release_pages(&self) {
        if let Source::Mapped(mapped) = &self.0 {
            // SAFETY: the mapping is read-only and of a file: its pages come back with the file's
            // bytes, which is what `map` relies on anyway.
            let released = unsafe { mapped.unchecked_advise(UncheckedAdvice::DontNeed) };
            // A kernel that refuses leaves more memory in use, and nothing else.
            drop(released);
        }
    }
}

/// Bytes that whoever has them may change. Of a file, what is not changed is not copied.
#[derive(Debug)]
pub(crate) struct OwnBytes(OwnSource);

#[derive(Debug)]
enum OwnSource {
    Mapped(MmapMut),
    Memory(Vec<u8>),
}

impl OwnBytes {
    /// Maps a part of the file, which stays as it is.
    pub fn map(file: &File, part: Range<usize>) -> std::io::Result<Self> {
        if part.is_empty() {
            return Ok(Self::from(Vec::new()));
        }
        let mut options = MmapOptions::new();
        let options = options.offset(part.start as u64).len(part.len());
        let options = options.no_reserve_swap();
        // SAFETY: as in `Bytes::map`, of a cache file.
        Ok(Self(OwnSource::Mapped(unsafe { options.map_copy(file) }?)))
    }
}

impl From<Vec<u8>> for OwnBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(OwnSource::Memory(bytes))
    }
}

impl Deref for OwnBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            OwnSource::Mapped(mapped) => mapped,
            OwnSource::Memory(bytes) => bytes,
        }
    }
}

impl DerefMut for OwnBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            OwnSource::Mapped(mapped) => mapped,
            OwnSource::Memory(bytes) => bytes,
        }
    }
}
