//! Compiled acts beside their interpretation: random acts over random calls, and the tables that
//! both leave.
//!
//! Runs the code on this thread, called as a common routine would call it, with a block of a few
//! words that gs points at.

use sptrace_payload::acts::{Act, Acts, MOST_LOCALS, Step, Sums, interpret, interpret_active};
use sptrace_payload::acts_code::{Entry, Thread, acts_code, exit_code};
use sptrace_payload::contract::in_place::{
    FRAME_BYTES, HELD, HELD_RECORDED, PASSED, UNDECIDED, UNWANTED, WANTED,
};
use sptrace_payload::interpret::{Call, Memory};
use sptrace_payload::program::{Binary, Expression, Source, Width};
use sptrace_payload::tables::{Kind, Tables, read};
use std::arch::asm;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

const THREAD: Thread = Thread {
    tables: 0,
    muted: 8,
    tid: 16,
    top_frame: 24,
    errno: 32,
    active: 40,
    texts: 80,
    counters: 112,
};

/// A stack of which all can be read.
struct Stack(Vec<u64>);

impl Memory for Stack {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let offset = (address - self.0.as_ptr() as u64) as usize / 8;
        let word = self.0.get(offset).copied().unwrap_or(0);
        to.copy_from_slice(&word.to_le_bytes()[..to.len()]);
        to.len()
    }
}

/// What gs points at: where the tables are, and whether the thread is muted.
fn point_gs_at<const N: usize>(block: &[u64; N]) {
    set_gs(block.as_ptr());
}

fn set_gs(block: *const u64) {
    const SET_GS: i64 = 0x1001;
    // SAFETY: nothing else uses gs on this thread; the block outlives its use.
    let set = unsafe { libc::syscall(libc::SYS_arch_prctl, SET_GS, block) };
    assert_eq!(set, 0);
}

/// Executable pages for code.
struct Pages(*mut u8);

impl Pages {
    fn new() -> Self {
        // SAFETY: fresh memory.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                1 << 20,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at.cast())
    }

    fn run(&self, code: &[u8], call: &Call) -> u32 {
        self.run_and_keep(code, call).0
    }

    /// The same, and what stands where words are kept for the return.
    fn run_and_keep(&self, code: &[u8], call: &Call) -> (u32, [u64; 2]) {
        let mut kept = [0u64; 2];
        assert!(code.len() <= 1 << 20);
        // SAFETY: there is room for it.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), self.0, code.len()) };
        let mut given: u64;
        // SAFETY: the code is that of checked acts, called by its contract.
        unsafe {
            asm!(
                "push r13",
                "push 0",
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
                "mov rdx, r14",
                "call rax",
                "mov rcx, [rsp - 88]",
                "mov rdx, [rsp - 96]",
                "add rsp, 40",
                inout("rax") self.0 as u64 => given,
                in("r12") call.arguments.as_ptr(),
                in("r14") call.stack_pointer,
                in("r13") call.result,
                in("r15") call.vectors.as_ptr(),
                lateout("rcx") kept[0],
                lateout("rdx") kept[1],
                clobber_abi("C"),
            );
        }
        (given as u32, kept)
    }
}

/// xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016).
struct Random(u64, Moment);

