//! Bytes and nanoseconds an event, on a synthetic stream: an interpreter-like recursion over 500
//! functions with skewed call choices. Arguments: ticks in a clock step (default 26), a file to
//! keep the trace in.
//!
//! `cargo run --release -p sptrace-trace --example encoding_cost [STEP [FILE]]`

use sptrace_addr::Svma;
use sptrace_trace::{
    Function, FunctionId, Header, Item, Module, StreamInfo, Summary, TraceError, TraceReader,
    TraceWriter,
};
use std::time::Instant;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// (ticks since the event before, callee + 1 or 0 for an exit).
fn stream(count: usize, step: u64) -> Vec<(u32, u32)> {
    let mut random = Random(88172645463325252);
    let mut events = Vec::with_capacity(count);
    let mut stack: Vec<(u32, u32, u32)> = vec![(0, 0, 4000)];
    let mut tsc = 0u64;
    while events.len() < count {
        let noise = random.next();
        // Mostly short with a long tail: 40 to 2000 ticks.
        let ticks = 40
            + noise % 60
            + if noise >> 20 & 3 == 0 {
                noise >> 32 & 0x7ff
            } else {
                0
            };
        let before = tsc;
        tsc = (tsc + ticks) / step * step;
        let (function, position, calls) = stack.last().copied().unwrap_or((0, 0, 1000));
        let choice = random.next();
        if position < calls && stack.len() < 40 {
            // A function's calls come in its own order; one in eight depends on the data.
            let which = if choice & 7 == 0 { choice >> 8 & 3 } else { 0 };
            let callee = (function * 7 + position * 3 + which as u32 * 11 + 1) % 500;
            if let Some(top) = stack.last_mut() {
                top.1 += 1;
            }
            let calls = if callee.is_multiple_of(3) {
                0
            } else {
                (callee % 5 + (choice >> 16 & 1) as u32) / 2
            };
            stack.push((callee, 0, calls));
            events.push(((tsc - before) as u32, callee + 1));
        } else {
            stack.pop();
            events.push(((tsc - before) as u32, 0));
        }
    }
    events
}

fn name_functions(writer: &mut TraceWriter<Vec<u8>>) -> Result<(), TraceError> {
    let module = Module {
        path: "/usr/bin/synthetic".into(),
        build_id: Vec::new(),
        svma: Svma(0)..Svma(500 * 64),
    };
    let module = writer.module(&module)?;
    for n in 0..500 {
        writer.function(&Function {
            module,
            svma: Svma(n * 64),
            size_bytes: 64,
            symbol: format!("function_{n}"),
        })?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let step = std::env::args()
        .nth(1)
        .map_or(Ok(26), |text| text.parse())?;
    let events = stream(20_000_000, step);
    let header = Header {
        tsc_hz: 2_445_000_000,
        ..Header::default()
    };
    let mut writer = TraceWriter::create(Vec::new(), &header)?;
    name_functions(&mut writer)?;
    let stream_id = writer.stream(&StreamInfo::default())?;
    let mut encoder = writer.encoder(stream_id);
    let start = Instant::now();
    let mut tsc = 0u64;
    for &(ticks, callee) in &events {
        tsc += u64::from(ticks);
        match callee.checked_sub(1) {
            Some(callee) => encoder.enter(tsc, FunctionId(callee)),
            None => encoder.exit(tsc),
        }
        if encoder.is_full() {
            writer.write_block(&mut encoder)?;
        }
    }
    writer.write_block(&mut encoder)?;
    let encode = start.elapsed();
    let bytes = writer.finish(&Summary::default())?;
    if let Some(path) = std::env::args().nth(2) {
        std::fs::write(path, &bytes)?;
    }
    let start = Instant::now();
    let mut reader = TraceReader::new(&bytes[..])?;
    let mut read = 0;
    while let Some(item) = reader.next_item()? {
        if let Item::Block(block) = item {
            read += block.events().count();
            reader.recycle(block);
        }
    }
    let count = events.len() as f64;
    println!(
        "step {step}: {:.2} bytes, encode {:.2} ns, decode {:.2} ns an event ({read} events)",
        bytes.len() as f64 / count,
        encode.as_nanos() as f64 / count,
        start.elapsed().as_nanos() as f64 / count
    );
    Ok(())
}
