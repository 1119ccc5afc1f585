//! A call that has been made, how it is to be shown, and its text.
//!
//! Must not know: what its arguments are.

use super::memory::Memory;
use crate::names::Style;

/// Which strings are shown in hexadecimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hex {
    /// None.
    #[default]
    Never,
    /// Those with a byte that is not printable ASCII (`-x`).
    NonAscii,
    /// All (`-xx`).
    All,
}

/// How calls are shown.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// The most bytes of a string, and elements of an array (`-s`).
    pub string_limit: usize,
    /// Whether structures are shown whole (`-v`).
    pub verbose: bool,
    /// Which strings are shown in hexadecimal.
    pub hex: Hex,
    /// How numbers that have names are shown (`-X`).
    pub style: Style,
    /// What a descriptor leads to (`-y`).
    pub path_of: Option<&'a dyn Fn(i32) -> Option<String>>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            string_limit: 32,
            verbose: false,
            hex: Hex::Never,
            style: Style::Abbrev,
            path_of: None,
        }
    }
}

/// A call that has been made.
#[derive(Clone, Copy)]
pub struct Made<'a> {
    /// The number in rax.
    pub number: u32,
    /// Its arguments: of a call of the kernel the six registers.
    pub args: &'a [u64],
    /// What it returned, errors as the kernel returns them; `None`: it did not return.
    pub result: Option<i64>,
    /// What was captured.
    pub memory: &'a dyn Memory,
}

/// The text of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// `name(arguments)`.
    pub call: String,
    /// `= result`, without the space before it.
    pub result: String,
    /// Bytes of `call` that are known before the call is made, for a line that is interrupted.
    pub known_before: usize,
}

impl Line {
    /// The whole line; what follows the call stands in the column that strace has it in.
    pub fn aligned(&self, column: usize) -> String {
        format!(
            "{:<column$} {}",
            self.call,
            self.result,
            column = column.saturating_sub(1)
        )
    }
}