#[derive(Clone, Copy, PartialEq)]
enum Moment {
    Call,
    Return,
}

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

    fn word(&mut self) -> u64 {
        match self.below(4) {
            0 => self.next(),
            1 => (self.next() as i32) as u64,
            _ => self.below(6),
        }
    }

    fn expression(&mut self, depth: u32) -> Expression {
        let inner = |r: &mut Self| Box::new(r.expression(depth + 1));
        match self.below(if depth > 3 { 4 } else { 8 }) {
            0 => self.word().into(),
            1 => Expression::Local(self.below(u64::from(MOST_LOCALS)) as u8),
            2 | 3 if self.1 == Moment::Return => match self.below(5) {
                0 => Source::Kept(self.below(2) as u8).into(),
                1 => Source::SecondResult.into(),
                2 => Source::Errno.into(),
                3 => Source::Thread.into(),
                _ => Source::Result.into(),
            },
            2 => Source::Argument(self.below(6) as u8).into(),
            3 => match self.below(4) {
                3 => Source::Thread.into(),
                0 => Source::Vector(self.below(4) as u8).into(),
                1 => Source::Stack(self.below(8) as u8).into(),
                _ => Source::StackPointer.into(),
            },
            4 => {
                use Width::*;
                let widths = [U8, U16, U32, U64, I8, I16, I32];
                Expression::Narrow(inner(self), widths[self.below(7) as usize])
            }
            5 => Expression::Both(inner(self), inner(self)),
            6 => Expression::Either(inner(self), inner(self)),
            _ => {
                use Binary::*;
                let all = [
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
                ];
                Expression::Binary(all[self.below(16) as usize], inner(self), inner(self))
            }
        }
    }

    fn steps(&mut self, tables: &Tables, depth: u32) -> Vec<Step> {
        (0..self.below(4))
            .map(|_| self.step(tables, depth))
            .collect()
    }

    fn step(&mut self, tables: &Tables, depth: u32) -> Step {
        match self.below(if depth < 3 { 6 } else { 4 }) {
            0 => Step::Set(self.below(u64::from(MOST_LOCALS)) as u8, self.expression(0)),
            1 if self.1 == Moment::Call && self.below(3) == 0 => Step::Record,
            1 if self.1 == Moment::Call && self.below(3) == 0 => {
                let act = Act::ALL[self.below(4) as usize];
                Step::Act(act, self.expression(1))
            }
            1 if self.below(3) == 0 => {
                let local = self.below(u64::from(MOST_LOCALS)) as u8;
                Step::Next(local, self.below(3) as u8)
            }
            5 => Step::If(
                self.expression(0),
                self.steps(tables, depth + 1),
                self.steps(tables, depth + 1),
            ),
            _ => {
                let table = self.below(tables.all.len() as u64) as u8;
                let keys = tables.all[usize::from(table)].keys;
                Step::Add {
                    table,
                    // Few keys, so that rows are met again.
                    keys: (0..keys)
                        .map(|_| self.expression(1).with(Binary::And, 3))
                        .collect(),
                    value: match self.below(2) {
                        0 => 1.into(),
                        _ => self.expression(1),
                    },
                }
            }
        }
    }
}

fn forms() -> [(Kind, u8); 8] {
    [
        (Kind::Count, 0),
        (Kind::Count, 1),
        (Kind::Count, 4),
        (Kind::Sum, 2),
        (Kind::Least, 1),
        (Kind::Greatest, 0),
        (Kind::Histogram, 0),
        (Kind::Histogram, 3),
    ]
}

/// What a set holds, by table and keys.
fn sums_of(set: &[u64], tables: &Tables) -> (Sums, u64) {
    let mut sums = BTreeMap::new();
    let mut all_left_out = 0;
    for (number, table) in (0..).zip(&tables.all) {
        let (rows, left_out) = read(table, &|at| set[at as usize / 8]);
        all_left_out += left_out;
        for row in rows {
            assert!(sums.insert((number, row.keys.clone()), row).is_none());
        }
    }
    (sums, all_left_out)
}

