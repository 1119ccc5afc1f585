//! Signal frames: the next one on a stack, and the context in it.
//!
//! Given a stack pointer; reads through the kernel. A signal frame is found by its return address,
//! the restorer that the kernel knows from sigaction(2), and believed only if the rest of it is
//! consistent. Layout: struct rt_sigframe and struct sigcontext (Linux,
//! arch/x86/include/uapi/asm/sigcontext.h). Must not know what a context is wanted for.

use crate::frames::{handlers, stacks};
use crate::memory::{state, sys};
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
/// What the kernel writes of a frame at all times: the return address, the context; and of the
/// extended state what is not reserved of FXSAVE's region (Intel SDM vol. 1, 10.5.1).
const FRAME_WRITTEN_BYTES: u64 = 8 + 8 * WORDS as u64;
const FPSTATE_WRITTEN_BYTES: u64 = 416;
/// The extended state begins nearer to the return address.
const FPSTATE_WITHIN_BYTES: u64 = 1024;
/// Handlers that interrupted handlers, at most.
pub const NESTED: usize = 8;

/// The next signal frame from `from` on: where its return address lies, which is a restorer's, and
/// its context.
pub(crate) fn find(from: u64, handled: u64) -> Option<(u64, [u64; WORDS])> {
    find_with(&handlers::restorers(), from, handled)
}

fn find_with(restorers: &[u64; 4], from: u64, handled: u64) -> Option<(u64, [u64; WORDS])> {
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
                return Some(newest(restorers, (at, context), handled));
            }
        }
        if got < words.len() {
            return None;
        }
        at += size_of_val(&words) as u64;
    }
    None
}

/// A frame of an earlier signal may lie whole where a handler has stored nothing, and reach into
/// the frame of the handler's own signal, which has left of it what the kernel does not write. Of
/// two such frames this is the one that was written last.
fn newest(
    restorers: &[u64; 4],
    mut found: (u64, [u64; WORDS]),
    handled: u64,
) -> (u64, [u64; WORDS]) {
    const WORDS_BEHIND: usize = ((FPSTATE_WITHIN_BYTES + FPSTATE_WRITTEN_BYTES) / 8) as usize;
    let mut words = [0u64; WORDS_BEHIND];
    for _ in 0..NESTED {
        let (at, context) = found;
        let state = context[FPSTATE];
        let got = stacks::read(at + 8, &mut words);
        let mut others = (at + 8..).step_by(8).zip(words.iter().take(got));
        let newer = others.find_map(|(other, word)| {
            if *word == 0 || !restorers.contains(word) || !is_over(other, (at, state)) {
                return None;
            }
            Some((other, read_context(other, handled)?))
        });
        match newer {
            Some(newer) => found = newer,
            None => break,
        }
    }
    found
}

/// True if a frame whose return address lies at `other`, further up, can stand there only since
/// that at `at` with its extended state at `state` was written: it covers what the kernel writes.
fn is_over(other: u64, (at, state): (u64, u64)) -> bool {
    let end = other + FRAME_WRITTEN_BYTES;
    let meets = |from: u64, bytes: u64| other < from + bytes && from < end;
    meets(at, FRAME_WRITTEN_BYTES) || meets(state, FPSTATE_WRITTEN_BYTES)
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

/// True if any frame from `from` on, also what an earlier signal has left, says that a handler may
/// have interrupted these addresses; and where that cannot be known: on other stacks than the first
/// thread's, and so deep on that one that not all of it is looked through.
pub(crate) fn may_be_interrupted_in(addresses: Range<u64>, from: u64) -> bool {
    /// One that has so many frames on its stack is not looked through either.
    const MOST: usize = 64;
    let beginning = state::process().stack_top.get();
    let is_near = stacks::is_first(from) && beginning - from < REACH_BYTES;
    if !is_near || !handlers::learn() {
        return !is_near;
    }
    // Not from context to context: what is stale may lead past a frame that is not.
    let mut from = from & !7;
    for _ in 0..MOST {
        match find(from, u64::MAX) {
            None => return false,
            Some((_, context)) if addresses.contains(&context[RIP]) => return true,
            Some((at, _)) => from = at + 8,
        }
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
        && fpstate - at < FPSTATE_WITHIN_BYTES
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    const RESTORER: u64 = 0x7f00_1234_5670;
    const HANDLED: u64 = 1 << 26;
    const STATE_BYTES: u64 = 0x98c;

    /// A stack, and where it begins: a place whose distance to a multiple of 64 is that of frames.
    struct Stack(Vec<u64>, usize);

    impl Stack {
        fn new() -> Self {
            let words = vec![0; 2048];
            let skipped = (words.as_ptr() as usize).wrapping_neg() % 64 / 8;
            Self(words, skipped)
        }

        fn address(&self, offset: u64) -> u64 {
            self.0[self.1..].as_ptr() as u64 + offset
        }

        fn set(&mut self, offset: u64, value: u64) {
            self.0[self.1 + offset as usize / 8] = value;
        }

        /// What the kernel writes for a signal, its extended state at `state`, a multiple of 64.
        fn signal(&mut self, state: u64, rip: u64) -> u64 {
            let at = state - 456;
            for offset in (at..at + FRAME_WRITTEN_BYTES).step_by(8) {
                self.set(offset, 0);
            }
            for offset in (state..state + FPSTATE_WRITTEN_BYTES).step_by(8) {
                self.set(offset, 0);
            }
            self.set(at, RESTORER);
            for (word, value) in [
                (UC_FLAGS, 7),
                (RIP, rip),
                (SEGMENTS, 0x2b_0000_0000_0033),
                (FPSTATE, self.address(state)),
            ] {
                self.set(at + 8 + 8 * word as u64, value);
            }
            self.set(state + 464, STATE_BYTES << 32 | 0x4650_5853);
            self.set(state + STATE_BYTES - 4, 0x4650_5845);
            at
        }

        fn find(&self, from: u64) -> Option<(u64, u64)> {
            let restorers = [RESTORER, 0, 0, 0];
            let found = find_with(&restorers, self.address(from), HANDLED);
            found.map(|(at, context)| (at - self.address(0), context[RIP]))
        }
    }

    #[test]
    fn an_earlier_signals_frame_that_the_newer_one_has_left_whole_is_not_taken_for_it() {
        // As it was seen: the agent was interrupted, 512 bytes further down.
        let mut stack = Stack::new();
        let old = stack.signal(2048, 0x1111);
        assert_eq!(stack.find(1024), Some((old, 0x1111)));
        let new = stack.signal(2560, 0x2222);
        assert!(read_context(stack.address(old), HANDLED).is_some());
        assert_eq!(stack.find(1024), Some((new, 0x2222)));
    }

    #[test]
    fn of_signals_within_each_other_the_inner_one_is_first() {
        let mut stack = Stack::new();
        let outer = stack.signal(8192, 0x1111);
        let inner = stack.signal(4096, 0x2222);
        assert_eq!(stack.find(1024), Some((inner, 0x2222)));
        assert_eq!(stack.find(inner + 8), Some((outer, 0x1111)));
    }

    #[test]
    fn a_stale_frame_where_the_kernel_writes_nothing_does_not_hide_the_newer_one() {
        // The first words of the older one lie behind the first half of the other's state.
        let mut stack = Stack::new();
        let old = stack.signal(3072, 0x1111);
        let new = stack.signal(2048, 0x2222);
        assert!(read_context(stack.address(old), HANDLED).is_some());
        assert_eq!(stack.find(1024), Some((new, 0x2222)));
    }
}
