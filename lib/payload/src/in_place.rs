//! Native code that runs in the middle of a common routine, as the second half of
//! [`crate::contract`] wants it.
//!
//! Given a program that keeps words alone, and reads no memory but the call's own arguments on the
//! stack; gives two pieces of code that use the registers of the call where they are. They push
//! nothing, so that a signal handler finds the routine that has called them. What cannot be done so
//! is refused, and stays with [`mod@crate::compile`].

use iced_x86::IcedError;
use iced_x86::code_asm::registers::*;
use iced_x86::code_asm::*;

use crate::check::check;
use crate::compile::CompileError;
use crate::contract::in_place::*;
use crate::program::{Binary, Expression, Program, Source, Width};
use crate::tables::{INSIDE_AT, VARIABLES_AT};

/// A byte that says whether calls are wanted now: 0, they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Where the address of all of them is, by displacement from gs.
    pub table: i32,
    /// Which of them it is.
    pub number: u16,
}

/// The code of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InPlace {
    /// Decides whether the call is wanted; empty: it is.
    pub decides: Vec<u8>,
    /// Writes the words.
    pub writes: Vec<u8>,
}

/// The code of a program, no call of which is wanted while the switch is off. `None`: it does what
/// cannot be done in place.
///
/// # Errors
/// It is not as it must be.
pub fn in_place(
    program: &Program,
    switch: Option<Switch>,
) -> Result<Option<InPlace>, CompileError> {
    check(program)?;
    if !program.parts.is_empty() {
        return Ok(None);
    }
    let (Some(decides), Some(writes)) = (decides(program, switch)?, writes(program)?) else {
        return Ok(None);
    };
    Ok(Some(InPlace { decides, writes }))
}

/// Whether a piece of code could be made.
type Made = Result<bool, IcedError>;

fn decides(program: &Program, switch: Option<Switch>) -> Result<Option<Vec<u8>>, IcedError> {
    let most = most_on_stack(program);
    if program.wanted.is_none() && most.is_none() && switch.is_none() {
        return Ok(Some(Vec::new()));
    }
    let mut code = Code::new()?;
    let mut unwanted = code.a.create_label();
    if let Some(switch) = switch {
        code.unless_shown(switch, unwanted)?;
    }
    if let Some(most) = most {
        code.stack_is_near(most)?;
    }
    if let Some(wanted) = &program.wanted
        && !code.unless(wanted, unwanted)?
    {
        return Ok(None);
    }
    code.a.mov(eax, WANTED)?;
    code.a.ret()?;
    if program.wanted.is_some() || switch.is_some() {
        code.a.set_label(&mut unwanted)?;
        code.a.mov(eax, UNWANTED)?;
        code.a.ret()?;
    }
    Ok(Some(code.a.assemble(0)?))
}

fn writes(program: &Program) -> Result<Option<Vec<u8>>, IcedError> {
    let mut code = Code::new()?;
    code.may_use_rcx = false;
    for (i, word) in (0i32..).zip(&program.words) {
        if !code.word(word)? {
            return Ok(None);
        }
        // By halves: a record begins at a multiple of four, and the program may have set AC.
        let at = 8 * i;
        code.a.mov(dword_ptr(rcx + at), eax)?;
        code.a.shr(rax, 32)?;
        code.a.mov(dword_ptr(rcx + at + 4), eax)?;
    }
    code.a.ret()?;
    Ok(Some(code.a.assemble(0)?))
}

/// The greatest number of an argument on the stack.
fn most_on_stack(program: &Program) -> Option<u8> {
    let all = program.words.iter().chain(&program.wanted);
    all.filter_map(on_stack).max()
}

pub(crate) fn on_stack(expression: &Expression) -> Option<u8> {
    match expression {
        Expression::Source(Source::Stack(n)) => Some(*n),
        Expression::Narrow(inner, _) | Expression::Load(inner, _) => on_stack(inner),
        Expression::Binary(_, a, b) | Expression::Both(a, b) | Expression::Either(a, b) => {
            on_stack(a).max(on_stack(b))
        }
        _ => None,
    }
}

