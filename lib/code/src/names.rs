//! The best name for each address of code.
//!
//! Of several symbols at one address: functions before labels, global before local, fewer leading
//! underscores, shorter, then alphabetical, so that the choice never depends on table order.

use std::cmp::Reverse;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use sptrace_addr::Svma;
use sptrace_image::{Object, Symbol, SymbolKind};

/// A named range of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Where it begins.
    pub svma: Svma,
    /// Its size, 0 when not known.
    pub size_bytes: u64,
    /// The symbol without version; of a PLT stub `symbol@plt`.
    pub name: String,
}

/// The names of an image, sorted by address, one for each address; functions without a symbol are
/// not listed (see [`name_of`]). `others`: symbols from elsewhere, sorted by address, which name
/// functions that the image's own do not.
pub(crate) fn names(object: &Object<'_>, others: &[Symbol<'_>]) -> Vec<Name> {
    let own = best_names(&object.symbols);
    let is_new = |other: &Name| {
        let is_named = own.binary_search_by_key(&other.svma, |n| n.svma).is_ok();
        !is_named && object.plt_stub_at(other.svma).is_none()
    };
    let mut others = best_names(others);
    others.retain(is_new);
    let mut all = own;
    all.append(&mut others);
    let stubs = object.plt_stubs.iter().filter_map(|stub| {
        let name = format!("{}@plt", stub.name?);
        Some(Name {
            svma: stub.stub,
            size_bytes: u64::from(stub.size_bytes),
            name,
        })
    });
    all.extend(stubs);
    all.extend(start_names(object, &all));
    all.sort_by(|a, b| (a.svma, Reverse(&a.name)).cmp(&(b.svma, Reverse(&b.name))));
    all.dedup_by_key(|n| n.svma);
    all
}

/// `_start` and `main` of a stripped program, which names neither: the entry point, and what it
/// hands to `__libc_start_main` in rdi (glibc's sysdeps/x86_64/start.S ends that call with `hlt`).
fn start_names(object: &Object<'_>, named: &[Name]) -> Vec<Name> {
    const LONGEST_START: usize = 24;
    let is_named = |svma: Svma| named.iter().any(|n| n.svma == svma);
    let Some(code) = object.code_from(object.entry) else {
        return Vec::new();
    };
    let mut decoder = Decoder::with_ip(64, code, object.entry.0, DecoderOptions::NONE);
    let instructions: Vec<Instruction> = decoder.iter().take(LONGEST_START).collect();
    let call = instructions.windows(2).position(|pair| {
        let is_call = matches!(pair[0].mnemonic(), Mnemonic::Call);
        is_call && pair[1].mnemonic() == Mnemonic::Hlt
    });
    let Some(call) = call else {
        return Vec::new();
    };
    let main = instructions[..call].iter().rev().find_map(|i| {
        let is_rdi =
            i.op0_kind() == OpKind::Register && i.op0_register().full_register() == Register::RDI;
        match i.mnemonic() {
            Mnemonic::Lea if is_rdi && i.is_ip_rel_memory_operand() => {
                Some(Svma(i.ip_rel_memory_address()))
            }
            Mnemonic::Mov if is_rdi && is_immediate(i) => Some(Svma(i.immediate(1))),
            _ => None,
        }
    });
    let start = (object.entry, "_start");
    let found = [Some(start), main.map(|svma| (svma, "main"))];
    found
        .into_iter()
        .flatten()
        .filter(|(svma, _)| object.code_range_at(*svma).is_some() && !is_named(*svma))
        .map(|(svma, name)| Name {
            svma,
            size_bytes: 0,
            name: name.to_owned(),
        })
        .collect()
}

fn best_names(symbols: &[Symbol<'_>]) -> Vec<Name> {
    symbols
        .chunk_by(|a, b| a.svma == b.svma)
        .filter_map(|same| same.iter().min_by_key(|s| rank(s)))
        .map(|s| Name {
            svma: s.svma,
            size_bytes: s.size_bytes,
            name: s.name.to_owned(),
        })
        .collect()
}

fn is_immediate(mov: &Instruction) -> bool {
    matches!(
        mov.op1_kind(),
        OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
    )
}

/// The name of the function that begins at `svma`: its own, or `sub_<hex svma>`.
pub fn name_of(names: &[Name], svma: Svma) -> String {
    match names.binary_search_by_key(&svma, |n| n.svma) {
        Ok(index) => names[index].name.clone(),
        Err(_) => unnamed(svma),
    }
}

/// What a function without a symbol is called.
pub fn unnamed(svma: Svma) -> String {
    format!("sub_{:x}", svma.0)
}

fn rank<'a>(symbol: &Symbol<'a>) -> (bool, bool, usize, usize, &'a str) {
    let underscores = symbol.name.bytes().take_while(|b| *b == b'_').count();
    let is_label = symbol.kind == SymbolKind::Label;
    (
        is_label,
        !symbol.is_global,
        underscores,
        symbol.name.len(),
        symbol.name,
    )
}
