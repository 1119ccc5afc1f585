//! Memory of the program's that is read and written where it lies.
//!
//! Given where words of its stacks are, or bytes of its text; each kind is one type, so that who
//! makes one says why the memory is there. Must not know what is written.

use core::sync::atomic::{AtomicU64, Ordering};

/// A word of a stack, which the program, a handler or another thread may change at any moment.
#[derive(Clone, Copy)]
pub struct StackWord(*mut u64);

impl StackWord {
    /// The word at `address`.
    ///
    /// # Safety
    /// It is mapped, and can be written, as long as this is used.
    #[inline]
    pub unsafe fn at(address: u64) -> Self {
        Self(address as *mut u64)
    }

    /// Where it lies.
    #[inline]
    pub fn address(self) -> u64 {
        self.0 as u64
    }

    /// What it is now.
    #[inline]
    pub fn get(self) -> u64 {
        // SAFETY: the maker's: it is mapped.
        unsafe { self.0.read_volatile() }
    }

    /// Replaces it.
    #[inline]
    pub fn set(self, value: u64) {
        // SAFETY: as in get.
        unsafe { self.0.write_volatile(value) };
    }

    /// Replaces it if it is `old` still, whoever else writes to it.
    pub fn replace(self, old: u64, new: u64) {
        // SAFETY: as in get.
        let word = unsafe { AtomicU64::from_ptr(self.0) };
        let _ = word.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// True if these bytes stand at `at`.
///
/// # Safety
/// So many are mapped there.
pub unsafe fn stands(at: u64, bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<4>();
    let first = at + bytes.len() as u64 - rest.len() as u64;
    // SAFETY: the caller's.
    let is_word = |(at, word): (u64, &[u8; 4])| unsafe { self::bytes::<4>(at) } == *word;
    // SAFETY: the caller's.
    let is_byte = |(at, byte): (u64, &u8)| unsafe { self::bytes::<1>(at) } == [*byte];
    (at..).step_by(4).zip(words).all(is_word) && (first..).zip(rest).all(is_byte)
}

/// The bytes at `at`.
///
/// # Safety
/// As for `stands`.
#[inline]
pub unsafe fn bytes<const N: usize>(at: u64) -> [u8; N] {
    // SAFETY: the caller's; bytes need no alignment.
    unsafe { (at as *const [u8; N]).read() }
}

/// Copies bytes from `at`. As many as a string or a structure has are moved here: the compiler has
/// an instruction for all lengths, which is slow to begin.
///
/// # Safety
/// As for `stands`.
#[inline]
pub unsafe fn copy_from(at: u64, to: &mut [u8]) {
    match to.len() {
        // SAFETY: the caller's.
        bytes @ ..=SHORT => unsafe { copy_short(at, to.as_mut_ptr(), bytes) },
        // SAFETY: the caller's.
        bytes => unsafe {
            core::ptr::copy_nonoverlapping(at as *const u8, to.as_mut_ptr(), bytes);
        },
    }
}

/// More bytes are copied by the instruction for all lengths.
pub const SHORT: usize = 512;

/// Copies at most [`SHORT`] bytes.
///
/// # Safety
/// So many are mapped at both places, which do not meet.
#[inline]
pub unsafe fn copy_short(at: u64, to: *mut u8, bytes: usize) {
    const STEP: usize = 16;
    if bytes < STEP {
        // SAFETY: as below, a half of what there is, or less, at a time.
        return unsafe { copy_few(at, to, bytes) };
    }
    let step = |offset: usize| {
        let (from, to) = (at + offset as u64, to.wrapping_add(offset));
        // SAFETY: the caller's: `offset` and the bytes of a step are inside.
        unsafe {
            core::arch::asm!(
                "movups {step}, [{from}]", "movups [{to}], {step}", from = in(reg) from,
                to = in(reg) to, step = out(xmm_reg) _, options(nostack, preserves_flags),
            );
        }
    };
    // The last one lies over a part of the one before.
    let last = bytes - STEP;
    (0..last).step_by(STEP).for_each(step);
    step(last);
}

/// Copies less than 16 bytes, those in the middle twice.
///
/// # Safety
/// So many are mapped at both places.
#[inline]
unsafe fn copy_few(at: u64, to: *mut u8, count: usize) {
    // SAFETY: the caller's: two halves that lie over each other.
    unsafe {
        if count >= 8 {
            copy_ends::<8>(at, to, count);
        } else if count >= 4 {
            copy_ends::<4>(at, to, count);
        } else if count >= 2 {
            copy_ends::<2>(at, to, count);
        } else if count == 1 {
            copy_ends::<1>(at, to, count);
        }
    }
}

/// Copies the first N of `count` bytes, and the last N.
///
/// # Safety
/// There are so many at both places.
#[inline]
unsafe fn copy_ends<const N: usize>(at: u64, to: *mut u8, count: usize) {
    // SAFETY: the caller's.
    let [first, last] = [0, count - N].map(|i| unsafe { bytes::<N>(at + i as u64) });
    for (i, part) in [(0, first), (count - N, last)] {
        // SAFETY: the caller's; bytes need no alignment.
        unsafe { to.wrapping_add(i).cast::<[u8; N]>().write(part) };
    }
}

/// Writes bytes at `at`.
///
/// # Safety
/// So many are mapped there, can be written, and nobody minds.
pub unsafe fn write(at: u64, bytes: &[u8]) {
    for (k, byte) in bytes.iter().enumerate() {
        // SAFETY: the caller's.
        unsafe { (at as *mut u8).wrapping_add(k).write_volatile(*byte) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_a_stack_is_replaced_only_while_it_is_what_was_read() {
        let mut word = 5u64;
        // SAFETY: a word of this test's.
        let live = unsafe { StackWord::at(&raw mut word as u64) };
        live.replace(4, 9);
        assert_eq!(live.get(), 5);
        live.replace(5, 9);
        assert_eq!(live.get(), 9);
        live.set(11);
        assert_eq!((live.get(), live.address()), (11, &raw const word as u64));
    }

    #[test]
    fn bytes_are_compared_to_the_last() {
        let text = *b"text";
        let at = text.as_ptr() as u64;
        // SAFETY: bytes of this test's.
        unsafe {
            assert!(stands(at, b"text") && stands(at, b"") && !stands(at, b"tent"));
            assert_eq!(bytes::<2>(at + 1), *b"ex");
        }
    }
}
