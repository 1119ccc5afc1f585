//! What calls are named, and what their arguments are: those of the kernel, and of functions.
//!
//! Tables are made by `cargo run -p xtask -- syscalls` from what a Linux machine says of itself,
//! and kept in the repository, so that every build has the same.
//!
//! Must not know: processes, records, how anything is shown.
#![forbid(unsafe_code)]

pub mod calls;
pub mod decode;
pub mod functions;
pub mod names;
pub mod restarts;
pub mod syscalls;
