//! Floor 2: the assembly that runs at every call, and its bytes.
//!
//! Gives the routines that each patch area holds a copy of, their silent forms, and the door to the
//! slow path. The assembly ends in functions of upper floors by `sym`; that is how those are
//! entered, and the only way up. Must not know plans and modules.

pub mod acts;
mod call_records;
pub mod common;
pub mod counts;
pub mod door;
pub mod filled;
mod hooks;
pub mod image;
pub mod marks;
mod orders;
mod placed;
pub mod quick;
mod returns;
pub mod silent;
mod values;
