//! Event model, trace file, call tree, statistics.
//!
//! The collector writes a trace with [`TraceWriter`] and one [`StreamEncoder`] a thread; `sptrace
//! report` reads it with [`TraceReader`] and replays it with [`CallTree`]. The file layout is
//! described in [`format`]. Knows nothing of processes, instructions or terminals.
#![forbid(unsafe_code)]

mod decoder;
mod encoder;
mod error;
pub mod format;
mod mirror;
mod model;
mod reader;
mod step;
mod writer;

pub use decoder::{Block, EventIter, OpenFrame};
pub use encoder::StreamEncoder;
pub use error::{Malformed, TraceError};
pub use model::{
    Clock, Entry, Event, ExitStatus, Function, FunctionId, Header, Module, ModuleId, Note,
    StreamId, StreamInfo, Summary, SummaryRow,
};
pub use reader::{Dictionary, Ending, Item, Survey, TraceReader};
pub use writer::TraceWriter;