#[test]
fn compiled_acts_do_what_they_mean() {
    let mut random = Random(0xac75, Moment::Call);
    let pages = Pages::new();
    let tables = Tables::of(forms());
    let kinds: Vec<Kind> = tables.all.iter().map(|table| table.kind).collect();
    let stack = Stack((0..64).map(|_| random.word()).collect());
    let (mut added, mut recorded, mut passed, mut acted) = (0, 0, 0, 0);
    for number in 0..6_000 {
        let acts = Acts {
            steps: random.steps(&tables, 0),
            records: random.below(8) == 0,
        };
        let code = match acts_code(&acts, &tables, THREAD, Entry::default()) {
            Ok(Some(code)) => code,
            Ok(None) => continue,
            Err(error) => panic!("{error}: {acts:?}"),
        };
        let mut set = vec![0u64; tables.set_bytes as usize / 8];
        let mut sums = Sums::new();
        for _ in 0..6 {
            let mut counters = [0u64; 3];
            // The code writes there: what is borrowed may change.
            let block = [const { AtomicU64::new(0) }; 15];
            block[0].store(set.as_mut_ptr() as u64, Ordering::Relaxed);
            block[2].store(77, Ordering::Relaxed);
            block[14].store(counters.as_mut_ptr() as u64, Ordering::Relaxed);
            set_gs(block.as_ptr().cast());
            let call = Call {
                arguments: std::array::from_fn(|_| random.word()),
                stack_pointer: stack.0.as_ptr() as u64,
                vectors: std::array::from_fn(|_| random.word()),
                thread: 77,
                ..Call::default()
            };
            let given = pages.run(&code, &call);
            if given == UNDECIDED {
                // Arguments that lie in another page.
                continue;
            }
            let tables = (&kinds[..], &mut sums);
            let (is_recorded, done) = interpret_active(&acts, &call, &stack, tables);
            let wanted = if is_recorded { UNWANTED } else { PASSED };
            let [bits, words @ ..]: [u64; 5] =
                std::array::from_fn(|at| block[5 + at].load(Ordering::Relaxed));
            for (number, (wanted, word)) in (0..).zip(done.into_iter().zip(words)) {
                let said = (bits & 1 << number != 0).then_some(word);
                assert_eq!(said, wanted, "{number}: {acts:?}");
                acted += u32::from(wanted.is_some());
            }
            assert_eq!(given, wanted, "{number}: {acts:?}\n{call:x?}");
            recorded += u32::from(is_recorded);
            passed += u32::from(!is_recorded);
        }
        // A count of nothing is no row.
        sums.retain(|_, row| row.count != 0);
        let (got, left_out) = sums_of(&set, &tables);
        assert_eq!((got, left_out), (sums.clone(), 0), "{number}: {acts:?}");
        added += sums.len();
    }
    // The comparison has seen something.
    assert!(
        added > 5_000 && recorded > 2_000 && passed > 2_000 && acted > 500,
        "{added} {recorded} {passed}"
    );
}

/// The innermost frames of a held call: two words, the time stamp, and its row's function.
fn frames(kept: [u64; 2], stamp: u64) -> Vec<u64> {
    let frames = [kept[0], kept[1], stamp, 0x40_0000];
    frames.into_iter().flat_map(|word| [0, 0, word]).collect()
}

#[test]
fn acts_of_a_return_do_what_they_mean() {
    let mut random = Random(0x0e71, Moment::Return);
    let pages = Pages::new();
    let tables = Tables::of(forms());
    let kinds: Vec<Kind> = tables.all.iter().map(|table| table.kind).collect();
    let nothing = Stack(Vec::new());
    let mut added = 0;
    for number in 0..6_000 {
        let acts = Acts {
            steps: random.steps(&tables, 0),
            records: false,
        };
        let Some(code) = exit_code(&acts, &tables, THREAD, 1 << 32).unwrap() else {
            continue;
        };
        let mut set = vec![0u64; tables.set_bytes as usize / 8];
        let mut sums = Sums::new();
        for _ in 0..4 {
            let kept = [random.word(), random.word()];
            let errno = random.below(200);
            let frames = frames(kept, 0);
            let top = frames.as_ptr() as u64 + 3 * FRAME_BYTES as u64;
            let mut counters = [0u64; 3];
            let mut block = [0u64; 15];
            block[..5].copy_from_slice(&[set.as_mut_ptr() as u64, 0, 77, top, errno]);
            block[14] = counters.as_mut_ptr() as u64;
            point_gs_at(&block);
            let mut call = Call {
                arguments: std::array::from_fn(|_| random.word()),
                result: random.word(),
                thread: 77,
                errno: errno as u32,
                ..Call::default()
            };
            call.kept[..2].copy_from_slice(&kept);
            assert_eq!(pages.run(&code, &call), PASSED, "{number}: {acts:?}");
            // At a return rdx is the second word of the result.
            interpret(&acts, &call, &nothing, &kinds, &mut sums);
        }
        sums.retain(|_, row| row.count != 0);
        let (got, left_out) = sums_of(&set, &tables);
        assert_eq!((got, left_out), (sums.clone(), 0), "{number}: {acts:?}");
        added += sums.len();
    }
    assert!(added > 5_000, "{added}");
}

