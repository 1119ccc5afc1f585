//! What an encoder is told comes out of the reader, whatever the stream looks like and wherever
//! the file was cut or changed.

use sptrace_addr::Svma;
use sptrace_trace::{
    Ending, Entry, Event, Function, FunctionId, Header, Item, Module, Note, Section, StreamEncoder,
    StreamInfo, Summary, TraceError, TraceReader, TraceWriter, Turn,
};

const FUNCTIONS: u32 = 300;
/// So many that their numbers take up to three bytes; for traces that are not read thousands of
/// times.
const MANY_FUNCTIONS: u32 = 20_000;

struct XorShift(u64);

impl XorShift {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn writer(out: Vec<u8>, functions: u32) -> TraceWriter<Vec<u8>> {
    let header = Header {
        command: vec!["prog".into(), "-x".into()],
        host: "host".into(),
        tsc_hz: 2_445_000_000,
        start_tsc: 1000,
        ..Header::default()
    };
    let mut writer = TraceWriter::create(out, &header).unwrap();
    let module = Module {
        path: "/usr/bin/prog".into(),
        build_id: vec![1, 2, 3],
        svma: Svma(0)..Svma(0x10000),
    };
    let module = writer.module(&module).unwrap();
    for n in 0..functions {
        let function = Function {
            module,
            svma: Svma(u64::from(n) * 16),
            size_bytes: 16,
            symbol: format!("f{n}"),
        };
        assert_eq!(writer.function(&function).unwrap(), FunctionId(n));
    }
    writer
}

/// A random walk over calls with every other kind of event mixed in.
fn random_events(seed: u64, count: usize, deep: u64, functions: u32) -> Vec<Event> {
    let mut random = XorShift(seed);
    let mut tsc = 5000;
    let mut depth = 0u64;
    let mut events = Vec::new();
    while events.len() < count {
        tsc += match random.below(20) {
            0 => 0,
            1 => random.below(1 << 40),
            2 => 1 + random.below(90_000),
            // About the longest of one byte, and of two.
            3 => 26 * (214 + random.below(20)),
            4 => 26 * (224 + (31 << 8) - 10 + random.below(20)),
            _ => 26 * (1 + random.below(90)),
        };
        let functions = [FUNCTIONS, FUNCTIONS, FUNCTIONS, functions][random.below(4) as usize];
        let callee = FunctionId(random.below(u64::from(functions)) as u32);
        let event = match random.below(60) {
            0 => Event::Enter {
                tsc,
                callee,
                entry: Entry::Tail,
            },
            1 => Event::Enter {
                tsc,
                callee,
                entry: Entry::Open,
            },
            7 => Event::Enter {
                tsc,
                callee,
                entry: Entry::Earlier,
            },
            8 => Event::Inherited {
                tsc,
                callee,
                entry: Entry::Open,
            },
            9 => {
                depth += 1;
                Event::Inherited {
                    tsc,
                    callee,
                    entry: Entry::Call,
                }
            }
            2 => {
                // They may have been begun as calls.
                let frames = random.below(3);
                depth = depth.saturating_sub(frames);
                Event::CloseOpen {
                    tsc,
                    frames: frames as u32,
                }
            }
            3 if depth > 4 => {
                let frames = 1 + random.below(4);
                depth -= frames;
                Event::Unwound {
                    tsc,
                    frames: frames as u32,
                }
            }
            4 => Event::Resumed { tsc, callee },
            5 => Event::Lost {
                tsc,
                events: random.below(1 << 50),
            },
            6 => Event::Blocked {
                tsc,
                ticks: random.below(1000),
            },
            _ if random.below(deep * 2) >= depth => {
                depth += 1;
                Event::Enter {
                    tsc,
                    callee,
                    entry: Entry::Call,
                }
            }
            _ => {
                depth = depth.saturating_sub(1);
                Event::Exit { tsc }
            }
        };
        events.push(event);
    }
    events
}

fn encode(encoder: &mut StreamEncoder, event: &Event) {
    match *event {
        Event::Enter {
            tsc,
            callee,
            entry: Entry::Call,
        } => encoder.enter(tsc, callee),
        Event::Enter {
            tsc,
            callee,
            entry: Entry::Tail,
        } => encoder.tail(tsc, callee),
        Event::Enter {
            tsc,
            callee,
            entry: Entry::Open,
        } => encoder.enter_open(tsc, callee),
        Event::Enter {
            tsc,
            callee,
            entry: Entry::Earlier,
        } => encoder.enter_earlier(tsc, callee),
        Event::Inherited {
            tsc,
            callee,
            entry: Entry::Open,
        } => encoder.inherit_open(tsc, callee),
        Event::Inherited { tsc, callee, .. } => encoder.inherit(tsc, callee),
        Event::Exit { tsc } => encoder.exit(tsc),
        Event::CloseOpen { tsc, frames } => encoder.close_open(tsc, frames),
        Event::Unwound { tsc, frames } => encoder.unwound(tsc, frames),
        Event::Resumed { tsc, callee } => encoder.resumed(tsc, callee),
        Event::Lost { tsc, events } => encoder.lost(tsc, events),
        Event::Blocked { tsc, ticks } => encoder.blocked(tsc, ticks),
        // How many the encoder finds out itself; `call_tree.rs` has tests of it.
        Event::Outside { tsc, .. } => encoder.called_by(tsc, None),
        // Told with the next event; below.
        Event::Between { tsc, back, ahead } => encoder.between(tsc - back, tsc + ahead),
        // Below, with their bytes.
        Event::Values { tsc, .. } => encoder.values(tsc, &[]),
    }
}

fn write(events: &[Event], flush_every: usize) -> Vec<u8> {
    write_as(events, flush_every, false)
}

/// `is_in_order`: in blocks for calls without times.
fn write_as(events: &[Event], flush_every: usize, is_in_order: bool) -> Vec<u8> {
    let many = |event: &Event| matches!(event, Event::Enter { callee, .. } | Event::Inherited { callee, .. } | Event::Resumed { callee, .. } if callee.0 >= FUNCTIONS);
    let functions = match events.iter().any(many) {
        true => MANY_FUNCTIONS,
        false => FUNCTIONS,
    };
    let mut writer = writer(Vec::new(), functions);
    let stream = writer.stream(&StreamInfo {
        pid: 7,
        tid: 7,
        start_tsc: 4000,
        ..StreamInfo::default()
    });
    let mut encoder = writer.encoder(stream.unwrap());
    if is_in_order {
        assert_eq!(encoder.run().stop(), 0);
    }
    for (n, event) in events.iter().enumerate() {
        encode(&mut encoder, event);
        if encoder.is_full() || n % flush_every == flush_every - 1 {
            writer.write_block(&mut encoder).unwrap();
        }
    }
    writer.write_block(&mut encoder).unwrap();
    let note = Note::Recording {
        pid: 7,
        tsc: 9,
        turn: Turn::Dumped {
            event: "crash".into(),
        },
    };
    writer.event_note(&note).unwrap();
    let mut summary = Summary {
        end_tsc: 99,
        ..Summary::default()
    };
    summary.row(Section::Sites, "patched", 12);
    writer.finish(&summary).unwrap()
}

#[test]
fn what_the_kernel_says_of_a_new_program_survives() {
    let notes = [
        Note::KernelExec {
            pid: 7,
            tsc: 4_100,
            path: "/bin/sh".into(),
        },
        Note::Exec {
            pid: 7,
            tsc: 4_200,
            path: "/bin/sh".into(),
        },
        Note::KernelExec {
            pid: u32::MAX,
            tsc: u64::MAX,
            path: String::new(),
        },
    ];
    let mut writer = writer(Vec::new(), 1);
    for note in &notes {
        writer.event_note(note).unwrap();
    }
    let bytes = writer.finish(&Summary::default()).unwrap();
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    let mut found = Vec::new();
    while let Some(item) = reader.next_item().unwrap() {
        if let Item::Note(note) = item {
            found.push(note);
        }
    }
    assert_eq!(found, notes);
    // Its number is what readers of today know it by.
    let tag = [8, 7, 0x84, 0x20, 7];
    let is_there = |bytes: &[u8]| bytes.windows(tag.len()).any(|window| window == tag);
    assert!(is_there(&bytes), "tag 8, process, time, length of the path");
}

fn read(bytes: &[u8]) -> Result<(Vec<Event>, Ending), TraceError> {
    let mut reader = TraceReader::new(bytes)?;
    let mut events = Vec::new();
    while let Some(item) = reader.next_item()? {
        if let Item::Block(block) = item {
            for event in block.events() {
                events.push(event.map_err(|what| what.at(0))?);
            }
            reader.recycle(block);
        }
    }
    Ok((events, reader.ending().clone()))
}

#[test]
fn random_streams_survive() {
    for (seed, count, deep, flush_every) in [
        (1, 200_000, 20, 1 << 20),
        (2, 60_000, 2000, 997),
        (3, 5_000, 3, 1),
        (4, 90_000, 700, 5000),
    ] {
        let events = random_events(seed, count, deep, MANY_FUNCTIONS);
        for is_in_order in [false, true] {
            let bytes = write_as(&events, flush_every, is_in_order);
            let (read, ending) = read(&bytes).unwrap();
            assert_eq!(read.len(), events.len());
            for (n, (read, written)) in read.iter().zip(&events).enumerate() {
                assert_eq!(read, written, "event {n} of seed {seed}");
            }
            assert!(matches!(ending, Ending::Complete(summary) if summary.rows.len() == 1));
        }
    }
}

#[test]
fn every_block_is_readable_alone() {
    let events = random_events(11, 150_000, 1500, MANY_FUNCTIONS);
    let bytes = write(&events, 1000);
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    let mut at = 0;
    while let Some(Item::Block(block)) = reader.next_item().unwrap() {
        // Nothing is kept from block to block here, so each decodes from its own bytes.
        for event in block.events() {
            assert_eq!(event.unwrap(), events[at]);
            at += 1;
        }
    }
    assert_eq!(at, events.len());
}

#[test]
fn a_file_cut_at_any_byte_reads_up_to_there() {
    let events = random_events(5, 300, 10, FUNCTIONS);
    let bytes = write(&events, 50);
    let mut longest = 0;
    for cut in 0..bytes.len() {
        match read(&bytes[..cut]) {
            Ok((read, ending)) => {
                assert!(matches!(ending, Ending::Early { .. }), "cut at {cut}");
                assert_eq!(read[..], events[..read.len()]);
                assert!(read.len() >= longest);
                longest = read.len();
            }
            Err(error) => assert_eq!(longest, 0, "cut at {cut}: {error}"),
        }
    }
    assert_eq!(longest, events.len());
}

#[test]
fn a_changed_byte_is_an_error_or_harmless_but_never_a_panic() {
    let events = random_events(6, 300, 10, FUNCTIONS);
    for is_in_order in [false, true] {
        change_bytes(&events, is_in_order);
    }
}

fn change_bytes(events: &[Event], is_in_order: bool) {
    let bytes = write_as(events, 100, is_in_order);
    let mut errors = 0;
    for at in 16..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] ^= flip;
            errors += usize::from(read(&changed).is_err());
        }
    }
    assert_eq!(
        errors,
        (bytes.len() - 16) * 3,
        "a checksum must notice each of them"
    );
}

