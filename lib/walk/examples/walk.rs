//! Prints the stacks of all threads of a process: `walk PID [code]`.
//!
//! For comparing with a debugger, and for the time that the walks of a stop take. With `code`, code
//! without tables is looked at.

#[path = "../tests/process/mod.rs"]
mod process;

use std::time::Instant;

use process::{Names, Process, registers, release, stop};
use sptrace_addr::Avma;
use sptrace_walk::{Cache, PageCache, Unwinder};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let pid = arguments.next().and_then(|p| p.parse().ok());
    let process = Process::open(pid.expect("usage: walk PID [code]"));
    let by_code = arguments.next().is_some();
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
        let no_start = |_: Avma| None;
        let walks: Vec<_> = threads
            .iter()
            .map(|(_, registers)| {
                let starts = by_code.then_some(&no_start as _);
                unwinder.walk(registers, &mut memory, &mut cache, 256, starts)
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