#[test]
fn a_held_call_says_what_its_return_needs() {
    let (tables, mut acts) = count_by_argument();
    let kept = [Source::Argument(4), Source::Argument(2)];
    let entry = Entry {
        wanted: None,
        kept: Some(&kept),
    };
    let pages = Pages::new();
    let mut set = vec![0u64; tables.set_bytes as usize / 8];
    let call = Call {
        arguments: [1, 2, 3, 4, 5, 6],
        ..Call::default()
    };
    for (records, wanted) in [(false, HELD), (true, HELD_RECORDED)] {
        acts.records = records;
        let code = acts_code(&acts, &tables, THREAD, entry).unwrap().unwrap();
        let block = [set.as_mut_ptr() as u64, 0, 77];
        point_gs_at(&block);
        assert_eq!(pages.run_and_keep(&code, &call), (wanted, [5, 3]));
        let muted = [set.as_mut_ptr() as u64, 1, 77];
        point_gs_at(&muted);
        let passed = if records { UNWANTED } else { PASSED };
        assert_eq!(pages.run(&code, &call), passed);
    }
}

#[test]
fn the_time_of_a_call_is_measured() {
    let elapsed = Expression::Source(Source::Elapsed);
    let acts = Acts {
        steps: vec![Step::Add {
            table: 0,
            keys: Vec::new(),
            value: elapsed,
        }],
        records: false,
    };
    let tables = Tables::of([(Kind::Sum, 0)]);
    // A tick is two nanoseconds here.
    let code = exit_code(&acts, &tables, THREAD, 2 << 32).unwrap().unwrap();
    let pages = Pages::new();
    let mut set = vec![0u64; tables.set_bytes as usize / 8];
    // SAFETY: nothing forbids it here.
    let now = || unsafe { std::arch::x86_64::_rdtsc() };
    const TICKS: u64 = 3_000_000_000_000;
    let before = now();
    let frames = frames([0, 0], before - TICKS);
    let top = frames.as_ptr() as u64 + 3 * FRAME_BYTES as u64;
    let block = [set.as_mut_ptr() as u64, 0, 77, top, 0];
    point_gs_at(&block);
    assert_eq!(pages.run(&code, &Call::default()), PASSED);
    let most = now() - before;
    let (rows, _) = read(&tables.all[0], &|at| set[at as usize / 8]);
    let ticks = rows[0].values[0] / 2;
    assert!((TICKS..=TICKS + most).contains(&ticks), "{ticks}");
}

#[test]
fn acts_of_a_return_record_nothing_and_keep_two_words() {
    let tables = Tables::of([]);
    let record = Acts {
        steps: vec![Step::Record],
        records: false,
    };
    assert!(exit_code(&record, &tables, THREAD, 1).is_err());
    let mut three = Acts {
        steps: (0..3)
            .map(|n| Step::Set(0, Expression::argument(n)))
            .collect(),
        records: false,
    };
    assert!(three.keep().is_err());
    let mut twice = Acts {
        steps: vec![Step::Set(0, Expression::argument(3)); 3],
        records: false,
    };
    assert_eq!(twice.keep(), Ok(vec![Source::Argument(3)]));
    assert!(twice.uses(Source::Kept(0)) && !twice.uses(Source::Argument(3)));
}

