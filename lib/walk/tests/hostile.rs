//! Nothing that lies in memory or in a file makes a walk panic, run on or read what it may not.
//!
//! Random memory made of words that lead somewhere, and images whose tables have random bytes; the
//! seeds are fixed. What a walk must hold in any case is checked on each.

mod process;

use process::Process;
use sptrace_addr::Avma;
use sptrace_image::UnwindTables;
use sptrace_walk::{
    Cache, End, FoundBy, Memory, Module, PageCache, Registers, Unreadable, Unwinder, Walk,
};

const STACK: u64 = 0x7000_0000_0000;
const STACK_BYTES: u64 = 0x4000;
const MAX_FRAMES: usize = 40;

/// xorshift64*
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }
}

/// Words that a stack holds, good and bad: code, restorers, the stack, edges.
fn word(random: &mut Random, modules: &[Module<'_>], restorers: &[u64]) -> u64 {
    match random.below(32) {
        0..20 => code(random, modules),
        20..24 => STACK + (random.below(STACK_BYTES) & !7),
        24..27 => restorers[random.below(restorers.len() as u64) as usize],
        27..29 => 0x33,
        29 => STACK + random.below(STACK_BYTES),
        30 => {
            let edges = [0, 1, 7, 8, u64::MAX, u64::MAX - 7, 1 << 47, 1 << 63];
            edges[random.below(8) as usize]
        }
        _ => random.next(),
    }
}

fn code(random: &mut Random, modules: &[Module<'_>]) -> u64 {
    let module = &modules[random.below(modules.len() as u64) as usize];
    let range = &module.tables.code[random.below(module.tables.code.len() as u64) as usize];
    let svma = range.start.0 + random.below(range.end.0 - range.start.0);
    svma.wrapping_add(module.bias.0)
}

fn check(walk: &Walk) {
    assert!(walk.frames.len() <= MAX_FRAMES);
    assert_eq!(
        walk.end == End::TooManyFrames,
        walk.frames.len() == MAX_FRAMES
    );
    let mut segment_top = 0;
    for (index, frame) in walk.frames.iter().enumerate() {
        let is_last = index + 1 == walk.frames.len();
        if frame.is_exact() {
            segment_top = frame.stack_pointer.0;
        }
        // Between interruptions the stack goes upwards.
        assert!(frame.stack_pointer.0 >= segment_top);
        segment_top = frame.stack_pointer.0;
        if let (Some(cfa), false) = (frame.cfa, is_last) {
            // Nothing may lie on the stack where a thread stands, in libc's vfork: a step without
            // progress is one only.
            let is_up = cfa > frame.stack_pointer;
            assert!(
                is_up || frame.is_exact() && cfa == frame.stack_pointer,
                "{walk:#x?}"
            );
        }
        assert!(!matches!(frame.found_by, FoundBy::Code));
    }
}

/// The process that tests: its libraries are the images.
fn own_process() -> Process {
    Process::open(std::process::id() as i32)
}

/// Not this program's own: there the bytes stand as data.
fn restorers(process: &Process) -> Vec<u64> {
    let bytes: &[u8] = b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05";
    let of = |file: &process::Mapped| {
        let mut windows = file.bytes.windows(bytes.len());
        let at = windows.position(|w| w == bytes)?;
        Some(file.start.0 + at as u64)
    };
    let libc = |file: &&process::Mapped| file.path.contains("libc.so");
    let found: Vec<u64> = process.mapped.iter().filter(libc).filter_map(of).collect();
    assert!(!found.is_empty());
    found
}

fn walk_random(
    unwinder: &Unwinder<'_>,
    process: &Process,
    modules: &[Module<'_>],
    random: &mut Random,
    rounds: usize,
) -> (usize, Vec<End>) {
    let restorers = restorers(process);
    let mut cache = Cache::default();
    let mut ends = Vec::new();
    let mut frames = 0;
    for _ in 0..rounds {
        let stack: Vec<u8> = (0..STACK_BYTES / 8)
            .flat_map(|_| word(random, modules, &restorers).to_le_bytes())
            .collect();
        let mut memory = |avma: u64, into: &mut [u8]| match avma.checked_sub(STACK) {
            Some(offset) if offset < STACK_BYTES => {
                let found = stack.get(offset as usize..offset as usize + into.len());
                into.copy_from_slice(found.ok_or(Unreadable)?);
                Ok(())
            }
            _ => process.read(avma, into),
        };
        for _ in 0..20 {
            let mut general = [0; 16];
            general.fill_with(|| word(random, modules, &restorers));
            if random.below(8) > 0 {
                general[7] = STACK + (random.below(STACK_BYTES) & !7);
            }
            let registers = Registers::all(code(random, modules), general);
            let walk = unwinder.walk(&registers, &mut memory, &mut cache, MAX_FRAMES, None);
            check(&walk);
            frames += walk.frames.len();
            ends.push(match walk.end {
                End::Unreadable(_) => End::Unreadable(Avma(0)),
                end => end,
            });
        }
    }
    (frames, ends)
}

#[test]
fn random_stacks() {
    let process = own_process();
    let modules: Vec<Module> = process.modules().iter().map(|m| m.0.clone()).collect();
    let unwinder = Unwinder::new(&modules);
    let random = &mut Random(0x5eed);
    let (frames, ends) = walk_random(&unwinder, &process, &modules, random, 1000);
    // The words lead somewhere: walks are not over at once, and end in all ways.
    assert!(
        frames > 2 * ends.len(),
        "{frames} frames of {} walks",
        ends.len()
    );
    for end in [
        End::Outermost,
        End::NullReturn,
        End::NoTable,
        End::Unreadable(Avma(0)),
        End::NoProgress,
        End::BadSignalFrame,
    ] {
        assert!(ends.contains(&end), "no walk ends by {end:?}");
    }
}

#[test]
fn images_with_wrong_tables() {
    let process = own_process();
    let libc = process.mapped.iter().find(|m| m.path.contains("/libc.so"));
    let libc = libc.unwrap();
    let bias = process
        .modules()
        .iter()
        .find(|m| m.1.path == libc.path)
        .unwrap()
        .0
        .bias;
    let random = &mut Random(0xbad);
    for round in 0..60 {
        let mut bytes = libc.bytes.clone();
        let (header_at, frames_at) = {
            let tables = UnwindTables::read(&bytes).unwrap();
            let at = |table: Option<sptrace_image::Table<'_>>| table.unwrap().start.0 as usize;
            (at(tables.eh_frame_hdr), at(tables.eh_frame))
        };
        // In libc these sections lie in the file where they lie in memory.
        assert_eq!(bytes[header_at], 1);
        for _ in 0..if round < 40 { 4000 } else { 3 } {
            bytes[frames_at + random.below(100_000) as usize] = random.next() as u8;
        }
        if round % 4 == 1 {
            bytes[header_at + random.below(16) as usize] = random.next() as u8;
        } else if round % 4 == 2 {
            bytes[header_at + 16 + random.below(20_000) as usize] = random.next() as u8;
        } else if round % 4 == 3 {
            bytes[random.below(0x400) as usize] = random.next() as u8;
        }
        let Ok(tables) = UnwindTables::read(&bytes) else {
            continue;
        };
        if tables.code.is_empty() {
            continue;
        }
        let modules = [Module { tables, bias }];
        let unwinder = Unwinder::new(&modules);
        walk_random(&unwinder, &process, &modules, random, 20);
    }
}

/// A signal frame whose interrupted context is that of its own restorer, for ever.
#[test]
fn signal_frame_that_leads_to_itself() {
    let process = own_process();
    let restorer = restorers(&process)[0];
    let mut frame = [0u64; 64];
    (frame[5 + 15], frame[5 + 16], frame[5 + 18]) = (STACK, restorer, 0x33);
    let mut memory = |avma: u64, into: &mut [u8]| {
        let offset = avma.wrapping_sub(STACK);
        if offset >= size_of_val(&frame) as u64 {
            return process.read(avma, into);
        }
        let bytes: Vec<u8> = frame.iter().flat_map(|w| w.to_le_bytes()).collect();
        let found = bytes.get(offset as usize..offset as usize + into.len());
        into.copy_from_slice(found.ok_or(Unreadable)?);
        Ok(())
    };
    let modules: Vec<Module> = process.modules().iter().map(|m| m.0.clone()).collect();
    let unwinder = Unwinder::new(&modules);
    let registers = Registers::new(restorer, STACK, 0);
    let mut cache = Cache::default();
    let mut walk =
        |memory: &mut dyn Memory| unwinder.walk(&registers, memory, &mut cache, 1000, None);
    let found = walk(&mut memory);
    assert_eq!((found.frames.len(), found.end), (2, End::NoProgress));
    assert!(found.frames[1].is_restorer && found.frames[1].is_exact());
    let mut cached = PageCache::new(|_: u64, _: &mut [u8]| Err(Unreadable));
    assert_eq!(walk(&mut cached).end, End::Unreadable(Avma(STACK)));
}
