//! The state of one stream in the middle of a trace, as bytes, to go on from there later.
//!
//! Given a tree that has come to a block; gives bytes, and from bytes the state. The bytes come
//! from a file beside the trace and are not trusted: times that no replay can have are refused, so
//! that what follows computes with times that fit each other.

use super::super::visitor::{Frame, FrameFlags, StreamTotals, Visitor, entry_of};
use super::{CallTree, Open, Slack, Stream, known};
use crate::error::Malformed;
use crate::format::{Cursor, put_v};
use crate::model::{FunctionId, StreamId};
use crate::reader::Dictionary;

/// Bits of an open frame beside its flags.
const HAS_ESTIMATED_CHILD: u64 = 1 << 8;
const HAS_UNKNOWN_CHILD: u64 = 1 << 5;
const IS_CUT: u64 = 1 << 6;
const IS_PAST: u64 = 1 << 7;

impl CallTree {
    /// Open frames of a stream, and those of them that are in view; none before its first event.
    pub(in super::super) fn open_frames(&self, id: StreamId) -> Option<(usize, usize)> {
        let stream = self.streams.get(&id)?;
        let shown = stream.open.iter().filter(|open| !open.is_past).count();
        (stream.totals.events > 0).then_some((stream.open.len(), shown))
    }

    /// The time of the last event of a stream.
    pub(in super::super) fn last_tsc(&self, id: StreamId) -> Option<u64> {
        self.streams.get(&id).map(|stream| stream.totals.last_tsc)
    }

    /// Appends the state of a stream.
    pub(in super::super) fn keep(&self, id: StreamId, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        put_v(out, stream.start_tsc);
        put_v(out, stream.span.0);
        put_v(out, stream.span.1);
        put_v(out, stream.covered_ticks);
        stream.totals.write(out);
        put_v(out, stream.open.len() as u64);
        for open in &stream.open {
            let frame = &open.frame;
            let beside = [
                (open.has_unknown_child, HAS_UNKNOWN_CHILD),
                (open.has_estimated_child, HAS_ESTIMATED_CHILD),
                (open.is_cut, IS_CUT),
                (open.is_past, IS_PAST),
            ];
            let beside: u64 = beside.iter().map(|(is, bit)| u64::from(*is) * bit).sum();
            put_v(out, frame.function.0.into());
            put_v(out, frame.entry as u64);
            put_v(out, frame.flags.bits() | beside);
            put_v(out, frame.start_tsc);
            put_v(out, open.start_ticks);
            put_v(out, open.children_ticks);
            put_v(out, open.begin_slack.before);
            put_v(out, open.begin_slack.after);
        }
    }

    /// Goes on from a kept state, and tells `visitor` of the frames that are open in it.
    ///
    /// # Errors
    /// If it is none that a replay can have.
    pub(in super::super) fn restore(
        &mut self,
        id: StreamId,
        from: &mut Cursor<'_>,
        dictionary: &Dictionary,
        visitor: &mut impl Visitor,
    ) -> Result<(), Malformed> {
        let mut stream = Stream::new(from.v()?);
        stream.span = (from.v()?, from.v()?);
        stream.covered_ticks = from.v()?;
        stream.totals = StreamTotals::of_numbers(from)?;
        let passed = stream.totals.last_tsc.checked_sub(stream.start_tsc);
        let now = passed.and_then(|ticks| ticks.checked_sub(stream.totals.blocked_ticks));
        let now = now.ok_or(CONTRADICTION)?;
        // What is in view began one inside of the other, each after what has ended in it before.
        let mut least_ticks = stream.covered_ticks;
        for _ in 0..from.v()? {
            let open = read_open(from, stream.shown)?;
            known(open.frame.function, dictionary)?;
            if !open.is_past {
                if open.start_ticks < least_ticks || open.frame.start_tsc > stream.totals.last_tsc {
                    return Err(CONTRADICTION);
                }
                let least = open.start_ticks.checked_add(open.children_ticks);
                least_ticks = least.ok_or(CONTRADICTION)?;
                stream.shown += 1;
                visitor.enter(id, &open.frame);
            }
            stream.open.push(open);
        }
        let most = stream.totals.numbers().into_iter().max();
        if least_ticks > now || stream.totals.known_ticks > now || most > Some(MOST) {
            return Err(CONTRADICTION);
        }
        self.streams.insert(id, stream);
        Ok(())
    }
}

/// What is counted on from a kept number stays below 2^64.
const MOST: u64 = 1 << 62;

const CONTRADICTION: Malformed = Malformed("kept times contradict each other");

fn read_open(from: &mut Cursor<'_>, depth: u32) -> Result<Open, Malformed> {
    let (function, entry, bits) = (from.v32()?, from.v()?, from.v()?);
    let (start_tsc, start_ticks, children_ticks) = (from.v()?, from.v()?, from.v()?);
    let (before, after) = (from.v()?, from.v()?);
    Ok(Open {
        frame: Frame {
            function: FunctionId(function),
            entry: entry_of(entry)?,
            depth,
            start_tsc,
            end_tsc: start_tsc,
            total_ticks: None,
            self_ticks: None,
            flags: FrameFlags::of_bits(bits),
            estimate: None,
        },
        start_ticks,
        children_ticks,
        begin_slack: Slack { before, after },
        has_estimated_child: bits & HAS_ESTIMATED_CHILD != 0,
        has_unknown_child: bits & HAS_UNKNOWN_CHILD != 0,
        is_cut: bits & IS_CUT != 0,
        is_past: bits & IS_PAST != 0,
        is_parents: false,
    })
}
