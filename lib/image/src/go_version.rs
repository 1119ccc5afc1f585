//! Which Go a program was built with, by the section that its linker writes for `go version`.
//!
//! Is given that section (Go's source, `debug/buildinfo`); gives the version. Layout: since Go
//! 1.18. Knows nothing of what a version means.

use crate::sections::Section;

const MAGIC: &[u8] = b"\xff Go buildinf:";
/// The byte that says how the strings are stored, and the bit of those that are in the section.
const FLAGS_AT: usize = 15;
const IS_INLINE: u8 = 2;
/// Where the version stands, behind its length.
const VERSION_AT: usize = 32;

/// The minor version of Go 1, if the section states a release.
pub(crate) fn read_go_version(sections: &[Section<'_>]) -> Option<u32> {
    let section = sections.iter().find(|s| s.name == ".go.buildinfo")?;
    let bytes = section.bytes;
    let is_known = bytes.starts_with(MAGIC) && bytes.get(FLAGS_AT)? & IS_INLINE != 0;
    let length = *bytes.get(VERSION_AT).filter(|_| is_known)?;
    let text = bytes.get(VERSION_AT + 1..)?.get(..usize::from(length))?;
    let minor = std::str::from_utf8(text).ok()?.strip_prefix("go1.")?;
    let digits = minor.find(|c: char| !c.is_ascii_digit());
    minor.get(..digits.unwrap_or(minor.len()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sptrace_addr::Svma;

    fn minor(text: &str) -> Option<u32> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([8, IS_INLINE]);
        bytes.resize(VERSION_AT, 0);
        bytes.push(text.len() as u8);
        bytes.extend(text.as_bytes());
        let section = Section {
            name: ".go.buildinfo",
            kind: 1,
            flags: 2,
            svma: Svma(0),
            size_bytes: bytes.len() as u64,
            link: 0,
            bytes: &bytes,
        };
        read_go_version(&[section])
    }

    #[test]
    fn a_release_states_its_number_and_what_is_none_states_nothing() {
        assert_eq!(minor("go1.19.8"), Some(19));
        assert_eq!(minor("go1.23"), Some(23));
        assert_eq!(minor("go1.22rc1"), Some(22));
        assert_eq!(minor("devel go1.24-abcdef"), None);
        assert_eq!(minor("go1."), None);
    }
}
