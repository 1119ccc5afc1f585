//! Which process a stream belongs to, and what that process began with.
//!
//! Part of the [`Collector`]. A fork child has its parent's modules and patch areas. It is met at
//! its first event, when the parent may have executed another program, or ended, and its number and
//! its stream may be somebody else's: the stream says by number and epoch which stream it was
//! forked from, and what ended last is kept ([`Ancestors`]). Must not know what records mean.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sptrace_trace::{Note, StreamInfo, lane_name, lane_tid};
use sptrace_tracee::arena::Arena;
use sptrace_tracee::proc;
use sptrace_wire::control::{STREAM_LIVE, STREAMS, Stream};

use super::feed::Lane;
use super::{Collector, StreamState};
use crate::decode::Cursor;
use crate::decode::process::{Area, Areas, Process};

/// Images and streams that have ended and may still be the parents of a fork child.
const KEPT_IMAGES: usize = 1024;
const KEPT_STREAMS: usize = 16_384;

/// Of whom a fork child may come that shows its first event later.
#[derive(Default)]
pub(super) struct Ancestors {
    /// The number of the newest image.
    images: u64,
    /// Images that have ended, oldest first.
    kept: VecDeque<Kept>,
    /// Streams that have ended, oldest first: place, epoch, image.
    streams: VecDeque<(usize, u32, u64)>,
}

/// An image without the tables of its areas, which take two megabytes.
struct Kept {
    process: Process,
    areas: Vec<Area>,
}

impl Ancestors {
    fn new_image(&mut self) -> u64 {
        self.images += 1;
        self.images
    }

    /// The areas of a stream whose process's number is another's now.
    pub(super) fn areas_of(&self, image: u64) -> Arc<Areas> {
        self.find(image).map(|p| p.areas).unwrap_or_default()
    }

    /// A stream has ended.
    pub(super) fn ended(&mut self, place: usize, state: &StreamState) {
        if self.streams.len() == KEPT_STREAMS {
            self.streams.pop_front();
        }
        self.streams.push_back((place, state.epoch, state.image));
    }

    fn keep(&mut self, mut process: Process) {
        if process.areas.is_empty() {
            return;
        }
        if self.kept.len() == KEPT_IMAGES {
            self.kept.pop_front();
        }
        let areas = std::mem::take(&mut process.areas).list().to_vec();
        self.kept.push_back(Kept { process, areas });
    }

    /// The image of a stream that has ended.
    fn image_of(&self, place: usize, epoch: u32) -> Option<u64> {
        let is_it = |s: &&(usize, u32, u64)| (s.0, s.1) == (place, epoch);
        self.streams.iter().rev().find(is_it).map(|s| s.2)
    }

    /// An image that has ended.
    fn find(&self, image: u64) -> Option<Process> {
        let kept = self.kept.iter().rev().find(|k| k.process.image == image)?;
        let mut process = kept.process.clone();
        let mut areas = Areas::default();
        kept.areas.iter().for_each(|a| areas.push(a.clone()));
        process.areas = Arc::new(areas);
        Some(process)
    }
}

impl<W: Write> Collector<W> {
    /// The image of a process.
    pub fn process(&mut self, pid: u32) -> &mut Process {
        let ancestors = &mut self.ancestors;
        self.book.processes.entry(pid).or_insert_with(|| Process {
            image: ancestors.new_image(),
            ..Process::default()
        })
    }

    /// The process is another than the one that had this number, unless it records.
    pub fn forget(&mut self, pid: u32) {
        if !self.streams.iter().flatten().any(|s| s.lane.pid == pid) {
            self.retire(pid);
        }
    }

    /// An image has ended: its number may be given to another process.
    pub(super) fn retire(&mut self, pid: u32) {
        if let Some(process) = self.book.processes.remove(&pid) {
            self.ancestors.keep(process);
        }
        self.book.forget_recent();
    }

    /// Gives every new stream its state while its parent's is still known: those that began first
    /// come first, so a parent comes before its child, and a process's first thread before its
    /// others.
    pub(crate) fn adopt_streams(&mut self, arena: &Arena) {
        let used = (arena.control().streams_used.load(Ordering::Acquire) as usize).min(STREAMS);
        let is_new = |i: &usize| {
            let s = arena.stream(*i);
            let state = s.state.load(Ordering::Acquire);
            let known = self.streams[*i].as_ref().map(|known| known.epoch);
            state == STREAM_LIVE && known != Some(s.epoch.load(Ordering::Relaxed))
        };
        let mut fresh: Vec<usize> = (0..used).filter(is_new).collect();
        fresh.sort_by_key(|i| arena.stream(*i).start_tsc);
        for i in fresh {
            let epoch = arena.stream(i).epoch.load(Ordering::Relaxed);
            self.begin_stream(arena, i, epoch);
        }
    }

