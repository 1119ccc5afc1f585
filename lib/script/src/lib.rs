//! Policies in Rhai: what to record, when, and what to make of what was recorded.
//!
//! Given the text of a script; gives a [`Script`]: the typed [`Policy`] that its top level asks
//! for, and the handlers that a [`Run`] tells of a trace's events. A script is evaluated once,
//! under limits, before anything is started; it reaches no file and no network.
//!
//! | files | what for |
//! |---|---|
//! | [`find`], [`ready`] | where a script comes from |
//! | [`load`], [`checks`], `engine`, [`error`] | from text to a script, or what is wrong |
//! | `word`, `words`, [`mod@reference`], [`definitions`] | the words, with what is made of them |
//! | [`policy`], `draft` | what a script asks for |
//! | `compiled`, `listing` | closures that run inside of the program, and what is made of them |
//! | `sheets` | counts, sums, histograms, tables, and how they print |
//! | [`run`], `event`, `given`, `value`, `descriptors` | handlers over a trace |
//!
//! Must not know: how a recording is made, the command line, processes.
#![forbid(unsafe_code)]

pub mod checks;
mod compiled;
pub mod definitions;
mod descriptors;
mod draft;
mod engine;
pub mod error;
mod event;
pub mod find;
mod given;
mod listing;
pub mod load;
pub mod policy;
pub mod ready;
pub mod reference;
pub mod run;
mod sheets;
mod value;
mod word;
mod words;

pub use checks::Checks;
pub use error::ScriptError;
pub use load::Script;
pub use policy::{Bid, Decision, Deed, Details, FunctionFacts, Level, More, Policy};
pub use run::{Run, Trouble};
pub use sheets::Form;
