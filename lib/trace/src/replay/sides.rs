//! Which streams are the two sides of one thread: what its program ran, and what the kernel did.
//!
//! Given a survey; says for a stream of the kernel's, at a time, which stream of the program its
//! events lie in. A thread has several of these one after the other if it executes other programs,
//! or is recorded again after a pause, and one of the kernel's side.
//!
//! Must not know: events and frames.

use crate::model::StreamId;
use crate::reader::Survey;
use std::collections::{HashMap, HashSet};

/// See the module.
#[derive(Default)]
pub(super) struct Sides {
    /// By stream of the kernel's: the program's with their starts, in order.
    of_kernel: HashMap<StreamId, Vec<(u64, StreamId)>>,
    /// The opposite.
    of_program: HashMap<StreamId, StreamId>,
}

impl Sides {
    /// Of a whole trace. Streams that have no events at all are nobody's other side.
    pub(super) fn new(survey: &Survey) -> Self {
        let mut sides = Self::default();
        let dictionary = &survey.dictionary;
        if dictionary.kernel_sides.is_empty() {
            return sides;
        }
        let kernel: HashSet<StreamId> = dictionary.kernel_sides.iter().copied().collect();
        let mut starts: HashMap<StreamId, u64> = HashMap::new();
        for place in &survey.blocks {
            let start = starts.entry(place.stream).or_insert(place.first_tsc);
            *start = place.first_tsc.min(*start);
        }
        let mut by_thread: HashMap<u32, Vec<(u64, StreamId)>> = HashMap::new();
        for (id, start) in starts.iter().filter(|(id, _)| !kernel.contains(id)) {
            if let Some(info) = dictionary.stream(*id) {
                by_thread.entry(info.tid).or_default().push((*start, *id));
            }
        }
        for id in kernel {
            let tid = dictionary.stream(id).map(|info| info.tid);
            let Some(mut streams) = tid.and_then(|tid| by_thread.get(&tid).cloned()) else {
                continue;
            };
            streams.sort_unstable();
            let back = streams.iter().map(|(_, stream)| (*stream, id));
            sides.of_program.extend(back);
            sides.of_kernel.insert(id, streams);
        }
        sides
    }

    /// True if any thread has both.
    pub(super) fn is_any(&self) -> bool {
        !self.of_kernel.is_empty()
    }

    /// The kernel's side of the thread whose stream this is.
    pub(super) fn kernel_of(&self, program: StreamId) -> Option<StreamId> {
        self.of_program.get(&program).copied()
    }

    /// All streams of the thread whose kernel's side this is.
    pub(super) fn programs_of(&self, kernel: StreamId) -> impl Iterator<Item = StreamId> {
        let streams = self.of_kernel.get(&kernel).into_iter().flatten();
        streams.map(|(_, id)| *id)
    }

    /// The stream in which events of the kernel's at `tsc` are told: the one that runs (`is_over`
    /// says which do not any more), else the one that begins next, else its own. `None`: `id` is
    /// nobody's kernel side.
    pub(super) fn place(
        &self,
        id: StreamId,
        tsc: u64,
        is_over: impl Fn(StreamId) -> bool,
    ) -> Option<StreamId> {
        let streams = self.of_kernel.get(&id)?;
        let next = streams.partition_point(|(start, _)| *start <= tsc);
        let running = next.checked_sub(1).and_then(|at| streams.get(at));
        let running = running.filter(|(_, stream)| !is_over(*stream));
        Some(
            running
                .or(streams.get(next))
                .map_or(id, |(_, stream)| *stream),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::StreamInfo;
    use crate::reader::BlockPlace;

    #[test]
    fn events_of_the_kernel_are_told_in_what_runs_or_begins_next() {
        let mut survey = Survey::default();
        let of = |tid| StreamInfo {
            tid,
            ..StreamInfo::default()
        };
        survey.dictionary.streams = vec![of(7), of(7), of(7), of(8)];
        survey.dictionary.kernel_sides = vec![StreamId(0), StreamId(3)];
        let place = |stream, first_tsc| BlockPlace {
            offset: 0,
            stream: StreamId(stream),
            first_tsc,
        };
        survey.blocks = vec![
            place(0, 5),
            place(2, 50),
            place(1, 10),
            place(1, 30),
            place(3, 9),
        ];
        let sides = Sides::new(&survey);
        let at = |tsc, over: &[u32]| {
            let over = over.to_vec();
            sides.place(StreamId(0), tsc, move |s| over.contains(&s.0))
        };
        assert_eq!(at(6, &[]), Some(StreamId(1)));
        assert_eq!(at(40, &[]), Some(StreamId(1)));
        assert_eq!(at(40, &[1]), Some(StreamId(2)));
        assert_eq!(at(60, &[1, 2]), Some(StreamId(0)));
        assert_eq!(sides.place(StreamId(1), 20, |_| false), None);
        assert_eq!(sides.place(StreamId(3), 20, |_| false), None);
        assert_eq!(sides.kernel_of(StreamId(2)), Some(StreamId(0)));
    }
}
