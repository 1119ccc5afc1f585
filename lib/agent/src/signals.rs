//! Floor 5: what a signal has interrupted: found on the stack, and moved out of our code.
//!
//! Given a stack pointer. Gives signal frames whose contexts lie in the program's own text, as a
//! stack walker needs them. Must not know who walks.

pub mod around;
pub mod context;
mod entry_only;
mod in_slot;
pub mod interrupted;
pub mod moved;
mod out_of_kept;
mod out_of_moved;
pub mod pushed;
pub mod sigframe;
pub mod valued;
