//! Native code that appends rows, as long as there is room.
//!
//! Part of the writer of [`crate::acts_code`]. One instruction takes a row: a handler's comes
//! before or after. What there is no room for is known by the number of the next row. Must not
//! know what a row says.

use iced_x86::code_asm::registers::*;
use iced_x86::code_asm::*;

use crate::acts_code::{Made, Writer};
use crate::below::*;
use crate::program::Expression;
use crate::tables::{BAR_AT, HEAD_BYTES, TAKEN, Table};

impl Writer<'_> {
    /// A row with these keys, and the time.
    pub(crate) fn append(&mut self, table: Table, keys: &[Expression]) -> Made {
        let row = (table.at + HEAD_BYTES) as i32;
        let told = self.told(table, keys);
        let a = &mut self.code.a;
        let mut done = a.create_label();
        a.mov(rcx, qword_ptr(self.thread.tables).gs())?;
        a.mov(eax, 1)?;
        a.xadd(qword_ptr(rcx + (table.at + BAR_AT) as i32), rax)?;
        // Mostly there is no room any more: then nothing is found out.
        a.cmp(rax, table.rows() as i32)?;
        a.jae(done)?;
        a.imul_3(rax, rax, table.row_bytes() as i32)?;
        a.mov(qword_ptr(rsp + VALUE_AT), rax)?;
        if !self.keys(keys)? {
            return Ok(false);
        }
        let a = &mut self.code.a;
        a.mov(rcx, qword_ptr(self.thread.tables).gs())?;
        a.add(rcx, qword_ptr(rsp + VALUE_AT))?;
        self.write_keys((table.keys, row), told)?;
        let a = &mut self.code.a;
        a.mov(qword_ptr(rsp + RDX_AT), rdx)?;
        a.rdtsc()?;
        a.shl(rdx, 32)?;
        a.or(rax, rdx)?;
        a.mov(rdx, qword_ptr(rsp + RDX_AT))?;
        a.mov(qword_ptr(rcx + (row + table.count_at() as i32)), rax)?;
        a.mov(qword_ptr(rcx + row), TAKEN as i32)?;
        a.set_label(&mut done)?;
        a.zero_bytes()?;
        Ok(true)
    }
}
