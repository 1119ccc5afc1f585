//! Named constants: flags, enumerations, errors.
//!
//! Given a table and a number; gives the names as strace writes them. The tables are made by
//! `cargo run -p xtask -- constants` from header files.
//!
//! Must not know: which argument a number is.

pub mod table;

use std::fmt::{Display, Write};

/// How a number that has a name is shown (`-X`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// As its name.
    #[default]
    Abbrev,
    /// As a number.
    Raw,
    /// As a number, with its name beside it.
    Verbose,
}

impl Style {
    /// Writes what is written as this number or by this name.
    pub fn write(self, number: impl Display, name: &str, out: &mut String) {
        let _ = match self {
            Self::Abbrev => write!(out, "{name}"),
            Self::Raw => write!(out, "{number}"),
            Self::Verbose => write!(out, "{number} /* {name} */"),
        };
    }
}

/// A number in hexadecimal; 0 is `0`.
pub fn hex(value: u64) -> String {
    if value == 0 {
        "0".to_owned()
    } else {
        format!("{value:#x}")
    }
}

/// A table of named constants.
#[derive(Debug)]
pub struct Names {
    /// What stands beside a number that is none of the table's.
    pub fallback: &'static str,
    /// Whether values are sets of bits.
    pub flags: bool,
    /// Values and names: for flags in the order of printing, otherwise by value.
    pub values: &'static [(u64, &'static str)],
}

impl Names {
    /// A table of bits.
    pub const fn flags(fallback: &'static str, values: &'static [(u64, &'static str)]) -> Self {
        Self {
            fallback,
            flags: true,
            values,
        }
    }

    /// A table of values of which one holds.
    pub const fn choice(fallback: &'static str, values: &'static [(u64, &'static str)]) -> Self {
        Self {
            fallback,
            flags: false,
            values,
        }
    }

    /// The name of this very value.
    pub fn name(&self, value: u64) -> Option<&'static str> {
        let found = self.values.iter().find(|(v, _)| *v == value);
        found.map(|(_, name)| *name)
    }

    /// The value of this name.
    pub fn value(&self, name: &str) -> Option<u64> {
        let found = self.values.iter().find(|(_, n)| *n == name);
        found.map(|(value, _)| *value)
    }

    /// Writes a value in a style.
    pub fn write(&self, value: u64, style: Style, out: &mut String) {
        if style == Style::Abbrev || style == Style::Verbose && !self.knows(value) {
            self.write_names(value, out);
            return;
        }
        let mut names = String::new();
        self.write_names(value, &mut names);
        style.write(hex(value), &names, out);
    }

    /// The value has a name, or one of its bits has.
    fn knows(&self, value: u64) -> bool {
        let has_bit = |(bits, _): &(u64, _)| *bits != 0 && value & bits == *bits;
        self.name(value).is_some() || self.flags && self.values.iter().any(has_bit)
    }

    /// Writes its name, or its bits' names.
    pub fn write_names(&self, value: u64, out: &mut String) {
        if !self.flags {
            match self.name(value) {
                Some(name) => out.push_str(name),
                None => self.write_unknown(value, out),
            }
            return;
        }
        if let Some((0, name)) = self.values.iter().find(|(v, _)| *v == value) {
            out.push_str(name);
        } else if self.write_bits(value, "", out) == 0 {
            if value == 0 {
                out.push('0');
            } else {
                self.write_unknown(value, out);
            }
        }
    }

    /// Writes the names of the bits that are set, and what is left as a number, each after
    /// `before` or `|`. Returns how many names were written; with none, nothing is written.
    pub fn write_bits(&self, value: u64, before: &str, out: &mut String) -> usize {
        let (mut left, mut written) = (value, 0);
        for (bits, name) in self.values {
            if *bits != 0 && left & bits == *bits {
                out.push_str(if written == 0 { before } else { "|" });
                out.push_str(name);
                left &= !bits;
                written += 1;
            }
        }
        if written > 0 && left != 0 {
            let _ = write!(out, "|{left:#x}");
        }
        written
    }

    fn write_unknown(&self, value: u64, out: &mut String) {
        let _ = match (value, self.fallback) {
            (0, fallback) => write!(out, "0 /* {fallback} */"),
            (_, "") => write!(out, "{value:#x}"),
            (_, fallback) => write!(out, "{value:#x} /* {fallback} */"),
        };
    }
}

/// Name and text of an error number; the numbers above those that programs see are the kernel's
/// own, which a tracer sees when a call is restarted.
pub fn error(number: u64) -> Option<(&'static str, &'static str)> {
    let restart = match number {
        512 => Some(("ERESTARTSYS", "To be restarted if SA_RESTART is set")),
        513 => Some(("ERESTARTNOINTR", "To be restarted")),
        514 => Some(("ERESTARTNOHAND", "To be restarted if no handler")),
        516 => Some(("ERESTART_RESTARTBLOCK", "Interrupted by signal")),
        524 => Some(("ENOTSUPP", "Unknown error 524")),
        _ => None,
    };
    restart.or_else(|| {
        let name = table::ERRNO.name(number)?;
        let text = table::ERRNO_TEXTS.iter().find(|(v, _)| *v == number)?.1;
        Some((name, text))
    })
}
