//! Acts compiled for the beginning and for the return of a call, beside their interpretation, and
//! the tables that both leave.
//!
//! Called as a common routine would call it, with a block of a few words that gs points at.

use std::arch::asm;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use sptrace_payload::acted::{CameTo, Sums, interpret, interpret_active};
use sptrace_payload::acts::Acts;
use sptrace_payload::acts_code::{Entry, Thread, acts_code, exit_code};
use sptrace_payload::contract::in_place::*;
use sptrace_payload::contract::slot;
use sptrace_payload::interpret::{Call, Memory};
use sptrace_payload::program::{Expression, Program, Source};
use sptrace_payload::slot_code::{SlotCode, slot_code};
use sptrace_payload::tables::{
    INSIDE_AT, Kind, MOST_SLOWEST, MOST_VARIABLES, Tables, VARIABLES_AT, read,
};
use sptrace_payload::text;

use super::random::{Moment, Random, SELF_WORD};
use super::{Choices, CodePages, frames};

/// Where the words of the block are.
pub const THREAD: Thread = Thread {
    tables: 0,
    muted: 8,
    tid: 16,
    top_frame: 24,
    errno: 32,
    active: 40,
    texts: 80,
    counters: 112,
    told: 120,
    key: 128,
    stack_page: 136,
    bids: 144,
    has_bidden: 152,
};
/// Words of the block.
const BLOCK_WORDS: usize = 20;
/// The thread's number.
pub const TID: u32 = 77;

/// A stack of which all can be read, and texts.
pub struct Stack {
    pub words: Vec<u64>,
    pub texts: [&'static [u8]; 4],
}

impl Stack {
    fn of(words: Vec<u64>) -> Self {
        let texts = [&b"/etc/passwd\0"[..], b"/etc\0", b"\0", b"/e"];
        Self { words, texts }
    }
}

impl Memory for Stack {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        for text in self.texts {
            let at = address.wrapping_sub(text.as_ptr() as u64) as usize;
            if let Some(rest) = text.get(at..) {
                let length = rest.len().min(to.len());
                to[..length].copy_from_slice(&rest[..length]);
                return length;
            }
        }
        let offset = address.wrapping_sub(self.words.as_ptr() as u64) as usize / 8;
        let word = self.words.get(offset).copied().unwrap_or(0);
        to.copy_from_slice(&word.to_le_bytes()[..to.len()]);
        to.len()
    }
}

/// What gs points at: where the tables are, and whether the thread is muted.
pub fn point_gs_at<const N: usize>(block: &[u64; N]) {
    set_gs(block.as_ptr());
}

fn set_gs(block: *const u64) {
    const SET_GS: i64 = 0x1001;
    // SAFETY: nothing else uses gs on this thread; the block outlives its use.
    let set = unsafe { libc::syscall(libc::SYS_arch_prctl, SET_GS, block) };
    assert_eq!(set, 0);
}

/// Runs code; gives what it gives.
pub fn run(pages: &CodePages, code: &[u8], call: &Call) -> u32 {
    run_and_keep(pages, code, call).0
}

/// The same, and what stands where words are kept for the return.
pub fn run_and_keep(pages: &CodePages, code: &[u8], call: &Call) -> (u32, [u64; 2]) {
    let page = pages.put(code);
    let (mut given, mut kept) = (page, [0u64; 2]);
    // What is above the lower half of the caller's number is of no account.
    let caller = u64::from(call.caller) | 0x7f00_0000_0000;
    let [first, second, third, fourth, ..] = call.vectors;
    let beside = [first, second, third, fourth, caller];
    let mut registers = [0u64; 4];
    // SAFETY: the code is that of checked acts, called by its contract.
    unsafe {
        asm!(
            "push [r15 + 32]",
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
            "add rsp, 48",
            inout("rax") given,
            in("r12") call.arguments.as_ptr(),
            in("r14") call.stack_pointer,
            in("r13") call.result,
            in("r15") beside.as_ptr(),
            lateout("rcx") kept[0],
            lateout("rdx") kept[1],
            lateout("rdi") registers[0],
            lateout("rsi") registers[1],
            lateout("r8") registers[2],
            lateout("r9") registers[3],
            clobber_abi("C"),
        );
    }
    let [rdi, rsi, _, _, r8, r9] = call.arguments;
    assert_eq!(registers, [rdi, rsi, r8, r9], "the call's registers stay");
    (given as u32, kept)
}

