//! Code for keys that are more than a number: it walks the thread's frames, and tells a new row
//! what its key stands for.
//!
//! Part of [`mod@crate::acts_code`], whose room below the stack pointer it uses: where rdx is kept,
//! and where probes are counted, which no expression is evaluated in the midst of. Given where the
//! innermost frame is; it looks at so many frames at most. A handler that interrupts it leaves the
//! frames below the innermost one as they are. Must not know what a frame's place means.

use iced_x86::IcedError;
use iced_x86::code_asm::registers::*;
use iced_x86::code_asm::*;

use crate::below::{PROBES_AT, RDX_AT, RECORDED_AT};
use crate::callers::{FACTOR, MOST_FRAMES, TURN};
use crate::contract::in_place::*;
use crate::in_place::Code;
use crate::text::TOLD_WORDS;

/// What a row is told of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told {
    /// So many places that lead to the call; at a return its own is kept in the word of this
    /// number.
    Places(u8, Option<u8>),
    /// What is kept of a text: where the address of that is, from gs on, and how far behind it.
    Text(i32, i32),
}

/// Of a place: its frame, and where its number is put.
struct Walk {
    frame: AsmRegister64,
    place: AsmRegister64,
    half: AsmRegister32,
}

impl Code {
    /// The word of the places that lead to the call, into rax. False: that cannot be done here.
    pub(crate) fn places(&mut self, count: u8, kept: Option<u8>) -> Result<bool, IcedError> {
        let (Some(own), Some(top)) = (self.own_place(kept), self.top_frame_at) else {
            return Ok(false);
        };
        let mix = |a: &mut CodeAssembler| {
            a.imul_3(rax, rax, FACTOR)?;
            a.ror(rax, TURN)
        };
        self.a.mov(eax, own)?;
        if count > 1 {
            self.keep_rdx()?;
        }
        mix(&mut self.a)?;
        if count > 1 {
            let walk = Walk {
                frame: rcx,
                place: rdx,
                half: edx,
            };
            self.walk(&walk, top, count - 1, &|a| {
                a.xor(rax, rdx)?;
                mix(a)
            })?;
            self.restore_rdx(top)?;
        }
        Ok(true)
    }

    /// Writes what a key stands for to its place in the row at rcx, which stays.
    pub(crate) fn tell(&mut self, told: Told, at: i32) -> Result<(), IcedError> {
        let (count, kept) = match told {
            Told::Places(count, kept) => (count, kept),
            Told::Text(from, behind) => return self.copy_text(from, behind, at),
        };
        let (Some(own), Some(top)) = (self.own_place(kept), self.top_frame_at) else {
            return Ok(());
        };
        self.a.mov(eax, own)?;
        self.a.mov(dword_ptr(rcx + at), eax)?;
        if count <= 1 {
            return Ok(());
        }
        self.keep_rdx()?;
        let walk = Walk {
            frame: rdx,
            place: rax,
            half: eax,
        };
        self.walk(&walk, top, count - 1, &|a| {
            a.mov(dword_ptr(rcx + (at + 4)), eax)?;
            a.add(rcx, 4)
        })?;
        // Back by as many as there were: what is left of the count was not written.
        self.a.movzx(eax, word_ptr(rsp + PROBES_AT))?;
        self.a.lea(rcx, qword_ptr(rcx + rax * 4))?;
        self.a.sub(rcx, 4 * (i32::from(count) - 1))?;
        self.restore_rdx(top)
    }

    /// Copies what the slow path has kept of a text into the row.
    fn copy_text(&mut self, from: i32, behind: i32, at: i32) -> Result<(), IcedError> {
        let a = &mut self.a;
        let (mut again, mut nothing) = (a.create_label(), a.create_label());
        a.mov(qword_ptr(rsp + RDX_AT), rdx)?;
        a.mov(rdx, qword_ptr(from).gs())?;
        a.test(rdx, rdx)?;
        a.je(nothing)?;
        a.mov(word_ptr(rsp + PROBES_AT), u32::from(TOLD_WORDS))?;
        a.set_label(&mut again)?;
        a.mov(rax, qword_ptr(rdx + behind))?;
        a.mov(qword_ptr(rcx + at), rax)?;
        a.add(rdx, 8)?;
        a.add(rcx, 8)?;
        a.dec(word_ptr(rsp + PROBES_AT))?;
        a.jne(again)?;
        a.sub(rcx, 8 * i32::from(TOLD_WORDS))?;
        a.set_label(&mut nothing)?;
        a.mov(rdx, qword_ptr(rsp + RDX_AT))
    }

