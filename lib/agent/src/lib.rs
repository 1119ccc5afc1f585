//! The logic that runs inside the traced program.
//!
//! Freestanding: no libc, no allocator, no thread-local storage, no panic path, and only the system
//! calls of [`memory::sys`]. It is given an arena (see `sptrace-wire`) and the plans in it; it
//! gives patched call sites and records. It decodes no instruction: what it cannot look up in a
//! plan it leaves alone and counts.
//!
//! Each folder is a floor, and uses only those above it in this list:
//!
//! | folder | what it is for |
//! |---|---|
//! | [`memory`] | the agent's blocks, system calls, the lock, the host's words |
//! | [`routines`] | the hot path and its silent form, in assembly; the door to the slow path |
//! | [`frames`] | the shadow stack, signal handlers' stacks |
//! | [`plans`] | modules, functions, patches and slots, as the plans tell them |
//! | [`signals`] | what a signal interrupted, moved out of our code |
//! | [`record`] | records, questions to the host, and their end |
//! | [`patch`] | the text, written and put back |
//! | [`reach`] | modules asked for, callees instrumented, threads given their blocks |
//! | [`events`] | the slow path: what a call, a return or an intercepted function means |
//! | [`life`] | start, attach, detach, gates |
//!
//! Blocks that are shared with the hot path, with handlers and with other threads are made of
//! [`memory::word`]s, and used by references: what keeps books is safe code. `unsafe` is what maps
//! memory, what touches the program's ([`memory::live`]), and what calls the kernel.
//!
//! Rules: signals are blocked while Rust code of the agent runs, but for [`events::unblocked`]; a
//! failure becomes a counter; nothing here may end or hang the program.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod events;
pub mod frames;
pub mod life;
pub mod memory;
pub mod patch;
pub mod plans;
pub mod reach;
pub mod record;
pub mod routines;
pub mod signals;
