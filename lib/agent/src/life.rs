//! Floor 10: how the agent comes into a process and leaves it.
//!
//! Given a fresh image, or the host's commands to a stopped process. Gives a process that is
//! instrumented, or as it was.

pub mod attach;
pub mod detach;
pub mod gate;
pub mod start;
