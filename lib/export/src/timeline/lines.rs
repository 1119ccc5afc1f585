//! What calls have brought and given, for the page: a line each, as `report lines` has them.
//!
//! Given the records of values of a thread and the ends of its calls, keeps the lines of calls that
//! have some, packed in parts: JSON, an array of `[start, depth, call, result]`, compressed, as
//! base64. `lines.js` beside this file finds the line of a call by its start and depth. Lines take
//! a bounded part of the page; what has no room is counted.

use super::columns::{Packed, pack_bytes};
use crate::output::json;
use rustc_hash::FxHashMap as HashMap;
use sptrace_render::call_values::{Begun, Descriptions, Told};
use sptrace_trace::StreamId;
use sptrace_trace::values::Values;

/// Bytes of the page's lines, packed.
const MAX_BYTES: usize = 24 << 20;
/// Bytes of JSON in a part, at least, but for the last.
const PART_BYTES: usize = 256 << 10;

/// The lines of all threads.
pub struct Lines {
    descriptions: Descriptions,
    threads: HashMap<StreamId, Thread>,
    packed_bytes: usize,
    /// Lines that had no room.
    pub left_out: u64,
}

/// Those of a thread.
#[derive(Default)]
struct Thread {
    /// Of each open call.
    open: Vec<Option<Begun>>,
    json: String,
    /// Of the lines in `json`: the first start and the last, and how many.
    start_ns: u64,
    end_ns: u64,
    lines: u32,
    packed: Vec<Packed>,
}

impl Lines {
    /// None yet.
    pub fn new(descriptions: Descriptions) -> Self {
        Self {
            descriptions,
            threads: HashMap::default(),
            packed_bytes: 0,
            left_out: 0,
        }
    }

    /// A call begins.
    pub fn enter(&mut self, stream: StreamId) {
        self.threads.entry(stream).or_default().open.push(None);
    }

    /// What was recorded of calls that are open.
    pub fn values(&mut self, stream: StreamId, bytes: &[u8]) {
        let (Ok(values), Some(thread)) = (Values::read(bytes), self.threads.get_mut(&stream))
        else {
            return;
        };
        let mut open = thread.open.iter_mut().rev();
        Told::of_any(&values)
            .into_iter()
            .for_each(|told| told.put(&mut open));
    }

    /// The innermost call has ended. `shown`: its function's name, where it began and its depth;
    /// `None`: it is not on the page.
    pub fn leave(&mut self, stream: StreamId, shown: Option<(&str, u64, u32)>) {
        let Some(thread) = self.threads.get_mut(&stream) else {
            return;
        };
        let (Some(Some(begun)), Some((name, start_ns, depth))) = (thread.open.pop(), shown) else {
            return;
        };
        let Some(line) = self.descriptions.line_of(Some(&begun), name) else {
            return;
        };
        if self.packed_bytes >= MAX_BYTES {
            self.left_out += 1;
            return;
        }
        let comma = if thread.lines == 0 { '[' } else { ',' };
        let (call, result) = (json(&line.call), json(&line.result));
        thread
            .json
            .push_str(&format!("{comma}[{start_ns},{depth},{call},{result}]"));
        thread.start_ns = match thread.lines {
            0 => start_ns,
            _ => thread.start_ns.min(start_ns),
        };
        thread.end_ns = thread.end_ns.max(start_ns);
        thread.lines += 1;
        if thread.json.len() >= PART_BYTES {
            self.packed_bytes += thread.pack();
        }
    }

    /// A thread has ended.
    pub fn end(&mut self, stream: StreamId) {
        if let Some(thread) = self.threads.get_mut(&stream) {
            thread.open = Vec::new();
            self.packed_bytes += thread.pack();
        }
    }

    /// The parts of all threads.
    pub fn finish(&mut self) -> impl Iterator<Item = (StreamId, &[Packed])> {
        self.threads.values_mut().for_each(|thread| {
            thread.pack();
        });
        let threads = self.threads.iter();
        threads.map(|(stream, thread)| (*stream, &*thread.packed))
    }
}

impl Thread {
    /// Gives the bytes that it takes.
    fn pack(&mut self) -> usize {
        if self.lines == 0 {
            return 0;
        }
        let mut json = std::mem::take(&mut self.json);
        json.push(']');
        let text = pack_bytes(json.as_bytes());
        let bytes = text.len();
        self.packed.push(Packed {
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            items: std::mem::take(&mut self.lines),
            text,
        });
        self.end_ns = 0;
        bytes
    }
}
