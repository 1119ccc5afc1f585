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

pub mod acts;
pub mod beside;
pub mod blocks;
pub mod brought;
pub mod btf;
pub mod calls;
pub mod check;
pub mod counts;
pub mod error;
pub mod folder;
pub mod format;
pub mod functions;
pub mod graph;
pub mod inside;
pub mod instance;
pub mod level;
pub mod optimized;
pub mod options;
pub mod owner;
pub mod page;
pub mod pipes;
pub mod policy;
pub mod privileges;
pub mod probes;
pub mod recorder;
pub mod source;
pub mod symbols;
pub mod task;
pub mod task_names;
pub mod tasks;
pub mod tell;
pub mod text;
pub mod toplevel;
pub mod trace;
pub mod tracefs;
pub mod turns;
pub mod values;

pub use error::KernelError;
