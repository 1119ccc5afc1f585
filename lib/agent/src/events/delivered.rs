//! Signals that are delivered: what is recorded where a handler of the program's begins.
//!
//! Given the program's registers at the entry of a function that is a signal handler; records the
//! signal's number, and its siginfo_t if the kernel has filled it in. The kernel has put a signal
//! frame on the stack, to which the registers lead (struct rt_sigframe, Linux,
//! arch/x86/include/asm/sigframe.h); otherwise the function was called by the program, and nothing
//! is recorded. Must not know what a signal means.

use crate::events::entered::Entered;
use crate::memory::sys;
use crate::memory::thread::Hot;
use crate::reach::thread;
use crate::record::{chunk, settle};
use sptrace_wire::record;
use sptrace_wire::values::{Piece, When};

/// From the handler's return address to the ucontext, and to the siginfo_t behind it.
const CONTEXT: u64 = 8;
const INFO: u64 = CONTEXT + 304;
/// Bytes of a siginfo_t.
const INFO_BYTES: usize = 128;
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
    let mut piece = [0; Piece::BYTES + INFO_BYTES];
    let used = match has_info(signal) {
        true => read_info(at + INFO, &mut piece),
        false => 0,
    };
    let head = [u64::from(thread::borrower(hot))];
    let piece = piece.get(..used).unwrap_or(&[]);
    chunk::put_values(hot, record::SIGNAL, signal as u32, &head, piece);
}

/// The kernel fills the siginfo_t in only for handlers that ask for it.
fn has_info(signal: u64) -> bool {
    const SA_SIGINFO: u64 = 4;
    let handler = sys::handler(signal as usize);
    handler.is_some_and(|handler| handler.flags & SA_SIGINFO != 0)
}

/// Gives the bytes of the piece, 0 if there is none.
fn read_info(address: u64, piece: &mut [u8; Piece::BYTES + INFO_BYTES]) -> usize {
    let (head, info) = piece.split_at_mut(Piece::BYTES);
    if sys::read_into(address, info) != INFO_BYTES {
        return 0;
    }
    let described = Piece {
        address,
        bytes: INFO_BYTES as u32,
        load: 0,
        when: When::Before,
        is_cut: 0,
    };
    head.copy_from_slice(&described.to_bytes());
    Piece::BYTES + INFO_BYTES
}
