//! What a thread is still writing is seen without being taken away.

use sptrace_collect::collector::{Collector, Torn};
use sptrace_trace::{Event, Header, Item, Summary, TraceReader, TraceWriter};
use sptrace_tracee::arena::{Arena, ArenaOptions};
use sptrace_wire::control::*;
use sptrace_wire::record;
use std::sync::atomic::Ordering;

const START_TSC: u64 = 1 << 40;

/// Entries of functions that belong to no module need neither a plan nor a process.
fn put(arena: &Arena, chunk: u32, at: usize, stamp: u32, callee: u64) {
    let words = [stamp, record::ENTERED, callee as u32, (callee >> 32) as u32];
    for (half, value) in arena.halves(chunk)[at..].iter().zip(words) {
        half.store(value, Ordering::Relaxed);
    }
}

fn thread_begins(arena: &Arena) {
    let mut entry = [0u8; size_of::<Stream>()];
    let numbers = [STREAM_LIVE, 4_000_001, 4_000_001, NONE, 1, NONE];
    for (bytes, number) in entry.chunks_exact_mut(4).zip(numbers) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    entry[24..32].copy_from_slice(&START_TSC.to_le_bytes());
    arena.write(STREAMS_OFFSET, &entry);
    arena.control().streams_used.store(1, Ordering::Release);
}

fn takes(arena: &Arena, chunk: u32, sequence: u32) {
    let mut entry = [0u8; size_of::<Chunk>()];
    for (bytes, number) in entry.chunks_exact_mut(4).zip([NONE, 0, 1, sequence]) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    entry[16..24].copy_from_slice(&START_TSC.to_le_bytes());
    arena.write(CHUNKS_OFFSET + u64::from(chunk) * 64, &entry);
    arena.stream(0).chunk.store(chunk, Ordering::Release);
}

fn hands_over(arena: &Arena, chunk: u32) {
    let head = &arena.control().full_chunks;
    let next = head.load(Ordering::Relaxed);
    arena.chunk(chunk).next.store(next, Ordering::Relaxed);
    head.store(chunk, Ordering::Release);
}

/// Stamps of the events in a trace that ends in `blocks`.
fn stamps(trace: &[u8], blocks: &[u8]) -> Vec<u64> {
    let bytes = [trace, blocks].concat();
    let mut reader = TraceReader::new(&bytes[..]).expect("a trace");
    let mut found = Vec::new();
    while let Some(item) = reader.next_item().expect("it is whole") {
        if let Item::Block(block) = item {
            found.extend(block.events().filter_map(|e| match e.expect("an event") {
                Event::Enter { tsc, .. } => Some(tsc - START_TSC),
                // Who calls is not known.
                Event::Outside { .. } => None,
                other => panic!("{other:?}"),
            }));
        }
    }
    found
}

/// An output that can be looked at while it is written.
#[derive(Clone, Default)]
struct Shared(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("no panic").clone()
    }
}

fn arena() -> Arena {
    Arena::new(ArenaOptions {
        memory_limit: u64::MAX,
        chunks: 8,
        drop_when_full: false,
        depth_limit: 0,
        loader: false,
        roots_only: false,
        ahead: false,
        counts: false,
        in_order: false,
        mixed: false,
        counted_in_order: false,
        keeps_returns: false,
        levels: false,
    })
    .expect("an arena")
}

#[test]
fn a_chunk_in_use_is_read_up_to_now_and_again_when_it_is_full() {
    let (arena, output) = (arena(), Shared::default());
    let writer = TraceWriter::create(output.clone(), &Header::default()).expect("a writer");
    let mut collector = Collector::new(writer);
    thread_begins(&arena);
    takes(&arena, 3, 0);
    put(&arena, 3, 0, 10, 0x1111);
    put(&arena, 3, 4, 20, 0x2222);
    // A stamp that was written, and no id yet.
    arena.halves(3)[8].store(30, Ordering::Relaxed);

    for _twice in 0..2 {
        let ahead = collector.peek(&arena);
        assert_eq!(stamps(&output.bytes(), &ahead.blocks), [10, 20]);
        assert_eq!(stamps(&output.bytes(), &[]), [], "nothing was taken away");
    }
    put(&arena, 3, 8, 30, 0x3333);
    hands_over(&arena, 3);
    takes(&arena, 5, 1);
    put(&arena, 5, 0, 40, 0x1111);
    let ahead = collector.peek(&arena);
    assert_eq!(stamps(&output.bytes(), &[]), [10, 20, 30], "handed over");
    assert_eq!(stamps(&output.bytes(), &ahead.blocks), [10, 20, 30, 40]);
    // The high half of the callee is zero, and so is the rest of the chunk.
    assert_eq!(collector.torn, Torn::default());
    assert_eq!(ahead.record_bytes, 12);
    collector.end_dead_streams(&arena, &|_| false);
    let summary = Summary::default();
    collector.finish(&arena, &summary).expect("it ends");
    assert_eq!(stamps(&output.bytes(), &[]), [10, 20, 30, 40]);
}

#[test]
fn what_happened_after_the_end_of_the_recording_is_left_out() {
    let (arena, output) = (arena(), Shared::default());
    let writer = TraceWriter::create(output.clone(), &Header::default()).expect("a writer");
    let mut collector = Collector::new(writer);
    thread_begins(&arena);
    takes(&arena, 0, 0);
    for (i, stamp) in [10, 20, 30].into_iter().enumerate() {
        put(&arena, 0, i * 4, stamp, 0x1111);
    }
    collector.record_until(START_TSC + 20);
    collector.end_dead_streams(&arena, &|_| false);
    collector
        .finish(&arena, &Summary::default())
        .expect("it ends");
    assert_eq!(stamps(&output.bytes(), &[]), [10, 20]);
}

#[test]
fn who_reads_many_chunks_shows_life_at_each() {
    let arena = arena();
    let writer = TraceWriter::create(Shared::default(), &Header::default()).expect("a writer");
    let mut collector = Collector::new(writer);
    thread_begins(&arena);
    for (chunk, sequence) in [(3, 0), (5, 1), (6, 2)] {
        takes(&arena, chunk, sequence);
        put(&arena, chunk, 0, 10 + sequence, 0x1111);
        hands_over(&arena, chunk);
    }
    let beats = || arena.control().heartbeat.load(Ordering::Relaxed);
    let before = beats();
    assert_eq!(collector.drain(&arena), 3);
    assert_eq!(
        beats() - before,
        3,
        "the agent takes a host without a beat for stopped"
    );
}
