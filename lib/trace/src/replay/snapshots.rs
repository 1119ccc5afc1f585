//! What lets a range of time be replayed without what is before and after it.
//!
//! A snapshot is the state of one stream where one of its blocks begins, and names the frames that
//! are open then; of each of these it is kept how it ended. So a replay of a range begins at the
//! last snapshot before it and ends at the first one after it, and what is still open there is told
//! to end as it did. Made by [`super::keep`]; here is what of a trace is read for a range, and how
//! snapshots stand in an index. Bytes of an index are not trusted.

use super::call_tree::CallTree;
use super::visitor::{Estimate, Frame, FrameFlags, StreamTotals, Visitor, entry_of};
use crate::error::Malformed;
use crate::format::{Cursor, put_bytes, put_v};
use crate::model::{Entry, FunctionId, StreamId};
use crate::reader::{BlockPlace, Dictionary, Survey};
use rustc_hash::FxHashMap as HashMap;

/// How a frame ended that was open at a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KeptEnd {
    pub frame: Frame,
    /// What it brought with its end, and when.
    pub values: Option<(u64, Vec<u8>)>,
}

impl KeptEnd {
    /// Of a frame that has not ended yet.
    pub fn unknown(depth: u32) -> Self {
        let frame = Frame {
            function: FunctionId(0),
            entry: Entry::Call,
            depth,
            start_tsc: 0,
            end_tsc: 0,
            total_ticks: None,
            self_ticks: None,
            flags: FrameFlags::default(),
            estimate: None,
        };
        Self {
            frame,
            values: None,
        }
    }
}

/// One stream where a block begins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Snapshot {
    pub stream: u32,
    /// The block, counted in the whole file.
    pub block: u64,
    /// All events before it are of this time or earlier, all others of this time or later.
    pub tsc: u64,
    /// The frames in view, as indices of [`KeptEnd`], outermost first.
    pub open: Vec<u32>,
    /// For [`CallTree::restore`].
    pub state: Vec<u8>,
}

/// The snapshots of a trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshots {
    pub(super) ends: Vec<KeptEnd>,
    /// In the order of the file.
    pub(super) shots: Vec<Snapshot>,
    /// By stream: when its last frame ended, and its sums.
    pub(super) totals: Vec<(StreamId, u64, StreamTotals)>,
}

/// What is told of a stream when its part of the range was replayed.
pub(super) struct Tail<'s> {
    /// Frames that are open then, the innermost last.
    pub open: Vec<&'s KeptEnd>,
    pub end_tsc: u64,
    pub totals: StreamTotals,
}

impl Tail<'_> {
    /// Tells of the frames that ended until then, and at last of the stream's end: then it is done.
    pub fn tell(&mut self, id: StreamId, until_tsc: u64, visitor: &mut impl Visitor) -> bool {
        while let Some(end) = self.open.pop_if(|end| end.frame.end_tsc <= until_tsc) {
            if let Some((tsc, bytes)) = &end.values {
                visitor.values(id, *tsc, bytes);
            }
            visitor.leave(id, &end.frame);
        }
        let is_over = self.open.is_empty() && self.end_tsc <= until_tsc;
        if is_over {
            visitor.end(id, &self.totals);
        }
        is_over
    }

    /// When there is something to tell next.
    pub fn next_tsc(&self) -> u64 {
        self.open
            .last()
            .map_or(self.end_tsc, |end| end.frame.end_tsc)
    }
}

/// What is read of a trace for a range of time.
pub(super) struct Part<'s> {
    /// In the order of the file.
    pub blocks: Vec<&'s BlockPlace>,
    starts: Vec<&'s Snapshot>,
    pub tails: HashMap<StreamId, Tail<'s>>,
}

impl<'s> Part<'s> {
    /// All of it.
    pub fn whole(survey: &'s Survey) -> Self {
        Self {
            blocks: survey.blocks.iter().collect(),
            starts: Vec::new(),
            tails: HashMap::default(),
        }
    }

