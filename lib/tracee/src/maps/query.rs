//! Mappings one by one from the kernel, without the text of /proc/PID/maps.
//!
//! Given the open file, gives what [`super::read`] would read from it. Linux 6.11 and newer answer
//! the request PROCMAP_QUERY (include/uapi/linux/fs.h); of a program whose text is patched in
//! thousands of places the text is long, and most of its cost are the paths, which are asked for
//! once a file here.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;

use super::Mapping;

/// The kernel's struct procmap_query.
#[repr(C)]
#[derive(Default)]
pub struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    major: u32,
    minor: u32,
    name_size: u32,
    build_id_size: u32,
    name_address: u64,
    build_id_address: u64,
}

nix::ioctl_readwrite!(procmap_query, b'f', 17, Query);

const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const EXECUTABLE: u64 = 4;
const SHARED: u64 = 8;
const COVERING_OR_NEXT: u64 = 16;
const FILE_BACKED: u64 = 32;

/// A path and its end; longer ones are cut short by the text, too.
const NAME_BYTES: usize = 4097;

/// All mappings in ascending order. None: the kernel does not answer, or not as it should.
pub fn all(maps: &File) -> Option<Vec<Mapping>> {
    let mut found: Vec<Mapping> = Vec::new();
    let mut paths = HashMap::new();
    let mut at = 0;
    while let Some(query) = ask(maps, at, 0, &mut [])? {
        at = query.end;
        let device = (query.major, query.minor);
        // What has no file is named by what it is.
        let key = (device, query.inode);
        let path = match paths.get(&key).filter(|_| query.inode != 0) {
            Some(path) => String::clone(path),
            None => {
                let path = path(maps, query.start)?;
                paths.insert(key, path.clone());
                path
            }
        };
        found.push(query.mapping(path));
    }
    if found.is_empty() {
        return None;
    }
    found.push(vsyscall());
    Some(found)
}

/// In every process, at a place of its own, and of no use to the request. (A kernel can be told to
/// do without it; then nothing is called there.)
fn vsyscall() -> Mapping {
    Mapping {
        start: 0xffff_ffff_ff60_0000,
        end: 0xffff_ffff_ff60_1000,
        access: [false, false, true],
        is_shared: false,
        offset: 0,
        file: ("00:00".to_owned(), 0),
        path: "[vsyscall]".to_owned(),
    }
}

/// Name of the mapping at an address; empty if it has none, or is gone since.
fn path(maps: &File, address: u64) -> Option<String> {
    let mut name = [0u8; NAME_BYTES];
    let Some(query) = ask(maps, address, 0, &mut name)? else {
        return Some(String::new());
    };
    let length = (query.name_size as usize).saturating_sub(1);
    // The text writes a line end in a path like this.
    let name = String::from_utf8_lossy(name.get(..length)?).replace('\n', "\\012");
    Some(name)
}

/// Executable mappings of files, without their paths. None: as for [`all`].
pub fn code(maps: &File) -> Option<Vec<Mapping>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(m) = code_around(maps, at)? {
        at = m.end;
        found.push(m);
    }
    Some(found)
}

/// The first of them that ends after an address; the inner None: there is none. None: as for
/// [`all`].
pub fn code_around(maps: &File, address: u64) -> Option<Option<Mapping>> {
    let query = ask(maps, address, EXECUTABLE | FILE_BACKED, &mut [])?;
    Some(query.map(|q| q.mapping(String::new())))
}

/// True if this code is mapped there still. None: as for [`all`].
pub fn is_there(maps: &File, m: &Mapping) -> Option<bool> {
    let query = ask(maps, m.start, EXECUTABLE | FILE_BACKED, &mut [])?;
    let is_same = |q: Query| {
        let found = (q.start, q.end, q.inode, q.offset);
        found == (m.start, m.end, m.file.1, m.offset) && q.is_on(&m.file.0)
    };
    Some(query.is_some_and(is_same))
}

