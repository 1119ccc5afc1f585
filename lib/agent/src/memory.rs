//! Floor 1: the agent's own memory, the kernel, the host's words, and who may touch what when.
//!
//! Given nothing but addresses in the arena and the image. Gives the blocks of the process and of
//! its threads, system calls, the lock, and what is known of the host, of stopped threads and of
//! sandboxes. Must not know plans, slots, stacks.

pub mod frame;
pub mod guarded;
pub mod host;
pub mod lock;
pub mod sandbox;
pub mod state;
pub mod stopped;
pub mod sys;
#[cfg(test)]
pub(crate) mod testing;
