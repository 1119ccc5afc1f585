//! Registers of a frame, by their DWARF numbers.
//!
//! What is not known of an outer frame is `None`: registers that the callee may have overwritten.

/// DWARF numbers of the registers that the calling convention names.
pub(crate) const RBX: usize = 3;
pub(crate) const RBP: usize = 6;
pub(crate) const RSP: usize = 7;
pub(crate) const R12: usize = 12;

/// Registers of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    pub(crate) rip: u64,
    pub(crate) general: [Option<u64>; 16],
}

impl Registers {
    /// The three registers that nearly every walk is content with.
    pub fn new(rip: u64, rsp: u64, rbp: u64) -> Self {
        let mut registers = Self {
            rip,
            general: [None; 16],
        };
        registers.general[RSP] = Some(rsp);
        registers.general[RBP] = Some(rbp);
        registers
    }

    /// All of them. `general` is in the order of DWARF: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8
    /// to r15.
    pub fn all(rip: u64, general: [u64; 16]) -> Self {
        Self {
            rip,
            general: general.map(Some),
        }
    }

    pub(crate) fn get(&self, register: gimli::Register) -> Option<u64> {
        if register == gimli::X86_64::RA {
            return Some(self.rip);
        }
        *self.general.get(usize::from(register.0))?
    }

    /// Known in every frame: both constructors and every step set it.
    pub(crate) fn rsp(&self) -> u64 {
        self.general[RSP].unwrap_or(0)
    }

    /// After a step of which nothing is known but these.
    pub(crate) fn only(rip: u64, rsp: u64, rbp: Option<u64>) -> Self {
        let mut registers = Self::new(rip, rsp, 0);
        registers.general[RBP] = rbp;
        registers
    }
}

/// The calling convention has a callee leave it as it was (System V ABI, 3.2.1).
pub(crate) fn is_preserved(number: usize) -> bool {
    matches!(number, RBX | RBP | RSP) || number >= R12
}
