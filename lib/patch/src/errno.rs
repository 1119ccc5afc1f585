//! Where the C library of a module keeps errno, as far as its `__errno_location` says so.
//!
//! Given an image; gives the distance from the fs base, or the word that holds it. The function is
//! an addition in every C library (glibc: a word of the GOT that ld.so fills in, or a constant in a
//! static program; musl: an offset in the thread's descriptor): what else is in it makes the place
//! unknown. Must not know who reads it.

use iced_x86::{Code, Decoder, DecoderOptions, Mnemonic, OpKind, Register};
use sptrace_addr::Svma;
use sptrace_image::Object;
use sptrace_wire::plan::{ErrnoPlace, ValuesHead};

const NAME: &str = "__errno_location";
const MOST_INSTRUCTIONS: usize = 8;

/// The place, as a plan says it, whose offsets count from `base`.
pub fn place_of_errno(object: &Object<'_>, base: Svma) -> ValuesHead {
    found(object, base).unwrap_or_default()
}

fn found(object: &Object<'_>, base: Svma) -> Option<ValuesHead> {
    let symbol = object.symbols.iter().find(|symbol| symbol.name == NAME)?;
    let code = object.code_from(symbol.svma)?;
    let mut decoder = Decoder::with_ip(64, code, symbol.svma.0, DecoderOptions::NONE);
    let (mut slot, mut distance, mut has_base) = (None::<Svma>, 0i64, false);
    for instruction in decoder.iter().take(MOST_INSTRUCTIONS) {
        let in_memory = instruction.op1_kind() == OpKind::Memory;
        let is_fs = in_memory && instruction.memory_segment() == Register::FS;
        match instruction.mnemonic() {
            Mnemonic::Endbr64 | Mnemonic::Nop => {}
            Mnemonic::Push | Mnemonic::Pop => return None,
            Mnemonic::Ret if has_base => {
                return Some(match slot {
                    Some(slot) if distance == 0 => ValuesHead {
                        errno: ErrnoPlace::Behind,
                        errno_slot: u32::try_from(slot.0.checked_sub(base.0)?).ok()?,
                        ..ValuesHead::default()
                    },
                    Some(_) => return None,
                    None => ValuesHead {
                        errno: ErrnoPlace::At,
                        errno_distance: i32::try_from(distance).ok()?,
                        ..ValuesHead::default()
                    },
                });
            }
            Mnemonic::Mov | Mnemonic::Add if is_fs && instruction.memory_displacement64() == 0 => {
                has_base = true;
            }
            Mnemonic::Mov | Mnemonic::Add if instruction.is_ip_rel_memory_operand() => {
                slot = Some(Svma(instruction.ip_rel_memory_address()));
            }
            Mnemonic::Mov | Mnemonic::Add if instruction.op1_kind() != OpKind::Register => {
                distance += immediate(&instruction)?;
            }
            Mnemonic::Lea if instruction.memory_base() != Register::RIP => {
                distance += instruction.memory_displacement64() as i64;
            }
            _ => return None,
        }
    }
    None
}

fn immediate(instruction: &iced_x86::Instruction) -> Option<i64> {
    match instruction.code() {
        Code::INVALID => None,
        _ => instruction.try_immediate(1).ok().map(|value| value as i64),
    }
}
