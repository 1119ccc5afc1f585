//! Compiled programs beside their interpretation: random programs over random calls, with memory of
//! which a part is not there.
//!
//! Runs the code on this thread, called as the agent would call it.

use sptrace_payload::check::{check, most_bytes};
use sptrace_payload::contract::in_place as in_place_contract;
use sptrace_payload::contract::*;
use sptrace_payload::interpret::{Call, Memory, Outcome};
use sptrace_payload::program::*;
use sptrace_payload::{captured, compile, interpret};
use std::arch::asm;
use std::cell::Cell;

const PAGE: usize = 4096;

thread_local! {
    /// Where the memory of the test begins and ends.
    static RANGE: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Two pages of memory, behind which nothing can be read.
struct Pages(u64);

impl Pages {
    fn new(random: &mut Random) -> Self {
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
        Self(start)
    }

    fn end(&self) -> u64 {
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
fn run(code: &[u8], program: &Program, call: &Call) -> Outcome {
    let mut saved = [0u64; SAVED_BYTES / 8];
    let at = |offset: i32| offset as usize / 8;
    saved[..6].copy_from_slice(&call.arguments);
    saved[at(RESULT)] = call.result;
    saved[at(STACK_POINTER)] = call.stack_pointer;
    saved[at(VECTORS)..][..8].copy_from_slice(&call.vectors);
    saved[at(KEPT)..][..4].copy_from_slice(&call.kept);
    saved[at(READER)] = read as *const () as u64;
    saved[at(TEXT_READER)] = read_text as *const () as u64;
    let most = most_bytes(program);
    let mut out = vec![0xaau8; most + 8];
    let start = out.as_mut_ptr() as u64;
    let (mut end, mut given) = (start, 0u64);
    let page = code_page(code);
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
    let mut kept = [0; 4];
    kept.copy_from_slice(&saved[at(KEPT)..][..4]);
    Outcome {
        is_wanted: given & WANTED != 0,
        has_faulted: given & FAULTED != 0,
        bytes: out[..(end - start) as usize].to_vec(),
        kept,
    }
}

/// The code where it can be executed; the same pages each time.
fn code_page(code: &[u8]) -> u64 {
    thread_local!(static AT: Cell<u64> = const { Cell::new(0) });
    const BYTES: usize = 1 << 20;
    if AT.get() == 0 {
        // SAFETY: fresh memory.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        AT.set(at as u64);
    }
    assert!(code.len() <= BYTES);
    // SAFETY: there is room for it.
    unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), AT.get() as *mut u8, code.len()) };
    AT.get()
}

/// xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn word(&mut self, pages: &Pages) -> u64 {
        match self.below(6) {
            0 => self.below(20),
            1 => self.next(),
            2 => (self.next() as i32) as u64,
            3 => pages.end() - self.below(40),
            _ => pages.0 + self.below(2 * PAGE as u64 + 64),
        }
    }

    fn width(&mut self) -> Width {
        use Width::*;
        [U8, U16, U32, U64, I8, I16, I32][self.below(7) as usize]
    }

    fn operation(&mut self) -> Binary {
        use Binary::*;
        [
            Add,
            Subtract,
            Multiply,
            And,
            Or,
            ExclusiveOr,
            ShiftLeft,
            ShiftRight,
            ShiftRightSigned,
            Minimum,
            Equal,
            NotEqual,
            Below,
            BelowOrEqual,
            Less,
            LessOrEqual,
        ][self.below(16) as usize]
    }

    fn source(&mut self) -> Source {
        match self.below(8) {
            0 => Source::Vector(self.below(8) as u8),
            1 => Source::Stack(self.below(16) as u8),
            2 => Source::Result,
            3 => Source::SecondResult,
            4 => Source::StackPointer,
            5 => Source::Kept(self.below(4) as u8),
            _ => Source::Argument(self.below(6) as u8),
        }
    }

    fn expression(&mut self, pages: &Pages, depth: u32) -> Expression {
        let inner = |r: &mut Self| Box::new(r.expression(pages, depth + 1));
        if depth > 4 {
            return self.source().into();
        }
        match self.below(9) {
            0 => self.word(pages).into(),
            1 => Expression::Local(self.below(8) as u8),
            2 => Expression::Load(inner(self), self.width()),
            3 => Expression::Narrow(inner(self), self.width()),
            4 | 5 => Expression::Binary(self.operation(), inner(self), inner(self)),
            6 => Expression::Both(inner(self), inner(self)),
            7 => Expression::Either(inner(self), inner(self)),
            _ => self.source().into(),
        }
    }

    /// As a filter has it: a number of some width, and another; either may stand first.
    fn comparison(&mut self, pages: &Pages) -> Expression {
        use Binary::*;
        let operations = [Equal, NotEqual, Below, BelowOrEqual, Less, LessOrEqual];
        let operation = operations[self.below(6) as usize];
        let number = Expression::Source(self.source()).narrow(self.width());
        let other = Expression::Constant(self.word(pages));
        match self.below(2) {
            0 => number.with(operation, other),
            _ => other.with(operation, number),
        }
    }

    fn statements(&mut self, pages: &Pages, depth: u32) -> Vec<Statement> {
        let count = self.below(4);
        (0..count).map(|_| self.statement(pages, depth)).collect()
    }

    fn statement(&mut self, pages: &Pages, depth: u32) -> Statement {
        let tag = self.next() as u8;
        match self.below(if depth < 3 { 7 } else { 5 }) {
            0 => Statement::Set(self.below(8) as u8, self.expression(pages, 1)),
            1 => Statement::Keep(self.below(4) as u8, self.expression(pages, 1)),
            2 => Statement::Word {
                tag,
                value: self.expression(pages, 0),
            },
            3 => Statement::Bytes {
                tag,
                address: self.expression(pages, 2),
                length: self.expression(pages, 3),
                limit: self.below(50) as u16,
            },
            4 => Statement::Text {
                tag,
                address: self.expression(pages, 2),
                limit: self.below(50) as u16,
            },
            5 => Statement::If(
                self.expression(pages, 0),
                self.statements(pages, depth + 1),
                self.statements(pages, depth + 1),
            ),
            _ => Statement::Repeat {
                count: self.expression(pages, 2),
                limit: self.below(5) as u8,
                counter: self.below(8) as u8,
                body: self.statements(pages, depth + 1),
            },
        }
    }

    fn program(&mut self, pages: &Pages) -> Program {
        Program {
            wanted: (self.below(2) == 0).then(|| self.expression(pages, 0)),
            words: (0..self.below(4))
                .map(|_| self.expression(pages, 0))
                .collect(),
            parts: self.statements(pages, 0),
        }
    }

    fn call(&mut self, pages: &Pages) -> Call {
        let mut word = || self.word(pages);
        let arguments = std::array::from_fn(|_| word());
        let (result, vectors) = (word(), std::array::from_fn(|_| word()));
        let kept = std::array::from_fn(|_| word());
        Call {
            errno: 0,
            elapsed_ns: 0,
            arguments,
            result,
            // Of a call whose return address lies below.
            stack_pointer: pages.end() - 8 * self.below(40),
            vectors,
            thread: 0,
            kept,
        }
    }
}

#[test]
fn compiled_programs_do_what_they_mean() {
    let mut random = Random(0x5eed);
    let pages = Pages::new(&mut random);
    let (mut wanted, mut faulted, mut kept) = (0, 0, 0);
    for number in 0..20_000 {
        let program = random.program(&pages);
        if check(&program).is_err() {
            continue;
        }
        let call = random.call(&pages);
        let code = compile(&program).expect("a checked program");
        let want = interpret(&program, &call, &pages);
        let got = run(&code, &program, &call);
        assert_eq!(got, want, "program {number}: {program:?}\n{call:x?}");
        assert!(want.bytes.len() <= most_bytes(&program));
        if want.is_wanted {
            let (_, parts) = captured::words(&want.bytes, program.words.len()).unwrap();
            kept += captured::parts(parts).fold(0, |n, part| n + part.map(|_| 1).unwrap());
        }
        wanted += u32::from(want.is_wanted);
        faulted += u32::from(want.has_faulted);
    }
    // The comparison has seen something.
    assert!(
        wanted > 5_000 && faulted > 500 && kept > 5_000,
        "{wanted} {faulted} {kept}"
    );
}

