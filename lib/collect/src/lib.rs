//! One recording: answers the agent's questions, drains its records, feeds the trace.
//!
//! By phase: [`session`] (launch, exec, end; owns ptrace), [`shared`] (between its threads), [`loops`] (the others), [`limits`] (what leaves them and a process room), [`signals`] (what wakes it), [`privilege`] (programs that may not be traced), [`unfollowed`] (who is not followed), [`attach`], [`prepare`] and [`stacks`] (programs that run already), [`later`] and [`ahead`] (commands that are recorded from an event on), [`answer`] (questions), [`numbers`] (who is who), [`latecomers`] (who may still begin), [`placement`]
//! (where patch areas go), [`module`] and [`process`] (what an id means), [`collector`] (chunks to
//! events), [`hole`] (between records), [`clock`], [`filters`] (which functions), [`disk`] (room for the trace), [`outcome`] (coverage and loss),
//! [`output`] (a file or a ring), [`event`] (what can happen), [`react`] (dumps and stops), [`windows`] (how often).
//!
//! Threads: the caller's owns ptrace and waits for the program; one drains and does nothing
//! else; one answers questions (it may analyse a module for seconds). A fourth waits for events, if there are any.

pub mod ahead;
pub mod answer;
pub mod attach;
pub mod between;
mod callers;
pub mod clock;
pub mod collector;
pub mod disk;
pub mod event;
pub mod filters;
mod gate;
pub mod hole;
mod kept;
mod latecomers;
pub mod later;
pub mod limits;
pub mod load;
pub mod loops;
mod mappings;
pub mod module;
mod numbers;
pub mod outcome;
pub mod output;
mod pidfd;
pub mod placement;
pub mod prepare;
pub mod privilege;
pub mod process;
mod progress;
pub mod react;
pub mod session;
pub mod shared;
pub mod signals;
pub mod stacks;
pub mod unfollowed;
pub mod windows;

pub use session::Session;
pub use shared::{Options, Stopped};
