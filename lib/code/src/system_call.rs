//! Which call an instruction that calls the kernel makes, where that is written just before it.
//!
//! Given the image and a site of the analysis; gives the number that the plain instructions before
//! it put into eax. Must not know names of calls.

use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind, Register};
use sptrace_image::Object;

use crate::site::Site;

/// The number in eax, if an instruction of the site's window says so.
pub fn number_before(object: &Object<'_>, site: &Site) -> Option<u32> {
    let bytes = (site.address.0 - site.window_start.0) as usize;
    let code = object.code_from(site.window_start)?.get(..bytes)?;
    let decoder = Decoder::with_ip(64, code, site.window_start.0, DecoderOptions::NONE);
    let mut number = None;
    for i in decoder {
        let to_eax =
            i.op0_kind() == OpKind::Register && i.op0_register().full_register() == Register::RAX;
        number = match i.mnemonic() {
            Mnemonic::Mov if to_eax && is_immediate(i.op1_kind()) => Some(i.immediate(1) as u32),
            Mnemonic::Xor if to_eax && i.op1_register() == i.op0_register() => Some(0),
            _ if to_eax => None,
            _ => number,
        };
    }
    number
}

fn is_immediate(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
    )
}
