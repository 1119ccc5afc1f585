//! Prototypes of functions, and lines of the source, from debug information (DWARF 2 to 5).
//!
//! Given the bytes of an image, or of its separate debug file; gives for a function's address a
//! line that says what it takes and gives, in the language of the crate `types`, read when the
//! first is asked for; and for any address of code where it was written. The files are hostile
//! until proven otherwise: what is wrong or too deep has no prototype and no line.
//!
//! | file | what for |
//! |---|---|
//! | `sections.rs` | the sections, inflated |
//! | `entries.rs` | entries, and what they refer to |
//! | `functions.rs` | which entry describes the function at an address, and its parameters |
//! | `types.rs` | a type as text |
//! | `lines.rs` | files and lines, and what was inlined |
//!
//! Must not know processes, names of files, and what becomes of a line.
#![forbid(unsafe_code)]

mod entries;
mod functions;
mod lines;
mod sections;
mod types;

pub use functions::Prototypes;
pub use lines::{Frame, Line, Lines};
