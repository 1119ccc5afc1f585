//! Tells images whose runtime walks its own stacks by return addresses.
//!
//! Such a runtime looks each return address up in tables of its own (garbage collection, stack
//! growth, exceptions) and fails at one that it does not know, so no return address in them may be
//! replaced. Is given an image's sections and symbols; gives yes or no. Known: Go (pclntab), OCaml
//! (frametables), .NET native AOT, GraalVM native image, Mono AOT. Sections and strings are looked
//! at too, since stripping takes the symbols. Knows nothing of instructions.

use crate::go_table::is_go_table;
use crate::sections::Section;
use crate::symbols::Symbol;

const SECTIONS: [&str; 5] = [
    ".go.buildinfo",
    ".note.go.buildid",
    ".svm_heap",
    "__managedcode",
    ".dotnet_eh_table",
];

const SYMBOLS: [&str; 6] = [
    "caml_call_gc",
    "caml_frametable",
    "runtime.morestack",
    "runtime.goexit",
    "mono_aot_file_info",
    "graal_create_isolate",
];

/// The variable that OCaml's runtime reads its parameters from: its name stands in each program.
const OCAML_VARIABLE: &[u8] = b"CAMLRUNPARAM\0";

/// True if return addresses must stay what they are.
pub(crate) fn keeps_stack_maps(sections: &[Section<'_>], symbols: &[Symbol<'_>]) -> bool {
    let read_only = sections.iter().filter(|s| s.name == ".rodata");
    sections
        .iter()
        .any(|s| is_go_table(s.name) || SECTIONS.contains(&s.name))
        || symbols.iter().any(|s| SYMBOLS.contains(&s.name))
        || read_only
            .into_iter()
            .any(|s| holds(s.bytes, OCAML_VARIABLE))
}

/// Looks for the first byte, which is rare, before it compares.
fn holds(bytes: &[u8], wanted: &[u8]) -> bool {
    let candidates = bytes.iter().enumerate().filter(|(_, b)| **b == wanted[0]);
    candidates
        .into_iter()
        .any(|(at, _)| bytes[at..].starts_with(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_found_at_the_end_and_not_when_cut() {
        assert!(holds(b"xxCACAMLRUNPARAM\0", OCAML_VARIABLE));
        assert!(!holds(b"CAMLRUNPARAM", OCAML_VARIABLE));
        assert!(!holds(b"", OCAML_VARIABLE));
    }
}
