//! What the door of the slow path has pushed, as a structure.
//!
//! Laid out by the assembly of [`crate::routines::door`], lowest address first; the slow path reads
//! and changes the program's registers in it. Must not know what they mean.

use crate::memory::live::StackWord;

/// What the slow path's door pushed, lowest address first.
#[repr(C)]
pub struct Frame {
    /// Saved registers.
    pub rbp: u64,
    /// rflags as they were.
    pub rflags: u64,
    /// Saved registers.
    pub r11_r10_r9: [u64; 3],
    /// Fifth argument register.
    pub r8: u64,
    /// First argument register.
    pub rdi: u64,
    /// Second argument register.
    pub rsi: u64,
    /// Which routine.
    pub routine: u64,
    /// Third argument register.
    pub rdx: u64,
    /// Fourth argument register.
    pub rcx: u64,
    /// lahf/seto image.
    pub flags: u64,
    /// rax.
    pub rax: u64,
    /// Return address into the slot.
    pub id: u64,
    /// What stands above it: see `common`.
    pub above: [u64; 3],
}

impl Frame {
    /// Where the word above the id lies, on the program's stack.
    #[inline]
    pub fn above_at(&self) -> u64 {
        self.above.as_ptr() as u64
    }

    /// Word `k` above the id.
    #[inline]
    pub fn word_above(&self, k: u64) -> StackWord {
        // SAFETY: the program's stack goes on there.
        unsafe { StackWord::at(self.above_at() + 8 * k) }
    }
}

/// xmm0 to xmm15, as the door keeps them.
#[repr(C, align(64))]
pub struct Vectors(pub [[u64; 2]; 16]);

/// Return to the id, taking it off the stack.
pub const RET: u64 = 0;
pub(crate) const RET_8: u64 = 1;
/// Bytes of the vector registers that the door keeps, below its other words. r12 to r15 stand above
/// them.
pub const XMM_BYTES: usize = 256;
/// What it takes for both (KEPT_BYTES in `common`).
const KEPT_BYTES: u64 = 320;
/// What the door has pushed below the id when it comes here.
pub const DOOR_DEPTH: u64 = 128;
/// The agent's image is smaller.
const IMAGE_BYTES: u64 = 1 << 20;

/// True if `rip` lies in the agent's image.
pub fn is_agent(rip: u64) -> bool {
    rip.abs_diff(is_agent as *const () as u64) < IMAGE_BYTES
}

/// Where the door keeps xmm0 to xmm15, given where it keeps rbp.
pub fn xmm_of(door: u64) -> u64 {
    (door - 24 - KEPT_BYTES) & !63
}

/// The door's frame of the code that a handler interrupted before it came to the door itself, or 0.
///
/// # Safety
/// `door` is where a door keeps rbp, and has called [`crate::events::unblocked`].
pub unsafe fn before(door: u64) -> u64 {
    // SAFETY: the word below rbx and the mask (see the door).
    unsafe { ((door - 24) as *const u64).read() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_return_address_stands_where_the_door_counts_from() {
        // Three words stand below rbp: rbx, the mask, and whether signals are blocked.
        assert_eq!(core::mem::offset_of!(Frame, id) as u64 + 24, DOOR_DEPTH);
        // `cmp dword ptr [rbp+64]` in the door.
        assert_eq!(core::mem::offset_of!(Frame, routine), 64);
    }

    #[test]
    fn vector_registers_are_kept_aligned_and_below_the_doors_words() {
        for door in (0x7fff_0000u64..0x7fff_0100).step_by(8) {
            let at = xmm_of(door);
            assert!(at.is_multiple_of(64));
            assert!(at + XMM_BYTES as u64 + 4 * 8 <= door - 24);
        }
    }

    #[test]
    fn the_agents_code_is_told_from_other_code() {
        assert!(is_agent(xmm_of as *const () as u64));
        assert!(!is_agent(0x1000) && !is_agent(u64::MAX));
    }
}
