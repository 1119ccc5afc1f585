//! Stack walking from outside: the open frames of a thread of a stopped process.
//!
//! Is given the modules of the process ([`Unwinder::new`], before the stop), a stopped thread's
//! registers and a reader of its memory; gives the frames from the innermost outwards and how the
//! walk ended. Every frame says by what it was found: an unwind table, or the code itself where no
//! table is ([`code`]). What lies in memory is hostile until proven otherwise: walks end after a
//! bounded number of frames and never panic. Knows nothing of ptrace, files and names.
#![forbid(unsafe_code)]

mod call;
mod code;
mod frame;
mod memory;
mod registers;
mod row;
mod sigframe;
mod tables;
mod walk;

pub use call::call_that_led_to;
pub use frame::{End, FoundBy, Frame, Walk};
pub use memory::{Memory, PageCache, Unreadable};
pub use registers::Registers;
pub use walk::{Cache, FunctionStart, Module, Unwinder};
