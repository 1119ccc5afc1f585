//! What of a function's code must stay as it is, because more than the processor reads it.
//!
//! Is given an image and its analysis; says for each function whether its return addresses, or all
//! of its bytes, must be left alone. Knows nothing of tactics.

use std::collections::HashSet;
use std::ops::Range;

use sptrace_code::{Analysis, Function, FunctionFlags};
use sptrace_image::Object;

/// What must stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Nothing: it is ordinary code.
    Nothing,
    /// Return addresses: a runtime looks them up.
    Returns,
    /// All bytes: the program copies the code and runs the copy, where our jumps lead astray.
    Bytes,
}

/// More code without unwind information than this in one piece, in an image where it is rare, is
/// the work of a code generator. The longest piece of hand-written assembler is shorter.
const GENERATED_BYTES: u64 = 256 << 10;

/// What must stay in the functions of one image.
pub struct Kept {
    returns_everywhere: bool,
    /// Few functions have no unwind information: those are no compiler's. V8's builtins in node (7
    /// % of its functions), whose frames V8 walks itself, are such.
    returns_without_unwind: bool,
    /// But the start-up code of the C library (crti.o, crtbegin.o) is assembler by tradition.
    start_functions: HashSet<u64>,
    /// V8 copies its builtins near the code that it generates, for each isolate anew
    /// (`CodeRange::RemapEmbeddedBuiltins`).
    copied: Vec<Range<u64>>,
}

impl Kept {
    /// Of an image.
    pub fn of(object: &Object<'_>, analysis: &Analysis) -> Self {
        let functions = &analysis.functions;
        let with = functions.iter().filter(|f| has_unwind(f)).count();
        let returns_without_unwind = with * 8 > functions.len() * 7;
        let start_functions = object.start_functions.iter().chain([&object.entry]);
        Self {
            returns_everywhere: object.keeps_stack_maps,
            returns_without_unwind,
            start_functions: start_functions.map(|s| s.0).collect(),
            copied: if returns_without_unwind {
                long_runs(functions)
            } else {
                Vec::new()
            },
        }
    }

    /// In one of its functions.
    pub fn in_function(&self, f: &Function) -> Keep {
        let entry = f.entry.0;
        if self.start_functions.contains(&entry) {
            Keep::Nothing
        } else if self.copied.iter().any(|run| run.contains(&entry)) {
            Keep::Bytes
        } else if self.returns_everywhere || self.returns_without_unwind && !has_unwind(f) {
            Keep::Returns
        } else {
            Keep::Nothing
        }
    }
}

fn has_unwind(f: &Function) -> bool {
    f.flags.contains(FunctionFlags::HAS_UNWIND)
}

/// Neighbouring functions without unwind information, where they come to more than
/// [`GENERATED_BYTES`].
fn long_runs(functions: &[Function]) -> Vec<Range<u64>> {
    functions
        .chunk_by(|a, b| has_unwind(a) == has_unwind(b))
        .filter(|run| !has_unwind(&run[0]))
        .map(|run| run[0].entry.0..run[run.len() - 1].end.0)
        .filter(|run| run.end - run.start > GENERATED_BYTES)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sptrace_addr::Svma;

    fn function(entry: u64, end: u64, flags: FunctionFlags) -> Function {
        Function {
            entry: Svma(entry),
            end: Svma(end),
            first_site: 0,
            site_count: 0,
            first_link: 0,
            link_count: 0,
            flags,
        }
    }

    #[test]
    fn only_long_pieces_are_generated() {
        let (with, without) = (FunctionFlags::HAS_UNWIND, FunctionFlags::default());
        let functions = [
            function(0, 0x10, with),
            function(0x10, 0x20000, without),
            function(0x20000, 0x20100, with),
            function(0x30000, 0x50000, without),
            function(0x50000, 0x71000, without),
            function(0x71000, 0x71010, with),
        ];
        let runs = long_runs(&functions);
        assert_eq!(runs.len(), 1);
        assert_eq!(runs[0], 0x30000..0x71000);
        assert!(long_runs(&[]).is_empty());
    }
}
