//! What a system call's arguments are, which memory shows them, and how a line says it.
//!
//! [`types`] is the language of descriptions; `crate::calls` holds the description of every call.
//! From it, [`capture`] says which memory to read before and after a call, [`mod@print`] writes the
//! call as strace does, [`fields`] reaches a value by its name, and [`objects`] says which files a
//! call is about.

pub mod call;
pub mod capture;
pub mod events;
pub mod fields;
pub mod function_line;
pub mod memory;
pub mod objects;
pub mod print;
pub mod types;

mod formats;
mod printer;
mod scalar;
mod socket;
mod special;
mod text;
mod words;
