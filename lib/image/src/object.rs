//! One ELF image for x86-64: everything the code analysis asks of the file.
//!
//! Is given the bytes of the file and borrows them; does no I/O. Offsets and counts are checked
//! here or in the readers beside it, so that a hostile file gives an error or a poorer object,
//! never a panic. Knows nothing of instructions.

use std::ops::Range;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::program_header::PT_INTERP;
use sptrace_addr::Svma;

use crate::build_id::{file_bytes, find_build_id};
use crate::debug_links::link_in;
use crate::dynamic::{DynamicInfo, read_dynamic};
use crate::error::ImageError;
use crate::go_table::read_go_table;
use crate::go_version::read_go_version;
use crate::headers::{ObjectKind, read_header, read_program_headers};
use crate::plt::{PltStub, find_stubs};
use crate::relocations::{CodePointer, read_relocations};
use crate::runtime::keeps_stack_maps;
use crate::sections::{Section, read_sections, string_at};
use crate::space::{CodeRange, Space};
use crate::symbols::{Symbol, add_symbols, read_symbols};
use crate::tables::eh_frame;
use crate::unwind::Unwind;

/// A parsed image.
#[derive(Debug, Clone)]
pub struct Object<'data> {
    /// How it may be loaded.
    pub kind: ObjectKind,
    /// Where execution begins; 0 for most libraries.
    pub entry: Svma,
    /// Bytes by address.
    pub space: Space<'data>,
    /// Executable sections, or executable segments without section headers; sorted, disjoint.
    pub code_ranges: Vec<CodeRange<'data>>,
    /// NT_GNU_BUILD_ID, empty when absent.
    pub build_id: &'data [u8],
    /// `.gnu_debuglink`: the name of its debug file, and that one's checksum.
    pub debug_link: Option<(&'data str, u32)>,
    /// DT_NEEDED, in order.
    pub needed: Vec<&'data str>,
    /// PT_INTERP.
    pub interpreter: Option<&'data str>,
    /// Names for code, sorted by address then name.
    pub symbols: Vec<Symbol<'data>>,
    /// Data words that will hold addresses of code, sorted by slot.
    pub code_pointers: Vec<CodePointer>,
    /// It has descriptors of thread-local storage: functions that `call [rax]` leads to and that
    /// keep all registers but rax (x86-64 psABI, "TLS descriptors").
    pub has_tls_descriptors: bool,
    /// PLT stubs, sorted.
    pub plt_stubs: Vec<PltStub<'data>>,
    /// GOT slots and the symbols that fill them, sorted by slot.
    pub slot_names: Vec<(Svma, &'data str)>,
    /// DT_INIT, DT_FINI and the words of their arrays that the file holds.
    pub start_functions: Vec<Svma>,
    /// FDEs and landing pads.
    pub unwind: Unwind<'data>,
    /// Its runtime walks its stacks by return addresses: they must stay what they are.
    pub keeps_stack_maps: bool,
    /// Code that Go's compiler has made, which keeps no data below the stack pointer; empty: none.
    pub go_code: Range<Svma>,
    /// The release of Go 1 that has made it, if it states one.
    pub go_minor: Option<u32>,
}

impl<'data> Object<'data> {
    /// Parses the bytes of an ELF file.
    ///
    /// # Errors
    /// See [`ImageError`]: not an x86-64 executable or shared object, or headers outside the file.
    pub fn parse(bytes: &'data [u8]) -> Result<Self, ImageError> {
        let (header, kind) = read_header(bytes)?;
        let ctx = Ctx::new(Container::Big, Endian::Little);
        let headers = read_program_headers(bytes, &header, ctx)?;
        let space = Space::new(bytes, &headers);
        let sections = read_sections(bytes, &header, ctx);
        let code_ranges = space.code_ranges(&sections);
        if code_ranges.is_empty() {
            return Err(ImageError::NoCode);
        }
        let is_code = |svma: Svma| range_at(&code_ranges, svma).is_some();
        let dynamic = read_dynamic(bytes, &headers, ctx, &space);
        let (mut symbols, by_index) = read_symbols(&sections, &dynamic, &space, ctx, &is_code);
        let go = read_go_table(&sections, &is_code).unwrap_or_default();
        // A symbol says more where there are two forms of one function.
        let is_named = |svma| symbols.binary_search_by_key(&svma, |s| s.svma).is_ok();
        let unnamed = go.symbols.into_iter().filter(|s| !is_named(s.svma));
        let unnamed: Vec<_> = unnamed.collect();
        add_symbols(&mut symbols, unnamed);
        let relocations = read_relocations(&sections, &dynamic, &space, &by_index, ctx, &is_code);
        let plt_stubs = find_stubs(&code_ranges, &relocations.slots, &symbols);
        let slot_names = relocations.slot_names();
        let (svma, eh_frame) = eh_frame(&sections, &headers, &space)
            .map_or((Svma(0), &[][..]), |table| (table.start, table.bytes));
        let unwind = Unwind::read(eh_frame, svma, &space, &is_code);
        let start_functions = start_functions(&dynamic, &sections, &space, &is_code);
        let keeps_stack_maps = keeps_stack_maps(&sections, &symbols);
        let debug_link = sections.iter().find(|s| s.name == ".gnu_debuglink");
        Ok(Self {
            kind,
            entry: Svma(header.e_entry),
            build_id: find_build_id(bytes, &headers).unwrap_or(&[]),
            debug_link: debug_link.and_then(|s| link_in(s.bytes)),
            interpreter: headers
                .iter()
                .find(|h| h.p_type == PT_INTERP)
                .and_then(|h| string_at(file_bytes(bytes, h)?, 0)),
            needed: dynamic.needed,
            space,
            symbols,
            code_pointers: relocations.code_pointers,
            has_tls_descriptors: relocations.has_tls_descriptors,
            plt_stubs,
            slot_names,
            start_functions,
            unwind,
            keeps_stack_maps,
            go_code: go.code,
            go_minor: read_go_version(&sections),
            code_ranges,
        })
    }

    /// The code range that holds `svma`.
    pub fn code_range_at(&self, svma: Svma) -> Option<&CodeRange<'data>> {
        range_at(&self.code_ranges, svma)
    }

    /// Code bytes from `svma` to the end of its range.
    pub fn code_from(&self, svma: Svma) -> Option<&'data [u8]> {
        let range = self.code_range_at(svma)?;
        range.bytes.get((svma.0 - range.start.0) as usize..)
    }

    /// The PLT stub at `svma`.
    pub fn plt_stub_at(&self, svma: Svma) -> Option<&PltStub<'data>> {
        let index = self
            .plt_stubs
            .binary_search_by_key(&svma, |s| s.stub)
            .ok()?;
        self.plt_stubs.get(index)
    }

    /// Symbol that fills the GOT slot at `slot`.
    pub fn slot_name(&self, slot: Svma) -> Option<&'data str> {
        let index = self.slot_names.binary_search_by_key(&slot, |s| s.0).ok()?;
        Some(self.slot_names[index].1)
    }

    /// Lowest loaded address.
    pub fn lowest_svma(&self) -> Svma {
        self.space.segments().first().map_or(Svma(0), |s| s.svma)
    }
}

