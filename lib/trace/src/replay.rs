//! A trace as its views see it: frames instead of events.
//!
//! [`replay`] is what every view and export uses: it reads a trace, chooses, and tells a
//! [`Visitor`]. Knows nothing of how a trace is encoded or shown.

mod ahead;
mod call_tree;
mod filter;
mod focus;
mod keep;
mod merge;
mod min_time;
mod pick;
mod pipeline;
mod recast;
mod side;
mod sides;
mod snapshots;
mod visitor;

pub use call_tree::CallTree;
pub use filter::{Filter, Selection};
pub use focus::Focus;
pub use keep::{EVENTS_APART, replay_and_keep};
pub use min_time::MinTime;
pub use pick::{CallId, Pick};
pub use pipeline::{Order, Wanted, replay};
pub use recast::Recast;
pub use snapshots::Snapshots;
pub use visitor::{Estimate, Frame, FrameFlags, Mark, StreamTotals, Visitor};
