//! Shows a visitor only some frames: of some threads, within or without some functions, of some
//! functions alone, to some depth, in a time range. Depths are counted anew among the frames shown.
//!
//! A frame that began before the range is shown from the range's beginning on, if it reaches it.

use super::visitor::{Frame, Mark, StreamTotals, Visitor};
use crate::model::{FunctionId, StreamId};
use crate::note::{Counted, Note};
use crate::reader::Dictionary;
use rustc_hash::FxHashMap as HashMap;

/// What to show; the default shows everything.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// By function index: show these and what they call. Empty: everything.
    pub within: Vec<bool>,
    /// By function index: hide these and what they call.
    pub without: Vec<bool>,
    /// By function index: show only these, whoever calls them. Empty: all.
    pub only: Vec<bool>,
    /// Show also what those call, but nothing that is called by that and is none of them.
    pub with_leaves: bool,
    /// Show at most so many levels.
    pub max_depth: Option<u32>,
    /// Show what runs at or after this.
    pub from_tsc: Option<u64>,
    /// Show what begins before this.
    pub to_tsc: Option<u64>,
    /// Show these threads. Empty: all.
    pub tids: Vec<u32>,
}

impl Selection {
    /// Shows everything?
    pub fn is_everything(&self) -> bool {
        self.within.is_empty()
            && self.without.is_empty()
            && self.only.is_empty()
            && self.tids.is_empty()
            && self.max_depth.is_none()
            && self.from_tsc.is_none()
            && self.to_tsc.is_none()
    }
}

/// An open frame and what follows from it for those above.
struct Seen {
    frame: Frame,
    is_within: bool,
    is_without: bool,
    /// One of those that alone are to be shown.
    is_own: bool,
    /// Neither it nor a leaf: as if it were not there.
    is_skipped: bool,
    is_eligible: bool,
    is_shown: bool,
    depth_above: u32,
}

/// Passes on to `inner` what `selection` selects.
pub struct Filter<'a, V> {
    selection: &'a Selection,
    dictionary: &'a Dictionary,
    /// Who sees the rest.
    pub inner: V,
    streams: HashMap<StreamId, Vec<Seen>>,
    /// No more than this many frames are open and not shown yet, so that most events skip a search.
    waiting: usize,
}

impl<'a, V: Visitor> Filter<'a, V> {
    /// A filter in front of `inner`.
    pub fn new(selection: &'a Selection, dictionary: &'a Dictionary, inner: V) -> Self {
        Self {
            selection,
            dictionary,
            inner,
            streams: HashMap::default(),
            waiting: 0,
        }
    }

    /// Is a note of the threads and the time selected?
    fn shows_note(&self, note: &Note) -> bool {
        let tids = &self.selection.tids;
        (tids.is_empty() || tids.contains(&note.pid())) && self.is_in_time(note.tsc())
    }

    /// Of the calls that were counted those that are selected, as far as that can be said without
    /// their nesting: by the function that is called, and to be shown with what it calls by the
    /// caller, too.
    fn chosen_counts(&self, note: &Note) -> Note {
        let Selection {
            within,
            without,
            only,
            with_leaves,
            ..
        } = self.selection;
        let is_caller = |chosen: &[bool], edge: &Counted| {
            edge.caller.is_some_and(|caller| is_chosen(chosen, caller))
        };
        let is_shown = |edge: &Counted| {
            let callee = edge.callee;
            !is_chosen(without, callee)
                && (within.is_empty() || is_chosen(within, callee) || is_caller(within, edge))
                && (only.is_empty()
                    || is_chosen(only, callee)
                    || *with_leaves && is_caller(only, edge))
        };
        let mut note = note.clone();
        if let Note::Counts { edges, .. } = &mut note {
            edges.retain(is_shown);
        }
        note
    }

    fn has_thread(&self, stream: StreamId) -> bool {
        let tid = self.dictionary.stream(stream).map(|info| info.tid);
        self.selection.tids.is_empty() || tid.is_some_and(|tid| self.selection.tids.contains(&tid))
    }

    fn is_in_time(&self, tsc: u64) -> bool {
        self.selection.from_tsc.is_none_or(|from| tsc >= from)
            && self.selection.to_tsc.is_none_or(|to| tsc < to)
    }

    fn shows_innermost(&self, stream: StreamId, tsc: u64) -> bool {
        let innermost = self.streams.get(&stream).and_then(|open| open.last());
        let is_outside = || self.selection.within.is_empty() && self.is_in_time(tsc);
        self.has_thread(stream) && innermost.map_or_else(is_outside, |seen| seen.is_shown)
    }

