//! What unit tests of the agent begin with: a thread block's hot page, and a frame of the door.
//!
//! Given what a test wants to differ; gives blocks that no thread runs on. Must not know what is
//! tested.

use crate::memory::frame::Frame;
use crate::memory::state::{FRAME_BYTES, Hot};
use std::boxed::Box;
use std::vec;

/// A hot page in which all is zero.
pub(crate) fn empty_thread() -> Box<Hot> {
    // SAFETY: a hot page consists of numbers, for which zero is good.
    Box::new(unsafe { core::mem::zeroed() })
}

/// A hot page with a shadow stack that has room for `frames`, its sentinel and the two above its
/// limit included. The stack is never freed.
pub(crate) fn thread(frames: usize) -> Box<Hot> {
    let mut hot = empty_thread();
    let memory = vec![[0u64; 3]; frames].leak();
    memory[0] = [u64::MAX, 0, 0];
    hot.shadow = memory.as_ptr() as u64;
    hot.shadow_bytes = size_of_val(memory) as u64;
    hot.ssp = hot.shadow;
    hot.ssp_end = hot.shadow + hot.shadow_bytes - 2 * FRAME_BYTES as u64;
    hot
}

/// A call with these arguments, in the order of their registers.
pub(crate) fn called_with(arguments: [u64; 6]) -> Frame {
    let [rdi, rsi, rdx, rcx, r8, r9] = arguments;
    Frame {
        rbp: 0,
        rflags: 0,
        r11_r10_r9: [0, 0, r9],
        r8,
        rdi,
        rsi,
        routine: 0,
        rdx,
        rcx,
        flags: 0,
        rax: 0,
        id: 0,
        above: [0; 3],
    }
}
