//! The way of a thread that calls a function over a gate: a page whose first touch stops it until the host has
//! seen that (userfaultfd(2)).
//!
//! Given a function's code, where it lies in a process, and where there is room near it; gives the bytes of a
//! jump at its entry and of the code that this leads to: touch the gate, do what the jump covers, go on behind
//! it. No register and no flag changes, nothing is pushed, and a thread that waits stands at the first
//! instruction of that code, as it stood at the entry.
//!
//! Must not know: who watches the gate.

use crate::roots::Hook;
use crate::special::{HookRange, hook_range, jumps_into};
use iced_x86::{Decoder, DecoderOptions, Encoder, Instruction};
use sptrace_addr::{Avma, Svma};
use sptrace_image::Object;

/// Bytes of the jump at the entry.
pub const JUMP_BYTES: usize = 5;
/// Room for the code of one function: the touch, at most five instructions, a jump.
pub const WAY_BYTES: u64 = 128;

/// A function whose callers can be led over a gate.
#[derive(Clone, Debug)]
pub struct Way {
    /// Where the jump is written.
    pub start: Svma,
    /// What stands there.
    pub original: [u8; JUMP_BYTES],
    /// The instructions from there on that the jump covers, and the `ret` behind them if the function ends there.
    code: Vec<u8>,
    /// Where it goes on; `None`: it has returned.
    goes_on: Option<Svma>,
}

impl Way {
    /// `None`: no jump can be put at the function's entry.
    pub fn of(object: &Object<'_>, function: &Hook) -> Option<Self> {
        let range = hook_range(object, function.entry, function.end, &|_| None)?;
        let own = [(function.entry, function.end)];
        let mut around = own.iter().chain(&function.linked);
        if around.any(|f| jumps_into(object, *f, &range)) {
            return None;
        }
        let HookRange { start, .. } = range;
        let end = range.moved_end.0 + range.ret_bytes as u64;
        let code = object.code_from(start)?;
        Some(Self {
            start,
            original: code.get(..JUMP_BYTES)?.try_into().ok()?,
            code: code.get(..(end - start.0) as usize)?.to_vec(),
            goes_on: (range.ret_bytes == 0).then_some(range.moved_end),
        })
    }

    /// The code at `at`, which touches the gate at `gate`; the function's module lies at `bias`. `None`: that is
    /// too far from the function.
    pub fn code(&self, bias: u64, at: Avma, gate: Avma) -> Option<Vec<u8>> {
        // mov [gate], al: the form with an address of 64 bits (Intel SDM, MOV moffs8, AL).
        let mut out = vec![0xa2];
        out.extend(gate.0.to_le_bytes());
        let ip = self.start.0.wrapping_add(bias);
        for mut i in Decoder::with_ip(64, &self.code, ip, DecoderOptions::NONE) {
            i.as_near_branch();
            encode(&i, at, &mut out)?;
        }
        if let Some(goes_on) = self.goes_on {
            let there = out.len() as u64;
            let jump = jump(Avma(at.0 + there), Avma(goes_on.0.wrapping_add(bias)))?;
            out.extend(jump);
        }
        (out.len() as u64 <= WAY_BYTES).then_some(out)
    }

    /// Where the code goes on in the text; 0: it returns.
    pub fn goes_on(&self, bias: u64) -> u64 {
        self.goes_on.map_or(0, |svma| svma.0.wrapping_add(bias))
    }

    /// The jump at the entry to the code at `at`.
    pub fn jump(&self, bias: u64, at: Avma) -> Option<[u8; JUMP_BYTES]> {
        jump(Avma(self.start.0.wrapping_add(bias)), at)
    }
}

fn encode(i: &Instruction, at: Avma, out: &mut Vec<u8>) -> Option<()> {
    let mut encoder = Encoder::new(64);
    encoder.encode(i, at.0 + out.len() as u64).ok()?;
    out.extend(encoder.take_buffer());
    Some(())
}

fn jump(from: Avma, to: Avma) -> Option<[u8; JUMP_BYTES]> {
    let distance = to.0.wrapping_sub(from.0 + JUMP_BYTES as u64) as i64;
    let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
    Some([0xe9, a, b, c, d])
}
