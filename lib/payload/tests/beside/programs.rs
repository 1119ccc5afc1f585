//! Programs that keep words and memory, compiled in both forms, beside their interpretation: with
//! memory of which a part is not there.
//!
//! Called as the agent would call it, and as a common routine would.

use std::arch::asm;
use std::cell::Cell;

use sptrace_payload::check::{check, most_bytes};
use sptrace_payload::contract::in_place as in_place_contract;
use sptrace_payload::contract::*;
use sptrace_payload::interpret::{Call, Memory, Outcome};
use sptrace_payload::program::*;
use sptrace_payload::{compile, in_place, interpret};

use super::{Choices, CodePages, operation, width};

const PAGE: usize = 4096;

thread_local! {
    /// Where the memory of the test begins and ends.
    static RANGE: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Two pages of memory, behind which nothing can be read, and pages for code.
pub struct Pages(u64, CodePages);

impl Pages {
    /// Filled at random.
    pub fn new(random: &mut dyn Choices) -> Self {
        // SAFETY: fresh memory.
        let at = unsafe {
            let at = libc::mmap(
                std::ptr::null_mut(),
                3 * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(at.add(2 * PAGE), PAGE, libc::PROT_NONE), 0);
            at
        };
        for i in 0..2 * PAGE {
            // Zeros are frequent, so that texts end.
            let byte = if random.below(12) == 0 {
                0
            } else {
                random.next() as u8
            };
            // SAFETY: within the two pages.
            unsafe { at.cast::<u8>().add(i).write(byte) };
        }
        let start = at as u64;
        RANGE.set((start, start + 2 * PAGE as u64));
        Self(start, CodePages::new())
    }

    /// Where they end.
    pub fn end(&self) -> u64 {
        self.0 + 2 * PAGE as u64
    }
}

impl Memory for Pages {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        // SAFETY: `to` is as long as it is.
        unsafe { read(address, to.len() as u64, to.as_mut_ptr()) as usize }
    }
}

unsafe extern "C" fn read(from: u64, bytes: u64, to: *mut u8) -> u64 {
    let (start, end) = RANGE.get();
    if from < start || from >= end {
        return 0;
    }
    let bytes = bytes.min(end - from);
    // SAFETY: within the pages; the caller has as much room.
    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to, bytes as usize) };
    bytes
}

unsafe extern "C" fn read_text(from: u64, limit: u64, to: *mut u8) -> u64 {
    let mut bytes = vec![0; limit as usize + 1];
    // SAFETY: as above.
    let got = unsafe { read(from, limit + 1, bytes.as_mut_ptr()) } as usize;
    let end = bytes[..got].iter().position(|b| *b == 0);
    let kept = end.unwrap_or(got.min(limit as usize));
    // SAFETY: the caller has room for the limit.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, kept) };
    match end {
        Some(_) => kept as u64,
        None if got > limit as usize => kept as u64 | TEXT_GOES_ON,
        None => kept as u64 | TEXT_FAULTS,
    }
}

/// Calls compiled code as the contract says.
pub fn run(pages: &Pages, code: &[u8], program: &Program, call: &Call) -> Outcome {
    let mut saved = [0u64; SAVED_BYTES / 8];
    let at = |offset: i32| offset as usize / 8;
    saved[..6].copy_from_slice(&call.arguments);
    saved[at(RESULT)] = call.result;
    saved[at(STACK_POINTER)] = call.stack_pointer;
    saved[at(VECTORS)..][..8].copy_from_slice(&call.vectors);
    saved[at(KEPT)..][..call.kept.len()].copy_from_slice(&call.kept);
    saved[at(READER)] = read as *const () as u64;
    saved[at(TEXT_READER)] = read_text as *const () as u64;
    let most = most_bytes(program);
    let mut out = vec![0xaau8; most + 8];
    let start = out.as_mut_ptr() as u64;
    let (mut end, mut given) = (start, 0u64);
    let page = pages.1.put(code);
    // SAFETY: the code is that of a checked program, called by its contract; rbx is put back.
    unsafe {
        asm!(
            "push rbx",
            "mov rbx, {saved}",
            "call {code}",
            "pop rbx",
            saved = in(reg) saved.as_mut_ptr(),
            code = in(reg) page,
            inout("r12") end,
            out("rax") given,
            clobber_abi("C"),
        );
    }
    assert!(
        out[most..].iter().all(|b| *b == 0xaa),
        "wrote more than it may"
    );
    let mut kept = call.kept;
    let words = kept.len();
    kept.copy_from_slice(&saved[at(KEPT)..][..words]);
    Outcome {
        is_wanted: given & WANTED != 0,
        has_faulted: given & FAULTED != 0,
        bytes: out[..(end - start) as usize].to_vec(),
        kept,
    }
}

