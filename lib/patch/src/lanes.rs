//! Where a program says which of its lanes a thread runs.
//!
//! A *lane* is a sequence of calls with a stack of its own that threads take turns in running. In
//! Go these are goroutines. Their runtime keeps the address of what it knows of the running one
//! (its `g`) in thread-local storage. Such a block begins with the bounds of the lane's stack, and
//! has the lane's number at a place that depends on Go's version (Go's source,
//! `runtime/runtime2.go`). Must not know what becomes of that.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use sptrace_code::Analysis;
use sptrace_image::Object;

/// The runtime's function by which a goroutine goes on, which says which one it is first. In Go
/// 1.17 and later it is the second part of `runtime.gogo`, with another convention of calls.
const GOES_ON: [&str; 2] = ["gogo", "runtime.gogo"];
/// Instructions of it that are looked at.
const LOOKED_AT: usize = 12;
const NUMBER_AT_18: u32 = 152;
const NUMBER_AT_23: u32 = 160;

/// What a plan says of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lanes {
    /// Where the word is that leads to the running lane's block, from the fs base on.
    pub at: u32,
    /// Where its number is in that; 0: nothing is known.
    pub number: u32,
}

/// Of this image.
pub fn lanes(object: &Object<'_>) -> Lanes {
    let number = match object.go_minor {
        Some(18..=22) => NUMBER_AT_18,
        Some(23..=24) => NUMBER_AT_23,
        _ => return Lanes::default(),
    };
    let code = |name: &str| {
        let symbol = object.symbols.iter().find(|s| s.name == name)?;
        stored_in(object.code_from(symbol.svma)?)
    };
    let at = GOES_ON.iter().find_map(|name| code(name));
    at.map_or(Lanes::default(), |at| Lanes { at, number })
}

/// What such a program runs without any call: the handler of its signals, what that has interrupted
/// code go on with, and where a goroutine's first function returns to.
const UNCALLED: [&str; 8] = [
    "runtime.sigtramp",
    "runtime.cgoSigtramp",
    "runtime.sigprofNonGoWrapper",
    "runtime.asyncPreempt",
    "runtime.sigpanic0",
    "runtime.sigpanic",
    "runtime.goexit",
    "runtime.debugCallV2",
];

/// These functions, by their numbers; of an entry there are few other links. They are patched
/// before the program runs: else what they call would run unseen, and could not be patched later
/// than that ([`sptrace_wire::plan::RETURN_OF_SEVERAL`]).
pub fn uncalled<'a>(
    object: &'a Object<'_>,
    analysis: &'a Analysis,
) -> impl Iterator<Item = u32> + 'a {
    let is_known = lanes(object) != Lanes::default();
    let symbols = object.symbols.iter().filter(move |_| is_known);
    // Go's linker says so of the convention of calls.
    let wanted = symbols.filter(|s| {
        let name = s.name.strip_suffix(".abi0").unwrap_or(s.name);
        UNCALLED.contains(&name)
    });
    let numbers = wanted.filter_map(|s| analysis.function_at(s.svma));
    numbers.map(|number| number as u32)
}

/// Where the code stores a word in thread-local storage, first of all.
fn stored_in(code: &[u8]) -> Option<u32> {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let (mut i, mut known) = (Instruction::default(), None);
    for _ in 0..LOOKED_AT {
        if !decoder.can_decode() {
            return None;
        }
        decoder.decode_out(&mut i);
        let is_move = i.mnemonic() == Mnemonic::Mov;
        if is_move && i.op0_kind() == OpKind::Memory && i.memory_segment() == Register::FS {
            let displacement = i.memory_displacement64() as u32;
            return match i.memory_base() {
                Register::None if i.memory_index() == Register::None => Some(displacement),
                base if Some(base) == known.map(|(register, _)| register) => {
                    known.map(|(_, value): (Register, u32)| value.wrapping_add(displacement))
                }
                _ => None,
            };
        }
        if is_move && i.op1_kind() == OpKind::Immediate32to64 {
            known = Some((i.op0_register(), i.immediate32to64() as u32));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_stated_by_the_instruction_or_by_a_register() {
        // mov fs:[-8], rdx
        let direct = [0x64, 0x48, 0x89, 0x14, 0x25, 0xf8, 0xff, 0xff, 0xff];
        assert_eq!(stored_in(&direct), Some(0xffff_fff8));
        // mov rcx, -16; mov fs:[rcx], rdx
        let held = [
            0x48, 0xc7, 0xc1, 0xf0, 0xff, 0xff, 0xff, 0x64, 0x48, 0x89, 0x11,
        ];
        assert_eq!(stored_in(&held), Some(0xffff_fff0));
        // mov rcx, [rip]; mov fs:[rcx], rdx
        let loaded = [0x48, 0x8b, 0x0d, 0, 0, 0, 0, 0x64, 0x48, 0x89, 0x11];
        assert_eq!(stored_in(&loaded), None);
        assert_eq!(stored_in(&[0x90; 4]), None);
    }
}