    /// Brings a tree to where the part begins.
    pub fn begin(
        &self,
        tree: &mut CallTree,
        dictionary: &Dictionary,
        view: &mut impl Visitor,
    ) -> Result<(), Malformed> {
        for shot in &self.starts {
            let mut state = Cursor::new(&shot.state);
            tree.restore(StreamId(shot.stream), &mut state, dictionary, view)?;
        }
        Ok(())
    }
}

impl Snapshots {
    /// When the state of any stream is kept, in order.
    pub fn moments_tsc(&self) -> Vec<u64> {
        let mut moments: Vec<_> = self.shots.iter().map(|shot| shot.tsc).collect();
        moments.sort_unstable();
        moments
    }

    /// What is to be read of what runs from `from_tsc` on and begins before `to_tsc`.
    pub(super) fn part<'s>(&'s self, survey: &'s Survey, from_tsc: u64, to_tsc: u64) -> Part<'s> {
        let mut by_stream: HashMap<u32, Vec<&Snapshot>> = HashMap::default();
        for shot in &self.shots {
            by_stream.entry(shot.stream).or_default().push(shot);
        }
        let mut part = Part {
            blocks: Vec::new(),
            starts: Vec::new(),
            tails: HashMap::default(),
        };
        let mut wanted: HashMap<StreamId, (u64, u64)> = HashMap::default();
        let mut first: HashMap<StreamId, u64> = HashMap::default();
        for place in &survey.blocks {
            first.entry(place.stream).or_insert(place.first_tsc);
        }
        for &(id, end_tsc, totals) in &self.totals {
            let shots = by_stream.get(&id.0).map_or(&[][..], Vec::as_slice);
            let start = shots.iter().rev().find(|shot| shot.tsc < from_tsc);
            let stop = shots.iter().find(|shot| shot.tsc >= to_tsc);
            let is_outside = end_tsc < from_tsc || first.get(&id).is_some_and(|t| *t >= to_tsc);
            let mut tail = Tail {
                open: Vec::new(),
                end_tsc,
                totals,
            };
            if is_outside {
                part.tails.insert(id, tail);
                wanted.insert(id, (1, 0));
                continue;
            }
            part.starts.extend(start.copied());
            if let Some(stop) = stop {
                let open = stop
                    .open
                    .iter()
                    .filter_map(|at| self.ends.get(*at as usize));
                tail.open = open.collect();
                part.tails.insert(id, tail);
            }
            let blocks = (
                start.map_or(0, |shot| shot.block),
                stop.map_or(u64::MAX, |shot| shot.block),
            );
            wanted.insert(id, blocks);
        }
        let blocks = (0..).zip(&survey.blocks).filter(|(at, place)| {
            let wanted = wanted.get(&place.stream);
            wanted.is_none_or(|(from, to)| (*from..*to).contains(at))
        });
        part.blocks = blocks.map(|(_, place)| place).collect();
        part
    }
}

