//! Nanoseconds a call, from the records of synthetic chunks to blocks of a trace, where calls are
//! recorded in order: all of them (a recursion like that of Fibonacci's numbers), or in a loop
//! whose body has a stamp and calls some that have none. Argument: how many chunks.
//!
//! `cargo run --release -p sptrace-collect --example decoding_cost [CHUNKS]`

use std::error::Error;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use sptrace_collect::decode::book::AddressBook;
use sptrace_collect::decode::module::{PLACE_ENTRY, PLACE_EXIT, PLACE_IN_ORDER, Places};
use sptrace_collect::decode::names::Naming;
use sptrace_collect::decode::process::{Area, Areas};
use sptrace_collect::decode::sink::{Inherited, Plain, Sink};
use sptrace_collect::decode::{Cursor, Decoder, Torn};
use sptrace_trace::{
    Function, FunctionId, Header, Module, ModuleId, StreamInfo, Summary, TraceWriter,
};
use sptrace_wire::record::PLACED;

const AREA: u32 = 0x7000_0000;
const ENTRY: u32 = AREA + 8;
const EXIT: u32 = AREA + 16;
/// The first of the places whose calls are in order.
const ORDERED: u32 = AREA + 64;
const ORDERED_PLACES: u32 = 8;
const TOP: u32 = 0x6000_0000;
/// Halves of a chunk, less what a group of records may be longer.
const FULL: usize = 16_000;

struct Encoded {
    writer: TraceWriter<Vec<u8>>,
    encoder: sptrace_trace::StreamEncoder,
    calls: u64,
}

impl Naming for Encoded {
    fn module(&mut self, _: &Module) -> ModuleId {
        ModuleId(0)
    }
    fn function(&mut self, _: &Function) -> FunctionId {
        FunctionId(0)
    }
    fn description(&mut self, _: &str) -> u32 {
        0
    }
}

impl Sink for Encoded {
    fn come_to(&mut self, _: u64, _: u64) -> bool {
        true
    }
    fn enter(
        &mut self,
        tsc: u64,
        _: u8,
        callee: FunctionId,
        _: impl FnOnce(bool) -> Option<FunctionId>,
    ) {
        self.calls += 1;
        self.encoder.enter(tsc, callee);
    }
    fn exit(&mut self, tsc: u64) {
        self.encoder.exit(tsc);
    }
    fn unwound(&mut self, _: u64, _: u32) {}
    fn closed(&mut self, _: u64, _: u32) {}
    fn resumed(&mut self, _: u64, _: FunctionId) {}
    fn lost(&mut self, _: u64, _: u64) {}
    fn values(&mut self, _: u64, _: &[u8]) {}
    fn blocked(&mut self, _: u64, _: u64) {}
    fn inherited(&mut self, _: u64, _: Inherited, _: FunctionId) {}
    fn between(&mut self, from_tsc: u64, to_tsc: u64) {
        self.encoder.between(from_tsc, to_tsc);
    }
    fn takes_rows(&self) -> bool {
        true
    }
    fn row(&mut self, high: u64, mut events: &[Plain], spans: &[(u64, u64)]) {
        while !events.is_empty() {
            let mut burst = self.encoder.burst();
            let (now, later) = events.split_at(burst.room().min(events.len()));
            for event in now {
                let tsc = high << 32 | u64::from(event.stamp);
                match (event.place.callee(), event.place.as_span()) {
                    (Some(callee), _) => {
                        self.calls += 1;
                        burst.enter(tsc, callee);
                    }
                    (None, None) => burst.exit(tsc),
                    (None, Some(span)) => burst.span(spans[span].0, spans[span].1),
                }
            }
            burst.finish();
            events = later;
        }
    }
}

fn areas() -> Areas {
    let in_order = (0..ORDERED_PLACES).map(|n| {
        let offset = ORDERED - AREA + 8 * n;
        (offset, PLACE_IN_ORDER, Some(FunctionId(n + 1)))
    });
    let stamped = [
        (ENTRY - AREA, PLACE_ENTRY, Some(FunctionId(0))),
        (EXIT - AREA, PLACE_EXIT, None),
    ];
    let places: Vec<_> = stamped.into_iter().chain(in_order).collect();
    let mut areas = Areas::default();
    areas.push(Area {
        start: AREA.into(),
        bytes: 0x1000,
        module: 0,
        places: Places::of(&places),
    });
    areas
}

fn recursion(halves: &mut Vec<u32>, depth: u32) {
    let id = ORDERED + 8 * (depth % ORDERED_PLACES);
    halves.extend([TOP - 64 * (20 - depth), id]);
    for less in 1..3 {
        if depth >= less && halves.len() < FULL {
            recursion(halves, depth - less);
        }
    }
}

/// In each turn a call with stamps, and in that some in order, one of them inside of another.
fn turns(halves: &mut Vec<u32>) {
    for turn in 1.. {
        if halves.len() >= FULL {
            return;
        }
        halves.extend([TOP, PLACED, turn * 1000, ENTRY]);
        for call in 0..turn % 7 {
            let place = TOP - 64 - 64 * (call % 2);
            halves.extend([place, ORDERED + 8 * (call % ORDERED_PLACES)]);
        }
        halves.extend([turn * 1000 + 700, EXIT]);
    }
}

fn measure(what: &str, halves: &[u32], is_mixed: bool, chunks: u64) -> Result<(), Box<dyn Error>> {
    let halves: Vec<_> = halves.iter().copied().map(AtomicU32::new).collect();
    let header = Header {
        tsc_hz: 2_445_000_000,
        ..Header::default()
    };
    let mut writer = TraceWriter::create(Vec::new(), &header)?;
    let stream = writer.stream(&StreamInfo::default())?;
    let encoder = writer.encoder(stream);
    let mut sink = Encoded {
        writer,
        encoder,
        calls: 0,
    };
    let (mut book, areas, mut torn) = (AddressBook::default(), areas(), Torn::default());
    let mut cursor = Cursor::new(1, 0);
    if is_mixed {
        cursor = cursor.mixed();
    }
    let start = Instant::now();
    for chunk in 0..chunks {
        cursor.begin_chunk(chunk << 32);
        cursor.until_tsc = (chunk + 1) << 32;
        let decoder = Decoder {
            book: &mut book,
            areas: &areas,
            cursor: &mut cursor,
            torn: &mut torn,
            sink: &mut sink,
        };
        decoder.decode(&halves);
        sink.writer.write_block(&mut sink.encoder)?;
    }
    let passed = start.elapsed();
    let calls = sink.calls;
    let bytes = sink.writer.finish(&Summary::default())?.len();
    println!(
        "{what}: {:.1} ns a call ({calls} calls, {:.2} bytes each, {} torn)",
        passed.as_nanos() as f64 / calls as f64,
        bytes as f64 / calls as f64,
        torn.nonsense
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let chunks = std::env::args().nth(1).map_or(Ok(1000), |n| n.parse())?;
    let (mut all, mut some) = (Vec::new(), Vec::new());
    recursion(&mut all, 19);
    turns(&mut some);
    measure("all in order", &all, false, chunks)?;
    measure("in order and with stamps", &some, true, chunks)
}
