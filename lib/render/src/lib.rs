//! Text, table and csv sinks over reports.
//!
//! Each view takes what `sptrace-trace` replayed and writes it to any output. Knows nothing of
//! files, processes or the command line; colour is a switch that the caller sets.
#![forbid(unsafe_code)]

pub mod acted;
mod budget;
mod call_counts;
pub mod call_values;
mod coverage;
mod csv;
mod descriptors;
pub mod diff;
mod functions;
mod graph;
mod interrupted;
mod levels;
mod library_calls;
mod lines;
mod listener;
mod notes;
mod relatives;
mod sockets;
mod style;
mod summary;
mod system_calls;
mod time_limits;
mod tree;
pub mod units;
mod waits;

pub use call_counts::{CallCounts, CountKey};
pub use coverage::{write_coverage, write_coverage_csv};
pub use descriptors::Resolve;
pub use functions::{
    FunctionColumn, SortKey, select_functions, write_function_columns, write_functions,
    write_functions_csv,
};
pub use graph::{GraphView, write_graph, write_graph_csv};
pub use levels::write_levels;
pub use library_calls::LibraryCalls;
pub use lines::{DescriptorNames, Lines, LinesOptions, ThreadColumn, Time};
pub use listener::{Call, Listener, Signal};
pub use notes::{early_end_text, note_text};
pub use relatives::{Way, select_relatives, write_relatives, write_relatives_csv};
pub use style::Style;
pub use summary::{SummaryView, dropped_text, write_summary};
pub use system_calls::{Calls, SystemCalls, Teller, name_of};
pub use tree::{Column, Columns, FoldedTree, PausedTree, Tree, TreeOptions};
pub use waits::{Laps, LapsShown, Waits};
