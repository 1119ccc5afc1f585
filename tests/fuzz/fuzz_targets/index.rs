//! Any bytes as what is kept beside a trace, whose head is put right first: refused, or sums, and
//! ranges of the trace that begin at its snapshots.
#![no_main]

#[path = "../../../lib/trace/tests/hostile/mod.rs"]
mod hostile;

use sptrace_trace::{Order, Selection, Stats, Survey, TraceReader, Wanted, index, replay};
use std::io::Cursor;
use std::sync::{Arc, OnceLock};

fn trace() -> &'static (Vec<u8>, Survey) {
    static TRACE: OnceLock<(Vec<u8>, Survey)> = OnceLock::new();
    TRACE.get_or_init(|| {
        let bytes = hostile::trace(false);
        let survey = TraceReader::new(Cursor::new(&bytes[..])).and_then(|mut r| r.survey());
        let survey = survey.expect("a trace of ours");
        (bytes, survey)
    })
}

libfuzzer_sys::fuzz_target!(|payload: &[u8]| {
    let (trace, survey) = trace();
    let bytes = index::with_head(payload, survey);
    let Ok((stats, snapshots)) = index::read(&bytes.expect("a short payload"), survey) else {
        return;
    };
    for (_, function) in stats.functions() {
        let _ = (function.p99_ticks(), function.mean_ticks());
    }
    let snapshots = Arc::new(snapshots);
    for (from, to) in [(0, 2000), (5000, 30_000), (40_000, u64::MAX)] {
        for order in [Order::File, Order::Time] {
            let mut reader = TraceReader::new(Cursor::new(&trace[..])).expect("a trace of ours");
            let wanted = Wanted {
                selection: Selection {
                    from_tsc: Some(from),
                    to_tsc: Some(to),
                    ..Selection::default()
                },
                order,
                snapshots: Some(Arc::clone(&snapshots)),
                ..Wanted::default()
            };
            let _ = replay(&mut reader, survey, &wanted, Stats::new());
        }
    }
});
