//! Kept sums are those of the trace, and whatever the file holds is refused or a sum.

mod hand_made;

use hand_made::begun;
use sptrace_trace::index::{self, NoIndex};
use sptrace_trace::{
    FunctionId, Snapshots, Stats, StreamInfo, Summary, Survey, TraceReader, Wanted, replay,
};
use std::fs;
use std::io::Cursor;
use std::path::PathBuf;

/// A trace with so many calls, its survey and its sums.
fn trace(calls: u64) -> (Survey, Stats) {
    let mut writer = begun(3);
    for tid in 0..2 {
        let info = StreamInfo {
            tid,
            ..StreamInfo::default()
        };
        let stream = writer.stream(&info).unwrap();
        let mut e = writer.encoder(stream);
        for n in 1..=calls {
            e.enter(n * 100, FunctionId((n % 3) as u32));
            e.enter(n * 100 + 7, FunctionId(1));
            e.unwound(n * 100 + 9, 1);
            e.exit(n * 100 + 50 + n);
        }
        writer.write_block(&mut e).unwrap();
    }
    let bytes = writer.finish(&Summary::default()).unwrap();
    let mut reader = TraceReader::new(Cursor::new(bytes)).unwrap();
    let survey = reader.survey().unwrap();
    let stats = replay(&mut reader, &survey, &Wanted::default(), Stats::new()).unwrap();
    (survey, stats)
}

/// All that can be asked of sums.
fn said(stats: &Stats) -> String {
    let functions = stats.functions().map(|(id, f)| {
        let times = [
            f.total_ticks(),
            f.self_ticks(),
            f.min_ticks(),
            f.mean_ticks(),
        ];
        let more = [f.max_ticks(), f.p50_ticks(), f.p99_ticks()];
        format!(
            "{id:?} {} {} {} {times:?} {more:?}\n",
            f.calls, f.earlier, f.timed
        )
    });
    let functions: String = functions.collect();
    format!("{functions}{:?}", stats.streams())
}

fn place(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    folder.join("trace")
}

#[test]
fn what_was_kept_is_what_was_added_up_and_of_another_trace_is_not_used() {
    let at = place("kept");
    let _ = fs::remove_file(index::path_of(&at));
    let (survey, stats) = trace(50);
    assert!(matches!(index::load(&at, &survey), Err(NoIndex::Absent)));
    index::save(&at, &survey, &stats, &Snapshots::default()).unwrap();
    assert_eq!(said(&index::load(&at, &survey).unwrap().0), said(&stats));
    let (other, _) = trace(51);
    assert!(matches!(index::load(&at, &other), Err(NoIndex::Foreign)));
    // Nothing else lies beside it.
    let files = fs::read_dir(at.parent().unwrap()).unwrap().count();
    assert_eq!(files, 1);
}

#[test]
fn torn_and_hostile_ones_are_refused_or_sums() {
    let at = place("hostile");
    let (survey, stats) = trace(50);
    index::save(&at, &survey, &stats, &Snapshots::default()).unwrap();
    let path = index::path_of(&at);
    let good = fs::read(&path).unwrap();
    for length in (0..good.len()).step_by(5) {
        fs::write(&path, &good[..length]).unwrap();
        assert!(index::load(&at, &survey).is_err(), "{length} bytes");
    }
    let (mut state, mut refused, mut used) = (0x5eed_u64, 0, 0);
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % bound as u64) as usize
    };
    for _ in 0..1000 {
        let mut bytes = good.clone();
        for _ in 0..=below(3) {
            let position = 28 + below(bytes.len() - 28);
            bytes[position] = [below(256) as u8, 0xff, bytes[position] ^ 1][below(3)];
        }
        let crc = crc32fast::hash(&bytes[28..]);
        bytes[24..28].copy_from_slice(&crc.to_le_bytes());
        fs::write(&path, &bytes).unwrap();
        match index::load(&at, &survey) {
            Ok((stats, _)) => {
                said(&stats);
                used += 1;
            }
            Err(NoIndex::Damaged(_)) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(
        refused > 100 && used > 100,
        "{refused} refused, {used} used"
    );
}
