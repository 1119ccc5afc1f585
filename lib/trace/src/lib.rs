//! Event model, trace file, call tree, statistics.
//!
//! The collector writes a trace with [`TraceWriter`] and one [`StreamEncoder`] a thread; `sptrace
//! report` reads it with [`TraceReader`] and replays it with [`CallTree`]. The file layout is
//! described in [`mod@format`]. Knows nothing of processes, instructions or terminals.
#![forbid(unsafe_code)]

pub mod compare;
mod decoder;
mod encoder;
mod error;
pub mod find;
pub mod follow;
mod foretell;
pub mod format;
mod globs;
pub mod graph;
pub mod graph_names;
mod histogram;
pub mod index;
mod lane;
mod mirror;
mod model;
pub mod names;
mod note;
mod reader;
mod replay;
pub mod ring;
mod sources;
mod spread;
pub mod stats;
mod step;
mod summary;
mod sums;
pub mod values;
mod writer;

pub use decoder::{Block, EventIter, OpenFrame};
pub use encoder::{Burst, Run, Span, StreamEncoder, Word};
pub use error::{Malformed, TraceError};
pub use globs::{check as check_pattern, glob_matches, is_pattern};
pub use graph::{Edge, Graph, Pair};
pub use graph_names::{GraphNames, Linkage};
pub use histogram::Histogram;
pub use lane::{Tid, lane_name, lane_of, lane_tid, parse_tid};
pub use mirror::Begun;
pub use model::{
    Clock, Entry, Event, ExitStatus, Function, FunctionId, Header, Module, ModuleId, SYSTEM_CALLS,
    StreamId, StreamInfo,
};
pub use names::{Names, demangle, without_parameters};
pub use note::{Counted, EarlyEnd, Level, Note, Turn, Window};
pub use reader::{BlockPlace, Dictionary, Ending, Item, Survey, TraceReader};
pub use replay::{
    CallId, CallTree, EVENTS_APART, Estimate, Filter, Focus, Frame, FrameFlags, Mark, MinTime,
    Order, Pick, Recast, Selection, Snapshots, StreamTotals, Visitor, Wanted, replay,
    replay_and_keep,
};
pub use ring::{Dropped, RingFile, Snapshot, TraceFile};
pub use sources::{CallPlace, SourceLine, Sources, call_words};
pub use spread::{Spread, end_between, part_between};
pub use stats::{FunctionStats, Stats};
pub use summary::{
    BUDGET_ASKED, BUDGET_COUNTS, BUDGET_HOST, BUDGET_SPENT, BUDGET_SPENT_AT_START, Section,
    Summary, SummaryRow,
};
pub use sums::{KeyColumn, KeyTold, TableRow, TableSums};
pub use writer::{Classifier, TraceWriter};