/// Checksums keep accidents out, not hostile files: blocks with right checksums and wrong content.
#[test]
fn hostile_content_behind_right_checksums_is_survived() {
    let events = random_events(8, 400, 10, FUNCTIONS);
    let bytes = write(&events, 100);
    let mut random = XorShift(77);
    let (mut errors, mut read_anyway) = (0, 0);
    for _ in 0..3000 {
        let mut changed = bytes.clone();
        let mut at = 16;
        while at + 12 <= changed.len() {
            let length = u32::from_le_bytes(changed[at + 4..at + 8].try_into().unwrap()) as usize;
            let payload = at + 12..at + 12 + length;
            if random.below(4) == 0 {
                for _ in 0..=random.below(4) {
                    let position = payload.start + random.below(length as u64) as usize;
                    changed[position] = random.below(256) as u8;
                }
                let crc = crc32fast::hash(&changed[payload.clone()]);
                changed[at + 8..at + 12].copy_from_slice(&crc.to_le_bytes());
            }
            at = payload.end;
        }
        match read(&changed) {
            Ok((events, _)) => {
                assert!(events.len() < 4 << 20);
                read_anyway += 1;
            }
            Err(_) => errors += 1,
        }
    }
    assert!(errors > 100 && read_anyway > 100, "{errors} {read_anyway}");
}

