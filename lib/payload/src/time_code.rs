//! Native code of how long a call took, in all and without what calls inside of it have taken.
//!
//! Part of the writer of [`crate::acts_code`], for acts of a return. A word of the thread's set
//! adds up what calls have taken that ask for their own time; a call's entry has kept what it was
//! then. So what has come to it since is what calls inside have taken. At the return it becomes
//! what it was, and this call's time more: of nested calls the outermost counts. A call whose exit
//! is not seen leaves there what was inside of it, and its own time is its caller's. Must not know
//! clocks.

use iced_x86::IcedError;
use iced_x86::code_asm::registers::*;
use iced_x86::code_asm::*;

use crate::acts_code::Writer;
use crate::below::{ELAPSED_AT, SELF_AT};
use crate::contract::in_place::*;
use crate::tables::INSIDE_AT;

impl Writer<'_> {
    /// Nanoseconds since the call began. Changes rax, rcx and rdx.
    pub(crate) fn elapsed(&mut self, tick_ns: u64) -> Result<(), IcedError> {
        let top_frame = qword_ptr(self.thread.top_frame).gs();
        let a = &mut self.code.a;
        a.rdtsc()?;
        a.shl(rdx, 32)?;
        a.or(rax, rdx)?;
        a.mov(rdx, top_frame)?;
        a.sub(rax, qword_ptr(rdx + (FRAME_WORD - FRAME_BYTES)))?;
        a.mov(rcx, tick_ns)?;
        a.mul(rcx)?;
        a.shrd(rax, rdx, 32)?;
        a.mov(qword_ptr(rsp + ELAPSED_AT), rax)
    }

    /// The same without what is inside, with rdx as the innermost frame. Changes rax and rcx.
    pub(crate) fn self_time(&mut self, kept: u8) -> Result<(), IcedError> {
        let before = qword_ptr(rdx + (FRAME_WORD - frames_above(kept) * FRAME_BYTES));
        let (elapsed, own) = (qword_ptr(rsp + ELAPSED_AT), qword_ptr(rsp + SELF_AT));
        let inside = qword_ptr(rcx + INSIDE_AT as i32);
        let a = &mut self.code.a;
        a.mov(rcx, qword_ptr(self.thread.tables).gs())?;
        a.mov(rax, inside)?;
        a.sub(rax, before)?;
        a.cmp(rax, elapsed)?;
        a.cmova(rax, elapsed)?;
        a.neg(rax)?;
        a.add(rax, elapsed)?;
        a.mov(own, rax)?;
        a.mov(rax, before)?;
        a.add(rax, elapsed)?;
        a.mov(inside, rax)
    }
}
