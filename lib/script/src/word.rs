//! What is known of a word of the language: for the manual, and for hints of errors.
//!
//! Must not know what the word does.

/// A word of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// As it is called.
    pub name: &'static str,
    /// As it is written.
    pub form: &'static str,
    /// What it does.
    pub text: &'static str,
    /// Where it stands in the manual.
    pub section: &'static str,
}
