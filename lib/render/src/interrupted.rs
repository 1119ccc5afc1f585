//! Calls of the kernel that a signal has interrupted, as a tracer sees them.
//!
//! When a signal is delivered at the end of a call, the handler runs before the program goes on. By
//! then the call has ended: with an error of the kernel's own if it will be begun again, or has
//! returned EINTR to the program. The handler's own end, rt_sigreturn(2), is not recorded; it is
//! known here once the call that was interrupted comes to its end.
//!
//! Given the context that a handler goes back to; says what became of the call, and tells a
//! [`Listener`] of the handler's return. Must not know which calls are open.

use sptrace_trace::values::Values;
use sptrace_types::decode::memory::{Captured, Chunk};
use sptrace_types::decode::types::Phase;
use sptrace_types::restarts;

use crate::listener::{Call, Listener};

/// `syscall` has two bytes, and keeps in rcx where it returns to.
const INSTRUCTION_BYTES: u64 = 2;
/// From rax to the signal mask (struct ucontext, Linux, arch/x86/include/asm/sigframe.h).
const MASK_FROM_RAX: u64 = 152;
const RT_SIGRETURN: u32 = 15;
const EINTR: i64 = 4;

/// What a handler goes back to.
pub(crate) struct Context {
    rax: u64,
    rcx: u64,
    rsp: u64,
    rip: u64,
    /// Where the signal mask lies, and the mask, if the ends of handlers shall be shown.
    mask: Option<(u64, Vec<u8>)>,
}

impl Context {
    /// What came with a signal. `None`: it is not known.
    pub(crate) fn of(values: &Values<'_>) -> Option<Self> {
        let mut after = values.pieces.iter().filter(|piece| piece.when == 2);
        let registers = after.next()?;
        let address = registers.address;
        let mut words = registers.bytes.chunks_exact(8).map(|word| {
            let word = word.try_into().unwrap_or_default();
            u64::from_le_bytes(word)
        });
        Some(Self {
            rax: words.next()?,
            rcx: words.next()?,
            rsp: words.next()?,
            rip: words.next()?,
            mask: after
                .next()
                .filter(|mask| mask.address == address.wrapping_add(MASK_FROM_RAX))
                .map(|mask| (mask.address, mask.bytes.to_vec())),
        })
    }

    /// The call is executed again when the handler has returned.
    pub(crate) fn begins_again(&self) -> bool {
        self.rcx == self.rip.wrapping_add(INSTRUCTION_BYTES)
    }

    /// What the call that runs has ended with, if it is that which was interrupted. `None`: the
    /// signal came at another place. `is_limited`: it waits for a socket that has a time for that.
    pub(crate) fn result_of(&self, call: &Call, is_limited: bool) -> Option<i64> {
        if self.begins_again() {
            return Some(-restarts::begun_again(call.number, &call.args));
        }
        let result = self.rax as i64;
        if self.rcx != self.rip {
            return None;
        }
        let restart = match -result {
            EINTR if !is_limited => restarts::interrupted(call.number, &call.args),
            _ => None,
        };
        Some(restart.map_or(result, |error| -error))
    }
}

/// A call whose end has been told while its handler runs.
pub(crate) struct Interrupted {
    pub(crate) context: Context,
    /// When the thread was last seen since.
    pub(crate) since_tsc: u64,
}

impl Interrupted {
    /// Another signal has come where the handler of this one has gone back to.
    pub(crate) fn is_same_place(&self, other: &Context) -> bool {
        (self.context.rip, self.context.rsp) == (other.rip, other.rsp)
    }

    /// The handler has returned to the call, which then has begun again if it does.
    pub(crate) fn tell_return(&self, listener: &mut impl Listener, call: &mut Call) {
        let since = self.since_tsc;
        if let Some((address, mask)) = &self.context.mask {
            let mut returned = Call {
                number: RT_SIGRETURN,
                start_tsc: since,
                args: [*address, 0, 0, 0, 0, 0],
                result: None,
                end_tsc: None,
                captured: Captured::default(),
                acted: None,
                stack: Vec::new(),
                ..*call
            };
            listener.begins(&returned);
            returned.captured.chunks.push(Chunk {
                phase: Phase::Always,
                address: *address,
                bytes: mask.clone(),
            });
            returned.result = Some(self.context.rax as i64);
            returned.end_tsc = Some(since);
            listener.ended(&returned);
        }
        if self.context.begins_again() {
            call.start_tsc = since;
            listener.begins(call);
        }
    }
}
