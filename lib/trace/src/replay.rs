//! A trace as its views see it: frames instead of events.
//!
//! Knows nothing of how a trace is encoded or shown.

mod call_tree;
mod filter;
mod visitor;

pub use call_tree::CallTree;
pub use filter::{Filter, Selection};
pub use visitor::{Frame, FrameFlags, Mark, StreamTotals, Visitor};
