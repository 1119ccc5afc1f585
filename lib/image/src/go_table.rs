//! The functions of a Go program, as its runtime knows them.
//!
//! Every program that Go's linker makes, stripped or not, has a table of all its functions with
//! their names, by which the runtime walks its stacks (Go's source, `runtime/symtab.go`:
//! `pcHeader`, `functab`, `_func`). Is given that section; gives symbols, and the range of code
//! that they cover. Layouts: Go 1.18 and 1.20; of older ones, which state addresses in full,
//! nothing is read. Knows nothing of instructions.

use std::ops::Range;

use goblin::container::{Container, Ctx, Endian};
use sptrace_addr::Svma;

use crate::headers::read_any_header;
use crate::sections::{Section, read_sections, string_at};
use crate::symbols::{Symbol, SymbolKind};

/// Go 1.18 and 1.19; since 1.20. They differ in tables that are not read here.
const MAGICS: [u32; 2] = [0xffff_fff0, 0xffff_fff1];
const WORD_BYTES: usize = 8;
/// Where the words of the header begin: behind the magic, two zeros, and two sizes.
const WORDS_AT: usize = 8;
/// An entry of the table of functions: where the function begins and where it is described, each an
/// offset.
const ENTRY_BYTES: usize = 8;
/// Words of the header, by number.
const FUNCTION_COUNT: usize = 0;
const TEXT_START: usize = 2;
const NAMES: usize = 3;
const FUNCTIONS: usize = 7;

/// What the table says.
#[derive(Debug, Default)]
pub(crate) struct GoTable<'data> {
    /// Sorted by address.
    pub symbols: Vec<Symbol<'data>>,
    /// From the first function to the end of the last one.
    pub code: Range<Svma>,
}

/// True if a file is a Go program or library.
pub fn is_go_program(file: &[u8]) -> bool {
    let ctx = Ctx::new(Container::Big, Endian::Little);
    let sections = read_any_header(file).map(|header| read_sections(file, &header, ctx));
    sections.is_ok_and(|all| all.iter().any(|s| is_go_table(s.name)))
}

/// True if a section of this name is the table.
pub(crate) fn is_go_table(section: &str) -> bool {
    // `.gopclntab`, and `.data.rel.ro.gopclntab` where it is relocated.
    section.ends_with(".gopclntab")
}

/// Reads the table, if there is one. `is_code` says whether an address is one of code.
pub(crate) fn read_go_table<'data>(
    sections: &[Section<'data>],
    is_code: &dyn Fn(Svma) -> bool,
) -> Option<GoTable<'data>> {
    let section = sections.iter().find(|s| is_go_table(s.name))?;
    let text = sections.iter().find(|s| s.name == ".text")?;
    read(section.bytes, text.svma, is_code)
}

fn read<'data>(
    table: &'data [u8],
    text: Svma,
    is_code: &dyn Fn(Svma) -> bool,
) -> Option<GoTable<'data>> {
    let is_known = MAGICS.contains(&u32_at(table, 0)?) && table.get(7) == Some(&(WORD_BYTES as u8));
    if !is_known {
        return None;
    }
    let word = |number: usize| -> Option<u64> {
        let at = WORDS_AT + number * WORD_BYTES;
        Some(u64::from_le_bytes(
            table.get(at..at + WORD_BYTES)?.try_into().ok()?,
        ))
    };
    let part = |number| table.get(usize::try_from(word(number)?).ok()?..);
    // Where it is relocated the file may hold nothing; the section begins with Go's code.
    let start = match Svma(word(TEXT_START)?) {
        stated if is_code(stated) => stated,
        _ => text,
    };
    let (names, functions) = (part(NAMES)?, part(FUNCTIONS)?);
    let count = usize::try_from(word(FUNCTION_COUNT)?).ok()?;
    // Behind the entries stands the end of the last function.
    let entries = functions.get(..count.checked_mul(ENTRY_BYTES)?.checked_add(4)?)?;
    let begins = |i: usize| {
        Some(Svma(
            start
                .0
                .checked_add(u64::from(u32_at(entries, i * ENTRY_BYTES)?))?,
        ))
    };
    let mut found = GoTable::default();
    for i in 0..count {
        let (svma, end) = (begins(i)?, begins(i + 1)?);
        let size_bytes = end.0.checked_sub(svma.0)?;
        let described = functions.get(u32_at(entries, i * ENTRY_BYTES + 4)? as usize..)?;
        let name = string_at(names, u64::from(u32_at(described, 4)?));
        let name = name.filter(|name| !name.is_empty());
        if let (Some(name), true) = (name, is_code(svma)) {
            found.symbols.push(Symbol {
                svma,
                size_bytes,
                kind: SymbolKind::Function,
                is_global: true,
                name,
            });
        }
    }
    found.code = begins(0)?..begins(count)?;
    Some(found)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        bytes.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two functions, `main.a` at 0x1000 and `main.b` at 0x1040, which ends at 0x1050.
    fn table() -> Vec<u8> {
        let mut table = MAGICS[1].to_le_bytes().to_vec();
        table.extend([0, 0, 1, 8]);
        let (names_at, functions_at) = (72u64, 88u64);
        for word in [2, 0, 0x1000, names_at, 0, 0, 0, functions_at] {
            table.extend(word.to_le_bytes());
        }
        table.extend(b"\0main.a\0main.b\0\0");
        for word in [0, 20, 0x40, 28, 0x50u32] {
            table.extend(word.to_le_bytes());
        }
        for word in [0, 1, 0x40, 8u32] {
            table.extend(word.to_le_bytes());
        }
        table
    }

    #[test]
    fn functions_have_names_and_ends() {
        let table = table();
        let found = read(&table, Svma(0), &|_| true).unwrap();
        let all: Vec<_> = found
            .symbols
            .iter()
            .map(|s| (s.svma.0, s.size_bytes, s.name))
            .collect();
        assert_eq!(all, [(0x1000, 0x40, "main.a"), (0x1040, 0x10, "main.b")]);
        assert_eq!(found.code, Svma(0x1000)..Svma(0x1050));
    }

    #[test]
    fn a_start_that_is_no_code_is_that_of_the_section() {
        let table = table();
        let found = read(&table, Svma(0x5000), &|svma| svma.0 >= 0x5000).unwrap();
        assert_eq!(found.symbols[1].svma, Svma(0x5040));
    }

    #[test]
    fn no_bytes_are_harmful() {
        let whole = table();
        for len in 0..whole.len() {
            let _ = read(&whole[..len], Svma(0), &|_| true);
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] = 0xff;
            let _ = read(&bytes, Svma(0), &|_| true);
        }
    }
}
