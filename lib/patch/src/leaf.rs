//! Which functions make no calls, though it is not known where they jump to, or their calls are
//! left alone: the string functions of a C library, in assembler, and the small ones of libgcc_s.
//!
//! Given a function; looks at each instruction from its entry to its end, as they follow each
//! other. Must not know what depends on it.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use sptrace_code::Function;
use sptrace_image::Object;
use sptrace_wire::plan::FN_CALLS_NOTHING;

/// [`FN_CALLS_NOTHING`] if no instruction of it is a call, nor a jump to another function.
pub fn calls_nothing(object: &Object<'_>, f: &Function) -> u16 {
    let bytes = f.end.0.checked_sub(f.entry.0).map(|bytes| bytes as usize);
    let code = object.code_from(f.entry);
    let code = code.zip(bytes).and_then(|(code, bytes)| code.get(..bytes));
    let stays = |i: &Instruction| match i.flow_control() {
        FlowControl::Next | FlowControl::Return | FlowControl::IndirectBranch => !i.is_invalid(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
            (f.entry.0..f.end.0).contains(&i.near_branch_target())
        }
        _ => false,
    };
    let decoder = |code| Decoder::with_ip(64, code, f.entry.0, DecoderOptions::NONE);
    match code {
        Some(code) if f.site_count == 0 && decoder(code).iter().all(|i| stays(&i)) => {
            FN_CALLS_NOTHING
        }
        _ => 0,
    }
}
