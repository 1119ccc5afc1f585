//! The build id of a file: a note of the linker's (NT_GNU_BUILD_ID).
//!
//! Given a file's bytes and program headers, or a section of notes; gives the id's bytes.

use goblin::elf::ProgramHeader;
use goblin::elf::program_header::PT_NOTE;

/// The bytes of a segment; `None`: it lies outside of the file.
pub(crate) fn file_bytes<'data>(file: &'data [u8], header: &ProgramHeader) -> Option<&'data [u8]> {
    let start = usize::try_from(header.p_offset).ok()?;
    let end = start.checked_add(usize::try_from(header.p_filesz).ok()?)?;
    file.get(start..end)
}

pub(crate) fn find_build_id<'data>(
    file: &'data [u8],
    headers: &[ProgramHeader],
) -> Option<&'data [u8]> {
    headers
        .iter()
        .filter(|h| h.p_type == PT_NOTE)
        .take(64)
        .find_map(|h| build_id_in(file_bytes(file, h)?))
}

/// Notes are name size, descriptor size, type, then both padded to 4.
pub(crate) fn build_id_in(mut notes: &[u8]) -> Option<&[u8]> {
    const NT_GNU_BUILD_ID: u32 = 3;
    while let Some((head, rest)) = notes.split_at_checked(12) {
        let word = |at: usize| {
            head[at..at + 4]
                .iter()
                .rev()
                .fold(0u32, |value, byte| value << 8 | u32::from(*byte))
        };
        let (name_bytes, descriptor_bytes) = (word(0) as usize, word(4) as usize);
        let (name, rest) = rest.split_at_checked(name_bytes.next_multiple_of(4))?;
        let descriptor = rest.get(..descriptor_bytes)?;
        if word(8) == NT_GNU_BUILD_ID && name.starts_with(b"GNU\0") {
            return Some(descriptor);
        }
        notes = rest
            .get(descriptor_bytes.next_multiple_of(4)..)
            .unwrap_or(&[]);
    }
    None
}