/// What a second operand is.
enum Operand {
    Register(AsmRegister64),
    Memory(AsmMemoryOperand),
    Immediate(i32),
}

/// Code being written.
pub(crate) struct Code {
    pub(crate) a: CodeAssembler,
    /// Else rcx is where the words go.
    may_use_rcx: bool,
    /// Words below the stack pointer that hold what an expression needs later.
    temporaries: i32,
    /// There are locals ([`LOCAL_AT`]); else a program that names one is refused.
    pub(crate) has_locals: bool,
    /// Where the thread's number is, from gs on; else a program that names it is refused.
    pub(crate) thread_at: Option<i32>,
    /// Where the address of its set of tables is, from gs on; else a program that names a variable
    /// of the thread is refused.
    pub(crate) tables_at: Option<i32>,
    /// Texts that the slow path has made words of, and where the first word is, from gs on.
    pub(crate) texts: (Vec<(u8, u16)>, i32),
    /// Where the address of its innermost frame is, from gs on; else a program that names places
    /// around the call is refused.
    pub(crate) top_frame_at: Option<i32>,
    /// The code runs at a return; else a program that names its words is refused.
    pub(crate) exit: Option<ExitWords>,
}

/// Where the words of a return are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExitWords {
    /// errno, from gs on.
    pub(crate) errno_at: i32,
    /// How long the call took, from the stack pointer on.
    pub(crate) elapsed_at: i32,
    /// The same without what calls inside of it have taken.
    pub(crate) self_at: i32,
}

/// How many words an expression may need at the same time.
const TEMPORARIES: i32 = 4;
/// Where a local is, from the stack pointer on: below it, where a signal leaves 128 bytes alone.
pub(crate) const LOCAL_AT: i32 = -8 * (TEMPORARIES + 1);

impl Code {
    pub(crate) fn new() -> Result<Self, IcedError> {
        Ok(Self {
            a: CodeAssembler::new(64)?,
            may_use_rcx: true,
            temporaries: 0,
            has_locals: false,
            thread_at: None,
            tables_at: None,
            texts: (Vec::new(), 0),
            top_frame_at: None,
            exit: None,
        })
    }

    /// Keeps rax until [`Self::release`]. `None`: there is no room.
    fn keep(&mut self) -> Result<Option<AsmMemoryOperand>, IcedError> {
        if self.temporaries == TEMPORARIES {
            return Ok(None);
        }
        self.temporaries += 1;
        let at = qword_ptr(rsp - 8 * self.temporaries);
        self.a.mov(at, rax)?;
        Ok(Some(at))
    }

    fn release(&mut self) {
        self.temporaries -= 1;
    }

    /// The slow path reads arguments that do not lie in the page of the return address, which has
    /// been pushed: a stack may end there.
    pub(crate) fn stack_is_near(&mut self, most: u8) -> Result<(), IcedError> {
        let mut is_near = self.a.create_label();
        self.a.lea(rax, qword_ptr(rdx + 8 * i32::from(most) + 7))?;
        self.a.lea(rcx, qword_ptr(rdx - 1))?;
        self.a.xor(rax, rcx)?;
        self.a.test(rax, -4096)?;
        self.a.je(is_near)?;
        self.a.mov(eax, UNDECIDED)?;
        self.a.ret()?;
        self.a.set_label(&mut is_near)?;
        self.a.zero_bytes()
    }

    /// Goes to `not` while the switch is off. It is read at each call: the host changes it by one
    /// store, and nothing has to be stopped for that.
    pub(crate) fn unless_shown(&mut self, switch: Switch, not: CodeLabel) -> Result<(), IcedError> {
        self.a.mov(rax, qword_ptr(switch.table).gs())?;
        self.a.cmp(byte_ptr(rax + u32::from(switch.number)), 0)?;
        self.a.jne(not)
    }