/// Runs the code of a slot as that would call it; gives whether it could run. No register and no
/// flag of the call changes.
pub fn run_in_slot(pages: &CodePages, code: &SlotCode, call: &Call, flags: u64) -> bool {
    const ARITHMETIC: u64 = 0x8d5;
    // What the last jump leads to: sets r11.
    let (rest, jump) = code.bytes.split_at(code.bytes.len() - slot::JUMP_BYTES);
    assert_eq!(*jump, [0xe9, 0, 0, 0, 0]);
    let without: &[u8] = &[0x49, 0xc7, 0xc3, 1, 0, 0, 0, 0xc3];
    let page = pages.put(&[rest, jump, without].concat());
    let mut registers = [0u64; 8];
    let [first, second, third, fourth, ..] = call.vectors;
    let given = [
        call.result,
        flags & ARITHMETIC | 2,
        first,
        second,
        third,
        fourth,
        page,
    ];
    // SAFETY: the code is that of checked acts, called by its contract.
    unsafe {
        asm!(
            "movq xmm0, [r13 + 16]",
            "movq xmm1, [r13 + 24]",
            "movq xmm2, [r13 + 32]",
            "movq xmm3, [r13 + 40]",
            "mov rdi, [r12]",
            "mov rsi, [r12 + 8]",
            "mov rdx, [r12 + 16]",
            "mov rcx, [r12 + 24]",
            "mov r8, [r12 + 32]",
            "mov r9, [r12 + 40]",
            "mov rax, [r13]",
            "mov r15, rsp",
            "xor r11d, r11d",
            "push [r13 + 8]",
            "popfq",
            "call [r13 + 48]",
            "pushfq",
            "pop r10",
            "sub r15, rsp",
            "mov [r14], rax",
            "mov [r14 + 8], rcx",
            "mov [r14 + 16], rdx",
            "mov [r14 + 24], rdi",
            "mov [r14 + 32], rsi",
            "mov [r14 + 40], r10",
            "mov [r14 + 48], r11",
            "mov [r14 + 56], r15",
            in("r12") call.arguments.as_ptr(),
            in("r13") given.as_ptr(),
            in("r14") registers.as_mut_ptr(),
            out("r15") _,
            clobber_abi("C"),
        );
    }
    let [rdi, rsi, rdx, rcx, ..] = call.arguments;
    let [.., after, without, _] = registers;
    assert_eq!(registers[..5], [call.result, rcx, rdx, rdi, rsi]);
    assert_eq!(after & ARITHMETIC, flags & ARITHMETIC);
    assert_eq!(registers[7], 0, "the stack pointer stays");
    without == 0
}

/// A table of each kind, with keys and without.
fn tables() -> Tables {
    Tables::telling([
        (Kind::Count, 0, [0; 4]),
        (Kind::Count, 1, [0; 4]),
        (Kind::Count, 4, [0; 4]),
        (Kind::Sum, 2, [0; 4]),
        (Kind::Least, 1, [0; 4]),
        (Kind::Greatest, 0, [0; 4]),
        (Kind::Histogram, 0, [0; 4]),
        (Kind::Histogram, 3, [0; 4]),
        (Kind::Count, 1, [4, 0, 0, 0]),
        (Kind::Histogram, 2, [0, 1, 0, 0]),
        (Kind::Sum, 3, [8, 0, 2, 0]),
        (Kind::Count, 1, [text::TOLD_WORDS, 0, 0, 0]),
        (Kind::Least, 2, [1, text::TOLD_WORDS, 0, 0]),
        (Kind::Rows, 3, [2, 0, text::TOLD_WORDS, 0]),
        (Kind::Slowest(1), 1, [0; 4]),
        (Kind::Slowest(2), 4, [0, 4, text::TOLD_WORDS, 0]),
        (Kind::Slowest(MOST_SLOWEST), 0, [0; 4]),
    ])
}

