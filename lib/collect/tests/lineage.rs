//! What a fork child has recorded is read with its parent's patch areas, whatever the parent has
//! become.

use sptrace_collect::collector::{Collector, Torn};
use sptrace_collect::decode::process::Area;
use sptrace_trace::{Header, TraceWriter};
use sptrace_tracee::arena::{Arena, ArenaOptions};
use sptrace_wire::control::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const PARENT: u32 = 4_000_001;
const CHILD: u32 = 4_000_002;
const AREA: u64 = 0x7000_0000;

/// A stream's entry: process, parent stream with its epoch, and when it began.
struct Begins {
    pid: u32,
    parent: Option<(u32, u32)>,
    epoch: u32,
    tsc: u64,
}

fn begins(arena: &Arena, place: u32, b: &Begins) {
    let mut entry = [0u8; size_of::<Stream>()];
    let (parent, parent_epoch) = b.parent.unwrap_or((NONE, 0));
    let parent_pid = b.parent.map_or(0, |_| PARENT);
    let head = [STREAM_LIVE, b.pid, b.pid, parent, b.epoch, NONE];
    for (bytes, number) in entry.chunks_exact_mut(4).zip(head) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    entry[24..32].copy_from_slice(&b.tsc.to_le_bytes());
    let tail = [parent_pid, PIDS_SAME, parent_epoch];
    for (bytes, number) in entry[32..].chunks_exact_mut(4).zip(tail) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    let size = size_of::<Stream>() as u64;
    arena.write(STREAMS_OFFSET + u64::from(place) * size, &entry);
    let used = &arena.control().streams_used;
    used.store(
        used.load(Ordering::Relaxed).max(place + 1),
        Ordering::Release,
    );
}

/// The stream takes a chunk and writes one word with an id of the area, where nothing lies: it
/// makes no sense, but to whom the area is not known it is a word of an unknown process.
fn writes(arena: &Arena, chunk: u32, place: u32, epoch: u32, tsc: u64) {
    let mut entry = [0u8; size_of::<Chunk>()];
    for (bytes, number) in entry.chunks_exact_mut(4).zip([NONE, place, epoch, 0]) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    entry[16..24].copy_from_slice(&tsc.to_le_bytes());
    arena.write(CHUNKS_OFFSET + u64::from(chunk) * 64, &entry);
    arena.halves(chunk)[0].store(1, Ordering::Relaxed);
    arena.halves(chunk)[1].store(AREA as u32 + 8, Ordering::Relaxed);
    let stream = arena.stream(place as usize);
    stream.chunk.store(chunk, Ordering::Release);
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

/// A parent in stream `place`, which has an area.
fn with_parent(arena: &Arena, place: u32) -> Collector<Vec<u8>> {
    let writer = TraceWriter::create(Vec::new(), &Header::default()).expect("a writer");
    let mut collector = Collector::new(writer);
    let parent = Begins {
        pid: PARENT,
        parent: None,
        epoch: 1,
        tsc: 1 << 40,
    };
    begins(arena, place, &parent);
    collector.drain(arena);
    let area = Area {
        start: AREA,
        bytes: 0x1000,
        module: 0,
        places: Default::default(),
    };
    Arc::make_mut(&mut collector.process(PARENT).areas).push(area);
    collector
}

fn child(parent: (u32, u32)) -> Begins {
    Begins {
        pid: CHILD,
        parent: Some(parent),
        epoch: 1,
        tsc: (1 << 40) + 9,
    }
}

/// All streams end; gives whether the one word was looked for in the parent's area.
fn is_known(mut collector: Collector<Vec<u8>>, arena: &Arena) -> bool {
    collector.end_dead_streams(arena, &|_| false);
    let known = Torn {
        nonsense: 1,
        ..Torn::default()
    };
    let unknown = Torn {
        unknown_process: 1,
        ..Torn::default()
    };
    assert!(
        [known, unknown].contains(&collector.torn),
        "{:?}",
        collector.torn
    );
    collector.torn == known
}

#[test]
fn a_child_that_executes_something_before_anybody_looked() {
    let arena = arena();
    let mut collector = with_parent(&arena, 0);
    begins(&arena, 1, &child((0, 1)));
    writes(&arena, 3, 1, 1, (1 << 40) + 10);
    collector.exec(&arena, CHILD, "other");
    assert!(is_known(collector, &arena));
}

#[test]
fn a_child_whose_parent_has_executed_something() {
    let arena = arena();
    let mut collector = with_parent(&arena, 0);
    collector.exec(&arena, PARENT, "other");
    begins(&arena, 1, &child((0, 1)));
    writes(&arena, 3, 1, 1, (1 << 40) + 10);
    assert!(is_known(collector, &arena));
}

#[test]
fn a_child_whose_parent_has_ended_and_whose_stream_is_somebody_else_s() {
    let arena = arena();
    let mut collector = with_parent(&arena, 0);
    collector.end_dead_streams(&arena, &|_| false);
    let other = Begins {
        pid: PARENT + 9,
        parent: None,
        epoch: 2,
        tsc: (1 << 40) + 5,
    };
    begins(&arena, 0, &other);
    begins(&arena, 1, &child((0, 1)));
    writes(&arena, 3, 1, 1, (1 << 40) + 10);
    assert!(is_known(collector, &arena));
}

#[test]
fn a_grandchild_whose_stream_comes_before_its_parent_s() {
    let arena = arena();
    let collector = with_parent(&arena, 2);
    begins(&arena, 1, &child((2, 1)));
    let grandchild = Begins {
        pid: CHILD + 1,
        parent: Some((1, 1)),
        epoch: 1,
        tsc: (1 << 40) + 20,
    };
    begins(&arena, 0, &grandchild);
    // It was forked in the child, not in the parent.
    let entry = STREAMS_OFFSET + 32;
    arena.write(entry, &CHILD.to_le_bytes());
    writes(&arena, 3, 0, 1, (1 << 40) + 30);
    assert!(is_known(collector, &arena));
}

#[test]
fn a_child_that_has_the_number_of_a_process_that_is_gone() {
    let arena = arena();
    let mut collector = with_parent(&arena, 0);
    collector.exec(&arena, CHILD, "it recorded nothing");
    begins(&arena, 1, &child((0, 1)));
    writes(&arena, 3, 1, 1, (1 << 40) + 10);
    assert!(is_known(collector, &arena));
}
