//! Whether an instruction can be executed elsewhere.
//!
//! Given a decoded instruction; says whether a copy of it at another address, with its rip-relative
//! operand mended, does the same. Must not know where it shall go.

use iced_x86::{Instruction, Mnemonic};

/// An instruction that does the same at another address, apart from a rip-relative operand.
pub fn movable(i: &Instruction) -> bool {
    use iced_x86::FlowControl;
    !i.is_invalid()
        && i.flow_control() == FlowControl::Next
        && !matches!(
            i.mnemonic(),
            Mnemonic::Endbr64 | Mnemonic::Syscall | Mnemonic::Sysenter
        )
        && (!i.is_ip_rel_memory_operand() || matches!(i.memory_displ_size(), 4 | 8))
}
