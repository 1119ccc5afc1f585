//! Does a function have a loop?
//!
//! Given its bytes; a sweep finds a jump that leads back inside of it. Knows nothing of control
//! flow: parts of a body that the compiler has laid the wrong way round count as a loop, too.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use sptrace_addr::Svma;

/// True if an instruction of the function jumps to itself or to one before it in the function.
pub fn jumps_back(code: &[u8], svma: Svma) -> bool {
    let mut decoder = Decoder::with_ip(64, code, svma.0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let is_jump = matches!(
            instruction.flow_control(),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        );
        let target = instruction.near_branch_target();
        if is_jump && (svma.0..=instruction.ip()).contains(&target) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_back_and_forth() {
        let at = Svma(0x1000);
        // dec edi; jnz -4; ret
        assert!(jumps_back(&[0xff, 0xcf, 0x75, 0xfc, 0xc3], at));
        // jz +1; nop; ret
        assert!(!jumps_back(&[0x74, 0x01, 0x90, 0xc3], at));
        // jmp -16: a tail jump to what lies before it.
        assert!(!jumps_back(&[0xeb, 0xee], at));
        assert!(!jumps_back(&[], at));
    }
}