#[test]
fn foreign_files_are_named() {
    assert!(matches!(read(b""), Err(TraceError::Empty)));
    assert!(matches!(
        read(b"\x7fELF\x02\x01\x01 some program"),
        Err(TraceError::NotATrace)
    ));
    let mut newer = write(&[], 1);
    newer[8] = u8::MAX;
    assert!(matches!(
        read(&newer),
        Err(TraceError::Version { found: 255, .. })
    ));
}

#[test]
fn the_survey_gives_all_names_and_leaves_the_reader_at_the_start() {
    let events = random_events(9, 3000, 10, FUNCTIONS);
    let bytes = write(&events, 500);
    let mut reader = TraceReader::new(std::io::Cursor::new(&bytes)).unwrap();
    let survey = reader.survey().unwrap();
    assert_eq!(survey.dictionary.functions.len(), FUNCTIONS as usize);
    assert_eq!((survey.blocks.len(), survey.bytes), (6, bytes.len() as u64));
    assert!(matches!(survey.ending, Ending::Complete(_)));
    let mut read = 0;
    while let Some(item) = reader.next_item().unwrap() {
        if let Item::Block(block) = item {
            read += block.events().count();
        }
    }
    assert_eq!(read, events.len());
}

/// Bytes of values that tell which they are.
fn values(n: u64) -> Vec<u8> {
    let mut random = XorShift(n + 1);
    let length = match n % 50 {
        0 => random.below(60_000),
        _ => random.below(90),
    };
    (0..length).map(|k| (n + k) as u8).collect()
}