    fn pop(&mut self, stream: StreamId, frame: &Frame, leave: fn(&mut V, StreamId, &Frame)) {
        self.show_waiting(stream, frame.end_tsc);
        let Some(seen) = self.streams.get_mut(&stream).and_then(Vec::pop) else {
            return;
        };
        if seen.is_shown {
            let depth = seen.frame.depth;
            leave(&mut self.inner, stream, &Frame { depth, ..*frame });
        } else if seen.is_eligible {
            self.waiting = self.waiting.saturating_sub(1);
        }
    }

    /// Shows the frames that were open when the range began.
    fn show_waiting(&mut self, stream: StreamId, tsc: u64) {
        if self.waiting == 0 || self.selection.from_tsc.is_some_and(|from| tsc < from) {
            return;
        }
        for seen in self.streams.entry(stream).or_default() {
            if seen.is_eligible && !seen.is_shown {
                seen.is_shown = true;
                self.waiting = self.waiting.saturating_sub(1);
                self.inner.enter(stream, &seen.frame);
            }
        }
    }
}

fn is_chosen(chosen: &[bool], function: FunctionId) -> bool {
    chosen.get(function.0 as usize).copied().unwrap_or_default()
}

impl<V: Visitor> Visitor for Filter<'_, V> {
    fn note(&mut self, note: &Note) {
        if let Note::Counts { pid, tid, .. } = note {
            let tids = &self.selection.tids;
            if tids.is_empty() || tids.contains(pid) || tids.contains(tid) {
                self.inner.note(&self.chosen_counts(note));
            }
        } else if self.shows_note(note) {
            self.inner.note(note);
        }
    }

    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        if !self.has_thread(stream) {
            return;
        }
        self.show_waiting(stream, frame.start_tsc);
        let selection = self.selection;
        let open = self.streams.entry(stream).or_default();
        let below = open.last();
        let depth = below.map_or(0, |below| below.depth_above);
        let is_within = selection.within.is_empty()
            || below.is_some_and(|below| below.is_within)
            || is_chosen(&selection.within, frame.function);
        let is_without = below.is_some_and(|below| below.is_without)
            || is_chosen(&selection.without, frame.function);
        let is_own = selection.only.is_empty() || is_chosen(&selection.only, frame.function);
        let is_leaf = selection.with_leaves && below.is_some_and(|below| below.is_own);
        let is_skipped = !is_own && !is_leaf;
        let is_eligible = is_within
            && !is_without
            && !is_skipped
            && selection.max_depth.is_none_or(|max| depth < max)
            && selection.to_tsc.is_none_or(|to| frame.start_tsc < to);
        let is_shown = is_eligible
            && selection
                .from_tsc
                .is_none_or(|from| frame.start_tsc >= from);
        let frame = Frame { depth, ..*frame };
        // Depth goes on counting above hidden levels, so that -D hides all of them.
        let depth_above = depth + u32::from(is_within && !is_without && !is_skipped);
        open.push(Seen {
            frame,
            is_within,
            is_without,
            is_own,
            is_skipped,
            is_eligible,
            is_shown,
            depth_above,
        });
        if is_shown {
            self.inner.enter(stream, &frame);
        } else if is_eligible {
            self.waiting += 1;
        }
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        self.pop(stream, frame, V::leave);
    }

    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame) {
        self.pop(stream, frame, V::leave_hidden);
    }

    fn values(&mut self, stream: StreamId, tsc: u64, bytes: &[u8]) {
        if self.shows_innermost(stream, tsc) {
            self.inner.values(stream, tsc, bytes);
        }
    }

    fn mark(&mut self, stream: StreamId, tsc: u64, _: u32, mark: Mark) {
        if !self.has_thread(stream) || !self.is_in_time(tsc) {
            return;
        }
        self.show_waiting(stream, tsc);
        // What happens in a frame that is skipped happens in the one below it.
        let open = self.streams.get(&stream);
        let below = open.and_then(|open| open.iter().rev().find(|seen| !seen.is_skipped));
        let is_visible = below.map_or(self.selection.within.is_empty(), |below| below.is_shown);
        if is_visible {
            let depth = below.map_or(0, |below| below.depth_above);
            self.inner.mark(stream, tsc, depth, mark);
        }
    }

    fn end(&mut self, stream: StreamId, totals: &StreamTotals) {
        self.streams.remove(&stream);
        if self.has_thread(stream) {
            self.inner.end(stream, totals);
        }
    }
    fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }
}
