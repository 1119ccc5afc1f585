//! Floor 3: the shadow stack, and what the kernel says of signal handlers and their stacks.
//!
//! Given a thread's block. Gives its open calls in order. Must not know records, slots and plans.

pub mod handlers;
pub mod shadow;
pub mod stacks;
