//! What a script is checked by before it is of use: its size, and how the host reads events and
//! system calls.
//!
//! Must not know the language.

use sptrace_types::calls::Selection;

/// Bytes of a script, at most.
pub const MOST_BYTES: usize = 256 << 10;

/// How the host reads what it understands better than a script; errors are sentences.
#[derive(Clone, Copy)]
pub struct Checks {
    /// An event.
    pub event: fn(&str) -> Result<(), String>,
    /// Functions, and the events that begin and end the recording of their calls.
    pub rule: fn(&[String; 3]) -> Result<(), String>,
    /// A set of system calls.
    pub system_calls: fn(&str) -> Result<Selection, String>,
}
