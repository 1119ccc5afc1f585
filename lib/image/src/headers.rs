//! The ELF header and the program headers of an image.
//!
//! Given its bytes; gives the headers that goblin reads, checked to lie in the file and to be those
//! of an x86-64 executable or shared object. Must not know sections and tables.

use goblin::container::Ctx;
use goblin::elf::header::{
    EI_CLASS, EI_DATA, ELFCLASS64, ELFDATA2LSB, ELFMAG, EM_X86_64, ET_CORE, ET_DYN, ET_EXEC, ET_REL,
};
use goblin::elf::{Elf, Header, ProgramHeader};

use crate::error::ImageError;

/// The header of an executable or shared object.
pub(crate) fn read_header(bytes: &[u8]) -> Result<(Header, ObjectKind), ImageError> {
    let header = read_any_header(bytes)?;
    let kind = match header.e_type {
        ET_EXEC => ObjectKind::Fixed,
        ET_DYN => ObjectKind::Relocatable,
        ET_REL => return Err(ImageError::OtherType("relocatable object")),
        ET_CORE => return Err(ImageError::OtherType("core file")),
        _ => return Err(ImageError::OtherType("unknown")),
    };
    Ok((header, kind))
}

/// The header of any ELF file for x86-64: what dwz(1) writes is a relocatable object.
pub(crate) fn read_any_header(bytes: &[u8]) -> Result<Header, ImageError> {
    if bytes.is_empty() {
        return Err(ImageError::Empty);
    }
    if !bytes.starts_with(ELFMAG) {
        return Err(ImageError::NotElf);
    }
    let class = *bytes
        .get(EI_CLASS)
        .ok_or(ImageError::Truncated("the ELF header"))?;
    let data = *bytes
        .get(EI_DATA)
        .ok_or(ImageError::Truncated("the ELF header"))?;
    if class != ELFCLASS64 {
        return Err(ImageError::Not64Bit);
    }
    if data != ELFDATA2LSB {
        return Err(ImageError::BigEndian);
    }
    if bytes.len() < 64 {
        return Err(ImageError::Truncated("the ELF header"));
    }
    let header = Elf::parse_header(bytes).map_err(|_| ImageError::Malformed("the ELF header"))?;
    if header.e_machine != EM_X86_64 {
        return Err(ImageError::OtherMachine(header.e_machine));
    }
    Ok(header)
}

pub(crate) fn read_program_headers(
    bytes: &[u8],
    header: &Header,
    ctx: Ctx,
) -> Result<Vec<ProgramHeader>, ImageError> {
    let offset = usize::try_from(header.e_phoff)
        .ok()
        .filter(|offset| *offset < bytes.len())
        .ok_or(ImageError::Truncated("the program header table"))?;
    if header.e_phentsize != 56 {
        return Err(ImageError::Malformed("program headers of a wrong size"));
    }
    let headers = ProgramHeader::parse(bytes, offset, usize::from(header.e_phnum), ctx)
        .map_err(|_| ImageError::Truncated("the program header table"))?;
    let code = headers
        .iter()
        .filter(|h| h.p_type == 1 && h.is_executable());
    for h in code {
        let end = h.p_offset.checked_add(h.p_filesz);
        if end.is_none_or(|end| end > bytes.len() as u64) {
            return Err(ImageError::Truncated("an executable segment"));
        }
    }
    Ok(headers)
}

/// How the image may be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// ET_EXEC: at its stated addresses.
    Fixed,
    /// ET_DYN: a PIE or a shared library, at any bias.
    Relocatable,
}