/// Calls code that was made for a routine, with the stack and the registers that the routine has;
/// gives eax.
fn run_in_place(pages: &Pages, code: &[u8], call: &Call, record: &mut [u32]) -> u32 {
    let page = pages.1.put(code);
    let mut given: u64;
    // SAFETY: the code is that of a checked program, called by its contract.
    unsafe {
        asm!(
            "push [r12 + 24]",
            "push [r12 + 16]",
            "push 0",
            "mov rdi, [r12]",
            "mov rsi, [r12 + 8]",
            "mov r8, [r12 + 32]",
            "mov r9, [r12 + 40]",
            "movq xmm0, [r15]",
            "movq xmm1, [r15 + 8]",
            "movq xmm2, [r15 + 16]",
            "movq xmm3, [r15 + 24]",
            "movq xmm4, [r15 + 32]",
            "movq xmm5, [r15 + 40]",
            "movq xmm6, [r15 + 48]",
            "movq xmm7, [r15 + 56]",
            "mov rdx, r14",
            "mov rcx, r13",
            "call rax",
            "add rsp, 24",
            inout("rax") page => given,
            in("r12") call.arguments.as_ptr(),
            in("r13") record.as_mut_ptr(),
            in("r14") call.stack_pointer,
            in("r15") call.vectors.as_ptr(),
            clobber_abi("C"),
        );
    }
    given as u32
}

/// Programs and calls at random.
struct Random<'a> {
    choices: &'a mut dyn Choices,
    pages: &'a Pages,
}

impl Random<'_> {
    fn word(&mut self) -> u64 {
        match self.choices.below(6) {
            0 => self.choices.below(20),
            1 => self.choices.next(),
            2 => (self.choices.next() as i32) as u64,
            3 => self.pages.end() - self.choices.below(40),
            _ => self.pages.0 + self.choices.below(2 * PAGE as u64 + 64),
        }
    }

    fn source(&mut self) -> Source {
        match self.choices.below(8) {
            0 => Source::Vector(self.choices.below(8) as u8),
            1 => Source::Stack(self.choices.below(16) as u8),
            2 => Source::Result,
            3 => Source::SecondResult,
            4 => Source::StackPointer,
            5 => Source::Kept(self.choices.below(KEPT_COUNT.into()) as u8),
            _ => Source::Argument(self.choices.below(6) as u8),
        }
    }

    fn expression(&mut self, depth: u32) -> Expression {
        let inner = |r: &mut Self| Box::new(r.expression(depth + 1));
        if depth > 4 {
            return self.source().into();
        }
        match self.choices.below(9) {
            0 => self.word().into(),
            1 => Expression::Local(self.choices.below(8) as u8),
            2 => Expression::Load(inner(self), width(self.choices)),
            3 => Expression::Narrow(inner(self), width(self.choices)),
            4 | 5 => Expression::Binary(operation(self.choices), inner(self), inner(self)),
            6 => Expression::Both(inner(self), inner(self)),
            7 => Expression::Either(inner(self), inner(self)),
            _ => self.source().into(),
        }
    }

    /// As a filter has it: a number of some width, and another; either may stand first.
    fn comparison(&mut self) -> Expression {
        use Binary::*;
        let operations = [Equal, NotEqual, Below, BelowOrEqual, Less, LessOrEqual];
        let operation = operations[self.choices.below(6) as usize];
        let number = Expression::Source(self.source()).narrow(width(self.choices));
        let other = Expression::Constant(self.word());
        match self.choices.below(2) {
            0 => number.with(operation, other),
            _ => other.with(operation, number),
        }
    }

    fn statements(&mut self, depth: u32) -> Vec<Statement> {
        let count = self.choices.below(4);
        (0..count).map(|_| self.statement(depth)).collect()
    }

    fn statement(&mut self, depth: u32) -> Statement {
        let tag = self.choices.next() as u8;
        match self.choices.below(if depth < 3 { 7 } else { 5 }) {
            0 => Statement::Set(self.choices.below(8) as u8, self.expression(1)),
            1 => Statement::Keep(
                self.choices.below(KEPT_COUNT.into()) as u8,
                self.expression(1),
            ),
            2 => Statement::Word {
                tag,
                value: self.expression(0),
            },
            3 => Statement::Bytes {
                tag,
                address: self.expression(2),
                length: self.expression(3),
                limit: self.choices.below(50) as u16,
            },
            4 => Statement::Text {
                tag,
                address: self.expression(2),
                limit: self.choices.below(50) as u16,
            },
            5 => Statement::If(
                self.expression(0),
                self.statements(depth + 1),
                self.statements(depth + 1),
            ),
            _ => Statement::Repeat {
                count: self.expression(2),
                limit: self.choices.below(5) as u8,
                counter: self.choices.below(8) as u8,
                body: self.statements(depth + 1),
            },
        }
    }

    fn program(&mut self) -> Program {
        Program {
            wanted: (self.choices.below(2) == 0).then(|| self.expression(0)),
            words: (0..self.choices.below(4))
                .map(|_| self.expression(0))
                .collect(),
            parts: self.statements(0),
        }
    }

    /// Of words alone, as filters and values are.
    fn small_program(&mut self) -> Program {
        Program {
            wanted: match self.choices.below(3) {
                0 => None,
                1 => Some(self.expression(3)),
                _ => Some(self.comparison()),
            },
            words: (0..self.choices.below(4))
                .map(|_| self.expression(4))
                .collect(),
            parts: Vec::new(),
        }
    }

    fn call(&mut self) -> Call {
        let mut word = || self.word();
        let arguments = std::array::from_fn(|_| word());
        let (result, vectors) = (word(), std::array::from_fn(|_| word()));
        let kept = std::array::from_fn(|_| word());
        Call {
            errno: 0,
            elapsed_ns: 0,
            inside_ns: Default::default(),
            depth: 0,
            caller: 0,
            around: Vec::new(),
            variables: Default::default(),
            arguments,
            result,
            // Of a call whose return address lies below.
            stack_pointer: self.pages.end() - 8 * self.choices.below(40),
            vectors,
            thread: 0,
            kept,
        }
    }
}

