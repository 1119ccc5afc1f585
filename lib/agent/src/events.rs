//! Floor 9: the slow path: what happens at a call, a return, an intercepted function.
//!
//! Given what the door has saved. Gives back how to go on. Decides; everything it decides is
//! carried out by lower floors.

pub mod active;
pub mod acts;
pub mod between;
pub mod bids;
pub mod call_values;
pub mod counted;
pub mod delivered;
pub mod dormant;
pub mod entered;
pub mod exec;
pub mod exits;
pub mod hook;
pub mod in_slot;
mod jumped;
pub mod ordered;
pub mod process;
mod returns;
mod roots;
pub mod slow;
pub mod special;
pub mod system_call;
pub mod system_call_unblocked;
pub mod system_returns;
pub mod unblocked;
pub mod unwind;
