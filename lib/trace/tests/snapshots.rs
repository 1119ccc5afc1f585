//! A range that begins and ends at snapshots is told as it is when all of the trace is read.

mod hand_made;

use hand_made::begun;
use sptrace_trace::index;
use sptrace_trace::{
    ExitStatus, Frame, FunctionId, Mark, Note, Order, Selection, Snapshots, Stats, StreamEncoder,
    StreamId, StreamInfo, StreamTotals, Summary, Survey, TraceReader, Visitor, Wanted, replay,
    replay_and_keep,
};
use std::io::Cursor;
use std::sync::Arc;

/// All that is told of each stream, and the order of what ends.
#[derive(Default, PartialEq, Debug)]
struct Told(Vec<Vec<String>>);

impl Told {
    fn put(&mut self, stream: StreamId, what: String) {
        let at = stream.0 as usize;
        self.0.resize(self.0.len().max(at + 1), Vec::new());
        self.0[at].push(what);
    }
}

impl Visitor for Told {
    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        self.put(
            stream,
            format!("enter {:?} {}", frame.function, frame.start_tsc),
        );
    }
    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        self.put(stream, format!("leave {frame:?}"));
    }
    fn values(&mut self, stream: StreamId, tsc: u64, bytes: &[u8]) {
        self.put(stream, format!("values {tsc} {bytes:?}"));
    }
    fn mark(&mut self, stream: StreamId, tsc: u64, depth: u32, mark: Mark) {
        self.put(stream, format!("mark {tsc} {depth} {mark:?}"));
    }
    fn end(&mut self, stream: StreamId, totals: &StreamTotals) {
        self.put(stream, format!("end {totals:?}"));
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// One event of whatever kind, seldom a rare one; deep and shallow parts take turns.
fn event(e: &mut StreamEncoder, random: &mut Random, tsc: u64) {
    let function = FunctionId(random.below(5) as u32);
    let is_rising = (tsc / 4096).is_multiple_of(2);
    match random.below(200) {
        0 => e.tail(tsc, function),
        1 | 2 => e.enter_open(tsc, function),
        3 => e.close_open(tsc, 1),
        4 => e.unwound(tsc, 1 + random.below(2) as u32),
        5 => e.lost(tsc, 3),
        6 => e.blocked(tsc, random.below(9)),
        7 => e.resumed(tsc, function),
        8 => e.called_by(tsc, Some(function)),
        9..=15 => {
            e.values(tsc, &[1, 2, tsc as u8]);
            e.exit(tsc);
        }
        n if (n % 9 < 5) == is_rising => e.enter(tsc, function),
        _ => e.exit(tsc),
    }
}

/// A trace of three threads, of which one ends early and one begins late.
fn trace(seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let mut writer = begun(5);
    let mut encoders = Vec::new();
    for tid in 1..=3 {
        let info = StreamInfo {
            tid,
            pid: 1,
            start_tsc: 10,
            ..StreamInfo::default()
        };
        let stream = writer.stream(&info).unwrap();
        encoders.push(writer.encoder(stream));
    }
    for block in 0..60 {
        for (thread, e) in encoders.iter_mut().enumerate() {
            let is_there = [block < 20, true, block > 30][thread];
            for n in 0..if is_there { 10 + random.below(60) } else { 0 } {
                event(e, &mut random, 100 + block * 500 + n * 7);
            }
            writer.write_block(e).unwrap();
        }
    }
    let exit = Note::ProcessExit {
        pid: 1,
        tsc: 100_000,
        status: ExitStatus::Exited(0),
    };
    writer.event_note(&exit).unwrap();
    writer.finish(&Summary::default()).unwrap()
}

fn told(bytes: &[u8], survey: &Survey, wanted: &Wanted) -> Told {
    let mut reader = TraceReader::new(Cursor::new(bytes)).unwrap();
    replay(&mut reader, survey, wanted, Told::default()).unwrap()
}

fn kept(bytes: &[u8], apart: u64) -> (Survey, Stats, Snapshots) {
    let mut reader = TraceReader::new(Cursor::new(bytes)).unwrap();
    let survey = reader.survey().unwrap();
    let kept = replay_and_keep(&mut reader, &survey, apart, Stats::new());
    let (stats, snapshots) = kept.unwrap();
    (survey, stats, snapshots)
}

#[test]
fn a_part_is_told_as_of_the_whole() {
    for seed in 1..16 {
        let bytes = trace(seed);
        let (survey, _, snapshots) = kept(&bytes, 100);
        let moments = snapshots.moments_tsc();
        assert!(moments.len() > 10, "{}", moments.len());
        let snapshots = Arc::new(snapshots);
        let mut random = Random(seed + 1000);
        for turn in 0..30 {
            let (mut from, mut to) = (random.below(32_000), random.below(32_000));
            if turn % 3 == 0 {
                from = moments[random.below(moments.len() as u64) as usize] + turn % 2;
                to = moments[random.below(moments.len() as u64) as usize];
            }
            let selection = Selection {
                from_tsc: (turn % 5 > 0).then_some(from.min(to)),
                to_tsc: (turn % 5 != 1).then_some(from.max(to)),
                ..Selection::default()
            };
            for order in [Order::File, Order::Time] {
                let wanted = |snapshots| Wanted {
                    selection: selection.clone(),
                    order,
                    snapshots,
                    ..Wanted::default()
                };
                let whole = told(&bytes, &survey, &wanted(None));
                let part = told(&bytes, &survey, &wanted(Some(Arc::clone(&snapshots))));
                let pairs = part.0.iter().flatten().zip(whole.0.iter().flatten());
                let first = pairs.into_iter().position(|(part, whole)| part != whole);
                let at = |told: &Told| told.0.iter().flatten().nth(first.unwrap_or(0)).cloned();
                let differing = (at(&part), at(&whole));
                assert!(
                    part == whole,
                    "seed {seed}, {selection:?}, {order:?}: {differing:?}"
                );
            }
        }
    }
}

#[test]
fn snapshots_survive_their_index_and_hostile_ones_do_no_harm() {
    let bytes = trace(7);
    let (survey, stats, snapshots) = kept(&bytes, 100);
    let at = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("snapshots.trace");
    index::save(&at, &survey, &stats, &snapshots).unwrap();
    assert_eq!(index::load(&at, &survey).unwrap().1, snapshots);
    let good = std::fs::read(index::path_of(&at)).unwrap();
    let (mut random, mut used) = (Random(3), 0);
    for _ in 0..1200 {
        let mut bad = good.clone();
        for _ in 0..1 + random.below(3) {
            let position = 28 + random.below(bad.len() as u64 - 28) as usize;
            bad[position] = random.below(256) as u8;
        }
        let crc = crc32fast::hash(&bad[28..]);
        bad[24..28].copy_from_slice(&crc.to_le_bytes());
        std::fs::write(index::path_of(&at), &bad).unwrap();
        let Ok((_, snapshots)) = index::load(&at, &survey) else {
            continue;
        };
        let wanted = Wanted {
            selection: Selection {
                from_tsc: Some(12_000),
                to_tsc: Some(19_000),
                ..Selection::default()
            },
            order: [Order::File, Order::Time][random.below(2) as usize],
            snapshots: Some(Arc::new(snapshots)),
            ..Wanted::default()
        };
        let mut reader = TraceReader::new(Cursor::new(&bytes)).unwrap();
        let told = replay(&mut reader, &survey, &wanted, Told::default());
        used += usize::from(told.is_ok());
    }
    assert!(used > 40, "{used}");
}
