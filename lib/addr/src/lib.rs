//! Address types: an address in a process is not an address stated in a file.
//!
//! [`Svma`] is what an ELF file states (before the load bias is added), [`Avma`] is where the
//! byte lies in a running process. The two differ by the load bias of one mapping of one module.
//! Knows nothing of files, processes or instructions.
#![no_std]
#![forbid(unsafe_code)]

use core::fmt;

/// Stated virtual memory address: as written in the ELF file, before the load bias.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Svma(pub u64);

/// Actual virtual memory address in a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Avma(pub u64);

/// Load bias of a module: `avma = svma + bias`, wrapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Bias(pub u64);

impl Bias {
    /// The bias that puts `svma` at `avma`.
    pub fn between(svma: Svma, avma: Avma) -> Self {
        Self(avma.0.wrapping_sub(svma.0))
    }
    /// The actual address of a stated one.
    pub fn to_avma(self, svma: Svma) -> Avma {
        Avma(svma.0.wrapping_add(self.0))
    }
    /// The stated address of an actual one.
    pub fn to_svma(self, avma: Avma) -> Svma {
        Svma(avma.0.wrapping_sub(self.0))
    }
}

impl fmt::Debug for Svma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "svma {:#x}", self.0)
    }
}
impl fmt::Debug for Avma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "avma {:#x}", self.0)
    }
}
