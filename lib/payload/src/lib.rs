//! What runs at a call beside its record: a small typed language, its compiler, its interpreter.
//!
//! A [`Program`] says which values of a call are kept, and of which calls at all. Front ends make
//! programs (specs of arguments, filters, scripts); [`compile()`] makes native code of them, which
//! the agent calls with the registers of the call, and [`interpret()`] does the same step by step,
//! so that tests can compare the two.
//!
//! | file | what for |
//! |---|---|
//! | [`program`] | the language |
//! | [`check`] | what a program must fulfil before it is compiled |
//! | [`contract`] | what compiled code is given, and what it gives |
//! | [`mod@compile`] | native code |
//! | [`mod@in_place`] | native code of a small program, for the middle of a common routine |
//! | [`mod@interpret`] | the meaning of a program |
//! | [`acts`] | what a payload adds to tables, and whether the call is recorded |
//! | [`mod@acted`] | the meaning of that |
//! | [`tables`] | where tables lie, and what stands in them |
//! | [`callers`] | stacks as words, and as lists of places |
//! | [`text`] | texts as words that can be compared |
//! | [`mod@acts_code`] | native code that adds to them |
//! | `rows_code` | the same of rows in the order of their coming |
//! | `slowest_code` | the same of rows with the greatest measure |
//! | [`mod@slot_code`] | the same for the slots of calls that have no frame |
//! | [`captured`] | reading what a program has kept |
//!
//! A program always ends: there is no way back in it but [`program::Statement::Repeat`], which is
//! bounded. It cannot fault: memory is read through the agent, and what cannot be read is zero and
//! marked. Must not know where a program is called, what values mean, and how they are shown.
#![forbid(unsafe_code)]

pub mod acted;
pub mod acts;
pub mod acts_code;
mod below;
mod bid_code;
pub mod callers;
pub mod captured;
pub mod check;
pub mod compile;
pub mod contract;
pub mod in_place;
pub mod interpret;
pub mod program;
mod rows_code;
pub mod slot_code;
mod slowest_code;
pub mod tables;
pub mod text;
mod time_code;
mod told_code;

pub use acts_code::acts_code;
pub use compile::compile;
pub use in_place::in_place;
pub use interpret::interpret;
pub use program::Program;
pub use slot_code::slot_code;
