//! Memory of the agent's own: mapped for the life of the process as what it is for, or a fresh
//! mapping that may be given back.
//!
//! Given a size, or a type for which zero is good; gives memory that nobody else knows. Must not
//! know what it is for.

use crate::memory::sys;
use crate::memory::word::{Flag, Half, Word, Words};

/// Types of which zero bytes are a value, and that may be shared.
///
/// # Safety
/// Both are so.
pub unsafe trait Zeroed: Sync + 'static {}

// SAFETY: numbers.
unsafe impl Zeroed for Word {}
// SAFETY: numbers.
unsafe impl Zeroed for Half {}
// SAFETY: a number.
unsafe impl Zeroed for Flag {}
// SAFETY: numbers.
unsafe impl<const N: usize> Zeroed for Words<N> {}
// SAFETY: as its elements.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}

/// A fresh one, which is never unmapped by us. `None`: no memory.
pub fn make<T: Zeroed>() -> Option<&'static T> {
    let at = sys::map_private(size_of::<T>()).cast::<T>();
    // SAFETY: a mapping of that size, of zeros, begins at a page.
    unsafe { at.as_ref() }
}

/// A mapping that nobody else knows of.
#[derive(Debug)]
pub struct Fresh {
    at: usize,
    bytes: usize,
}

impl Fresh {
    fn of(at: *mut u8, bytes: usize) -> Option<Self> {
        let at = at as usize;
        (at != 0).then_some(Self { at, bytes })
    }

    /// Private memory of zeros. `None`: there is none.
    pub fn private(bytes: usize) -> Option<Self> {
        Self::of(sys::map_private(bytes), bytes)
    }

    /// Memory of zeros that fork children share. `None`: there is none.
    pub fn shared(bytes: usize) -> Option<Self> {
        Self::of(sys::map_shared(bytes), bytes)
    }

    /// Address space of this size at `at`, in which nothing can be read or written yet. `None`:
    /// something is there.
    pub fn place(at: usize, bytes: usize) -> Option<Self> {
        sys::reserve_exactly(at, bytes).then_some(Self { at, bytes })
    }

    /// What was kept, to be worked on again.
    ///
    /// # Safety
    /// So many bytes are mapped there, for what is done with it now.
    pub unsafe fn again(at: u64, bytes: u64) -> Self {
        let (at, bytes) = (at as usize, bytes as usize);
        Self { at, bytes }
    }

    /// Where it is.
    pub fn at(&self) -> u64 {
        self.at as u64
    }

    /// Its bytes, of one that was mapped to be written.
    pub fn contents(&mut self) -> &mut [u8] {
        // SAFETY: mapped with so many bytes, and nobody else's.
        unsafe { core::slice::from_raw_parts_mut(self.at as *mut u8, self.bytes) }
    }

    /// Shows the shared memory of another, to be executed, in this place. False: impossible.
    pub fn show(&self, shared: &Self) -> bool {
        let bytes = self.bytes.min(shared.bytes);
        // SAFETY: this place is ours, and nobody uses it yet.
        unsafe {
            sys::duplicate_shared(shared.at, bytes, self.at)
                && sys::protect(self.at, bytes, sys::PROT_RX)
        }
    }

    /// Another view of this shared memory, to be executed, anywhere. `None`: impossible.
    pub fn view(&self) -> Option<Self> {
        let at = sys::duplicate_shared_anywhere(self.at, self.bytes);
        let view = Self::of(at as *mut u8, self.bytes)?;
        view.may_run(self.bytes)
    }

    /// Its first `bytes` can be executed, and not written, from here on. `None`: impossible, and it
    /// is given back.
    pub fn may_run(self, bytes: usize) -> Option<Self> {
        // SAFETY: nobody else knows of it.
        let is_done = unsafe { sys::protect(self.at, bytes, sys::PROT_RX) };
        if !is_done {
            self.give_back();
            return None;
        }
        Some(self)
    }

    /// Puts its first `bytes` at once in the place of what is mapped at `to`, and gives the rest
    /// back. False: nothing has changed, and all of it is given back.
    ///
    /// # Safety
    /// Whoever uses what is there finds what he needs afterwards, too.
    pub unsafe fn move_over(self, bytes: usize, to: u64) -> bool {
        // SAFETY: the caller's.
        let is_done = unsafe { sys::move_over(self.at, bytes, to as usize) };
        let moved = if is_done { bytes } else { 0 };
        let (at, bytes) = (self.at + moved, self.bytes - moved);
        if bytes > 0 {
            Self { at, bytes }.give_back();
        }
        is_done
    }

    /// The same with all of it.
    ///
    /// # Safety
    /// As for `move_over`.
    pub unsafe fn move_all_over(self, to: u64) -> bool {
        let bytes = self.bytes;
        // SAFETY: the caller's.
        unsafe { self.move_over(bytes, to) }
    }

    /// Keeps it for the life of the process.
    pub fn keep(self) -> u64 {
        self.at as u64
    }

    /// Unmaps it.
    pub fn give_back(self) {
        // SAFETY: nobody else knows of it.
        unsafe { sys::unmap(self.at, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 4096;

    #[test]
    fn what_is_made_is_zero_and_can_be_written() {
        let made: Option<&[Word; 4]> = make();
        assert_eq!(made.map(|words| words[3].get()), Some(0));
        made.into_iter().flatten().for_each(|word| word.set(1));
    }

    #[test]
    fn a_place_shows_what_is_written_to_the_shared_memory() {
        let at = 0x1234_6000_0000;
        let (Some(place), Some(mut shared)) = (Fresh::place(at, BYTES), Fresh::shared(BYTES))
        else {
            panic!("no memory");
        };
        assert!(Fresh::place(at, BYTES).is_none());
        assert!(place.show(&shared));
        shared.contents()[5] = 0xcc;
        assert_eq!(sys::read(at as u64 + 5), Some([0xccu8]));
        let view = shared.view();
        assert_eq!(
            view.as_ref().and_then(|v| sys::read(v.at() + 5)),
            Some([0xccu8])
        );
        view.into_iter().for_each(Fresh::give_back);
        place.give_back();
        assert_eq!(sys::read::<1>(at as u64), None);
        shared.give_back();
    }

    #[test]
    fn what_is_moved_over_takes_the_place_and_the_rest_is_given_back() {
        let (Some(old), Some(mut new)) = (Fresh::private(BYTES), Fresh::private(2 * BYTES)) else {
            panic!("no memory");
        };
        new.contents().fill(7);
        let (from, to) = (new.at(), old.at());
        // SAFETY: nobody uses it.
        assert!(unsafe { new.move_over(BYTES, to) });
        assert_eq!(sys::read(to), Some([7u8]));
        assert_eq!(sys::read::<1>(from + BYTES as u64), None);
        old.give_back();
    }
}