    /// Goes to `not` if the word is zero.
    pub(crate) fn unless(&mut self, condition: &Expression, not: CodeLabel) -> Made {
        match condition {
            Expression::Both(a, b) => Ok(self.unless(a, not)? && self.unless(b, not)?),
            Expression::Either(a, b) => {
                let mut other = self.a.create_label();
                let mut is = self.a.create_label();
                let first = self.unless(a, other)?;
                self.a.jmp(is)?;
                self.a.set_label(&mut other)?;
                let second = self.unless(b, not)?;
                self.a.set_label(&mut is)?;
                self.a.zero_bytes()?;
                Ok(first && second)
            }
            Expression::Binary(operation, a, b) if is_comparison(*operation) => {
                self.unless_compared(*operation, a, b, not)
            }
            _ => {
                let is_made = self.word(condition)?;
                self.a.test(rax, rax)?;
                self.a.je(not)?;
                Ok(is_made)
            }
        }
    }

    fn unless_compared(
        &mut self,
        operation: Binary,
        a: &Expression,
        b: &Expression,
        not: CodeLabel,
    ) -> Made {
        // What needs code is evaluated first, and the other compared with it.
        let is_simple = |code: &Self, e| code.operand(e).is_some() || operand_or_large(e).is_some();
        let is_constant = operand_or_large(a).is_some();
        let is_turned = (is_constant || !is_simple(self, b)) && is_simple(self, a);
        let (first, second) = if is_turned { (b, a) } else { (a, b) };
        if is_simple(self, second) {
            if !self.word(first)? || !self.compare(second)? {
                return Ok(false);
            }
        } else {
            let is_made = self.word(second)?;
            let Some(kept) = self.keep()?.filter(|_| is_made) else {
                return Ok(false);
            };
            let is_made = self.word(first)?;
            self.release();
            if !is_made {
                return Ok(false);
            }
            self.a.cmp(rax, kept)?;
        }
        match (operation, is_turned) {
            (Binary::Equal, _) => self.a.jne(not)?,
            (Binary::NotEqual, _) => self.a.je(not)?,
            (Binary::Below, false) => self.a.jae(not)?,
            (Binary::Below, true) => self.a.jbe(not)?,
            (Binary::BelowOrEqual, false) => self.a.ja(not)?,
            (Binary::BelowOrEqual, true) => self.a.jb(not)?,
            (Binary::Less, false) => self.a.jge(not)?,
            (Binary::Less, true) => self.a.jle(not)?,
            (_, false) => self.a.jg(not)?,
            (_, true) => self.a.jl(not)?,
        }
        Ok(true)
    }

