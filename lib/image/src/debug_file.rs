//! The symbols of a separate debug file.
//!
//! What stripping takes from an image, distributions keep in a file of its own (GDB manual,
//! "Separate Debug Files"). Is given its bytes and the image; gives names for the image's code, no
//! more.

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::section_header::SHT_SYMTAB;
use sptrace_addr::Svma;

use crate::build_id::build_id_in;
use crate::headers::read_header;
use crate::object::Object;
use crate::sections::read_sections;
use crate::symbols::{Symbol, read_table};

/// The names for code that a debug file states, sorted by address; none if it has another build id
/// than the image. Whether a file without one is the image's, the caller knows.
pub fn debug_symbols<'data>(file: &'data [u8], object: &Object<'_>) -> Vec<Symbol<'data>> {
    let Ok((header, _)) = read_header(file) else {
        return Vec::new();
    };
    let ctx = Ctx::new(Container::Big, Endian::Little);
    let sections = read_sections(file, &header, ctx);
    let id = sections
        .iter()
        .filter(|s| s.name == ".note.gnu.build-id")
        .find_map(|s| build_id_in(s.bytes));
    if id.is_some_and(|id| id != object.build_id) {
        return Vec::new();
    }
    let is_code = |svma: Svma| object.code_range_at(svma).is_some();
    let mut symbols = Vec::new();
    for table in sections.iter().filter(|s| s.kind == SHT_SYMTAB) {
        let strings = sections
            .get(table.link as usize)
            .map_or(&[][..], |s| s.bytes);
        read_table(table.bytes, strings, ctx, &is_code, &mut symbols, None);
    }
    symbols.sort_by(|a, b| (a.svma, a.name).cmp(&(b.svma, b.name)));
    symbols
}
