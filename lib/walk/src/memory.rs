//! Reading the memory of the stopped process.
//!
//! [`Memory`] is what a walk is given; [`PageCache`] makes one of a source for which each read is a
//! system call. A cache is good for one stop: all threads may share it, nothing in it is looked at
//! again.

const PAGE_BYTES: usize = 4096;
/// A walk touches few pages of a stack, and threads' stacks differ in their upper bits.
const PAGES: usize = 64;

/// The bytes are not mapped, or may not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

/// Memory of one process.
pub trait Memory {
    /// Fills `into` from `avma` on.
    ///
    /// # Errors
    /// [`Unreadable`] if not all of it could be read.
    fn read(&mut self, avma: u64, into: &mut [u8]) -> Result<(), Unreadable>;
}

impl<F: FnMut(u64, &mut [u8]) -> Result<(), Unreadable>> Memory for F {
    fn read(&mut self, avma: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        self(avma, into)
    }
}

/// The little-endian word at `avma`.
pub(crate) fn read_u64(memory: &mut dyn Memory, avma: u64) -> Result<u64, Unreadable> {
    let mut word = [0; 8];
    avma.checked_add(8).ok_or(Unreadable)?;
    memory.read(avma, &mut word)?;
    Ok(u64::from_le_bytes(word))
}

/// Reads its source by whole pages, each once.
pub struct PageCache<M> {
    source: M,
    pages: Vec<Option<(u64, Box<[u8; PAGE_BYTES]>)>>,
}

impl<M: Memory> PageCache<M> {
    /// An empty cache.
    pub fn new(source: M) -> Self {
        Self {
            source,
            pages: vec![None; PAGES],
        }
    }

    fn page(&mut self, number: u64) -> Result<&[u8; PAGE_BYTES], Unreadable> {
        // Stacks of threads lie 2^k pages apart: the low bits alone would collide.
        let index = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % PAGES;
        let entry = &mut self.pages[index];
        if entry.as_ref().is_none_or(|(n, _)| *n != number) {
            let mut bytes = entry
                .take()
                .map_or_else(|| Box::new([0; PAGE_BYTES]), |(_, bytes)| bytes);
            self.source
                .read(number * PAGE_BYTES as u64, &mut bytes[..])?;
            *entry = Some((number, bytes));
        }
        entry.as_ref().map(|(_, bytes)| &**bytes).ok_or(Unreadable)
    }
}

impl<M: Memory> Memory for PageCache<M> {
    fn read(&mut self, avma: u64, mut into: &mut [u8]) -> Result<(), Unreadable> {
        let mut at = avma;
        while !into.is_empty() {
            let start = at as usize % PAGE_BYTES;
            let length = into.len().min(PAGE_BYTES - start);
            let page = self.page(at / PAGE_BYTES as u64)?;
            let (now, later) = into.split_at_mut(length);
            now.copy_from_slice(&page[start..start + length]);
            into = later;
            at = at.checked_add(length as u64).ok_or(Unreadable)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_read_once_and_a_word_may_cross_pages() {
        let mut reads = Vec::new();
        let mut cache = PageCache::new(|avma: u64, into: &mut [u8]| {
            reads.push(avma);
            for (i, byte) in into.iter_mut().enumerate() {
                *byte = ((avma as usize + i) / 8) as u8;
            }
            if avma == 0x7000 {
                Err(Unreadable)
            } else {
                Ok(())
            }
        });
        let mut bytes = [0; 8];
        cache.read(0x5ffc, &mut bytes).unwrap();
        assert_eq!(bytes, [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        cache.read(0x5008, &mut bytes).unwrap();
        assert_eq!(bytes, [1; 8]);
        assert_eq!(cache.read(0x6ffc, &mut bytes), Err(Unreadable));
        assert_eq!(cache.read(u64::MAX - 3, &mut bytes), Err(Unreadable));
        drop(cache);
        assert_eq!(reads[..3], [0x5000, 0x6000, 0x7000]);
    }
}
