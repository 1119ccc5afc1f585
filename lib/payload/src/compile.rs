//! Native code of a program, as [`crate::contract`] wants it.
//!
//! A word is evaluated into rax; what waits meanwhile is pushed. Conditions are jumped upon where
//! they stand. The code has no address of its own in it and can be put anywhere.

use iced_x86::IcedError;
use iced_x86::code_asm::registers::*;
use iced_x86::code_asm::*;
use thiserror::Error;

use crate::captured::{Kind, MOST_ASKED, tagged};
use crate::check::{CheckError, check};
use crate::contract::*;
use crate::program::{Binary, Expression, Program, Source, Statement, Width};

/// Why there is no code.
#[derive(Debug, Error)]
pub enum CompileError {
    /// The program is not as it must be.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The assembler does not take an instruction.
    #[error("the code cannot be assembled: {0}")]
    Assemble(#[from] IcedError),
}

type Done = Result<(), IcedError>;

/// The code of a program.
///
/// # Errors
/// It is not as it must be.
pub fn compile(program: &Program) -> Result<Vec<u8>, CompileError> {
    check(program)?;
    let mut c = Compiler::new()?;
    c.program(program)?;
    Ok(c.a.assemble(0)?)
}

struct Compiler {
    a: CodeAssembler,
    /// Words pushed since the start.
    pushed: usize,
    /// Where the header of a part is written; see [`Compiler::end_of_part`].
    part: CodeLabel,
    has_parts: bool,
}

/// What a word is, if no code is needed to have it.
enum Simple {
    Immediate(i32),
    Saved(i32),
}

impl Compiler {
    fn new() -> Result<Self, IcedError> {
        let mut a = CodeAssembler::new(64)?;
        let part = a.create_label();
        Ok(Self {
            a,
            pushed: 0,
            part,
            has_parts: false,
        })
    }

    fn program(&mut self, program: &Program) -> Done {
        let mut unwanted = self.a.create_label();
        if let Some(wanted) = &program.wanted {
            self.unless(wanted, unwanted)?;
        }
        for (i, word) in program.words.iter().enumerate() {
            self.word(word)?;
            self.a.mov(qword_ptr(r12 + i as i32 * 8), rax)?;
        }
        if !program.words.is_empty() {
            self.a.add(r12, program.words.len() as i32 * 8)?;
        }
        self.all(&program.parts)?;
        self.a.mov(rax, qword_ptr(rbx + FAULTS))?;
        self.a.lea(rax, qword_ptr(rax + rax + WANTED as i32))?;
        self.a.ret()?;
        if program.wanted.is_some() {
            self.a.set_label(&mut unwanted)?;
            self.a.xor(eax, eax)?;
            self.a.ret()?;
        }
        if self.has_parts {
            self.end_of_part()?;
        }
        Ok(())
    }

    fn all(&mut self, statements: &[Statement]) -> Done {
        statements.iter().try_for_each(|s| self.statement(s))
    }

    fn statement(&mut self, statement: &Statement) -> Done {
        match statement {
            Statement::Set(local, value) => {
                self.word(value)?;
                self.a.mov(qword_ptr(rbx + local_at(*local)), rax)
            }
            Statement::Keep(number, value) => {
                self.word(value)?;
                self.a
                    .mov(qword_ptr(rbx + KEPT + i32::from(*number) * 8), rax)
            }
            Statement::Word { tag, value } => {
                self.word(value)?;
                self.a.mov(qword_ptr(r12 + 8), rax)?;
                let header = tagged(*tag, Kind::Word) | 8 << 16 | 8 << 32;
                self.a.mov(rax, header)?;
                self.a.mov(qword_ptr(r12), rax)?;
                self.a.add(r12, 16)
            }
            Statement::Bytes {
                tag,
                address,
                length,
                limit,
            } => self.bytes(*tag, address, length, *limit),
            Statement::Text {
                tag,
                address,
                limit,
            } => self.text(*tag, address, *limit),
            Statement::If(condition, then, or) => self.either(condition, then, or),
            Statement::Repeat {
                count,
                limit,
                counter,
                body,
            } => self.repeat(count, *limit, *counter, body),
        }
    }

    fn either(&mut self, condition: &Expression, then: &[Statement], or: &[Statement]) -> Done {
        let mut not = self.a.create_label();
        self.unless(condition, not)?;
        self.all(then)?;
        let mut end = self.a.create_label();
        if !or.is_empty() {
            self.a.jmp(end)?;
        }
        self.a.set_label(&mut not)?;
        self.a.zero_bytes()?;
        if !or.is_empty() {
            self.all(or)?;
            self.a.set_label(&mut end)?;
            self.a.zero_bytes()?;
        }
        Ok(())
    }

