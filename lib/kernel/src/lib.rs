//! Records what the kernel does on behalf of programs, through the tracing that every kernel has
//! built in.
//!
//! Given what shall be recorded; gives a trace in the same form as that of user code, in which a
//! system call, an interrupt or a wait is a frame. The kernel's side is tracefs alone (kernel:
//! Documentation/trace): an instance of our own, whose pages are read as they are, by the clock
//! that user code is stamped with.
//!
//! Must not know: the agent, patching, the command line.
#![forbid(unsafe_code)]

pub mod check;
pub mod error;
pub mod format;
pub mod instance;
pub mod page;
pub mod pipes;
pub mod recorder;
pub mod source;
pub mod tasks;
pub mod tracefs;

pub use error::KernelError;
