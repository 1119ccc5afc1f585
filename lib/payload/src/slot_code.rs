//! Native code of [`crate::acts`] for calls that go on without a record and without a frame.
//!
//! Given acts that ask for nothing that a frame or a common routine knows; gives code as
//! [`crate::contract::slot`] wants it, and how far they are at each of its instructions. Whose
//! thread runs is known by the page of the stack, or, where that is a new one, by the fs base. Must
//! not know where the code lies and what is counted.

use iced_x86::code_asm::registers::*;
use iced_x86::code_asm::*;
use iced_x86::{BlockEncoderOptions, IcedError};

use crate::acts::Acts;
use crate::acts_code::{ActsCodeError, Thread, Writer};
use crate::contract::in_place::{SAVED_RCX, SAVED_RDX};
use crate::contract::slot::*;
use crate::program::{Expression, Source};
use crate::tables::Tables;

/// log2 of a page's bytes.
const PAGE_BITS: i32 = 12;
// Arguments are found where the second form has them.
const _: () = assert!(RDX_AT == SAVED_RDX && RCX_AT == SAVED_RCX);

/// The code, and places in it by their offsets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotCode {
    /// It.
    pub bytes: Vec<u8>,
    /// Before this nothing has been changed.
    pub changes_from: u16,
    /// From here on all has, up to the next.
    pub changes_to: u16,
    /// From here on rows are taken, in the middle of the acts.
    pub takes_from: u16,
    /// From here on nothing has been changed: it is not certain whose thread this is.
    pub asks_from: u16,
}

/// The code of acts. `None`: they need a frame, a record, or the slow path.
///
/// # Errors
/// The acts are not as they must be.
pub fn slot_code(
    acts: &Acts,
    tables: &Tables,
    thread: Thread,
) -> Result<Option<SlotCode>, ActsCodeError> {
    if !fits_slot(acts) || acts.adds_rows(tables) {
        return Ok(None);
    }
    let mut writer = Writer::new(acts, tables, thread)?;
    writer.in_slot(acts)
}

/// False if acts certainly have no such code.
pub fn fits_slot(acts: &Acts) -> bool {
    let is_plain = !acts.records && !acts.may_record() && !acts.is_slow();
    is_plain && acts.expressions().into_iter().all(is_at_hand)
}

/// True if all that it names is where the code finds it.
fn is_at_hand(expression: &Expression) -> bool {
    match expression {
        Expression::Source(source) => matches!(
            source,
            Source::Argument(_) | Source::Vector(_) | Source::Thread | Source::Variable(_)
        ),
        Expression::Narrow(inner, _) => is_at_hand(inner),
        Expression::Load(..) => false,
        Expression::Binary(_, a, b) | Expression::Both(a, b) | Expression::Either(a, b) => {
            is_at_hand(a) && is_at_hand(b)
        }
        Expression::Constant(_) | Expression::Local(_) => true,
    }
}

impl Writer<'_> {
    fn in_slot(&mut self, acts: &Acts) -> Result<Option<SlotCode>, ActsCodeError> {
        let a = &mut self.code.a;
        let (mut known, mut other, mut slow) =
            (a.create_label(), a.create_label(), a.create_label());
        let (mut done, mut taking) = (a.create_label(), a.create_label());
        self.save()?;
        self.check(acts, (&mut known, other), (done, slow))?;
        self.clear_locals(acts)?;
        if !self.steps(&acts.steps, 0)? {
            return Ok(None);
        }
        self.code.a.set_label(&mut done)?;
        self.restore()?;
        self.code.a.ret()?;
        self.code.a.set_label(&mut taking)?;
        self.code.a.zero_bytes()?;
        self.take_rows()?;
        self.code.a.set_label(&mut other)?;
        self.look_at_thread((known, slow))?;
        self.code.a.set_label(&mut slow)?;
        self.restore()?;
        // With another displacement where it lies.
        let bytes = [0xe9, 0, 0, 0, 0];
        self.code.a.db(&bytes)?;
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let made = self.code.a.assemble_options(0, options)?;
        let at = |label: &CodeLabel| made.label_ip(label).map(|ip| ip as u16);
        let (first, last) = self.changes.unwrap_or((done, done));
        Ok(Some(SlotCode {
            changes_from: at(&first)?,
            changes_to: at(&last)?,
            takes_from: at(&taking)?,
            asks_from: at(&other)?,
            bytes: made.inner.code_buffer,
        }))
    }

    /// Keeps what the code changes.
    fn save(&mut self) -> Result<(), IcedError> {
        let a = &mut self.code.a;
        a.lea(rsp, qword_ptr(rsp - SAVED_BYTES))?;
        a.mov(qword_ptr(rsp + RAX_AT), rax)?;
        a.mov(qword_ptr(rsp + RCX_AT), rcx)?;
        a.mov(qword_ptr(rsp + RDX_AT), rdx)?;
        a.lahf()?;
        a.seto(al)?;
        a.mov(qword_ptr(rsp + FLAGS_AT), rax)
    }

    fn restore(&mut self) -> Result<(), IcedError> {
        let a = &mut self.code.a;
        a.mov(rax, qword_ptr(rsp + FLAGS_AT))?;
        a.add(al, 0x7f)?;
        a.sahf()?;
        a.mov(rcx, qword_ptr(rsp + RCX_AT))?;
        a.mov(rax, qword_ptr(rsp + RAX_AT))?;
        a.lea(rsp, qword_ptr(rsp + SAVED_BYTES))
    }

    /// Is it this thread's block, and is something recorded?
    fn check(
        &mut self,
        acts: &Acts,
        (known, other): (&mut CodeLabel, CodeLabel),
        (done, slow): (CodeLabel, CodeLabel),
    ) -> Result<(), IcedError> {
        let thread = self.thread;
        let a = &mut self.code.a;
        a.mov(rcx, rsp)?;
        a.xor(rcx, qword_ptr(thread.stack_page).gs())?;
        a.shr(rcx, PAGE_BITS)?;
        a.jne(other)?;
        a.set_label(known)?;
        a.cmp(qword_ptr(thread.muted).gs(), 0)?;
        a.jne(done)?;
        if acts.adds() || acts.uses_variables() {
            a.cmp(qword_ptr(thread.tables).gs(), 0)?;
            a.je(slow)?;
        }
        Ok(())
    }

    /// The page of the stack is a new one.
    fn look_at_thread(&mut self, (known, slow): (CodeLabel, CodeLabel)) -> Result<(), IcedError> {
        let thread = self.thread;
        let a = &mut self.code.a;
        a.rdfsbase(rcx)?;
        a.cmp(rcx, qword_ptr(thread.key).gs())?;
        a.jne(slow)?;
        a.mov(qword_ptr(thread.stack_page).gs(), rsp)?;
        a.jmp(known)
    }
}
