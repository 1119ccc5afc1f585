//! Where an image says that its debug information lies, and by what it is known.
//!
//! Given the bytes of an image or of a debug file; gives its build id, the name in
//! `.gnu_debuglink` with its checksum (GDB manual, "Separate Debug Files"), and the file that
//! `.gnu_debugaltlink` shares with others (DWARF 5, 7.3.6; dwz(1)). Must not know folders: what the
//! names mean is looked up by others.

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::section_header::SHT_NOBITS;

use crate::build_id::{build_id_in, find_build_id};
use crate::headers::{read_any_header, read_program_headers};
use crate::sections::{read_sections, string_at};

/// What a file says of itself and of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebugLinks<'data> {
    /// Its own build id, empty if it has none.
    pub build_id: &'data [u8],
    /// Name and checksum of the file with its debug information.
    pub link: Option<(&'data str, u32)>,
    /// Name and build id of the file that its debug information refers to.
    pub alternate: Option<(&'data str, &'data [u8])>,
    /// It has debug information itself.
    pub has_debug_information: bool,
}

impl<'data> DebugLinks<'data> {
    /// Those of a file; none if it is no ELF file for x86-64.
    pub fn of(file: &'data [u8]) -> Self {
        let Ok(header) = read_any_header(file) else {
            return Self::default();
        };
        let ctx = Ctx::new(Container::Big, Endian::Little);
        let mut links = Self::default();
        if let Ok(headers) = read_program_headers(file, &header, ctx) {
            links.build_id = find_build_id(file, &headers).unwrap_or(&[]);
        }
        for section in read_sections(file, &header, ctx) {
            match section.name {
                // A debug file's segments have no bytes, but this section has.
                ".note.gnu.build-id" if section.kind != SHT_NOBITS => {
                    let stated = build_id_in(section.bytes);
                    links.build_id = stated.unwrap_or(links.build_id);
                }
                ".gnu_debuglink" => links.link = link_in(section.bytes),
                ".gnu_debugaltlink" => links.alternate = alternate_in(section.bytes),
                ".debug_info" => links.has_debug_information |= !section.bytes.is_empty(),
                _ => {}
            }
        }
        links
    }
}

/// A name, filled up with zeros to four bytes, and a checksum.
pub(crate) fn link_in(bytes: &[u8]) -> Option<(&str, u32)> {
    let name = string_at(bytes, 0)?;
    let at = (name.len() + 1).next_multiple_of(4);
    let crc = u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
    (!name.is_empty()).then_some((name, crc))
}

/// A name and a build id.
fn alternate_in(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let name = string_at(bytes, 0)?;
    let id = bytes.get(name.len() + 1..)?;
    (!name.is_empty() && !id.is_empty()).then_some((name, id))
}

#[cfg(test)]
mod tests {
    use super::{alternate_in, link_in};

    #[test]
    fn a_link_is_a_name_and_a_checksum() {
        assert_eq!(
            link_in(b"a.debug\0\x04\x03\x02\x01"),
            Some(("a.debug", 0x0102_0304))
        );
        assert_eq!(
            link_in(b"ab.debug\0\0\0\0\xff\0\0\0"),
            Some(("ab.debug", 0xff))
        );
        for cut in [
            &b""[..],
            b"a.debug",
            b"a.debug\0",
            b"a.debug\0\x04\x03\x02",
            b"\0\0\0\0\x01\0\0\0",
        ] {
            assert_eq!(link_in(cut), None, "{cut:?}");
        }
    }

    #[test]
    fn an_alternate_is_a_name_and_a_build_id() {
        assert_eq!(
            alternate_in(b"../x.debug\0\x01\x02"),
            Some(("../x.debug", &[1, 2][..]))
        );
        for cut in [&b""[..], b"x", b"x\0", b"\0\x01"] {
            assert_eq!(alternate_in(cut), None, "{cut:?}");
        }
    }
}