/// True if this mapping is there still, whatever its path. None: as for [`all`].
pub fn has(maps: &File, m: &Mapping) -> Option<bool> {
    let query = ask(maps, m.start, 0, &mut [])?;
    Some(query.is_some_and(|q| {
        let now = q.mapping(String::new());
        now.is_same_code(m) && now.access == m.access && now.is_shared == m.is_shared
    }))
}

/// The mapping at or after an address. None: as for [`all`], or there is none.
pub fn around(maps: &File, address: u64) -> Option<Mapping> {
    let query = ask(maps, address, 0, &mut [])??;
    let path = path(maps, query.start)?;
    Some(query.mapping(path))
}

impl Query {
    fn device(&self) -> String {
        format!("{:02x}:{:02x}", self.major, self.minor)
    }

    /// As a comparison with [`Self::device`], but faster.
    fn is_on(&self, device: &str) -> bool {
        let number = |part| u32::from_str_radix(part, 16).ok();
        device.split_once(':').is_some_and(|(major, minor)| {
            number(major) == Some(self.major) && number(minor) == Some(self.minor)
        })
    }

    fn mapping(&self, path: String) -> Mapping {
        let has = |flag: u64| self.vma_flags & flag != 0;
        Mapping {
            start: self.start,
            end: self.end,
            access: [has(READABLE), has(WRITABLE), has(EXECUTABLE)],
            is_shared: has(SHARED),
            offset: self.offset,
            file: (self.device(), self.inode),
            path,
        }
    }
}

/// The mapping at or after an address that is all of `kind`; the inner None: there is none. The
/// name goes to `name`.
fn ask(maps: &File, address: u64, kind: u64, name: &mut [u8]) -> Option<Option<Query>> {
    let mut query = Query {
        size: size_of::<Query>() as u64,
        flags: COVERING_OR_NEXT | kind,
        address,
        name_size: name.len() as u32,
        name_address: match name.is_empty() {
            true => 0,
            false => name.as_mut_ptr() as u64,
        },
        ..Query::default()
    };
    // SAFETY: the kernel writes the query, and at most `name_size` bytes at `name_address`.
    match unsafe { procmap_query(maps.as_raw_fd(), &raw mut query) } {
        Ok(_) => Some(Some(query)),
        Err(nix::errno::Errno::ENOENT) => Some(None),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps;

    #[test]
    fn code_and_single_mappings_are_as_all() {
        let file = File::open("/proc/self/maps").expect("it can be opened");
        let starts = |maps: &[Mapping]| maps.iter().map(|m| m.start).collect::<Vec<_>>();
        // Another test's thread may map code in between.
        for _ in 0..100 {
            let Some(some) = code(&file) else {
                return; // before Linux 6.11
            };
            let mut expected = all(&file).expect("it answers");
            expected.retain(|m| m.access[2] && m.file.1 != 0);
            let changed = maps::Mapping {
                end: expected[0].end + 4096,
                ..expected[0].clone()
            };
            let one = around(&file, expected[0].start + 1);
            if has(&file, &expected[0]) != Some(true) || has(&file, &changed) != Some(false) {
                continue;
            }
            let is_same = one.is_some_and(|one| format!("{one:?}") == format!("{:?}", expected[0]));
            if !some.is_empty() && starts(&some) == starts(&expected) && is_same {
                return;
            }
        }
        panic!("never the same");
    }

    #[test]
    fn the_kernel_answers_what_the_text_says() {
        let me = std::process::id();
        let file = File::open(format!("/proc/{me}/maps")).expect("it can be opened");
        // The heap may grow in between.
        for _ in 0..100 {
            let Some(asked) = all(&file) else {
                return; // before Linux 6.11
            };
            let text = maps::from_text(me).expect("it can be read");
            let lines =
                |maps: &[Mapping]| maps.iter().map(|m| format!("{m:?}")).collect::<Vec<_>>();
            if lines(&asked) == lines(&text) {
                return;
            }
        }
        panic!("never the same");
    }
}
