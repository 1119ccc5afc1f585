//! The best name for each address of code.
//!
//! Of several symbols at one address: functions before labels, global before local, fewer leading
//! underscores, shorter, then alphabetical, so that the choice never depends on table order.

use std::cmp::Reverse;

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
/// not listed (see [`name_of`]).
pub fn names(object: &Object<'_>) -> Vec<Name> {
    let mut all: Vec<Name> = object
        .symbols
        .chunk_by(|a, b| a.svma == b.svma)
        .filter_map(|same| same.iter().min_by_key(|s| rank(s)))
        .map(|s| Name {
            svma: s.svma,
            size_bytes: s.size_bytes,
            name: s.name.to_owned(),
        })
        .collect();
    let stubs = object.plt_stubs.iter().filter_map(|stub| {
        let name = format!("{}@plt", stub.name?);
        Some(Name {
            svma: stub.stub,
            size_bytes: u64::from(stub.size_bytes),
            name,
        })
    });
    all.extend(stubs);
    all.sort_by(|a, b| (a.svma, Reverse(&a.name)).cmp(&(b.svma, Reverse(&b.name))));
    all.dedup_by_key(|n| n.svma);
    all
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