    /// Compares rax with a word.
    fn compare(&mut self, with: &Expression) -> Made {
        match (self.operand(with), operand_or_large(with)) {
            (Some(Operand::Register(register)), _) => self.a.cmp(rax, register)?,
            (Some(Operand::Memory(at)), _) => self.a.cmp(rax, at)?,
            (Some(Operand::Immediate(word)), _) => self.a.cmp(rax, word)?,
            (None, Some(word)) if self.may_use_rcx => {
                self.a.mov(rcx, word)?;
                self.a.cmp(rax, rcx)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Evaluates into rax.
    pub(crate) fn word(&mut self, expression: &Expression) -> Made {
        match expression {
            Expression::Constant(word) => self.a.mov(rax, *word)?,
            Expression::Source(source) => return self.source(*source),
            Expression::Narrow(inner, width) => {
                let is_made = self.word(inner)?;
                self.narrow(*width)?;
                return Ok(is_made);
            }
            Expression::Local(_) => {
                let Some(Operand::Memory(at)) = self.operand(expression) else {
                    return Ok(false);
                };
                self.a.mov(rax, at)?;
            }
            Expression::Both(..) | Expression::Either(..) => return self.truth(expression),
            Expression::Binary(operation, ..) if is_comparison(*operation) => {
                return self.truth(expression);
            }
            Expression::Binary(operation, a, b) => {
                if let Some(second) = self.operand(b) {
                    return Ok(self.word(a)? && self.binary(*operation, &second)?);
                }
                let is_made = self.word(b)?;
                let Some(kept) = self.keep()?.filter(|_| is_made) else {
                    return Ok(false);
                };
                let is_made = self.word(a)? && self.binary(*operation, &Operand::Memory(kept))?;
                self.release();
                return Ok(is_made);
            }
            Expression::Load(..) => return Ok(false),
        }
        Ok(true)
    }

    /// 1 or 0 into rax.
    fn truth(&mut self, condition: &Expression) -> Made {
        let (mut not, mut end) = (self.a.create_label(), self.a.create_label());
        let is_made = self.unless(condition, not)?;
        self.a.mov(eax, 1)?;
        self.a.jmp(end)?;
        self.a.set_label(&mut not)?;
        self.a.xor(eax, eax)?;
        self.a.set_label(&mut end)?;
        self.a.zero_bytes()?;
        Ok(is_made)
    }

    fn source(&mut self, source: Source) -> Made {
        match (self.operand(&Expression::Source(source)), source) {
            (Some(Operand::Register(register)), _) => self.a.mov(rax, register)?,
            (Some(Operand::Memory(at)), _) => self.a.mov(rax, at)?,
            (None, Source::Vector(n)) => match vector(n) {
                Some(register) => self.a.movq(rax, register)?,
                None => return Ok(false),
            },
            (None, Source::Thread) => match self.thread_at {
                Some(at) => self.a.mov(eax, dword_ptr(at).gs())?,
                None => return Ok(false),
            },
            (None, source) if source.text().is_some() => return self.text(source.text()),
            (None, Source::Variable(n)) => match self.tables_at {
                Some(tables) => {
                    self.a.mov(rax, qword_ptr(tables).gs())?;
                    let at = VARIABLES_AT as i32 + 8 * i32::from(n);
                    self.a.mov(rax, qword_ptr(rax + at))?;
                }
                None => return Ok(false),
            },
            (None, Source::Inside) => match self.tables_at {
                Some(tables) => {
                    self.a.mov(rax, qword_ptr(tables).gs())?;
                    self.a.mov(rax, qword_ptr(rax + INSIDE_AT as i32))?;
                }
                None => return Ok(false),
            },
            (None, Source::Caller) => match self.exit {
                None => self.a.mov(eax, dword_ptr(rsp + SAVED_CALLER))?,
                Some(_) => return Ok(false),
            },
            (None, Source::Callers(count)) => return self.places(count, None),
            (None, Source::KeptCallers(count, kept)) => return self.places(count, Some(kept)),
            (None, Source::Errno) => match self.exit {
                Some(exit) => self.a.mov(eax, dword_ptr(exit.errno_at).gs())?,
                None => return Ok(false),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What the slow path has found out.
    fn text(&mut self, wanted: Option<(u8, u16)>) -> Made {
        let (all, first) = &self.texts;
        match all.iter().position(|text| Some(*text) == wanted) {
            Some(at) => self.a.mov(rax, qword_ptr(first + 8 * at as i32).gs())?,
            None => return Ok(false),
        }
        Ok(true)
    }

    fn narrow(&mut self, width: Width) -> Result<(), IcedError> {
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

    fn binary(&mut self, operation: Binary, second: &Operand) -> Made {
        macro_rules! apply {
            ($name:ident) => {
                match second {
                    Operand::Register(register) => self.a.$name(rax, *register)?,
                    Operand::Memory(at) => self.a.$name(rax, *at)?,
                    Operand::Immediate(word) => self.a.$name(rax, *word)?,
                }
            };
        }
        match (operation, second) {
            (Binary::Add, _) => apply!(add),
            (Binary::Subtract, _) => apply!(sub),
            (Binary::And, _) => apply!(and),
            (Binary::Or, _) => apply!(or),
            (Binary::ExclusiveOr, _) => apply!(xor),
            (Binary::ShiftLeft, Operand::Immediate(by)) => self.a.shl(rax, by & 63)?,
            (Binary::ShiftRight, Operand::Immediate(by)) => self.a.shr(rax, by & 63)?,
            (Binary::ShiftRightSigned, Operand::Immediate(by)) => self.a.sar(rax, by & 63)?,
            (Binary::Multiply, Operand::Register(register)) => self.a.imul_2(rax, *register)?,
            (Binary::Multiply, Operand::Memory(at)) => self.a.imul_2(rax, *at)?,
            (Binary::Multiply, Operand::Immediate(word)) => self.a.imul_3(rax, rax, *word)?,
            _ if self.may_use_rcx => return self.binary_by_rcx(operation, second),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What needs the second word in a register.
    fn binary_by_rcx(&mut self, operation: Binary, second: &Operand) -> Made {
        match second {
            Operand::Register(register) => self.a.mov(rcx, *register)?,
            Operand::Memory(at) => self.a.mov(rcx, *at)?,
            Operand::Immediate(word) => self.a.mov(rcx, i64::from(*word))?,
        }
        match operation {
            Binary::ShiftLeft => self.a.shl(rax, cl)?,
            Binary::ShiftRight => self.a.shr(rax, cl)?,
            Binary::ShiftRightSigned => self.a.sar(rax, cl)?,
            Binary::Minimum => {
                self.a.cmp(rax, rcx)?;
                self.a.cmova(rax, rcx)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A word that an instruction can name.
    fn operand(&self, expression: &Expression) -> Option<Operand> {
        match expression {
            Expression::Local(n) if self.has_locals => Some(Operand::Memory(qword_ptr(
                rsp + (LOCAL_AT - 8 * i32::from(*n)),
            ))),
            Expression::Source(source) => match self.exit {
                Some(exit) => exit.operand(*source),
                None => operand(expression),
            },
            _ => operand(expression),
        }
    }
}

impl ExitWords {
    /// A word that an instruction can name, with rdx as it is at the beginning: the innermost
    /// frame. Of the call's own registers none is there any more.
    fn operand(self, source: Source) -> Option<Operand> {
        let below = |frames: i32| qword_ptr(rdx + (FRAME_WORD - frames * FRAME_BYTES));
        Some(Operand::Memory(match source {
            Source::Result => qword_ptr(rsp + SAVED_RAX),
            Source::SecondResult => qword_ptr(rsp + SAVED_RDX),
            Source::Elapsed => qword_ptr(rsp + self.elapsed_at),
            Source::SelfTime(_) => qword_ptr(rsp + self.self_at),
            Source::Kept(n) if usize::from(n) < MOST_KEPT => below(frames_above(n)),
            _ => return None,
        }))
    }
}

/// A word of the call or of the program itself that an instruction can name.
fn operand(expression: &Expression) -> Option<Operand> {
    let saved = |at: i32| Operand::Memory(qword_ptr(rsp + at));
    Some(match expression {
        Expression::Constant(word) => Operand::Immediate(i32::try_from(*word as i64).ok()?),
        Expression::Source(Source::Argument(n)) => match n {
            0 => Operand::Register(rdi),
            1 => Operand::Register(rsi),
            2 => saved(SAVED_RDX),
            3 => saved(SAVED_RCX),
            4 => Operand::Register(r8),
            5 => Operand::Register(r9),
            _ => return None,
        },
        Expression::Source(Source::Stack(n)) => Operand::Memory(qword_ptr(rdx + 8 * i32::from(*n))),
        Expression::Source(Source::StackPointer) => Operand::Register(rdx),
        _ => return None,
    })
}

fn operand_or_large(expression: &Expression) -> Option<u64> {
    match expression {
        Expression::Constant(word) => Some(*word),
        _ => None,
    }
}

fn vector(n: u8) -> Option<AsmRegisterXmm> {
    let all = [xmm0, xmm1, xmm2, xmm3, xmm4, xmm5, xmm6, xmm7];
    all.get(usize::from(n)).copied()
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