    /// Where the number of the call's own place is.
    fn own_place(&self, kept: Option<u8>) -> Option<AsmMemoryOperand> {
        match (kept, self.exit.is_some()) {
            (None, false) => Some(dword_ptr(rsp + SAVED_CALLER)),
            (Some(n), true) if usize::from(n) < MOST_KEPT => {
                let word = FRAME_WORD - frames_above(n) * FRAME_BYTES;
                Some(dword_ptr(rdx + word))
            }
            _ => None,
        }
    }

    /// At a return the frame of the call itself is still there, if it has a record: where it would
    /// be is kept in place of rdx, which is found again, and its place, which eax has. A frame
    /// there of another place is that of a call which has jumped to this one.
    fn keep_rdx(&mut self) -> Result<(), IcedError> {
        if self.exit.is_some() {
            self.a.mov(rdx, qword_ptr(rdx))?;
            self.a.inc(rdx)?;
            self.a.mov(dword_ptr(rsp + RECORDED_AT), eax)?;
        }
        self.a.mov(qword_ptr(rsp + RDX_AT), rdx)
    }

    fn restore_rdx(&mut self, top: i32) -> Result<(), IcedError> {
        match self.exit {
            Some(_) => self.a.mov(rdx, qword_ptr(top).gs()),
            None => self.a.mov(rdx, qword_ptr(rsp + RDX_AT)),
        }
    }

    /// Does something with each place, from the innermost frame on.
    fn walk(
        &mut self,
        walk: &Walk,
        top: i32,
        count: u8,
        each: &dyn Fn(&mut CodeAssembler) -> Result<(), IcedError>,
    ) -> Result<(), IcedError> {
        let Walk { frame, place, half } = *walk;
        let (is_return, a) = (self.exit.is_some(), &mut self.a);
        let (mut again, mut passed) = (a.create_label(), a.create_label());
        let (mut barrier, mut end) = (a.create_label(), a.create_label());
        let (left, frames) = (word_ptr(rsp + PROBES_AT), word_ptr(rsp + (PROBES_AT + 2)));
        a.mov(frame, qword_ptr(top).gs())?;
        a.mov(left, u32::from(count))?;
        a.mov(frames, u32::from(MOST_FRAMES))?;
        a.set_label(&mut again)?;
        a.test(byte_ptr(frame + 15), NO_CALL)?;
        a.jne(passed)?;
        a.mov(place, qword_ptr(frame))?;
        a.cmp(place, -1)?;
        a.je(barrier)?;
        let mut other = a.create_label();
        if is_return {
            a.cmp(place, qword_ptr(rsp + RDX_AT))?;
            a.mov(half, dword_ptr(frame + 8))?;
            a.jne(other)?;
            a.cmp(half, dword_ptr(rsp + RECORDED_AT))?;
            a.je(passed)?;
            a.set_label(&mut other)?;
        } else {
            a.mov(half, dword_ptr(frame + 8))?;
        }
        a.test(half, half)?;
        a.je(passed)?;
        each(a)?;
        a.dec(left)?;
        a.je(end)?;
        a.set_label(&mut passed)?;
        a.sub(frame, FRAME_BYTES)?;
        a.dec(frames)?;
        a.jne(again)?;
        a.jmp(end)?;
        // The outermost frame is a barrier without a stack.
        a.set_label(&mut barrier)?;
        a.cmp(qword_ptr(frame + 8), 0)?;
        a.jne(passed)?;
        a.set_label(&mut end)?;
        a.zero_bytes()
    }
}
