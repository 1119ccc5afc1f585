//! Processes that run already.
//!
//! Given processes; prepares them beside the program, attaches to them at a moment, and lets them
//! go as they were. `--start-on` begins in the middle of a command by the same means. Must not know
//! what records mean.
//!
//! | file | what for |
//! |---|---|
//! | `prepare.rs`, `stacks.rs` | what takes long and can be done before anything stands still |
//! | `attach.rs`, `attach/detach.rs` | the moments at which all threads are stopped |
//! | `attach/points.rs`, `points_left.rs` | moments later, for what the agent has left alone |
//! | `ahead.rs`, `later.rs` | a command that is kept prepared until an event |
//! | `standing.rs` | the same of a command that has not run yet |
//! | `gate.rs`, `gate/` | calls that wait until the recording has begun |

pub mod ahead;
pub mod attach;
pub(crate) mod gate;
pub mod later;
pub(crate) mod points_left;
pub mod prepare;
pub mod stacks;
pub(crate) mod standing;
