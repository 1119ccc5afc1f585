//! Floor 1: the agent's own memory, the kernel, the host's words, and who may touch what when.
//!
//! Given nothing but addresses in the arena and the image. Gives the blocks of the process and of
//! its threads, system calls, the lock, and what is known of the host, of stopped threads and of
//! sandboxes. Must not know plans, slots, stacks.

pub mod anonymous;
pub mod area;
pub mod certain;
pub mod constants;
pub mod counters;
pub mod descriptors;
pub mod frame;
pub mod guarded;
pub mod host;
pub mod live;
pub mod lock;
pub mod loss;
pub mod mapped;
pub mod pointers;
pub mod reading;
pub mod rows;
pub mod running;
pub mod sandbox;
pub mod state;
pub mod stopped;
pub mod sys;
pub mod table;
#[cfg(test)]
pub(crate) mod testing;
pub mod thread;
pub mod word;
