//! Colour by role, or none. The caller decides by terminal, `--color` and NO_COLOR.

use owo_colors::OwoColorize;

/// How to paint; the default does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Paint at all?
    pub is_coloured: bool,
}

impl Style {
    /// Headings.
    pub fn heading(self, text: &str) -> String {
        if self.is_coloured {
            text.bold().to_string()
        } else {
            text.to_owned()
        }
    }
    /// What is said beside the data.
    pub fn aside(self, text: &str) -> String {
        if self.is_coloured {
            text.dimmed().to_string()
        } else {
            text.to_owned()
        }
    }
    /// What the reader should not overlook.
    pub fn warning(self, text: &str) -> String {
        if self.is_coloured {
            text.yellow().to_string()
        } else {
            text.to_owned()
        }
    }
    /// A duration of `ns`, whose text is `text`: long ones stand out.
    pub fn duration(self, ns: u64, text: &str) -> String {
        match ns {
            _ if !self.is_coloured => text.to_owned(),
            0..1_000_000 => text.to_owned(),
            1_000_000..100_000_000 => text.yellow().to_string(),
            _ => text.red().to_string(),
        }
    }
}