/// With a span before them, which may fill the block, they were in the next one.
#[test]
fn values_stay_with_their_events_wherever_blocks_end() {
    values_stay_with_their_events(values, false);
    values_stay_with_their_events(|n| n.to_le_bytes().to_vec(), true);
}

fn values_stay_with_their_events(values: fn(u64) -> Vec<u8>, has_spans: bool) {
    const CALLS: u64 = 60_000;
    let mut writer = writer(Vec::new(), FUNCTIONS);
    let info = StreamInfo {
        pid: 7,
        tid: 7,
        start_tsc: 4000,
        ..StreamInfo::default()
    };
    let stream = writer.stream(&info);
    let mut encoder = writer.encoder(stream.unwrap());
    for n in 0..CALLS {
        let tsc = 5000 + 10 * n;
        encoder.enter(tsc, FunctionId((n % 7) as u32));
        if has_spans {
            encoder.between(tsc, tsc + 3);
        }
        encoder.values(tsc, &values(n));
        if n % 3 != 0 {
            encoder.exit(tsc + 5);
        }
        if encoder.is_full() {
            writer.write_full(&mut encoder).unwrap();
        }
    }
    writer.write_block(&mut encoder).unwrap();
    let bytes = writer.finish(&Summary::default()).unwrap();
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    let mut next = 0;
    while let Some(item) = reader.next_item().unwrap() {
        let Item::Block(block) = item else { continue };
        for event in block.events() {
            if let Event::Values { tsc, at, bytes } = event.unwrap() {
                assert_eq!(tsc, 5000 + 10 * next);
                assert_eq!(block.values(at, bytes), values(next), "{next}");
                next += 1;
            }
        }
    }
    assert_eq!(next, CALLS);
}
