//! Why a file is refused.

use thiserror::Error;

/// Cause of a refusal by [`crate::Object::parse`].
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ImageError {
    /// The file has no bytes.
    #[error("the file is empty")]
    Empty,
    /// It does not begin with the ELF magic.
    #[error("not an ELF file")]
    NotElf,
    /// ELF of 32-bit class.
    #[error("a 32-bit ELF file; only 64-bit x86-64 is supported")]
    Not64Bit,
    /// Big-endian ELF.
    #[error("a big-endian ELF file; only x86-64 is supported")]
    BigEndian,
    /// ELF for another machine.
    #[error("an ELF file for machine {0}; only x86-64 is supported")]
    OtherMachine(u16),
    /// A relocatable object, a core file, or another type that is not run.
    #[error("an ELF file of type {0}; only executables and shared objects are supported")]
    OtherType(&'static str),
    /// The file ends inside a structure that it announces.
    #[error("the ELF file is truncated: {0} lies beyond its end")]
    Truncated(&'static str),
    /// A structure contradicts itself.
    #[error("the ELF file is malformed: {0}")]
    Malformed(&'static str),
    /// Nothing in it is loaded to be executed.
    #[error("the ELF file has no executable segment")]
    NoCode,
}
