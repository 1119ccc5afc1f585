//! Signal frames: the next one on a stack, and the context in it.
//!
//! Given a stack pointer; reads through the kernel. A signal frame is found by its return address,
//! the restorer that the kernel knows from sigaction(2), and believed only if the rest of it is
//! consistent. Layout: struct rt_sigframe and struct sigcontext (Linux,
//! arch/x86/include/uapi/asm/sigcontext.h). Must not know what a context is wanted for.

use crate::frames::{handlers, stacks};
use crate::memory::sys;
use core::ops::Range;

/// Words of a ucontext.
pub(crate) const WORDS: usize = 38;

const UC_FLAGS: usize = 0;
const LINK: usize = 1;
pub(crate) const R8: usize = 5;
pub(crate) const R12: usize = 9;
pub(crate) const RDI: usize = 13;
pub(crate) const RSI: usize = 14;
pub(crate) const RBP: usize = 15;
pub(crate) const RBX: usize = 16;
pub(crate) const RDX: usize = 17;
pub(crate) const RAX: usize = 18;
pub(crate) const RCX: usize = 19;
pub(crate) const RSP: usize = 20;
pub(crate) const RIP: usize = 21;
pub(crate) const FLAGS: usize = 22;
const SEGMENTS: usize = 23;
pub(crate) const FPSTATE: usize = 28;
pub(crate) const MASK: usize = 37;
/// A handler's frames up to its signal frame are looked through for so many bytes.
const REACH_BYTES: u64 = 64 << 10;
/// Handlers that interrupted handlers, at most.
pub const NESTED: usize = 8;

/// The next signal frame from `from` on: where its return address lies, which is a restorer's, and
/// its context.
pub(crate) fn find(from: u64, handled: u64) -> Option<(u64, [u64; WORDS])> {
    let restorers = handlers::restorers();
    let mut words = [0u64; 128];
    let mut at = from;
    while at < from + REACH_BYTES {
        let got = stacks::read(at, &mut words);
        for (k, word) in words.iter().take(got).enumerate() {
            if *word == 0 || !restorers.contains(word) {
                continue;
            }
            let at = at + k as u64 * 8;
            // Others are stale words of an earlier signal.
            if let Some(context) = read_context(at, handled) {
                return Some((at, context));
            }
        }
        if got < words.len() {
            return None;
        }
        at += size_of_val(&words) as u64;
    }
    None
}

/// True if a signal may have interrupted this thread at one of these addresses, and its handler
/// not have returned. `from`: the stack pointer.
pub(crate) fn is_interrupted_in(addresses: Range<u64>, from: u64) -> bool {
    if !handlers::learn() {
        return false;
    }
    let mut from = from & !7;
    for _ in 0..NESTED {
        // Whatever is blocked: the handler may have changed that, and stale words do no harm.
        let Some((_, context)) = find(from, u64::MAX) else {
            return false;
        };
        if addresses.contains(&context[RIP]) {
            return true;
        }
        from = context[RSP] & !7;
    }
    true
}

/// The context of the signal frame whose return address lies at `at`, if it is one: words of an
/// earlier signal may be left where nothing has been stored since.
pub fn read_context(at: u64, handled: u64) -> Option<[u64; WORDS]> {
    let mut c = [0u64; WORDS];
    if sys::read_words(at + 8, &mut c) != WORDS * 8 {
        return None;
    }
    let fpstate = c[FPSTATE];
    let consistent = c[UC_FLAGS] < 8
        && c[LINK] == 0
        && c[SEGMENTS] & 0xffff == 0x33
        // Some signal is blocked now that was not. (siginfo is not there without SA_SIGINFO.)
        && handled & !c[MASK] != 0
        && (at + 8).is_multiple_of(16)
        && fpstate > at
        && fpstate - at < 1024
        && fpstate.is_multiple_of(64);
    (consistent && has_magic(fpstate)).then_some(c)
}

/// The kernel's marks before and after the extended state (struct _fpx_sw_bytes).
fn has_magic(fpstate: u64) -> bool {
    let half = |at: u64| sys::read(at).map(u32::from_le_bytes);
    let bytes = half(fpstate + 468).unwrap_or(0);
    half(fpstate + 464) == Some(0x4650_5853)
        && bytes >= 516
        && half(fpstate + u64::from(bytes) - 4) == Some(0x4650_5845)
}
