//! The code of a process as it was at one moment, and whether it is so still.
//!
//! Given [`LiveMaps`]; to be asked while the process stands still. Where the kernel answers for
//! single mappings, those that are known are asked for, and that nothing has come besides is told
//! by the sum: of a large program that takes less time than finding them all, which is done where
//! the sum differs. Must not know what the answer is for.

use super::{LiveMaps, Mapping, query};
use crate::error::TraceeError;
use crate::proc::Status;
use std::collections::BTreeSet;

/// Executable mappings of files at one moment.
#[derive(Default)]
pub struct CodeMap {
    /// In ascending order, without their paths.
    pub mappings: Vec<Mapping>,
    /// KiB of all executable mappings, with those of no file; not known where that has just
    /// changed.
    kib: Option<u64>,
}

impl LiveMaps {
    /// The code that is there now.
    ///
    /// # Errors
    /// The process is gone.
    pub fn code_map(&self) -> Result<CodeMap, TraceeError> {
        let before = self.code_kib();
        let mappings = self.code()?;
        // A program that generates code all the time may just do so.
        let kib = self.code_kib().filter(|kib| before == Some(*kib));
        Ok(CodeMap { mappings, kib })
    }

    /// True if the process has this code, and no other. False of a code map that is empty.
    pub fn has_still(&self, known: &CodeMap) -> bool {
        // What is shared is ours, and told by the sum.
        let images = known.mappings.iter().filter(|m| !m.is_shared);
        self.has(known, images)
    }

    /// True if the process has this code at the addresses, which lie in it or in none, and as much
    /// as this. A small part of the questions; it does not notice other code, as much, in the place
    /// of what nobody stands in.
    pub fn has_still_at(&self, known: &CodeMap, addresses: &[u64]) -> bool {
        let holds = |at: &u64| {
            let after = known.mappings.partition_point(|m| m.start <= *at);
            after
                .checked_sub(1)
                .filter(|i| *at < known.mappings[*i].end)
        };
        let images: BTreeSet<usize> = addresses.iter().filter_map(holds).collect();
        self.has(known, images.iter().map(|i| &known.mappings[*i]))
    }

    fn has<'a>(&self, known: &CodeMap, mut some: impl Iterator<Item = &'a Mapping>) -> bool {
        if known.mappings.is_empty() {
            return false;
        }
        if known.kib.is_some() && self.code_kib() == known.kib {
            let answer = some.find_map(|m| match query::is_there(&self.file, m) {
                Some(true) => None,
                other => Some(other),
            });
            match answer {
                None => return true,
                Some(Some(_)) => return false,
                // The kernel does not answer for single ones.
                Some(None) => {}
            }
        }
        self.code().is_ok_and(|now| {
            let same = |(a, b): (&Mapping, &Mapping)| a.is_same_code(b);
            now.len() == known.mappings.len() && now.iter().zip(&known.mappings).all(same)
        })
    }

    fn code_kib(&self) -> Option<u64> {
        Status::of(self.pid).ok()?.code_kib()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn other_code_is_noticed() {
        let live = LiveMaps::open(std::process::id()).expect("it is here");
        let known = live.code_map().expect("it is here");
        assert!(live.has_still(&known) && !live.has_still(&CodeMap::default()));
        let exe = std::fs::File::open("/proc/self/exe").expect("it can be read");
        let map = |protection, flags, fd| {
            // SAFETY: a new mapping, at a place that the kernel chooses.
            unsafe { libc::mmap(std::ptr::null_mut(), 8192, protection, flags, fd, 0) }
        };
        let (file, code) = (exe.as_raw_fd(), libc::PROT_READ | libc::PROT_EXEC);
        let data = map(libc::PROT_READ, libc::MAP_PRIVATE, file);
        assert!(live.has_still(&known), "no code has come");
        let generated = map(code, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
        assert!(live.has_still(&known), "only such of no file has come");
        // SAFETY: what was mapped above, and is used by nobody.
        unsafe { libc::munmap(generated, 8192) };
        let code = map(code, libc::MAP_PRIVATE, file);
        assert!(!live.has_still(&known), "code has come");
        let with_it = live.code_map().expect("it is here");
        assert_eq!(with_it.mappings.len(), known.mappings.len() + 1);
        assert!(live.has_still(&with_it));
        // SAFETY: as above.
        unsafe { libc::munmap(code, 8192) };
        assert!(!live.has_still(&with_it), "code has gone");
        assert!(live.has_still(&known), "all is as it was");
        // SAFETY: as above; as much code as was there, at another place.
        let other = unsafe {
            libc::mprotect(data, 8192, libc::PROT_READ | libc::PROT_EXEC);
            data
        };
        assert!(!live.has_still(&with_it), "as much code at another place");
        let here = other_code_is_noticed as fn() as usize as u64;
        assert!(
            live.has_still_at(&with_it, &[here, 5]),
            "nobody stands in what has gone"
        );
        assert!(
            !live.has_still_at(&with_it, &[here, code as u64]),
            "somebody does"
        );
        // SAFETY: as above.
        unsafe { libc::munmap(other, 8192) };
    }
}
