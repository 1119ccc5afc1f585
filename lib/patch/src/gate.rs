//! The code by which calls of a function lead over a gate: a page whose first touch makes the
//! thread wait until the host has seen it (userfaultfd(2)).
//!
//! Given a function's code, where it lies in a process, and where there is room near it; gives the
//! bytes of a jump at its entry and of the code that this leads to. That code touches the gate,
//! executes the instructions that the jump covers, and goes on behind them. No register and no flag
//! changes, so a thread that waits stands at the touch as it stood at the entry. Where only the Nth
//! call shall wait, the code counts first; what it pushes for that lies below the red zone.
//!
//! Must not know who watches the gate.

use crate::roots::Hook;
use crate::special::{HookRange, hook_range, jumps_into, may_have_data_below};
use iced_x86::{Decoder, DecoderOptions, Encoder, Instruction};
use sptrace_addr::{Avma, Svma};
use sptrace_image::Object;

/// Bytes of the jump at the entry.
pub const JUMP_BYTES: usize = 5;
/// Room for the code of one function: the counting, the touch, at most five instructions, a jump.
pub const WAY_BYTES: u64 = 128;

/// Bytes below the stack pointer that a function may use (System V ABI, 3.2.2): its entry can be
/// the head of a loop, too.
const RED_ZONE_BYTES: u8 = 128;

/// Where calls are led.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// A byte whose touch makes a thread wait.
    pub at: Avma,
    /// A word of 64 bits that each call takes one from: who makes it zero waits, the others do not.
    /// `None`: everyone waits.
    pub count: Option<Avma>,
}

/// Code that leads over a gate.
#[derive(Clone, Debug)]
pub struct Code {
    /// The machine code.
    pub bytes: Vec<u8>,
    /// Where in it a thread stands that waits.
    pub touch: u64,
}

/// A function whose callers can be led over a gate.
#[derive(Clone, Debug)]
pub struct Way {
    /// Where the function is called: there, or at an endbr64 before it.
    pub entry: Svma,
    /// Where the jump is written.
    pub start: Svma,
    /// What stands there.
    pub original: [u8; JUMP_BYTES],
    /// The instructions from there on that the jump covers, and the `ret` behind them if the
    /// function ends there.
    code: Vec<u8>,
    /// Where it goes on; `None`: it has returned.
    goes_on: Option<Svma>,
    /// At its entry nothing lies below the stack pointer.
    pub is_clear_below: bool,
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
            entry: function.entry,
            start,
            original: code.get(..JUMP_BYTES)?.try_into().ok()?,
            code: code.get(..(end - start.0) as usize)?.to_vec(),
            goes_on: (range.ret_bytes == 0).then_some(range.moved_end),
            is_clear_below: !may_have_data_below(object, (function.entry, function.end)),
        })
    }

    /// The code at `at`, which leads over a gate; the function's module lies at `bias`. `None`:
    /// that is too far from the function.
    pub fn code(&self, bias: u64, at: Avma, gate: Gate) -> Option<Code> {
        let mut out = Vec::new();
        let touch = match gate.count {
            Some(count) => counted_touch(count, gate.at, &mut out),
            None => push_touch(gate.at, &mut out),
        };
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
        let fits = out.len() as u64 <= WAY_BYTES;
        fits.then_some(Code { bytes: out, touch })
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

/// Adds the touch; gives where it stands.
fn push_touch(gate: Avma, out: &mut Vec<u8>) -> u64 {
    let touch = out.len() as u64;
    // mov [gate], al: the form with an address of 64 bits (Intel SDM, MOV moffs8, AL).
    out.push(0xa2);
    out.extend(gate.0.to_le_bytes());
    touch
}

/// Adds the counting, and the touch for who makes the count zero; gives where the touch stands. The
/// flags are kept on the stack, since nothing that takes one from a word leaves them alone.
fn counted_touch(count: Avma, gate: Avma, out: &mut Vec<u8>) -> u64 {
    // lea rsp, [rsp - 128]; pushfq; push rax; mov rax, count
    out.extend([0x48, 0x8d, 0x64, 0x24, RED_ZONE_BYTES.wrapping_neg()]);
    out.extend([0x9c, 0x50, 0x48, 0xb8]);
    out.extend(count.0.to_le_bytes());
    // lock dec qword [rax]; pop rax; jne
    out.extend([0xf0, 0x48, 0xff, 0x08, 0x58, 0x75, 0]);
    let behind_branch = out.len();
    put_back(out);
    let touch = push_touch(gate, out);
    // jmp
    out.extend([0xeb, 0]);
    let behind_touch = out.len();
    out[behind_branch - 1] = (behind_touch - behind_branch) as u8;
    put_back(out);
    out[behind_touch - 1] = (out.len() - behind_touch) as u8;
    touch
}

/// popfq; lea rsp, [rsp + 128]
fn put_back(out: &mut Vec<u8>) {
    out.extend([0x9d, 0x48, 0x8d, 0xa4, 0x24, RED_ZONE_BYTES, 0, 0, 0]);
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
