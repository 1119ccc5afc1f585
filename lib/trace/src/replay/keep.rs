//! Takes snapshots while a whole trace is replayed for its sums.
//!
//! Given a trace; tells a visitor of all of it in the order of the file, and gives the
//! [`Snapshots`] beside. Frames of a stream leave the view in the order of a stack, so the frames
//! that were open at the last snapshot are those below a depth: one comparison for each end.

use super::ahead::{Ahead, read_ahead};
use super::call_tree::CallTree;
use super::merge::Merge;
use super::sides::Sides;
use super::snapshots::{KeptEnd, Part, Snapshot, Snapshots};
use super::visitor::{Frame, Mark, StreamTotals, Visitor};
use crate::error::{Malformed, TraceError};
use crate::model::StreamId;
use crate::note::Note;
use crate::reader::{Survey, TraceReader};
use std::io::{Read, Seek};

/// Events of a stream between two snapshots: they are replayed in some tens of milliseconds.
pub const EVENTS_APART: u64 = 1 << 19;
/// So many open frames are kept for so many events. Where more are open the next snapshot comes
/// later, so that deep stacks do not make an index that is larger than its trace.
const FRAMES: u64 = 512;

/// Replays all of a trace, and keeps what makes replays of its ranges quick: snapshots that are
/// so many events of a stream apart ([`EVENTS_APART`]).
///
/// # Errors
/// [`TraceError::Read`] and [`TraceError::Damaged`].
pub fn replay_and_keep<R: Read + Seek + Send, V: Visitor>(
    reader: &mut TraceReader<R>,
    survey: &Survey,
    events_apart: u64,
    mut view: V,
) -> Result<(V, Snapshots), TraceError> {
    let dictionary = &survey.dictionary;
    survey.notes.iter().for_each(|note| view.note(note));
    let mut keeper = Keeper {
        inner: view,
        events_apart,
        lanes: Vec::new(),
        kept: Snapshots::default(),
    };
    let sides = Sides::new(survey);
    if sides.is_any() {
        // Their sums need the order of time, and states of both sides are not kept.
        let part = Part::whole(survey);
        let view = &mut keeper.inner;
        Merge::new(reader, survey, (part, sides), view)?.tell(view)?;
        return Ok((keeper.inner, Snapshots::default()));
    }
    let (mut tree, mut blocks) = (CallTree::new(), 0);
    read_ahead(reader, TraceReader::next_item, |item| {
        match item {
            Ahead::Note(note) => tree.note(note),
            Ahead::Events(batch) => {
                let (id, at) = (batch.block.stream, |what: Malformed| what.at(batch.offset));
                if batch.is_first {
                    let view = &mut keeper;
                    tree.begin(&batch.block, dictionary, view).map_err(at)?;
                    keeper.block(&tree, id, blocks);
                    keeper.lane(id).events += batch.block.events;
                    blocks += 1;
                }
                let told = tree.events(&batch.block, &batch.events, dictionary, &mut keeper);
                told.and(batch.error.map_or(Ok(()), Err)).map_err(at)?;
            }
        }
        Ok(!keeper.is_finished())
    })?;
    tree.finish(dictionary, &mut keeper);
    Ok((keeper.inner, keeper.kept))
}

/// A stream.
#[derive(Default)]
struct Lane {
    /// Since its last snapshot.
    events: u64,
    /// The frames that were open at it and are so still, as indices of kept ends.
    open: Vec<u32>,
    /// The last of their ends.
    end_tsc: u64,
    /// What was told just now.
    values: Option<(u64, Vec<u8>)>,
}

struct Keeper<V> {
    inner: V,
    events_apart: u64,
    lanes: Vec<Lane>,
    kept: Snapshots,
}

impl<V> Keeper<V> {
    fn lane(&mut self, id: StreamId) -> &mut Lane {
        // Streams are named in the dictionary, so there are not many more than were seen.
        let at = id.0 as usize;
        if at >= self.lanes.len() {
            self.lanes.resize_with(at + 1, Lane::default);
        }
        &mut self.lanes[at]
    }

    /// A block begins: a snapshot, if it is time for one.
    fn block(&mut self, tree: &CallTree, id: StreamId, block: u64) {
        let events = self.lane(id).events;
        if events < self.events_apart {
            return;
        }
        let (Some((open, shown)), Some(tsc)) = (tree.open_frames(id), tree.last_tsc(id)) else {
            return;
        };
        let least = (open as u64).saturating_mul(self.events_apart);
        if least > events.saturating_mul(FRAMES) {
            return;
        }
        let mut open = std::mem::take(&mut self.lane(id).open);
        for at in open.len()..shown {
            open.push(u32::try_from(self.kept.ends.len()).unwrap_or(u32::MAX));
            self.kept.ends.push(KeptEnd::unknown(at as u32));
        }
        let mut state = Vec::new();
        tree.keep(id, &mut state);
        self.kept.shots.push(Snapshot {
            stream: id.0,
            block,
            tsc,
            open: open.clone(),
            state,
        });
        let lane = self.lane(id);
        (lane.open, lane.events) = (open, 0);
    }
}

impl<V: Visitor> Visitor for Keeper<V> {
    fn note(&mut self, note: &Note) {
        self.inner.note(note);
    }

    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        self.lane(stream).values = None;
        self.inner.enter(stream, frame);
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        let lane = self.lane(stream);
        let values = lane.values.take();
        if (frame.depth as usize) < lane.open.len() {
            let at = lane.open.pop();
            if let Some(end) = at.and_then(|at| self.kept.ends.get_mut(at as usize)) {
                (end.frame, end.values) = (*frame, values);
            }
        }
        let lane = self.lane(stream);
        lane.end_tsc = lane.end_tsc.max(frame.end_tsc);
        self.inner.leave(stream, frame);
    }

    fn values(&mut self, stream: StreamId, tsc: u64, bytes: &[u8]) {
        let lane = self.lane(stream);
        // Of interest only if a frame of before the last snapshot ends next.
        if !lane.open.is_empty() {
            lane.values = Some((tsc, bytes.to_vec()));
        }
        self.inner.values(stream, tsc, bytes);
    }

    fn mark(&mut self, stream: StreamId, tsc: u64, depth: u32, mark: Mark) {
        self.inner.mark(stream, tsc, depth, mark);
    }

    fn end(&mut self, stream: StreamId, totals: &StreamTotals) {
        let end_tsc = self.lane(stream).end_tsc.max(totals.last_tsc);
        self.kept.totals.push((stream, end_tsc, *totals));
        self.inner.end(stream, totals);
    }

    fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }
}
