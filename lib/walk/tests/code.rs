//! What code says of its frames, compared with what the unwind tables of the same code say: real
//! libraries and programs, one instruction in some. The stack is made: where the table says that
//! the return address lies there is one, and, as in real stacks, another that is not of this frame
//! in each eighth word or so.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use iced_x86::{Decoder, DecoderOptions};
use sptrace_addr::{Avma, Bias, Svma};
use sptrace_image::UnwindTables;
use sptrace_walk::{Cache, Module, Registers, Unreadable, Unwinder};

const STACK: u64 = 0x7fff_0000_0000;
const STACK_BYTES: u64 = 8 << 20;

const RSP: u64 = STACK + STACK_BYTES / 2;

fn at(pc: u64) -> Registers {
    let mut general = [0; 16];
    general[6] = RSP + 0x1000; // rbp
    general[7] = RSP;
    Registers::all(pc, general)
}

/// Entry and end of each function with a table.
fn functions(tables: &UnwindTables<'_>) -> BTreeMap<u64, u64> {
    let table = tables.eh_frame.unwrap();
    let section = EhFrame::new(table.bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(table.start.0);
    let mut entries = section.entries(&bases);
    let mut found = BTreeMap::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let fde = partial.parse(EhFrame::cie_from_offset).unwrap();
        found.insert(fde.initial_address(), fde.end_address());
    }
    found
}

#[derive(Default, Debug, Clone, Copy, PartialEq, Eq)]
struct Counts {
    same: u32,
    other: u32,
    none: u32,
}

/// Compares the rules at every `step`th instruction of all functions.
fn compare(path: &str, step: usize, with_start: bool, learns: bool) -> Counts {
    let bytes = std::fs::read(path).unwrap();
    let tables = UnwindTables::read(&bytes).unwrap();
    let functions = functions(&tables);
    let segments = segments(&bytes);
    let bias = Bias::between(Svma(0), Avma(0));
    let without = UnwindTables {
        eh_frame: None,
        eh_frame_hdr: None,
        ..tables.clone()
    };
    let unwinder = |tables| Unwinder::new(&[Module { tables, bias }]);
    let (by_table, by_code) = (unwinder(tables.clone()), unwinder(without));
    // The address behind some call.
    let call = functions
        .keys()
        .find_map(|f| calls_behind(&bytes, &segments, *f))
        .unwrap();
    // Where the return address lies; 0: everywhere.
    let right = Cell::new(0);
    let mut memory = |avma: u64, into: &mut [u8]| -> Result<(), Unreadable> {
        if (STACK..STACK + STACK_BYTES).contains(&avma) {
            let is_left_over = (avma >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61 == 0;
            let is_address = is_left_over || [0, avma].contains(&right.get());
            let word = if is_address { call } else { 5 };
            into.copy_from_slice(&word.to_le_bytes()[..into.len()]);
            return Ok(());
        }
        let from = file_bytes(&bytes, &segments, avma).ok_or(Unreadable)?;
        into.copy_from_slice(from.get(..into.len()).ok_or(Unreadable)?);
        Ok(())
    };
    let (mut caches, mut counts) = ((Cache::default(), Cache::default()), Counts::default());
    caches.1.learn_all(learns);
    let mut at_step = 0_usize;
    for (&start, &end) in &functions {
        let Some(code) = file_bytes(&bytes, &segments, start) else {
            continue;
        };
        let code = &code[..code.len().min((end - start) as usize)];
        // Cold parts have tables of their own, but are no functions.
        right.set(0);
        let entered = by_table.walk(&at(start), &mut memory, &mut caches.0, 2, None);
        let is_whole = entered
            .frames
            .get(1)
            .is_some_and(|f| f.stack_pointer.0 == RSP + 8);
        for i in Decoder::with_ip(64, code, start, DecoderOptions::NONE).into_iter() {
            at_step += 1;
            if i.is_invalid() || !at_step.is_multiple_of(step) {
                continue;
            }
            let pc = i.ip();
            let registers = at(pc);
            let starts = |at: Avma| {
                let around = functions.range(..=at.0).next_back();
                let start = around.map(|(start, _)| Avma(*start));
                start.filter(|_| with_start && is_whole)
            };
            right.set(0);
            let table = by_table.walk(&registers, &mut memory, &mut caches.0, 2, None);
            let Some(expected) = table.frames.get(1) else {
                continue;
            };
            right.set(expected.stack_pointer.0 - 8);
            let found = by_code.walk(&registers, &mut memory, &mut caches.1, 2, Some(&starts));
            match found.frames.get(1) {
                None => counts.none += 1,
                Some(f) if f.stack_pointer == expected.stack_pointer => counts.same += 1,
                Some(f) => {
                    let (found, expected) = (f.stack_pointer.0, expected.stack_pointer.0);
                    println!("{path} {pc:#x}: {found:#x}, not {expected:#x}");
                    counts.other += 1;
                }
            }
        }
    }
    counts
}

fn segments(bytes: &[u8]) -> Vec<(u64, u64, u64)> {
    let word = |at: usize, n: usize| {
        let mut w = [0; 8];
        w[..n].copy_from_slice(&bytes[at..at + n]);
        u64::from_le_bytes(w)
    };
    let (table, count) = (word(32, 8) as usize, word(56, 2) as usize);
    (0..count)
        .map(|i| table + i * 56)
        .filter(|at| word(*at, 4) == 1)
        .map(|at| (word(at + 16, 8), word(at + 8, 8), word(at + 32, 8)))
        .collect()
}

fn file_bytes<'a>(bytes: &'a [u8], segments: &[(u64, u64, u64)], svma: u64) -> Option<&'a [u8]> {
    let (start, offset, size) = segments
        .iter()
        .find(|(start, _, size)| (*start..start + size).contains(&svma))?;
    bytes.get((offset + svma - start) as usize..(offset + size) as usize)
}

fn calls_behind(bytes: &[u8], segments: &[(u64, u64, u64)], function: u64) -> Option<u64> {
    let code = file_bytes(bytes, segments, function)?;
    Decoder::with_ip(
        64,
        &code[..code.len().min(200)],
        function,
        DecoderOptions::NONE,
    )
    .into_iter()
    .find(|i| i.is_call_near())
    .map(|i| i.next_ip())
}

fn libc() -> &'static str {
    let libc = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6"];
    libc.into_iter().find(|p| Path::new(p).exists()).unwrap()
}

#[test]
fn what_was_learned_on_the_way_is_what_a_search_finds() {
    let [searched, learned] = [false, true].map(|learns| compare(libc(), 101, true, learns));
    assert_eq!(searched, learned);
}

#[test]
fn code_says_what_tables_say() {
    for path in [libc(), "/usr/bin/git"] {
        if !Path::new(path).exists() {
            continue;
        }
        for with_start in [true, false] {
            let c = compare(path, 41, with_start, false);
            println!("{path}, start known: {with_start}: {c:?}");
            let all = c.same + c.other + c.none;
            // Filling behind a function has a row of the table, but nobody stands there.
            assert!(c.other * 1000 <= all, "{c:?}");
            // Not from the start: jump tables, and calls that do not return, hide returns.
            let least = if with_start { 980 } else { 950 };
            assert!(all > 5000 && c.same * 1000 >= all * least, "{c:?}");
        }
    }
}
