//! Native code of acts by which the host is bidden something.
//!
//! Part of the writer of [`crate::acts_code`]. The code leaves a bit in the thread's block, and
//! gives what leads the event to the slow path, which tells the host: no other call goes there.
//! Must not know what is bidden.

use iced_x86::IcedError;
use iced_x86::code_asm::registers::*;
use iced_x86::code_asm::*;

use crate::acts_code::Writer;
use crate::below::RECORDED_AT;
use crate::contract::in_place::BIDDEN;

impl Writer<'_> {
    /// The call is recorded, unless something is bidden at it, which says that as well.
    pub(crate) fn is_recorded(&mut self) -> Result<(), IcedError> {
        let (at, recorded) = (dword_ptr(rsp + RECORDED_AT), self.recorded);
        if !self.bids {
            return self.code.a.mov(at, recorded);
        }
        let a = &mut self.code.a;
        let mut is_said = a.create_label();
        a.cmp(at, self.bidden as i32)?;
        a.je(is_said)?;
        a.mov(at, recorded)?;
        a.set_label(&mut is_said)?;
        a.zero_bytes()
    }

    /// One instruction says it: a handler's slow path tells it as well. At a return, where the word
    /// that says so of a call is used otherwise, the frame is kept at which it was said.
    pub(crate) fn bid(&mut self, number: u8) -> Result<(), IcedError> {
        let bit = 1u32.checked_shl(number.into()).unwrap_or(0);
        let a = &mut self.code.a;
        a.or(dword_ptr(self.thread.bids).gs(), bit as i32)?;
        if self.code.exit.is_none() {
            return a.mov(dword_ptr(rsp + RECORDED_AT), self.bidden);
        }
        a.mov(rax, qword_ptr(self.thread.top_frame).gs())?;
        a.mov(qword_ptr(self.thread.has_bidden).gs(), rax)
    }

    /// Gives that something was bidden; goes on if nothing was.
    pub(crate) fn give_bidden(&mut self) -> Result<(), IcedError> {
        if !self.bids {
            return Ok(());
        }
        let a = &mut self.code.a;
        let mut nothing = a.create_label();
        if self.code.exit.is_some() {
            a.mov(rax, qword_ptr(self.thread.top_frame).gs())?;
            a.cmp(rax, qword_ptr(self.thread.has_bidden).gs())?;
        } else {
            a.cmp(dword_ptr(rsp + RECORDED_AT), BIDDEN as i32)?;
        }
        a.jne(nothing)?;
        a.mov(eax, BIDDEN)?;
        a.ret()?;
        a.set_label(&mut nothing)?;
        a.zero_bytes()
    }
}