    /// A process asks: make sure that what it inherited is known.
    pub fn asks(&mut self, arena: &Arena) {
        self.adopt_streams(arena);
    }

    /// A process is about to run another program: its streams end here.
    pub fn exec(&mut self, arena: &Arena, pid: u32, path: &str) {
        // Before anything is said of the process: what it was forked from may be to be found out
        // yet.
        self.adopt_streams(arena);
        let execs = self.book.processes.get(&pid).map_or(0, |p| p.execs) + 1;
        self.end_process(arena, pid);
        self.retire(pid);
        self.process(pid).execs = execs;
        self.note(&Note::Exec {
            pid,
            tsc: crate::clock::tsc(),
            path: path.to_owned(),
        });
    }

    /// A fork child begins with what its parent had loaded. `of`: its stream, whose own numbers may
    /// be those of another pid namespace.
    fn adopt_process(&mut self, of: &Stream, pid: u32, parent_pid: u32) {
        // One that is there in spite of that has ended, and nobody has noticed yet.
        self.retire(pid);
        let place = of.parent as usize;
        let parent = self.streams.get(place).and_then(Option::as_ref);
        let image = match parent.filter(|p| p.epoch == of.parent_epoch) {
            Some(p) => Some(p.image),
            None => self.ancestors.image_of(place, of.parent_epoch),
        };
        let Some(image) = image else {
            return;
        };
        let running = self.book.processes.get(&parent_pid);
        let running = running.filter(|p| p.image == image).cloned();
        if let Some(mut copy) = running.or_else(|| self.ancestors.find(image)) {
            copy.parent = parent_pid;
            copy.image = self.ancestors.new_image();
            self.book.processes.insert(pid, copy);
        }
    }

    /// A task that shares another process's memory has its modules, too.
    fn share_process(&mut self, pid: u32, with: u32) {
        if with != 0 && with != pid && !self.book.processes.contains_key(&pid) {
            let mut copy = self.process(with).clone();
            copy.parent = with;
            copy.image = self.ancestors.new_image();
            self.book.processes.insert(pid, copy);
        }
    }

    /// How far the records of a stream are read that begins.
    fn cursor(&self, pid: u32, start_tsc: u64) -> Cursor {
        let cursor = Cursor::new(pid, start_tsc);
        match (&self.lengths, self.has_ends) {
            _ if self.counts_by_edge() => cursor.counting(),
            (Some(_), _) => cursor.mixed(),
            (None, true) => cursor.with_ends(),
            (None, false) => cursor,
        }
    }

    /// Prepares the state of the stream that wrote a chunk.
    pub(super) fn begin_stream(&mut self, arena: &Arena, i: usize, epoch: u32) {
        if self.streams[i].as_ref().is_some_and(|s| s.epoch == epoch) {
            return;
        }
        if let Some(mut old) = self.streams[i].take() {
            self.ancestors.ended(i, &old);
            self.take_counts(arena, i, &mut old);
            self.learn_from(arena, &mut old);
            self.recorder.begin_line(&mut old.lane);
            self.recorder.write_block(&mut old.lane);
        }
        let s = arena.stream(i);
        let (pid, tid) = (
            self.numbers.shown(arena, s),
            self.numbers.shown_task(arena, s),
        );
        let first_lane = s.first_lane();
        let tid = first_lane.map_or(tid, lane_tid);
        let (start_tsc, parent_pid) = (s.start_tsc, self.numbers.shown_parent(arena, s));
        let is_forked = (s.parent as usize) < STREAMS;
        if is_forked {
            self.adopt_process(s, pid, parent_pid);
            self.inherit_levels((parent_pid, pid), start_tsc);
        } else {
            self.share_process(pid, parent_pid);
        }
        let parent = self.streams.get_mut(s.parent as usize);
        let parent = parent.and_then(Option::as_mut);
        let parent = parent.filter(|p| p.epoch == s.parent_epoch);
        let parent = parent.and_then(|p| p.lane.line.recording().map(|e| e.stream()));
        let p = self.process(pid);
        let (image, ppid, execs) = (p.image, p.parent, p.execs);
        let info = StreamInfo {
            pid,
            tid,
            ppid,
            comm: first_lane.map_or_else(|| proc::thread_name(pid, tid), lane_name),
            start_tsc,
            parent,
            execs,
        };
        let cursor = self.cursor(pid, start_tsc);
        let of_lanes = first_lane.map(|_| Box::new(info.clone()));
        let line = self.recorder.new_line(info);
        let limit = self.recorder.depth_limit;
        let lane = line.map(|line| Lane::new((pid, tid, ppid), line, limit));
        self.streams[i] = lane.map(|mut lane| {
            lane.of_lanes = of_lanes;
            self.tell_first_call(&mut lane, start_tsc);
            Box::new(StreamState {
                epoch,
                image,
                sequence: 0,
                taken: 0,
                left: Vec::new(),
                cursor,
                lane,
            })
        });
    }
}
