//! The logic that runs inside the traced program.
//!
//! Freestanding: no libc, no allocator, no thread-local storage, no panic path, and only the
//! system calls of [`sys`]. It is given an arena (see `sptrace-wire`) and the plans in it; it gives
//! patched call sites and records. It decodes no instruction: what it cannot look up in a plan it
//! leaves alone and counts.
//!
//! By phase: [`start`] (injection), [`common`] (the hot path), [`silent`] (the same when nothing is recorded any
//! more), [`door`] and [`slow`] (everything the hot path cannot do), [`thread`] (thread blocks, fork), [`chunk`] (records and back-pressure),
//! [`module`] (plans, questions to the host), [`propagate`], [`site`] and [`special`] (instrumenting a callee),
//! [`text`] (writing live code), [`unwind`] (return addresses given back to a stack walker),
//! [`dormant`] (the same when nothing is recorded any more), [`unpatch`] (the text as it was, then), [`stacks`] (handlers on an alternate stack),
//! [`unblocked`] (what is done around a walk without blocking signals), [`handlers`] (which signals have handlers),
//! [`sigframe`], [`context`] and [`interrupted`] (what a signal interrupted), [`moved`] (executing moved instructions for it),
//! [`place`] (what slot an address lies in),
//! [`process`] (exec, modules that go away), [`attach`] and [`detach`] (a running process).
//!
//! Rules: signals are blocked while Rust code of the agent runs, but for [`unblocked`]; a failure becomes a counter;
//! nothing here may end or hang the program.
#![no_std]
#![allow(
    clippy::missing_safety_doc,
    reason = "one duty for all: called from the slow path with signals blocked, see the module header"
)]

pub mod attach;
pub mod between;
pub mod chunk;
pub mod common;
pub mod context;
pub mod deep;
pub mod detach;
pub mod door;
pub mod dormant;
pub mod exec;
pub mod gate;
pub mod guarded;
pub mod handlers;
pub mod hook;
pub mod interrupted;
pub mod mappings;
pub mod marks;
pub mod module;
pub mod moved;
pub mod patched;
pub mod place;
pub mod plan;
pub mod process;
pub mod propagate;
pub mod sigframe;
pub mod silent;
pub mod site;
pub mod slow;
pub mod special;
pub mod stacks;
pub mod start;
pub mod state;
pub mod sys;
pub mod text;
pub mod thread;
pub mod unblocked;
pub mod unpatch;
pub mod unwind;
