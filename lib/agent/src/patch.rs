//! Floor 7: the program's text: written, and put back.
//!
//! Given what a plan says of a place. Gives text that other threads may run at any moment. Must not
//! know when a function is to be patched.

pub mod forced;
pub mod kept_slot;
pub mod levels;
pub mod mappings;
pub mod pages;
pub mod site;
pub mod special;
pub mod text;
pub mod undo;
pub mod unpatch;
