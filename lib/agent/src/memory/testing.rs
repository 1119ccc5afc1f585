//! What unit tests of the agent begin with: a thread block's hot page, and a frame of the door.
//!
//! Given what a test wants to differ; gives blocks that no thread runs on. Must not know what is
//! tested.

use crate::memory::frame::Frame;
use crate::memory::mapped::Fresh;
use crate::memory::sys;
use crate::memory::thread::Hot;
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
    let hot = empty_thread();
    let memory = vec![[0u64; 3]; frames].leak();
    // SAFETY: memory of the test's, which is never freed.
    unsafe { hot.set_shadow(memory.as_mut_ptr() as u64, size_of_val(memory) as u64) };
    hot.empty_shadow();
    hot
}

const PAGE_BYTES: usize = 4096;

/// The end of a page that can be read, and ends with these bytes; behind it is one that cannot.
pub(crate) fn page_before_nothing(last: &[u8]) -> u64 {
    let (mut all, end) = (vec![0; PAGE_BYTES], PAGE_BYTES - last.len());
    all[end..].copy_from_slice(last);
    let mut pages = Fresh::private(2 * PAGE_BYTES).unwrap();
    pages.contents()[..PAGE_BYTES].copy_from_slice(&all);
    let end = pages.keep() as usize + PAGE_BYTES;
    // SAFETY: the test's own mapping.
    assert!(unsafe { sys::protect(end, PAGE_BYTES, sys::PROT_NONE) });
    end as u64
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
