//! Prints the stacks of all threads of a process: `walk PID [guess]`.
//!
//! For comparing with a debugger, and for the time that the walks of a stop take. With `guess`, code
//! without tables is walked by guesses.

#[path = "../tests/process/mod.rs"]
mod process;

use std::time::Instant;

use process::{Names, Process, registers, release, stop};
use sptrace_addr::Avma;
use sptrace_walk::{Cache, Memory, PageCache, Unwinder};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let pid = arguments.next().and_then(|p| p.parse().ok());
    let process = Process::open(pid.expect("usage: walk PID [guess]"));
    let guess = arguments.next().is_some();
    let modules = process.modules();
    let started = Instant::now();
    let unwinder = Unwinder::new(&modules.iter().map(|m| m.0.clone()).collect::<Vec<_>>());
    let prepared = started.elapsed();
    let mut cache = Cache::default();
    let tids: Vec<i32> = process.threads().into_iter().filter(|t| stop(*t)).collect();
    let threads: Vec<_> = tids.iter().map(|t| (*t, registers(*t))).collect();
    let mut walk_all = || {
        let started = Instant::now();
        let mut memory = PageCache::new(|avma: u64, into: &mut [u8]| process.read(avma, into));
        let is_return_address = |memory: &mut dyn Memory, avma: Avma| follows_call(memory, avma);
        let walks: Vec<_> = threads
            .iter()
            .map(|(_, registers)| {
                let guess = guess.then_some(&is_return_address as _);
                unwinder.walk(registers, &mut memory, &mut cache, 256, guess)
            })
            .collect();
        (walks, started.elapsed())
    };
    let (walks, first) = walk_all();
    let (_, second) = walk_all();
    tids.iter().for_each(|t| release(*t));
    let names = Names::new(&modules);
    for ((tid, _), walk) in threads.iter().zip(&walks) {
        println!("thread {tid}: {} frames, {:?}", walk.frames.len(), walk.end);
        for (number, frame) in walk.frames.iter().enumerate() {
            let at = Avma(frame.address.0 - u64::from(!frame.is_exact()));
            let name = names.of(frame.module, at);
            let path = frame.module.map_or("?", |m| &modules[m].1.path);
            let word = frame.return_word.map_or(0, |w| w.0);
            println!(
                "  #{number:<3} {:#018x} word {word:#x} {:?}{} {name} {path}",
                frame.address.0,
                frame.found_by,
                if frame.is_restorer { " restorer" } else { "" }
            );
        }
    }
    let frames: usize = walks.iter().map(|w| w.frames.len()).sum();
    println!(
        "prepared {} modules in {prepared:?}; {} threads, {frames} frames: {first:?} first, {second:?} again",
        modules.len(),
        threads.len()
    );
}

/// Whether a call instruction ends at `avma`.
fn follows_call(memory: &mut dyn Memory, avma: Avma) -> bool {
    use iced_x86::{Decoder, DecoderOptions, FlowControl};
    let mut bytes = [0; 8];
    let Some(from) = avma.0.checked_sub(8) else {
        return false;
    };
    if memory.read(from, &mut bytes).is_err() {
        return false;
    }
    (2..=7).any(|length| {
        let mut decoder = Decoder::new(64, &bytes[8 - length..], DecoderOptions::NONE);
        let instruction = decoder.decode();
        let is_call = matches!(
            instruction.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        );
        is_call && instruction.len() == length
    })
}
