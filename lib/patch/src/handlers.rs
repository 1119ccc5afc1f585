//! Functions that may be signal handlers: their entries are intercepted once the kernel is told of
//! them, for a recording of system calls.
//!
//! Given the image, its analysis, the plan, and what else of the text is taken; gives the functions
//! whose address the program takes, each with the slot that its entry would lead to. Which of them
//! are handlers is seen when they are registered: until then nothing of them is changed. Nothing is
//! given for a module that registers none. Must not know what is recorded there.

use rustc_hash::FxHashMap as HashMap;
use std::collections::BTreeSet;

use sptrace_addr::Svma;
use sptrace_code::{Analysis, Function, FunctionFlags};
use sptrace_image::Object;
use sptrace_wire::plan::JUMP_BYTES;

use crate::kept::{Keep, Kept};
use crate::special::{HookRange, hook_range, jumps_into};
use crate::template::Builder;

/// A function whose entry can be intercepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handler {
    /// Its entry, as offset in the module.
    pub entry: u32,
    /// Where the text is changed.
    pub start: u32,
    /// How many bytes of it are covered.
    pub span: u8,
    /// No instruction begins inside of what the jump overwrites: wherever a thread is, it is at
    /// none of these bytes but the first.
    pub is_one_instruction: bool,
    /// Its code, and what depends on where things lie.
    pub template: Vec<u8>,
    /// Bytes of its slot.
    pub slot_bytes: u32,
}

/// The most functions of a module that are kept ready. Those whose address stands in code come
/// first.
const MOST: usize = 4096;

/// The functions of the C library that tell the kernel of a handler.
const REGISTERS: [&str; 8] = [
    "sigaction",
    "__sigaction",
    "signal",
    "bsd_signal",
    "sysv_signal",
    "__sysv_signal",
    "ssignal",
    "sigset",
];

/// Looks for them. `is_free`: whether nothing else has taken these offsets of the text; `base`: of
/// the plan.
pub fn handlers(
    object: &Object<'_>,
    analysis: &Analysis,
    (base, kept): (Svma, &Kept),
    is_free: &dyn Fn(u32, u32) -> bool,
) -> Vec<Handler> {
    if !registers(object) {
        return Vec::new();
    }
    let linked = linked(analysis);
    let offset = |svma: Svma| svma.0.wrapping_sub(base.0) as u32;
    let mut found = Vec::new();
    for i in candidates(object, analysis) {
        let f = &analysis.functions[i];
        let is_part = f.flags.contains(FunctionFlags::COLD_PART);
        if is_part || kept.in_function(f) == Keep::Bytes {
            continue;
        }
        let others = linked.get(&i).map_or(&[][..], Vec::as_slice);
        // No site's slot is led to: its bytes are not free.
        let Some(range) = hook_range(object, f.entry, f.end, &|_| None) else {
            continue;
        };
        let own = [(f.entry, f.end)];
        let mut all = own.iter().chain(others);
        let is_led_into = all.any(|f| jumps_into(object, *f, &range));
        let (start, end) = (range.start, range.covered);
        let bytes = (end.0 - start.0) as usize;
        let original = object.code_from(start).and_then(|c| c.get(..bytes));
        let mut t = Builder::new(base);
        if let (false, true, true, Some(original)) = (
            is_led_into,
            is_free(offset(start), offset(end)),
            t.whole_special(object, &range),
            original,
        ) {
            found.push(Handler {
                entry: offset(f.entry),
                start: offset(start),
                span: bytes as u8,
                is_one_instruction: is_one_instruction(object, &range),
                slot_bytes: t.slot_bytes(),
                template: t.finish(original),
            });
        }
    }
    found.sort_unstable_by_key(|handler| handler.start);
    found
}

/// True if no instruction but the first begins where the jump is written: a thread may be about to
/// execute it, and cannot be in the middle of the others. What follows a `ret` is never executed.
fn is_one_instruction(object: &Object<'_>, range: &HookRange) -> bool {
    let code = object.code_from(range.start).unwrap_or(&[]);
    let options = iced_x86::DecoderOptions::NONE;
    let mut decoder = iced_x86::Decoder::with_ip(64, code, range.start.0, options);
    let first = decoder.decode();
    first.mnemonic() == iced_x86::Mnemonic::Ret
        || first.next_ip() - range.start.0 >= JUMP_BYTES as u64
}

/// True if the module may tell the kernel of a handler: it uses or is the C library, or has none.
fn registers(object: &Object<'_>) -> bool {
    let is_one = |name: &str| REGISTERS.contains(&name.split('@').next().unwrap_or(name));
    let is_alone = object.needed.is_empty() && object.interpreter.is_none();
    is_alone
        || object.slot_names.iter().any(|(_, name)| is_one(name))
        || object.symbols.iter().any(|symbol| is_one(symbol.name))
}

/// Numbers of the functions whose address is taken.
fn candidates(object: &Object<'_>, analysis: &Analysis) -> BTreeSet<usize> {
    let functions = analysis.functions.iter().enumerate();
    let by_entry: HashMap<u64, usize> = functions.map(|(i, f)| (f.entry.0, i)).collect();
    let mut found = BTreeSet::new();
    let mut add = |target: u64| {
        if let Some(i) = by_entry.get(&target)
            && found.len() < MOST
        {
            found.insert(*i);
        }
    };
    for f in &analysis.functions {
        addresses_in(object, f).for_each(&mut add);
    }
    for pointer in &object.code_pointers {
        add(pointer.target.0);
    }
    found
}

/// What an instruction in this function may make an address of: `lea` relative to it, and in a
/// module with a fixed place any constant. Every byte is looked at as if one began there, so that
/// nothing is missed; what is found too much is only kept ready.
fn addresses_in<'a>(object: &'a Object<'a>, f: &Function) -> impl Iterator<Item = u64> + 'a {
    const LEA: u8 = 0x8d;
    let is_fixed = object.lowest_svma().0 != 0;
    let entry = f.entry.0;
    let length = f.end.0.saturating_sub(entry) as usize;
    let code = object.code_from(f.entry).unwrap_or(&[]);
    let code = code.get(..length.min(code.len())).unwrap_or(&[]);
    code.windows(6)
        .zip(entry + 6..)
        .filter_map(move |(bytes, end)| {
            let number = i32::from_le_bytes(*bytes.last_chunk()?);
            // Opcode and ModRM, of which the mode is that of an address relative to what follows.
            match bytes[0] == LEA && bytes[1] & 0xc7 == 5 {
                true => Some(end.wrapping_add_signed(number.into())),
                false => is_fixed.then_some(u64::from(number as u32)),
            }
        })
}

/// For each function, where those begin and end that jump into it.
fn linked(analysis: &Analysis) -> HashMap<usize, Vec<(Svma, Svma)>> {
    let mut linked: HashMap<usize, Vec<(Svma, Svma)>> = HashMap::default();
    for f in &analysis.functions {
        for to in analysis.links_of(f) {
            linked
                .entry(*to as usize)
                .or_default()
                .push((f.entry, f.end));
        }
    }
    linked
}