/// Compares a random program at a random call; gives it, and what it means. `None`: it is none that
/// can be compiled.
pub fn compare(choices: &mut dyn Choices, pages: &Pages) -> Option<(Program, Outcome)> {
    let mut random = Random { choices, pages };
    let program = random.program();
    check(&program).ok()?;
    let call = random.call();
    let code = compile(&program).expect("a checked program");
    let want = interpret(&program, &call, pages);
    let got = run(pages, &code, &program, &call);
    assert_eq!(got, want, "{program:?}\n{call:x?}");
    assert!(want.bytes.len() <= most_bytes(&program));
    Some((program, want))
}

/// Compares a random program in the middle of a routine; gives what it decides. `None`: it cannot
/// be done there.
pub fn compare_in_place(choices: &mut dyn Choices, pages: &Pages) -> Option<u32> {
    const FREE: u32 = 0xaaaa_aaaa;
    let mut random = Random { choices, pages };
    let program = random.small_program();
    let call = random.call();
    let code = in_place(&program, None).ok()??;
    let want = interpret(&program, &call, pages);
    let mut record = vec![FREE; 2 * program.words.len() + 1];
    let decided = match code.decides.is_empty() {
        true => in_place_contract::WANTED,
        false => run_in_place(pages, &code.decides, &call, &mut record),
    };
    assert!(record.iter().all(|half| *half == FREE));
    if decided == in_place_contract::UNDECIDED {
        return Some(decided);
    }
    let is_wanted = decided == in_place_contract::WANTED;
    assert_eq!(is_wanted, want.is_wanted, "{program:?}\n{call:x?}");
    if is_wanted {
        run_in_place(pages, &code.writes, &call, &mut record);
        let (words, rest) = record.split_at(2 * program.words.len());
        let bytes: Vec<u8> = words.iter().flat_map(|half| half.to_le_bytes()).collect();
        assert_eq!(bytes, want.bytes, "{program:?}\n{call:x?}");
        assert!(rest.iter().all(|half| *half == FREE));
    }
    Some(decided)
}
