//! One recording: answers the agent's questions, drains its records, writes the trace, reacts to
//! events.
//!
//! | files | what for |
//! |---|---|
//! | [`request`], [`captures`] | what a recording is asked for, and of system calls |
//! | [`session`], [`shared`], [`loops`], [`signals`] | launch, exec, end; the threads |
//! | `kept`, `progress` | `--keep-pid`, what takes long |
//! | [`modules`] | the agent's questions: which module, which plan, where to |
//! | [`decode`] | from bytes to events, without processes and files |
//! | [`collector`] | from chunks to the trace: streams, and who their processes are |
//! | [`levels`], `sites`, `tally` | which functions are counted |
//! | [`budget`], [`cpu_times`] | what that saves, and may cost |
//! | `numbers` | which process is which |
//! | `open_files` | what processes have open |
//! | `latecomers`, [`unfollowed`] | who may still begin; what was executed and not traced |
//! | [`live`] | who runs already: attaching, detaching, beginning in the middle |
//! | [`event`], [`react`], [`windows`], [`between`] | what may happen, and what follows |
//! | [`kernel_side`] | what the kernel does meanwhile |
//! | [`tap`] | who is told of system calls while they are recorded |
//! | [`output`], [`disk`], [`outcome`], [`clock`] | the file, coverage and loss, time |
//!
//! Threads: the caller's owns ptrace and waits for the program; one drains and does nothing else;
//! one answers questions, and may analyse a module for seconds; one waits for events, if there are
//! any.

pub mod acts;
pub mod between;
pub mod bids;
pub mod budget;
pub mod captures;
pub mod clock;
pub mod collector;
pub mod cpu_times;
pub mod decode;
pub mod disk;
pub mod event;
mod kept;
pub mod kernel_side;
mod latecomers;
mod lengths;
pub mod levels;
pub mod live;
pub mod loops;
pub mod modules;
mod numbers;
mod open_files;
pub mod outcome;
pub mod output;
mod payloads;
mod perf_map;
mod progress;
pub mod react;
pub mod request;
pub mod session;
pub mod shared;
pub mod signals;
mod sites;
mod tally;
pub mod tap;
pub mod unfollowed;
pub mod values;
mod ways;
pub mod windows;

pub use request::{OnEvents, Options, Request, Stamps};
pub use session::Session;
