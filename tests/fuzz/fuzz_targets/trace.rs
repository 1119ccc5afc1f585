//! Any bytes as a trace: survey, call tree and statistics give an error or a result, never a panic.
#![no_main]

use sptrace_trace::{CallTree, Item, Stats, TraceReader};
use std::io::Cursor;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(mut reader) = TraceReader::new(Cursor::new(bytes)) else {
        return;
    };
    let Ok(survey) = reader.survey() else { return };
    let (mut tree, mut stats) = (CallTree::new(), Stats::new());
    while let Ok(Some(item)) = reader.next_item() {
        match item {
            Item::Note(note) => tree.note(&note),
            Item::Block(block) => {
                if tree.replay(&block, &survey.dictionary, &mut stats).is_err() {
                    return;
                }
            }
        }
    }
    tree.finish(&survey.dictionary, &mut stats);
});
