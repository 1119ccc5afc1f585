//! What functions take and give: their prototypes.
//!
//! A [`prototype::Prototype`] is read from a line of text ([`parse`]), whoever has written it: the
//! user, a file in the form of ltrace.conf(5), the table of known functions ([`known`]), or the
//! reader of debug information. The same line stands in a trace, so that whoever shows it needs
//! nothing else. [`spec`] reads what the options -A and -R say.
//!
//! Must not know: images, processes, how anything is read.

pub mod known;
pub mod parse;
pub mod prototype;
pub mod spec;
mod words;
