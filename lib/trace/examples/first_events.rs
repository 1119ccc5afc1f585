//! When a trace begins: `first_events FILE` prints, as TSC, the first event of all threads and the
//! first of a call that began after the recording did. For `tests/bench/bench.py`.

use sptrace_trace::{Entry, Event, Item, TraceReader};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: first_events FILE")?;
    let mut reader = TraceReader::open(Path::new(&path))?;
    let (mut first, mut first_call) = (u64::MAX, u64::MAX);
    while let Some(item) = reader.next_item()? {
        let Item::Block(block) = item else { continue };
        for event in block.events() {
            let event = event.map_err(|e| format!("{e:?}"))?;
            first = first.min(event.tsc());
            if let Event::Enter { tsc, entry, .. } = event
                && entry != Entry::Earlier
            {
                first_call = first_call.min(tsc);
            }
        }
        reader.recycle(block);
    }
    println!("{first} {first_call} {}", reader.header().tsc_hz);
    Ok(())
}
