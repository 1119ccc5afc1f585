//! Words that the assembly, signal handlers and other threads may change at any moment.
//!
//! Given a word's place in a block; gives types that read and write it whole, by one plain
//! instruction, and order nothing: the hot path, which is assembly, reads the same words through
//! gs. Blocks made of them are used by shared references. Must not know what a word means.

use core::arch::asm;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// A word of 64 bits.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Word(AtomicU64);

impl Word {
    /// A word that begins as `value`.
    pub const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// What it is now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Replaces it.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds to it, by two instructions: no other thread, and no handler, may change it meanwhile.
    #[inline]
    pub fn add(&self, value: u64) {
        self.set(self.get().wrapping_add(value));
    }

    /// As `add`, the other way.
    #[inline]
    pub fn sub(&self, value: u64) {
        self.set(self.get().wrapping_sub(value));
    }

    /// At least `value` from here on; as `add`.
    #[inline]
    pub fn raise(&self, value: u64) {
        self.set(self.get().max(value));
    }

    /// Where it lies.
    #[inline]
    pub fn address(&self) -> u64 {
        &raw const *self as u64
    }

    /// Adds to it though handlers on this thread change it, too; gives what it was.
    #[inline]
    pub fn add_in_one(&self, mut value: u64) -> u64 {
        let word = self.0.as_ptr();
        // SAFETY: a word of ours; one instruction, so a signal comes before or after.
        unsafe { asm!("xadd [{}], {}", in(reg) word, inout(reg) value, options(nostack)) };
        value
    }

    /// Replaces it if it is `old`, whichever thread else changes it.
    pub fn replace_of_other(&self, old: u64, new: u64) {
        let _ = (self.0).compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Replaces it though handlers on this thread change it, too; false if it was not `old`.
    #[inline]
    pub fn replace_in_one(&self, old: u64, new: u64) -> bool {
        let (word, found): (_, u64) = (self.0.as_ptr(), old);
        let seen: u64;
        // SAFETY: as in add_in_one.
        unsafe {
            asm!("cmpxchg [{}], {}", in(reg) word, in(reg) new, inout("rax") found => seen, options(nostack));
        }
        seen == old
    }
}

/// A word of 32 bits.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Half(AtomicU32);

impl Half {
    /// A word that begins as `value`.
    pub const fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    /// What it is now.
    #[inline]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Replaces it.
    #[inline]
    pub fn set(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// As [`Word::add`].
    #[inline]
    pub fn add(&self, value: u32) {
        self.set(self.get().wrapping_add(value));
    }

    /// As [`Word::add`], the other way.
    #[inline]
    pub fn sub(&self, value: u32) {
        self.set(self.get().wrapping_sub(value));
    }

    /// Gives it, and leaves zero; as [`Word::add`].
    #[inline]
    pub fn take(&self) -> u32 {
        let value = self.get();
        self.set(0);
        value
    }

    /// Where it lies.
    #[inline]
    pub fn address(&self) -> u64 {
        &raw const *self as u64
    }
}

/// A word of 32 bits that says yes or no.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Flag(AtomicU32);

impl Flag {
    /// A flag that begins as `value`.
    pub const fn new(value: bool) -> Self {
        Self(AtomicU32::new(value as u32))
    }

    /// What it says now.
    #[inline]
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Replaces it.
    #[inline]
    pub fn set(&self, value: bool) {
        self.0.store(u32::from(value), Ordering::Relaxed);
    }

    /// As [`Half::take`].
    #[inline]
    pub fn take(&self) -> bool {
        let value = self.get();
        self.set(false);
        value
    }
}

/// Words that belong together; each is read and written for itself.
#[derive(Debug)]
#[repr(transparent)]
pub struct Words<const N: usize>([Word; N]);

impl<const N: usize> Words<N> {
    /// Words that begin as zero.
    pub const fn zero() -> Self {
        Self([const { Word::new(0) }; N])
    }

    /// What they are now.
    #[inline]
    pub fn get(&self) -> [u64; N] {
        self.0.each_ref().map(Word::get)
    }

    /// Replaces them, the first one first.
    #[inline]
    pub fn set(&self, values: [u64; N]) {
        for (word, value) in self.0.iter().zip(values) {
            word.set(value);
        }
    }
}

/// A word on whose value accesses of memory rely.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Bound(Word);

impl Bound {
    /// One that begins as `value`, before anything relies on it.
    pub const fn zero() -> Self {
        Self(Word::new(0))
    }

    /// What it is now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.get()
    }

    /// Replaces it.
    ///
    /// # Safety
    /// The value is what the field that holds it says of it, for as long as it stays.
    #[inline]
    pub unsafe fn set(&self, value: u64) {
        self.0.set(value);
    }
}

/// A reference that is made once and may not be there yet.
#[derive(Debug)]
#[repr(transparent)]
pub struct Link<T: 'static>(AtomicPtr<T>);

impl<T: Sync> Link<T> {
    /// One that leads nowhere.
    pub const fn none() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Where it leads to.
    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or made from such a reference in `set`.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Lets it lead elsewhere.
    #[inline]
    pub fn set(&self, to: Option<&'static T>) {
        let to = to.map_or(core::ptr::null_mut(), |to| (&raw const *to).cast_mut());
        self.0.store(to, Ordering::Release);
    }

    /// The address that it leads to; 0: nowhere.
    #[inline]
    pub fn address(&self) -> u64 {
        self.0.load(Ordering::Relaxed) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_replaced_only_if_it_is_what_was_expected() {
        let word = Word::new(5);
        assert!(!word.replace_in_one(4, 9));
        assert_eq!(word.get(), 5);
        assert!(word.replace_in_one(5, 9));
        assert_eq!(word.add_in_one(16), 9);
        assert_eq!(word.get(), 25);
    }

    #[test]
    fn words_wrap_as_the_assemblys_do() {
        let word = Word::new(1);
        word.sub(2);
        assert_eq!(word.get(), u64::MAX);
        word.add(3);
        assert_eq!(word.get(), 2);
        word.raise(7);
        word.raise(3);
        assert_eq!(word.get(), 7);
    }

    #[test]
    fn a_flag_is_any_number_but_zero_and_is_taken_once() {
        let flag = Flag(AtomicU32::new(2));
        assert!(flag.take() && !flag.take());
        flag.set(true);
        assert_eq!(flag.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_link_leads_nowhere_until_it_is_set() {
        static TARGET: Word = Word::new(3);
        let link = Link::none();
        assert!(link.get().is_none() && link.address() == 0);
        link.set(Some(&TARGET));
        assert_eq!(link.get().map(Word::get), Some(3));
        assert_eq!(link.address(), TARGET.address());
        link.set(None);
        assert!(link.get().is_none());
    }
}