/// What the slow path keeps of the texts of a call.
fn told_of(acts: &Acts, call: &Call, stack: &Stack, is_return: bool) -> Vec<u64> {
    let texts = acts.texts().into_iter();
    let told = texts.flat_map(|(word, _)| {
        let at = match is_return {
            true if word == text::RESULT => Some(call.result),
            true => call.kept.get(usize::from(word)).copied(),
            false => call.arguments.get(usize::from(word)).copied(),
        };
        let mut text = Vec::new();
        for offset in 0..text::TOLD_BYTES as u64 {
            let mut byte = [0];
            let from = at.unwrap_or(0).wrapping_add(offset);
            if stack.read(from, &mut byte) == 0 || byte == [0] {
                break;
            }
            text.extend(byte);
        }
        text::words(&text)
    });
    told.collect()
}

/// What a set holds, by table and keys.
fn sums_of(set: &[u64], tables: &Tables) -> (Sums, u64) {
    let mut sums = BTreeMap::new();
    let mut all_left_out = 0;
    for (number, table) in (0..).zip(&tables.all) {
        let (rows, left_out) = read(table, &|at| set[at as usize / 8]);
        all_left_out += left_out;
        for (place, mut row) in (0..).zip(rows) {
            if table.kind == Kind::Rows {
                // When it has come.
                assert_ne!(row.values, [0]);
                row.values.clear();
            }
            // Where each row is one addition it stands by its place: none becomes free again.
            let key = match table.kind.has_single_rows() {
                true => vec![place],
                false => row.keys.clone(),
            };
            assert!(sums.insert((number, key), row).is_none());
        }
    }
    (sums, all_left_out)
}

/// What was met in a comparison.
#[derive(Default)]
pub struct Met {
    /// Rows of tables.
    pub added: usize,
    /// Returns whose own time was asked for.
    pub timed: usize,
    /// Tables of the greatest measures that were full.
    pub full: usize,
    /// Calls that are recorded.
    pub recorded: usize,
    /// Calls that are not.
    pub passed: usize,
    /// Calls whose return is waited for.
    pub held: usize,
    /// What was done to calls.
    pub acted: usize,
    /// Texts that were the one that was asked for.
    pub texts: usize,
    /// Calls and returns at which something was bidden.
    pub bidden: usize,
}

/// What acts of the beginning of a call are compared with.
struct Compared<'a> {
    acts: &'a Acts,
    entry: Entry<'a>,
    stack: &'a Stack,
    kinds: &'a [Kind],
    sums: &'a mut Sums,
}

impl Compared<'_> {
    /// What has to be given, and what the acts have come to.
    fn means(&mut self, call: &Call, is_muted: bool) -> (u32, CameTo) {
        let has_values = self.entry.wanted.is_some();
        let came = match is_muted {
            true => CameTo {
                is_recorded: self.acts.records,
                ..CameTo::default()
            },
            false => interpret_active(self.acts, call, self.stack, (self.kinds, self.sums)),
        };
        let is_recorded = came.is_recorded;
        let given = match self.entry {
            Entry { kept: None, .. } if came.bids != 0 => BIDDEN,
            Entry { kept: Some(_), .. } if !is_muted => match is_recorded || has_values {
                true => HELD_RECORDED,
                false => HELD,
            },
            Entry {
                kept: None,
                wanted: Some(wanted),
                ..
            } => match self.word(wanted.clone(), call) {
                0 => UNWANTED,
                _ => WANTED,
            },
            _ if is_recorded || has_values => UNWANTED,
            _ => PASSED,
        };
        (given, came)
    }

    fn word(&self, of: Expression, call: &Call) -> u64 {
        word_of(of, call, self.stack)
    }
}

fn word_of(of: Expression, call: &Call, stack: &Stack) -> u64 {
    let program = Program {
        words: vec![of],
        ..Program::default()
    };
    let bytes = sptrace_payload::interpret(&program, call, stack).bytes;
    u64::from_le_bytes(bytes.try_into().expect("one word"))
}