fn range_at<'a, 'data>(ranges: &'a [CodeRange<'data>], svma: Svma) -> Option<&'a CodeRange<'data>> {
    let after = ranges.partition_point(|r| r.start <= svma);
    let range = &ranges[after.checked_sub(1)?];
    (svma < range.end()).then_some(range)
}

/// In a fixed image the arrays hold addresses that no relocation states.
fn start_functions(
    dynamic: &DynamicInfo<'_>,
    sections: &[Section<'_>],
    space: &Space<'_>,
    is_code: &dyn Fn(Svma) -> bool,
) -> Vec<Svma> {
    let arrays = sections
        .iter()
        .filter(|s| matches!(s.name, ".init_array" | ".fini_array" | ".preinit_array"))
        .map(|s| (s.svma, s.size_bytes))
        .chain([dynamic.init_array, dynamic.fini_array]);
    let code = sections
        .iter()
        .filter(|s| matches!(s.name, ".init" | ".fini"))
        .map(|s| s.svma);
    let mut found: Vec<_> = [dynamic.init, dynamic.fini]
        .into_iter()
        .chain(code)
        .collect();
    for (svma, size_bytes) in arrays {
        let words = space
            .bytes_at(svma, size_bytes)
            .unwrap_or(&[])
            .chunks_exact(8);
        found.extend(words.filter_map(|w| Some(Svma(u64::from_le_bytes(w.try_into().ok()?)))));
    }
    found.retain(|svma| is_code(*svma));
    found.sort_unstable();
    found.dedup();
    found
}
