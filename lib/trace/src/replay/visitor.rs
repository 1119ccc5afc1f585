//! What a replay tells, and to whom: frames, what lies between them, and the sums of a stream.
//!
//! A [`Visitor`] is given these by [`super::CallTree`], or by what stands between. Knows nothing of
//! how they are found out.

use crate::error::Malformed;
use crate::model::{Entry, FunctionId, StreamId};
use crate::note::Note;

/// What is unusual about a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameFlags {
    /// Ended by a longjmp or a throw, not by a return: some time before what came next.
    pub unwound: bool,
    /// Its end was not seen; the stated one is the latest possible, or where it left the view.
    pub end_unseen: bool,
    /// It ran until its process ended or replaced its program.
    pub until_process_end: bool,
    /// It began before its stream.
    pub begin_unseen: bool,
    /// The thread waited for sptrace or lost events inside it.
    pub disturbed: bool,
}

impl FrameFlags {
    /// As five bits.
    pub(super) fn bits(self) -> u64 {
        let flags = [
            self.unwound,
            self.end_unseen,
            self.until_process_end,
            self.begin_unseen,
            self.disturbed,
        ];
        let bits = flags.into_iter().enumerate();
        bits.map(|(at, is_set)| u64::from(is_set) << at).sum()
    }

    /// From such bits; others are passed over.
    pub(super) fn of_bits(bits: u64) -> Self {
        let is_set = |at: u32| bits >> at & 1 == 1;
        Self {
            unwound: is_set(0),
            end_unseen: is_set(1),
            until_process_end: is_set(2),
            begin_unseen: is_set(3),
            disturbed: is_set(4),
        }
    }
}

/// How a frame was opened, from its number.
pub(super) fn entry_of(number: u64) -> Result<Entry, Malformed> {
    Ok(match number {
        0 => Entry::Call,
        1 => Entry::Tail,
        2 => Entry::Open,
        3 => Entry::Earlier,
        _ => return Err(Malformed("a kept frame of an unknown kind")),
    })
}

/// A function's run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What ran.
    pub function: FunctionId,
    /// How it began.
    pub entry: Entry,
    /// Frames below it.
    pub depth: u32,
    /// When it began.
    pub start_tsc: u64,
    /// When it ended; equal to the start as long as it runs.
    pub end_tsc: u64,
    /// Duration without waiting for sptrace; `None`: its end was not seen, or it runs.
    pub total_ticks: Option<u64>,
    /// The part of the duration outside the frames above it; `None` also if the duration of one of
    /// those is not known.
    pub self_ticks: Option<u64>,
    /// What is unusual about it.
    pub flags: FrameFlags,
    /// Of a frame that was recorded without the time of its beginning or its end, or with frames
    /// above it that were: what its times may have been. The durations above are not known then.
    pub estimate: Option<Estimate>,
}

/// Times that were not measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Estimate {
    /// Duration, as in [`Frame::total_ticks`].
    pub total_ticks: u64,
    /// Of that the part outside the frames above it; `None`: one of those has no duration at all.
    pub self_ticks: Option<u64>,
    /// The duration is not shorter.
    pub least_ticks: u64,
    /// The duration is not longer.
    pub most_ticks: u64,
}

/// Something between the frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// A call returned once more.
    Resumed(FunctionId),
    /// That many events are missing.
    Lost(u64),
    /// The thread waited that many ticks for sptrace.
    Blocked(u64),
    /// A frame ended that had begun before the stream.
    UnseenFrameEnded,
}

/// Is told of frames in the order of time within each stream. What it does not care for it leaves
/// out.
#[allow(unused_variables, reason = "what is not cared for does nothing")]
pub trait Visitor {
    /// What happened to a process or to the recording; of all notes it is told before the first
    /// frame.
    fn note(&mut self, note: &Note) {}
    /// A frame begins; its times mean nothing yet.
    fn enter(&mut self, stream: StreamId, frame: &Frame) {}
    /// The innermost frame ended.
    fn leave(&mut self, stream: StreamId, frame: &Frame) {}
    /// The innermost frame ended and is not to be counted or shown.
    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame) {}
    /// What the frame that has just begun, or ends next, brought with it: [`crate::values`]. Some
    /// belong to no frame.
    fn values(&mut self, stream: StreamId, tsc: u64, bytes: &[u8]) {}
    /// Something else happened, `depth` frames being open.
    fn mark(&mut self, stream: StreamId, tsc: u64, depth: u32, mark: Mark) {}
    /// No more will be told of the stream.
    fn end(&mut self, stream: StreamId, totals: &StreamTotals) {}
    /// It has enough: the replay may end here.
    fn is_finished(&self) -> bool {
        false
    }
}

/// The sums of one stream. What is neither outside of all frames nor known was spent in frames of
/// which not all ends were seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamTotals {
    /// Time from the start of the stream to its last event, without waiting for sptrace.
    pub ticks: u64,
    /// The part of it outside all frames.
    pub outside_ticks: u64,
    /// The self times of all frames of which they are known.
    pub known_ticks: u64,
    /// Time spent waiting for sptrace.
    pub blocked_ticks: u64,
    /// Events in the trace.
    pub events: u64,
    /// Events missing in the trace.
    pub lost: u64,
    /// Frames begun.
    pub calls: u64,
    /// Frames ended by a longjmp or throw.
    pub unwound: u64,
    /// Frames whose end was not seen.
    pub end_unseen: u64,
    /// Last event.
    pub last_tsc: u64,
}