impl Snapshots {
    /// As bytes, for an index.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put_v(out, self.ends.len() as u64);
        for KeptEnd { frame, values } in &self.ends {
            put_v(out, frame.function.0.into());
            put_v(out, frame.entry as u64);
            put_v(out, frame.flags.bits());
            put_v(out, frame.depth.into());
            put_v(out, frame.start_tsc);
            put_v(out, frame.end_tsc.saturating_sub(frame.start_tsc));
            for ticks in [frame.total_ticks, frame.self_ticks] {
                put_v(out, ticks.map_or(0, |ticks| ticks.saturating_add(1)));
            }
            let (tsc, bytes) = values.as_ref().map_or((0, &[][..]), |(t, b)| (*t, b));
            put_v(out, tsc);
            put_bytes(out, bytes);
            put_estimate(frame.estimate, out);
        }
        put_v(out, self.shots.len() as u64);
        for shot in &self.shots {
            put_v(out, shot.stream.into());
            put_v(out, shot.block);
            put_v(out, shot.tsc);
            put_v(out, shot.open.len() as u64);
            shot.open.iter().for_each(|&at| put_v(out, at.into()));
            put_bytes(out, &shot.state);
        }
        put_v(out, self.totals.len() as u64);
        for (id, end_tsc, totals) in &self.totals {
            put_v(out, id.0.into());
            put_v(out, *end_tsc);
            totals.write(out);
        }
    }

    /// From such bytes, which are not trusted.
    pub(crate) fn read(from: &mut Cursor<'_>, of: &Dictionary) -> Result<Self, Malformed> {
        let mut kept = Self::default();
        for _ in 0..from.v()? {
            kept.ends.push(read_end(from, of)?);
        }
        for _ in 0..from.v()? {
            let (stream, block, tsc) = (from.v32()?, from.v()?, from.v()?);
            let mut open = Vec::new();
            for depth in 0..from.v()? {
                let at = from.v32()?;
                let end = kept.ends.get(at as usize);
                if end.is_none_or(|end| u64::from(end.frame.depth) != depth) {
                    return Err(Malformed("a snapshot names a frame that was not open"));
                }
                open.push(at);
            }
            if of.stream(StreamId(stream)).is_none() {
                return Err(Malformed("a snapshot of a thread that is not named"));
            }
            let state = from.bytes()?.to_vec();
            kept.shots.push(Snapshot {
                stream,
                block,
                tsc,
                open,
                state,
            });
        }
        for _ in 0..from.v()? {
            let id = StreamId(from.v32()?);
            if of.stream(id).is_none() {
                return Err(Malformed("the end of a thread that is not named"));
            }
            kept.totals.push((id, from.v()?, StreamTotals::read(from)?));
        }
        Ok(kept)
    }
}

fn put_estimate(estimate: Option<Estimate>, out: &mut Vec<u8>) {
    put_v(out, u64::from(estimate.is_some()));
    if let Some(e) = estimate {
        put_v(out, e.total_ticks);
        put_v(out, e.self_ticks.map_or(0, |ticks| ticks.saturating_add(1)));
        put_v(out, e.least_ticks);
        put_v(out, e.most_ticks);
    }
}

fn read_estimate(from: &mut Cursor<'_>) -> Result<Option<Estimate>, Malformed> {
    if from.v()? == 0 {
        return Ok(None);
    }
    Ok(Some(Estimate {
        total_ticks: from.v()?,
        self_ticks: from.v()?.checked_sub(1),
        least_ticks: from.v()?,
        most_ticks: from.v()?,
    }))
}

fn read_end(from: &mut Cursor<'_>, of: &Dictionary) -> Result<KeptEnd, Malformed> {
    let (function, entry, bits) = (from.v32()?, from.v()?, from.v()?);
    let (depth, start_tsc, lasted) = (from.v32()?, from.v()?, from.v()?);
    let (total_ticks, self_ticks) = (from.v()?.checked_sub(1), from.v()?.checked_sub(1));
    let (values_tsc, bytes) = (from.v()?, from.bytes()?);
    let estimate = read_estimate(from)?;
    let end_tsc = start_tsc.checked_add(lasted);
    let is_known = (function as usize) < of.functions.len();
    let fits = total_ticks.unwrap_or(0) <= lasted && self_ticks <= total_ticks;
    let (Some(end_tsc), true, true) = (end_tsc, is_known, fits) else {
        return Err(Malformed("the end of a frame contradicts its beginning"));
    };
    Ok(KeptEnd {
        frame: Frame {
            function: FunctionId(function),
            entry: entry_of(entry)?,
            depth,
            start_tsc,
            end_tsc,
            total_ticks,
            self_ticks,
            flags: FrameFlags::of_bits(bits),
            estimate,
        },
        values: (!bytes.is_empty()).then(|| (values_tsc, bytes.to_vec())),
    })
}