/// Compares random acts of the beginning of a call at some calls; says what was met. `None`: they
/// cannot be compiled.
pub fn compare_at_calls(choices: &mut dyn Choices, pages: &CodePages, met: &mut Met) -> Option<()> {
    let mut random = Random(choices, Moment::Call);
    let tables = tables();
    let kinds: Vec<Kind> = tables.all.iter().map(|table| table.kind).collect();
    let stack = Stack::of((0..64).map(|_| random.word()).collect());
    let acts = Acts {
        steps: random.steps(&tables, 0),
        records: random.below(8) == 0,
    };
    if acts.texts().len() > sptrace_payload::acts::MOST_TEXTS {
        return None;
    }
    let (wanted, kept) = (random.wanted(), random.kept());
    let entry = Entry {
        wanted: wanted.as_ref(),
        kept: kept.as_deref(),
        ..Entry::default()
    };
    let made = acts_code(&acts, &tables, THREAD, entry);
    let code = made.unwrap_or_else(|error| panic!("{error}: {acts:?}"))?;
    let mut set = vec![0u64; tables.set_bytes as usize / 8];
    let mut sums = Sums::new();
    let mut variables = Variables::default();
    for _ in 0..12 {
        let mut counters = [0u64; 3];
        let mut call = random.call(&stack);
        let (frames, around) = frames::at_random(random.0);
        call.around = around;
        call.variables = variables.clone();
        call.inside_ns.set(random.word());
        set[INSIDE_AT as usize / 8] = call.inside_ns.get();
        let is_muted = random.below(16) == 0;
        let mut compared = Compared {
            acts: &acts,
            entry,
            stack: &stack,
            kinds: &kinds,
            sums: &mut sums,
        };
        // The code writes there: what is borrowed may change.
        let block = [const { AtomicU64::new(0) }; BLOCK_WORDS];
        let put = |at: i32, word: u64| block[at as usize / 8].store(word, Ordering::Relaxed);
        put(THREAD.tables, set.as_mut_ptr() as u64);
        put(THREAD.muted, is_muted.into());
        put(THREAD.tid, TID.into());
        put(THREAD.counters, counters.as_mut_ptr() as u64);
        let top = frames[frames.len() - 3..].as_ptr() as u64;
        put(THREAD.top_frame, top);
        let told: Vec<u64> = told_of(&acts, &call, &stack, false);
        put(THREAD.told, told.as_ptr() as u64);
        for (number, (argument, length)) in (0..).zip(acts.texts()) {
            let source = match (argument, length) {
                text::DEPTH => Source::Depth,
                _ => Source::Text(argument, length),
            };
            let word = compared.word(source.into(), &call);
            met.texts += usize::from(word == text::whole(b"/etc"));
            put(THREAD.texts + 8 * number, word);
        }
        set_gs(block.as_ptr().cast());
        let (given, words) = run_and_keep(pages, &code, &call);
        if given == UNDECIDED {
            // Arguments that lie in another page.
            continue;
        }
        let (means, came) = compared.means(&call, is_muted);
        assert_eq!(given, means, "{acts:?}\n{entry:?}\n{call:x?}");
        variables = same_variables(&set, &call, &acts);
        if given == HELD || given == HELD_RECORDED {
            let kept = kept.iter().flatten();
            let kept = kept.map(|source| compared.word((*source).into(), &call));
            let kept: Vec<u64> = kept.collect();
            let kept = &kept[..kept.len().min(words.len())];
            assert_eq!(words[..kept.len()], kept[..], "{acts:?}\n{entry:?}");
            met.held += 1;
        }
        let [bits, words @ ..]: [u64; 5] =
            std::array::from_fn(|at| block[5 + at].load(Ordering::Relaxed));
        for (number, (wanted, word)) in (0..).zip(came.done.into_iter().zip(words)) {
            let said = (bits & 1 << number != 0).then_some(word);
            assert_eq!(said, wanted, "{number}: {acts:?}");
            met.acted += usize::from(wanted.is_some());
        }
        let bids = block[THREAD.bids as usize / 8].load(Ordering::Relaxed);
        assert_eq!(bids, came.bids.into(), "{acts:?}");
        met.bidden += usize::from(bids != 0);
        met.recorded += usize::from(given == UNWANTED);
        met.passed += usize::from(given == PASSED);
    }
    same_sums(&set, &tables, sums, &acts, met);
    Some(())
}

