//! Native code that keeps the rows with the greatest measure.
//!
//! Part of the writer of [`crate::acts_code`]. A measure below the bar is passed over by one
//! comparison; else the row with the least measure is looked for, taken by one instruction, and
//! written, and the bar is found anew. A handler that interrupts this passes the row that is being
//! written over, for which there are spare ones, and can but raise measures and the bar: so a row
//! that was the least one when it was found, and is taken with just that measure, is the least one
//! still, and a bar that was found before is none that is too high. Must not know what is measured.

use iced_x86::IcedError;
use iced_x86::code_asm::registers::*;
use iced_x86::code_asm::*;

use crate::acts_code::{Made, Writer};
use crate::below::*;
use crate::program::Expression;
use crate::tables::{BAR_AT, HEAD_BYTES, SPARE_ROWS, Table};

/// In the place of temporaries, which no expression needs meanwhile: the least measure that was
/// met, and its row.
const LEAST_AT: i32 = -8;
const LEAST_ROW_AT: i32 = -16;
/// The sign of a measure.
const SIGN_BIT: i32 = 63;
/// [`crate::tables::WRITING`], as an instruction has it.
const WRITING: i32 = -1;

/// Rows that are still to be looked at.
fn rows_left() -> AsmMemoryOperand {
    word_ptr(rsp + PROBES_AT)
}

/// Rows that may be found being written, and one more.
fn spare_left() -> AsmMemoryOperand {
    word_ptr(rsp + (PROBES_AT + 2))
}

impl Writer<'_> {
    /// A row with this measure and these keys, if it is among the greatest.
    pub(crate) fn add_greatest(
        &mut self,
        table: Table,
        keys: &[Expression],
        measure: &Expression,
    ) -> Made {
        if !self.code.word(measure)? {
            return Ok(false);
        }
        let mut stays = self.code.a.create_label();
        let a = &mut self.code.a;
        a.btc(rax, SIGN_BIT)?;
        // The greatest number of all stands for something else, so it is one less.
        a.cmp(rax, WRITING)?;
        a.adc(rax, -1)?;
        a.mov(rcx, qword_ptr(self.thread.tables).gs())?;
        a.cmp(rax, qword_ptr(rcx + (table.at + BAR_AT) as i32))?;
        a.jb(stays)?;
        a.mov(qword_ptr(rsp + VALUE_AT), rax)?;
        if !self.keys(keys)? {
            return Ok(false);
        }
        self.code.a.mov(qword_ptr(rsp + RDX_AT), rdx)?;
        let mut kept = self.code.a.create_label();
        self.take_least(table, kept)?;
        self.code.a.mov(rdx, qword_ptr(rsp + RDX_AT))?;
        let row = (table.at + HEAD_BYTES) as i32;
        let told = self.told(table, keys);
        self.clear_told(table)?;
        self.write_keys((table.keys, row), told)?;
        let a = &mut self.code.a;
        a.mov(rax, qword_ptr(rsp + VALUE_AT))?;
        a.mov(qword_ptr(rcx + row), rax)?;
        a.mov(qword_ptr(rsp + RDX_AT), rdx)?;
        self.find_bar(table)?;
        let a = &mut self.code.a;
        a.set_label(&mut kept)?;
        a.mov(rdx, qword_ptr(rsp + RDX_AT))?;
        a.set_label(&mut stays)?;
        a.zero_bytes()?;
        Ok(true)
    }

    /// rcx = the row with the least measure, taken; at `kept` there is none for this one. Changes
    /// rdx.
    fn take_least(&mut self, table: Table, kept: CodeLabel) -> Result<(), IcedError> {
        let row = (table.at + HEAD_BYTES) as i32;
        let a = &mut self.code.a;
        let (mut again, mut scan) = (a.create_label(), a.create_label());
        let (mut next, mut writing) = (a.create_label(), a.create_label());
        let mut found = a.create_label();
        let (least, least_row) = (qword_ptr(rsp + LEAST_AT), qword_ptr(rsp + LEAST_ROW_AT));
        // Another time only if a handler has just taken this row.
        a.set_label(&mut again)?;
        a.mov(rcx, qword_ptr(self.thread.tables).gs())?;
        a.mov(rows_left(), table.rows())?;
        a.mov(spare_left(), u32::from(SPARE_ROWS) + 1)?;
        a.mov(least, WRITING)?;
        a.set_label(&mut scan)?;
        a.mov(rdx, qword_ptr(rcx + row))?;
        a.cmp(rdx, WRITING)?;
        a.je(writing)?;
        a.cmp(rdx, least)?;
        a.jae(next)?;
        a.mov(least, rdx)?;
        a.mov(least_row, rcx)?;
        a.set_label(&mut next)?;
        a.add(rcx, table.row_bytes() as i32)?;
        a.dec(rows_left())?;
        a.jne(scan)?;
        a.mov(rax, least)?;
        a.cmp(rax, qword_ptr(rsp + VALUE_AT))?;
        a.jae(kept)?;
        a.mov(rcx, least_row)?;
        a.mov(rdx, i64::from(WRITING))?;
        a.cmpxchg(qword_ptr(rcx + row), rdx)?;
        a.jne(again)?;
        a.jmp(found)?;
        a.set_label(&mut writing)?;
        a.dec(spare_left())?;
        a.jne(next)?;
        // Handlers in handlers, or some that have jumped away from here.
        a.mov(rcx, qword_ptr(self.thread.tables).gs())?;
        a.inc(qword_ptr(rcx + table.at as i32))?;
        a.jmp(kept)?;
        a.set_label(&mut found)?;
        a.zero_bytes()
    }

    /// The row at rcx tells nothing any more: what comes may be shorter than what it has told.
    fn clear_told(&mut self, table: Table) -> Result<(), IcedError> {
        let words = table
            .told
            .iter()
            .map(|words| i32::from(*words))
            .sum::<i32>();
        if words == 0 {
            return Ok(());
        }
        let at = (table.at + HEAD_BYTES + table.told_at(0)) as i32;
        let a = &mut self.code.a;
        let mut again = a.create_label();
        a.mov(rows_left(), words as u32)?;
        a.set_label(&mut again)?;
        a.mov(qword_ptr(rcx + at), 0)?;
        a.add(rcx, 8)?;
        a.dec(rows_left())?;
        a.jne(again)?;
        a.sub(rcx, 8 * words)
    }

    /// The least measure and one more; of a row that is being written it is not known, so nothing
    /// is passed over. Changes rax, rcx and rdx.
    fn find_bar(&mut self, table: Table) -> Result<(), IcedError> {
        let row = (table.at + HEAD_BYTES) as i32;
        let tables = qword_ptr(self.thread.tables).gs();
        let a = &mut self.code.a;
        let mut scan = a.create_label();
        a.mov(rcx, tables)?;
        a.mov(rows_left(), table.rows())?;
        a.mov(rax, i64::from(WRITING))?;
        a.set_label(&mut scan)?;
        a.mov(rdx, qword_ptr(rcx + row))?;
        a.inc(rdx)?;
        a.cmp(rdx, rax)?;
        a.cmovb(rax, rdx)?;
        a.add(rcx, table.row_bytes() as i32)?;
        a.dec(rows_left())?;
        a.jne(scan)?;
        a.mov(rcx, tables)?;
        a.mov(qword_ptr(rcx + (table.at + BAR_AT) as i32), rax)
    }
}