/// Calls code that was made for a routine, with the stack and the registers that the routine has;
/// gives eax.
fn run_in_place(code: &[u8], call: &Call, record: &mut [u32]) -> u32 {
    let page = code_page(code);
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

#[test]
fn code_for_the_middle_of_a_routine_does_what_its_program_means() {
    const HALVES: usize = in_place_contract::WORDS_AT as usize / 4;
    const FREE: u32 = 0xaaaa_aaaa;
    let mut random = Random(0x11ed);
    let pages = Pages::new(&mut random);
    let (mut wanted, mut unwanted, mut undecided) = (0, 0, 0);
    for number in 0..60_000 {
        let program = Program {
            wanted: match random.below(3) {
                0 => None,
                1 => Some(random.expression(&pages, 3)),
                _ => Some(random.comparison(&pages)),
            },
            words: (0..random.below(4))
                .map(|_| random.expression(&pages, 4))
                .collect(),
            parts: Vec::new(),
        };
        let call = random.call(&pages);
        let Ok(Some(code)) = sptrace_payload::in_place(&program) else {
            continue;
        };
        let want = interpret(&program, &call, &pages);
        let mut record = vec![FREE; HALVES + 2 * program.words.len() + 1];
        let decided = match code.decides.is_empty() {
            true => in_place_contract::WANTED,
            false => run_in_place(&code.decides, &call, &mut record),
        };
        assert!(record.iter().all(|half| *half == FREE));
        if decided == in_place_contract::UNDECIDED {
            undecided += 1;
            continue;
        }
        let is_wanted = decided == in_place_contract::WANTED;
        assert_eq!(
            is_wanted, want.is_wanted,
            "{number}: {program:?}\n{call:x?}"
        );
        if !is_wanted {
            unwanted += 1;
            continue;
        }
        wanted += 1;
        run_in_place(&code.writes, &call, &mut record);
        let (words, rest) = record[HALVES..].split_at(2 * program.words.len());
        let bytes: Vec<u8> = words.iter().flat_map(|half| half.to_le_bytes()).collect();
        assert_eq!(bytes, want.bytes, "{number}: {program:?}\n{call:x?}");
        let others = record[..HALVES].iter().chain(rest);
        assert!(others.into_iter().all(|half| *half == FREE));
    }
    // The comparison has seen something.
    assert!(
        wanted > 5_000 && unwanted > 500 && undecided > 100,
        "{wanted} {unwanted} {undecided}"
    );
}

#[test]
fn code_for_the_middle_of_a_routine_leaves_the_stack_alone() {
    let program = Program {
        wanted: Some(Expression::argument(2).with(Binary::Less, 1 << 40)),
        words: vec![Expression::argument(3), Source::Vector(2).into()],
        ..Program::default()
    };
    let code = sptrace_payload::in_place(&program).unwrap().unwrap();
    for code in [&code.decides, &code.writes] {
        let decoder = iced_x86::Decoder::new(64, code, iced_x86::DecoderOptions::NONE);
        for i in decoder {
            assert!(
                !i.is_stack_instruction() || i.mnemonic() == iced_x86::Mnemonic::Ret,
                "{i}"
            );
        }
    }
}

#[test]
fn a_text_at_the_end_of_memory_is_kept_up_to_there() {
    let mut random = Random(1);
    let pages = Pages::new(&mut random);
    // SAFETY: within the pages.
    unsafe { std::ptr::copy_nonoverlapping(b"abc".as_ptr(), (pages.end() - 3) as *mut u8, 3) };
    let program = Program {
        parts: vec![Statement::Text {
            tag: 9,
            address: Expression::argument(0),
            limit: 32,
        }],
        ..Program::default()
    };
    let call = Call {
        arguments: [pages.end() - 3, 0, 0, 0, 0, 0],
        ..Call::default()
    };
    let outcome = run(&compile(&program).unwrap(), &program, &call);
    let part = captured::parts(&outcome.bytes).next().unwrap().unwrap();
    assert_eq!((part.tag, part.bytes), (9, &b"abc"[..]));
    assert!(part.is_faulted && !part.is_cut);
}

#[test]
fn a_filter_that_is_false_costs_a_load_a_comparison_and_a_jump() {
    let program = Program {
        wanted: Some(Expression::argument(2).with(Binary::Equal, 4096)),
        words: vec![Expression::argument(0), Expression::argument(1)],
        ..Program::default()
    };
    let code = compile(&program).unwrap();
    let decoder = iced_x86::Decoder::new(64, &code, iced_x86::DecoderOptions::NONE);
    let all: Vec<String> = decoder.into_iter().map(|i| i.to_string()).collect();
    // Load, compare, jump; of one that is wanted two words more.
    assert_eq!(all.len(), 13, "{all:#?}");
    assert!(all[2].starts_with("jne"), "{all:#?}");
}