/// The same of acts that run in a slot, if they can.
pub fn compare_in_slots(choices: &mut dyn Choices, pages: &CodePages, met: &mut Met) -> Option<()> {
    let mut random = Random(choices, Moment::Slot);
    let tables = tables();
    let kinds: Vec<Kind> = tables.all.iter().map(|table| table.kind).collect();
    let nothing = Stack::of(Vec::new());
    let acts = Acts {
        steps: random.steps(&tables, 0),
        records: false,
    };
    let made = slot_code(&acts, &tables, THREAD);
    let code = made.unwrap_or_else(|error| panic!("{error}: {acts:?}"))?;
    let places = [
        code.changes_from,
        code.changes_to,
        code.takes_from,
        code.asks_from,
    ];
    assert!(places.is_sorted(), "{code:?}");
    let mut set = vec![0u64; tables.set_bytes as usize / 8];
    let (mut sums, mut variables) = (Sums::new(), Variables::default());
    // SAFETY: nothing forbids it here.
    let fs = unsafe { fs_base() };
    let mut stack_page = 0;
    for _ in 0..6 {
        let mut counters = [0u64; 3];
        let mut call = random.call(&nothing);
        call.variables = variables.clone();
        let (is_muted, is_other) = (random.below(16) == 0, random.below(16) == 0);
        let block = [const { AtomicU64::new(0) }; BLOCK_WORDS];
        let put = |at: i32, word: u64| block[at as usize / 8].store(word, Ordering::Relaxed);
        put(THREAD.tables, set.as_mut_ptr() as u64);
        put(THREAD.muted, is_muted.into());
        put(THREAD.tid, TID.into());
        put(THREAD.counters, counters.as_mut_ptr() as u64);
        put(THREAD.key, fs + u64::from(is_other));
        put(THREAD.stack_page, if is_other { 0 } else { stack_page });
        set_gs(block.as_ptr().cast());
        let has_run = run_in_slot(pages, &code, &call, random.word());
        assert_eq!(has_run, !is_other, "{acts:?}");
        if has_run && !is_muted {
            interpret(&acts, &call, &nothing, &kinds, &mut sums);
            met.passed += 1;
        }
        if !is_other {
            stack_page = block[THREAD.stack_page as usize / 8].load(Ordering::Relaxed);
            assert_ne!(stack_page, 0);
        }
        variables = same_variables(&set, &call, &acts);
    }
    same_sums(&set, &tables, sums, &acts, met);
    Some(())
}

/// The fs base of this thread.
///
/// # Safety
/// The processor and the kernel let programs ask for it.
unsafe fn fs_base() -> u64 {
    let fs: u64;
    // SAFETY: the caller's.
    unsafe { asm!("rdfsbase {}", out(reg) fs, options(nomem, nostack)) };
    fs
}

