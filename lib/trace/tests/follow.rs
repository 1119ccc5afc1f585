//! A trace that grows byte by byte is read as the whole one is, and each part once.

mod hand_made;

use hand_made::{begun, nameless};
use sptrace_trace::follow::Follower;
use sptrace_trace::{
    Event, FunctionId, Item, ModuleId, StreamInfo, Summary, TraceError, TraceReader,
};
use std::fs::{self, OpenOptions};
use std::io::{Cursor, Write};
use std::path::PathBuf;

fn trace() -> Vec<u8> {
    let mut writer = begun(0);
    let stream = writer.stream(&StreamInfo::default()).unwrap();
    let mut encoder = writer.encoder(stream);
    for n in 0..4 {
        writer.function(&nameless(ModuleId(0), n)).unwrap();
        for call in 0..3 {
            encoder.enter(n * 100 + call * 10, FunctionId(n as u32));
            encoder.exit(n * 100 + call * 10 + 5);
        }
        writer.write_block(&mut encoder).unwrap();
    }
    writer.finish(&Summary::default()).unwrap()
}

fn events_of(item: Item) -> Vec<Event> {
    match item {
        Item::Block(block) => block.events().collect::<Result<_, _>>().unwrap(),
        Item::Note(_) => Vec::new(),
    }
}

#[test]
fn what_is_added_byte_by_byte_is_read_once_and_in_order() {
    let bytes = trace();
    let mut reader = TraceReader::new(Cursor::new(bytes.clone())).unwrap();
    let mut expected = Vec::new();
    while let Some(item) = reader.next_item().unwrap() {
        expected.extend(events_of(item));
    }
    assert_eq!(expected.len(), 24);
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("growing");
    fs::write(&path, &bytes[..40]).unwrap();
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    let (mut follower, mut found) = (Follower::open(&path).unwrap(), Vec::new());
    for byte in &bytes[40..] {
        assert!(!follower.is_complete());
        file.write_all(&[*byte]).unwrap();
        while let Some(item) = follower.next_item().unwrap() {
            found.extend(events_of(item));
        }
    }
    assert!(follower.is_complete());
    assert_eq!(found, expected);
    assert_eq!(follower.dictionary().functions.len(), 4);
}

#[test]
fn damage_is_named_where_it_lies() {
    let mut bytes = trace();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("damaged");
    fs::write(&path, &bytes).unwrap();
    let mut follower = Follower::open(&path).unwrap();
    let error = loop {
        match follower.next_item() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it ends without an error"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, TraceError::Damaged { .. }), "{error}");
}