fn count_by_argument() -> (Tables, Acts) {
    let acts = Acts {
        steps: vec![Step::Add {
            table: 0,
            keys: vec![Expression::argument(0)],
            value: 1.into(),
        }],
        records: false,
    };
    (Tables::of([(Kind::Count, 1)]), acts)
}

fn call_of(argument: u64) -> Call {
    Call {
        arguments: [argument, 0, 0, 0, 0, 0],
        ..Call::default()
    }
}

#[test]
fn keys_that_do_not_fit_are_counted() {
    let (tables, acts) = count_by_argument();
    let code = acts_code(&acts, &tables, THREAD, Entry::default())
        .unwrap()
        .unwrap();
    let pages = Pages::new();
    let mut set = vec![0u64; tables.set_bytes as usize / 8];
    let block = [set.as_mut_ptr() as u64, 0, 77];
    point_gs_at(&block);
    const CALLS: u64 = 10_000;
    for argument in 0..CALLS {
        pages.run(&code, &call_of(argument << 4));
    }
    let (rows, left_out) = read(&tables.all[0], &|at| set[at as usize / 8]);
    assert_eq!(rows.len() as u64 + left_out, CALLS);
    assert!(
        rows.len() > 900 && left_out > 0,
        "{} {left_out}",
        rows.len()
    );
    assert!(rows.iter().all(|row| row.count == 1));
}

#[test]
fn a_thread_that_is_muted_or_has_no_tables_adds_nothing() {
    let (tables, acts) = count_by_argument();
    let code = acts_code(&acts, &tables, THREAD, Entry::default())
        .unwrap()
        .unwrap();
    let pages = Pages::new();
    let mut set = vec![0u64; tables.set_bytes as usize / 8];
    let muted = [set.as_mut_ptr() as u64, 1, 77];
    point_gs_at(&muted);
    assert_eq!(pages.run(&code, &call_of(1)), PASSED);
    let none = [0, 0, 77];
    point_gs_at(&none);
    assert_eq!(pages.run(&code, &call_of(1)), UNDECIDED);
    assert!(set.iter().all(|word| *word == 0));
}

#[test]
fn a_condition_on_values_is_looked_at_after_the_acts() {
    let (tables, acts) = count_by_argument();
    let wanted = Expression::argument(0).with(Binary::Less, 5);
    let entry = Entry {
        wanted: Some(&wanted),
        kept: None,
    };
    let code = acts_code(&acts, &tables, THREAD, entry).unwrap().unwrap();
    let pages = Pages::new();
    let mut set = vec![0u64; tables.set_bytes as usize / 8];
    let block = [set.as_mut_ptr() as u64, 0, 77];
    point_gs_at(&block);
    assert_eq!(pages.run(&code, &call_of(4)), WANTED);
    assert_eq!(pages.run(&code, &call_of(5)), UNWANTED);
    assert_eq!(read(&tables.all[0], &|at| set[at as usize / 8]).0.len(), 2);
}

#[test]
fn a_call_that_a_handler_makes_while_a_row_is_taken_is_counted() {
    let (tables, acts) = count_by_argument();
    let code = acts_code(&acts, &tables, THREAD, Entry::default())
        .unwrap()
        .unwrap();
    let pages = Pages::new();
    let mut set = vec![0u64; tables.set_bytes as usize / 8];
    let block = [set.as_mut_ptr() as u64, 0, 77];
    point_gs_at(&block);
    // Where the row of the key will be: as if somebody was about to take it.
    pages.run(&code, &call_of(7));
    let row = set[8..].iter().position(|word| *word == 1).unwrap() + 8;
    set[row] = 2;
    pages.run(&code, &call_of(7));
    set[row] = 1;
    let (rows, left_out) = read(&tables.all[0], &|at| set[at as usize / 8]);
    assert_eq!((rows.len(), left_out), (2, 0));
    assert!(rows.iter().all(|row| row.keys == [7] && row.count == 1));
}
