//! Signals that are delivered: what is recorded where a handler of the program's begins.
//!
//! Given the program's registers at the entry of a function that is a signal handler; records the
//! signal's number, its siginfo_t if the kernel has filled it in, what the handler will go back
//! to, and what a call of the kernel that it has interrupted has made. The kernel has put a signal
//! frame on the stack, to which the registers lead (struct rt_sigframe, Linux,
//! arch/x86/include/asm/sigframe.h); otherwise the function was called by the program, and nothing
//! is recorded. Must not know what a signal means.

use crate::events::entered::Entered;
use crate::frames::shadow::{self, FRAME_DONE};
use crate::memory::sys;
use crate::memory::thread::Hot;
use crate::reach::thread;
use crate::record::capture::Captures;
use crate::record::{chunk, settle};
use crate::signals::sigframe;
use core::ops::Range;
use sptrace_wire::record::{self, FRAME_SYSTEM};
use sptrace_wire::values::{Piece, When};

/// From the handler's return address to the ucontext, and to the siginfo_t behind it.
const CONTEXT: u64 = 8;
const CONTEXT_BYTES: usize = sigframe::WORDS * size_of::<u64>();
const INFO: u64 = CONTEXT + CONTEXT_BYTES as u64;
/// Bytes of a siginfo_t.
const INFO_BYTES: usize = 128;
/// rax, rcx, rsp and rip in the ucontext.
const REGISTERS: Range<usize> = sigframe::RAX * 8..sigframe::RIP * 8 + 8;
/// The signal mask in it.
const MASK: Range<usize> = sigframe::MASK * 8..CONTEXT_BYTES;
const PIECES_BYTES: usize =
    3 * Piece::BYTES + INFO_BYTES + (REGISTERS.end - REGISTERS.start) + (MASK.end - MASK.start);
const RT_SIGRETURN: u32 = 15;
const SIGNALS: core::ops::RangeInclusive<u64> = 1..=64;

/// A function that the kernel knows as a handler is about to run.
pub(super) fn enter(hot: &Hot, entered: &mut Entered) {
    let f = &*entered.f;
    let at = f.above_at();
    let signal = f.rdi & 0xffff_ffff;
    let is_delivered = f.rdx == at + CONTEXT && f.rsi == at + INFO && SIGNALS.contains(&signal);
    if !is_delivered || hot.muted.get() != 0 {
        return;
    }
    settle::settle(hot, at, false);
    let mut pieces = Pieces {
        bytes: [0; PIECES_BYTES],
        used: 0,
    };
    let mut frame = [0; CONTEXT_BYTES + INFO_BYTES];
    let mut made: &[u8] = &[];
    if sys::read_into(at + CONTEXT, &mut frame) == frame.len() {
        let (context, info) = frame.split_at(CONTEXT_BYTES);
        if has_info(signal) {
            pieces.add(When::Before, at + INFO, info);
        }
        let mut add = |range: Range<usize>| {
            let address = at + CONTEXT + range.start as u64;
            pieces.add(When::AfterAll, address, context.get(range).unwrap_or(&[]));
        };
        add(REGISTERS);
        if Captures::of(RT_SIGRETURN).is_some() {
            add(MASK);
        }
        made = made_by_call(hot, context);
    }
    let head = [u64::from(thread::borrower(hot))];
    let bytes = pieces.bytes.get(..pieces.used).unwrap_or(&[]);
    chunk::put_all_values(hot, record::SIGNAL, signal as u32, &head, [bytes, made]);
}

/// What is recorded of the memory that a call of the kernel has made, if the handler has
/// interrupted one at its end: that call is told when the handler has returned, and has ended now.
fn made_by_call<'a>(hot: &'a Hot, context: &[u8]) -> &'a [u8] {
    let word = |i: usize| {
        let word = context.get(i * 8..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u64::from_le_bytes(*word))
    };
    let call = hot.top().get();
    let is_open = call.id & (FRAME_SYSTEM | FRAME_DONE) == FRAME_SYSTEM;
    // The instruction leaves in rcx where it returns to.
    if shadow::is_barrier(hot.top()) || !is_open || word(sigframe::RCX) != word(sigframe::RIP) {
        return &[];
    }
    let [rdi, rsi, rdx] = [sigframe::RDI, sigframe::RSI, sigframe::RDX].map(word);
    let [r8, r9, r10] = [0, 1, 2].map(|i| word(sigframe::R8 + i));
    let (args, result) = ([rdi, rsi, rdx, r10, r8, r9], word(sigframe::RAX) as i64);
    let captures = Captures::of(call.callee as u32);
    captures.map_or(&[], |captures| captures.read(hot, &args, Some(result)))
}

/// The kernel fills the siginfo_t in only for handlers that ask for it.
fn has_info(signal: u64) -> bool {
    const SA_SIGINFO: u64 = 4;
    let handler = sys::handler(signal as usize);
    handler.is_some_and(|handler| handler.flags & SA_SIGINFO != 0)
}

/// What is recorded of memory, as it stands in the record.
struct Pieces {
    bytes: [u8; PIECES_BYTES],
    used: usize,
}

impl Pieces {
    /// Adds what was read at `address`: a multiple of four bytes.
    fn add(&mut self, when: When, address: u64, memory: &[u8]) {
        let described = Piece {
            address,
            bytes: memory.len() as u32,
            load: 0,
            when,
            is_cut: 0,
        };
        for part in [&described.to_bytes()[..], memory] {
            let to = self.bytes.iter_mut().skip(self.used);
            to.zip(part).for_each(|(to, byte)| *to = *byte);
            self.used += part.len();
        }
    }
}
