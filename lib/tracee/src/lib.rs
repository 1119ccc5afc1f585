//! The only crate that touches another process: the shared arena, launching, injecting, and what
//! /proc says of a process.
//!
//! ptrace is held for the exec stop alone, or while a running process is attached to or let go.
//! Injection is one SETREGS into a stub that finishes by itself (maps the arena and the agent,
//! starts it, returns by rt_sigreturn): whatever happens to us afterwards, the program goes on as
//! it was. So does a running program's thread that is led through [`carrier`].

pub mod arena;
pub mod at_start;
mod before_exec;
pub mod carrier;
pub mod command;
pub mod eligible;
pub mod entry;
pub mod error;
pub mod futex;
pub mod gate;
pub mod image;
pub mod inject;
pub mod inside;
pub mod keep;
pub mod kill_point;
pub mod launch;
pub mod limits;
pub mod loaded;
pub mod machine;
pub mod maps;
pub mod memory;
pub mod offer;
mod pages;
pub mod pidfd;
pub mod privilege;
pub mod proc;
pub mod program;
pub mod ptrace;
pub mod seccomp;
pub mod terminal;
pub mod threads;

pub use error::TraceeError;