    fn repeat(&mut self, count: &Expression, limit: u8, counter: u8, body: &[Statement]) -> Done {
        let counter = qword_ptr(rbx + local_at(counter));
        self.word(count)?;
        self.a.mov(ecx, u32::from(limit))?;
        self.a.cmp(rax, rcx)?;
        self.a.cmova(rax, rcx)?;
        self.a.mov(counter, 0)?;
        self.push()?;
        let mut again = self.a.create_label();
        let mut end = self.a.create_label();
        self.a.set_label(&mut again)?;
        self.a.cmp(qword_ptr(rsp), 0)?;
        self.a.je(end)?;
        self.all(body)?;
        self.a.inc(counter)?;
        self.a.dec(qword_ptr(rsp))?;
        self.a.jmp(again)?;
        self.a.set_label(&mut end)?;
        self.pop(rax)
    }

    fn bytes(&mut self, tag: u8, address: &Expression, length: &Expression, limit: u16) -> Done {
        self.word(length)?;
        self.push()?;
        self.word(address)?;
        self.a.mov(rdi, rax)?;
        // rsi: how many are read; none: nobody is asked.
        self.a.mov(esi, u32::from(limit))?;
        self.a.cmp(qword_ptr(rsp), rsi)?;
        self.a.cmovb(rsi, qword_ptr(rsp))?;
        self.a.mov(rax, rsi)?;
        self.a.mov(qword_ptr(rbx + LOADED), rsi)?;
        let mut nothing = self.a.create_label();
        self.a.test(rsi, rsi)?;
        self.a.je(nothing)?;
        self.a.lea(rdx, qword_ptr(r12 + 8))?;
        self.call(READER)?;
        self.a.set_label(&mut nothing)?;
        // The header's upper half: how many were asked for, and the two marks.
        self.pop(rdx)?;
        self.a.xor(ecx, ecx)?;
        self.a.cmp(rax, qword_ptr(rbx + LOADED))?;
        self.a.setb(cl)?;
        self.a.shl(ecx, 1)?;
        self.a.xor(esi, esi)?;
        self.a.cmp(rdx, i32::from(limit))?;
        self.a.seta(sil)?;
        self.a.or(ecx, esi)?;
        self.a.shl(ecx, 30)?;
        self.a.mov(esi, MOST_ASKED as u32)?;
        self.a.cmp(rdx, rsi)?;
        self.a.cmova(rdx, rsi)?;
        self.a.or(rdx, rcx)?;
        self.part(tag, Kind::Bytes)
    }

    fn text(&mut self, tag: u8, address: &Expression, limit: u16) -> Done {
        self.word(address)?;
        self.a.mov(rdi, rax)?;
        self.a.mov(esi, u32::from(limit))?;
        self.a.lea(rdx, qword_ptr(r12 + 8))?;
        self.call(TEXT_READER)?;
        self.a.mov(rdx, rax)?;
        self.a.shr(rdx, 62)?;
        self.a.shl(rdx, 30)?;
        self.a.mov(eax, eax)?;
        self.a.or(rdx, rax)?;
        self.part(tag, Kind::Text)
    }

    /// The bytes of a part are there, rax of them; rdx is the header's upper half.
    fn part(&mut self, tag: u8, kind: Kind) -> Done {
        self.has_parts = true;
        self.a.mov(r8d, tagged(tag, kind) as u32)?;
        self.a.call(self.part)
    }

    /// Fills the last word of a part with zeros, writes its header, and goes behind it.
    fn end_of_part(&mut self) -> Done {
        let mut part = self.part;
        self.a.set_label(&mut part)?;
        let mut is_whole = self.a.create_label();
        self.a.mov(ecx, eax)?;
        self.a.and(ecx, 7)?;
        self.a.je(is_whole)?;
        self.a.shl(ecx, 3)?;
        self.a.mov(rsi, -1i64)?;
        self.a.shl(rsi, cl)?;
        self.a.not(rsi)?;
        self.a.mov(rdi, rax)?;
        self.a.and(rdi, -8)?;
        self.a.and(qword_ptr(r12 + rdi + 8), rsi)?;
        self.a.set_label(&mut is_whole)?;
        self.a.shl(rdx, 32)?;
        self.a.mov(rcx, rax)?;
        self.a.shl(rcx, 16)?;
        self.a.or(rdx, rcx)?;
        self.a.or(rdx, r8)?;
        self.a.mov(qword_ptr(r12), rdx)?;
        self.a.add(rax, 7)?;
        self.a.and(rax, -8)?;
        self.a.lea(r12, qword_ptr(r12 + rax + 8))?;
        self.a.ret()
    }