/// The same of acts of a return.
pub fn compare_at_returns(
    choices: &mut dyn Choices,
    pages: &CodePages,
    met: &mut Met,
) -> Option<()> {
    let mut random = Random(choices, Moment::Return);
    let tables = tables();
    let kinds: Vec<Kind> = tables.all.iter().map(|table| table.kind).collect();
    let nothing = Stack::of(Vec::new());
    let acts = Acts {
        steps: random.steps(&tables, 0),
        records: false,
    };
    // So many ticks are a nanosecond that the code ends within the one in which it has begun.
    if acts.texts().len() > sptrace_payload::acts::MOST_TEXTS {
        return None;
    }
    let made = exit_code(&acts, &tables, THREAD, 1);
    let self_time = acts.self_time();
    assert!(self_time.is_none_or(|word| word == SELF_WORD));
    let code = made.unwrap_or_else(|error| panic!("{error}: {acts:?}"))?;
    let mut set = vec![0u64; tables.set_bytes as usize / 8];
    let mut sums = Sums::new();
    let mut variables = Variables::default();
    for _ in 0..12 {
        let mut kept: [u64; MOST_KEPT] = std::array::from_fn(|_| random.place(&nothing));
        if random.below(2) == 0 {
            kept[1] = kept[0];
        }
        let errno = random.below(200);
        let (mut frames, mut around) = frames::at_random(random.0);
        let own = 0x5500_0000_0000 | u64::from(kept[0] as u32);
        // The call has a record of its own, or that of one that has jumped to it, or none.
        match random.below(3) {
            0 if kept[1] as u32 == kept[0] as u32 => frames.extend([0x200, own, 0]),
            1 if kept[0] as u32 != 0x1234 && kept[1] as u32 != 0x1234 => {
                frames.extend([0x200, 0x5500_0000_1234, 0]);
                around.insert(0, 0x1234);
            }
            _ => {}
        }
        let (elapsed_ns, begun_at) = (random.below(1 << 20), now());
        const NANOSECOND: u64 = 1 << 32;
        let stamp = begun_at.wrapping_sub(elapsed_ns * NANOSECOND);
        frames.extend(frames::held(0x200, kept, stamp));
        let inside_ns = match random.below(4) {
            0 => random.word(),
            _ => kept[usize::from(SELF_WORD)].wrapping_add(random.below(1 << 21)),
        };
        set[INSIDE_AT as usize / 8] = inside_ns;
        let top = frames[frames.len() - 3..].as_ptr() as u64;
        let mut counters = [0u64; 3];
        // The code writes there: what is borrowed may change.
        let block = [const { AtomicU64::new(0) }; BLOCK_WORDS];
        let is_muted = random.below(16) == 0;
        let put = |at: i32, word: u64| block[at as usize / 8].store(word, Ordering::Relaxed);
        put(THREAD.tables, set.as_mut_ptr() as u64);
        put(THREAD.muted, is_muted.into());
        put(THREAD.tid, TID.into());
        put(THREAD.top_frame, top);
        put(THREAD.errno, errno);
        put(THREAD.counters, counters.as_mut_ptr() as u64);
        set_gs(block.as_ptr().cast());
        let mut call = random.call(&nothing);
        call.result = random.place(&nothing);
        call.errno = errno as u32;
        call.variables = variables.clone();
        call.kept = kept;
        let told = told_of(&acts, &call, &nothing, true);
        put(THREAD.told, told.as_ptr() as u64);
        for (number, (word, length)) in (0..).zip(acts.texts()) {
            let source = match word {
                text::RESULT => Source::ResultText(length),
                word => Source::KeptText(word, length),
            };
            let word = word_of(source.into(), &call, &nothing);
            met.texts += usize::from(word == text::whole(b"/etc"));
            put(THREAD.texts + 8 * number, word);
        }
        call.around = around;
        call.elapsed_ns = elapsed_ns;
        call.inside_ns.set(inside_ns);
        let given = run(pages, &code, &call);
        if acts.is_timed() && now().wrapping_sub(begun_at) >= NANOSECOND {
            // Nobody knows which one it was in.
            return None;
        }
        met.timed += usize::from(self_time.is_some());
        // At a return rdx is the second word of the result.
        let bids = match is_muted {
            true => 0,
            false => interpret_active(&acts, &call, &nothing, (&kinds, &mut sums)).bids,
        };
        let wanted = if bids == 0 { PASSED } else { BIDDEN };
        let said = [THREAD.bids, THREAD.has_bidden]
            .map(|at| block[at as usize / 8].load(Ordering::Relaxed));
        let at = if bids == 0 { 0 } else { top };
        assert_eq!((given, said), (wanted, [bids.into(), at]), "{acts:?}");
        met.bidden += usize::from(bids != 0);
        let inside_ns = set[INSIDE_AT as usize / 8];
        assert_eq!(inside_ns, call.inside_ns.get(), "{acts:?}");
        variables = same_variables(&set, &call, &acts);
    }
    same_sums(&set, &tables, sums, &acts, met);
    Some(())
}

/// The clock.
fn now() -> u64 {
    // SAFETY: nothing forbids it here.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Variables of a thread.
type Variables = [Cell<u64>; MOST_VARIABLES as usize];

/// Both have left the same in variables.
fn same_variables(set: &[u64], call: &Call, acts: &Acts) -> Variables {
    let first = VARIABLES_AT as usize / 8;
    let left = &set[first..first + usize::from(MOST_VARIABLES)];
    assert_eq!(
        call.variables.each_ref().map(Cell::get)[..],
        *left,
        "{acts:?}"
    );
    call.variables.clone()
}

/// Both have added the same.
fn same_sums(set: &[u64], tables: &Tables, mut sums: Sums, acts: &Acts, met: &mut Met) {
    // A count of nothing is no row.
    sums.retain(|_, row| row.count != 0);
    // A number in the place of a text tells nothing.
    for ((table, _), row) in &mut sums {
        let words = tables.all[usize::from(*table)].told.iter();
        row.told.resize(words.map(|n| usize::from(*n)).sum(), 0);
    }
    let (got, left_out) = sums_of(set, tables);
    assert_eq!((&got, left_out), (&sums, 0), "{acts:?}");
    met.added += sums.len();
    for (number, table) in (0..).zip(&tables.all) {
        let rows = sums.range((number, Vec::new())..(number + 1, Vec::new()));
        let is_full = table.kind.has_single_rows() && rows.count() == table.rows() as usize;
        met.full += usize::from(is_full);
    }
}
