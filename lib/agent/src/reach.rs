//! Floor 8: before code runs, it is patched: modules asked for, functions instrumented, threads
//! given their blocks.
//!
//! Given an address that a thread is about to run. Gives a verdict, and patched call sites. Must
//! not know which event led there.

pub mod areas;
pub mod check;
pub mod handler;
pub mod instrument;
pub mod lanes;
pub mod levels;
pub mod module;
pub mod propagate;
pub mod return_points;
pub mod thread;