    /// Goes to `not` if the word is zero.
    fn unless(&mut self, condition: &Expression, not: CodeLabel) -> Done {
        match condition {
            Expression::Both(a, b) => {
                self.unless(a, not)?;
                self.unless(b, not)
            }
            Expression::Either(a, b) => {
                let mut other = self.a.create_label();
                let mut is = self.a.create_label();
                self.unless(a, other)?;
                self.a.jmp(is)?;
                self.a.set_label(&mut other)?;
                self.unless(b, not)?;
                self.a.set_label(&mut is)?;
                self.a.zero_bytes()
            }
            Expression::Binary(operation, a, b) if is_comparison(*operation) => {
                self.compare(a, b)?;
                match operation {
                    Binary::Equal => self.a.jne(not),
                    Binary::NotEqual => self.a.je(not),
                    Binary::Below => self.a.jae(not),
                    Binary::BelowOrEqual => self.a.ja(not),
                    Binary::Less => self.a.jge(not),
                    _ => self.a.jg(not),
                }
            }
            _ => {
                self.word(condition)?;
                self.a.test(rax, rax)?;
                self.a.je(not)
            }
        }
    }

    /// Evaluates into rax.
    fn word(&mut self, expression: &Expression) -> Done {
        match simple(expression) {
            Some(Simple::Immediate(word)) => return self.a.mov(rax, i64::from(word)),
            Some(Simple::Saved(at)) => return self.a.mov(rax, qword_ptr(rbx + at)),
            None => {}
        }
        match expression {
            Expression::Constant(word) => self.a.mov(rax, *word),
            Expression::Source(Source::Stack(n)) => self.stack_argument(*n),
            Expression::Load(address, width) => {
                self.word(address)?;
                self.load(*width)
            }
            Expression::Narrow(inner, width) => {
                self.word(inner)?;
                self.narrow(*width)
            }
            Expression::Binary(operation, a, b) => self.binary(*operation, a, b),
            Expression::Both(..) | Expression::Either(..) => {
                let mut not = self.a.create_label();
                let mut end = self.a.create_label();
                self.unless(expression, not)?;
                self.a.mov(eax, 1)?;
                self.a.jmp(end)?;
                self.a.set_label(&mut not)?;
                self.a.xor(eax, eax)?;
                self.a.set_label(&mut end)?;
                self.a.zero_bytes()
            }
            Expression::Source(_) | Expression::Local(_) => Ok(()),
        }
    }

    /// Evaluates both, the first into rax, the second into rcx.
    fn both_words(&mut self, a: &Expression, b: &Expression) -> Done {
        match simple(b) {
            Some(Simple::Immediate(word)) => {
                self.word(a)?;
                self.a.mov(rcx, i64::from(word))
            }
            Some(Simple::Saved(at)) => {
                self.word(a)?;
                self.a.mov(rcx, qword_ptr(rbx + at))
            }
            None => {
                self.word(b)?;
                self.push()?;
                self.word(a)?;
                self.pop(rcx)
            }
        }
    }

    fn compare(&mut self, a: &Expression, b: &Expression) -> Done {
        match simple(b) {
            Some(Simple::Immediate(word)) => {
                self.word(a)?;
                self.a.cmp(rax, word)
            }
            Some(Simple::Saved(at)) => {
                self.word(a)?;
                self.a.cmp(rax, qword_ptr(rbx + at))
            }
            None => {
                self.both_words(a, b)?;
                self.a.cmp(rax, rcx)
            }
        }
    }

    fn binary(&mut self, operation: Binary, a: &Expression, b: &Expression) -> Done {
        if is_comparison(operation) {
            self.compare(a, b)?;
            match operation {
                Binary::Equal => self.a.sete(al)?,
                Binary::NotEqual => self.a.setne(al)?,
                Binary::Below => self.a.setb(al)?,
                Binary::BelowOrEqual => self.a.setbe(al)?,
                Binary::Less => self.a.setl(al)?,
                _ => self.a.setle(al)?,
            }
            return self.a.movzx(eax, al);
        }
        self.both_words(a, b)?;
        match operation {
            Binary::Add => self.a.add(rax, rcx),
            Binary::Subtract => self.a.sub(rax, rcx),
            Binary::Multiply => self.a.imul_2(rax, rcx),
            Binary::And => self.a.and(rax, rcx),
            Binary::Or => self.a.or(rax, rcx),
            Binary::ExclusiveOr => self.a.xor(rax, rcx),
            Binary::ShiftLeft => self.a.shl(rax, cl),
            Binary::ShiftRight => self.a.shr(rax, cl),
            Binary::ShiftRightSigned => self.a.sar(rax, cl),
            _ => {
                self.a.cmp(rax, rcx)?;
                self.a.cmova(rax, rcx)
            }
        }
    }

