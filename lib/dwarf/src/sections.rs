//! Sections with debug information, inflated.
//!
//! Given a file's bytes; gives what gimli reads. Must not know what is in them.

use gimli::{Dwarf, EndianArcSlice, LittleEndian, Section, SectionId};
use ruzstd::decoding::StreamingDecoder;
use sptrace_image::{DebugSection, debug_sections};
use std::io::Read;
use std::sync::Arc;

/// How bytes are held.
pub(crate) type Bytes = EndianArcSlice<LittleEndian>;

/// A compressed section grows to no more than this.
const MOST_BYTES: usize = 1 << 30;
/// ELFCOMPRESS_ZLIB and ELFCOMPRESS_ZSTD (System V ABI, "Section Compression").
const ZLIB: u32 = 1;
const ZSTD: u32 = 2;
/// Bytes of an Elf64_Chdr.
const HEAD_BYTES: usize = 24;

/// The debug information in a file, with that of the file that it refers to; `None`: there is none.
pub(crate) fn dwarf(file: &[u8], supplement: Option<&[u8]>) -> Option<Dwarf<Bytes>> {
    let mut dwarf = of_file(file)?;
    if let Some(supplement) = supplement.and_then(of_file) {
        dwarf.set_sup(supplement);
    }
    Some(dwarf)
}

fn of_file(file: &[u8]) -> Option<Dwarf<Bytes>> {
    let sections = debug_sections(file);
    sections.iter().find(|s| s.name == ".debug_info")?;
    let load = |id: SectionId| -> Result<Bytes, gimli::Error> {
        let found = sections.iter().find(|section| section.name == id.name());
        let bytes = found.and_then(inflated).unwrap_or_default();
        Ok(EndianArcSlice::new(Arc::from(bytes), LittleEndian))
    };
    Dwarf::load(load).ok().filter(has_units)
}

fn has_units(dwarf: &Dwarf<Bytes>) -> bool {
    !dwarf.debug_info.reader().is_empty()
}

fn inflated(section: &DebugSection<'_>) -> Option<Vec<u8>> {
    if !section.is_compressed {
        return Some(section.bytes.to_vec());
    }
    let (head, packed) = section.bytes.split_at_checked(HEAD_BYTES)?;
    let kind = u32::from_le_bytes(*head.first_chunk()?);
    let size = u64::from_le_bytes(*head.get(8..)?.first_chunk()?);
    let size = usize::try_from(size)
        .ok()
        .filter(|size| *size <= MOST_BYTES)?;
    match kind {
        ZLIB => miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(packed, size).ok(),
        ZSTD => of_zstd(packed, size),
        _ => None,
    }
}

fn of_zstd(packed: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    // Some linkers write several frames, one after the other.
    let mut rest = packed;
    while all.len() < size && !rest.is_empty() {
        let left = (size - all.len()) as u64;
        let decoder = StreamingDecoder::new(&mut rest).ok()?;
        decoder.take(left).read_to_end(&mut all).ok()?;
    }
    Some(all)
}