    fn narrow(&mut self, width: Width) -> Done {
        match width {
            Width::U8 => self.a.movzx(eax, al),
            Width::U16 => self.a.movzx(eax, ax),
            Width::U32 => self.a.mov(eax, eax),
            Width::U64 => Ok(()),
            Width::I8 => self.a.movsx(rax, al),
            Width::I16 => self.a.movsx(rax, ax),
            Width::I32 => self.a.movsxd(rax, eax),
        }
    }

    /// What memory holds at rax.
    fn load(&mut self, width: Width) -> Done {
        self.a.mov(rdi, rax)?;
        self.a.mov(esi, u32::from(width.bytes()))?;
        self.a.lea(rdx, qword_ptr(rbx + LOADED))?;
        self.call(READER)?;
        let mut end = self.a.create_label();
        let mut is_read = self.a.create_label();
        self.a.cmp(rax, i32::from(width.bytes()))?;
        self.a.je(is_read)?;
        self.a.mov(qword_ptr(rbx + FAULTS), 1)?;
        self.a.xor(eax, eax)?;
        self.a.jmp(end)?;
        self.a.set_label(&mut is_read)?;
        self.a.mov(rax, qword_ptr(rbx + LOADED))?;
        self.narrow(width)?;
        self.a.set_label(&mut end)?;
        self.a.zero_bytes()
    }

    /// The page of the return address is there: what lies in it is read at once.
    fn stack_argument(&mut self, number: u8) -> Done {
        const IN_PAGE: i32 = -4096;
        self.a.mov(rax, qword_ptr(rbx + STACK_POINTER))?;
        self.a.lea(rcx, qword_ptr(rax - 8))?;
        self.a.add(rax, i32::from(number) * 8)?;
        self.a.lea(rdx, qword_ptr(rax + 7))?;
        self.a.xor(rdx, rcx)?;
        let mut elsewhere = self.a.create_label();
        let mut end = self.a.create_label();
        self.a.test(rdx, IN_PAGE)?;
        self.a.jne(elsewhere)?;
        self.a.mov(rax, qword_ptr(rax))?;
        self.a.jmp(end)?;
        self.a.set_label(&mut elsewhere)?;
        self.load(Width::U64)?;
        self.a.set_label(&mut end)?;
        self.a.zero_bytes()
    }

    fn push(&mut self) -> Done {
        self.pushed += 1;
        self.a.push(rax)
    }

    fn pop(&mut self, to: AsmRegister64) -> Done {
        self.pushed -= 1;
        self.a.pop(to)
    }

    /// Calls a function of the C calling convention: with the stack aligned to 16. A program begins
    /// as a function does, eight bytes off.
    fn call(&mut self, saved: i32) -> Done {
        let is_odd = self.pushed % 2 == 1;
        if !is_odd {
            self.a.sub(rsp, 8)?;
        }
        self.a.call(qword_ptr(rbx + saved))?;
        if !is_odd {
            self.a.add(rsp, 8)?;
        }
        Ok(())
    }
}

fn simple(expression: &Expression) -> Option<Simple> {
    match expression {
        Expression::Constant(word) => i32::try_from(*word as i64).ok().map(Simple::Immediate),
        Expression::Local(number) => Some(Simple::Saved(local_at(*number))),
        Expression::Source(source) => saved_at(*source).map(Simple::Saved),
        _ => None,
    }
}

fn local_at(number: u8) -> i32 {
    LOCALS_AT + i32::from(number) * 8
}

/// Where the word of a source stands among the saved ones.
fn saved_at(source: Source) -> Option<i32> {
    Some(match source {
        Source::Argument(n) => ARGUMENTS + i32::from(n) * 8,
        Source::Vector(n) => VECTORS + i32::from(n) * 8,
        Source::Result => RESULT,
        Source::SecondResult => ARGUMENTS + 16,
        Source::StackPointer => STACK_POINTER,
        Source::Kept(n) => KEPT + i32::from(n) * 8,
        // The others are refused by the check.
        Source::Stack(_)
        | Source::Thread
        | Source::Named(_)
        | Source::NamedText(..)
        | Source::Text(..)
        | Source::KeptText(..)
        | Source::ResultText(_)
        | Source::Depth
        | Source::Caller
        | Source::Callers(_)
        | Source::KeptCallers(..)
        | Source::Variable(_)
        | Source::Errno
        | Source::Elapsed
        | Source::SelfTime(_)
        | Source::Inside => return None,
    })
}

fn is_comparison(operation: Binary) -> bool {
    matches!(
        operation,
        Binary::Equal
            | Binary::NotEqual
            | Binary::Below
            | Binary::BelowOrEqual
            | Binary::Less
            | Binary::LessOrEqual
    )
}
