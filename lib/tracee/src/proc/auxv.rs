//! `/proc/PID/auxv`: what the kernel has told a program at its start (getauxval(3)).
//!
//! Given a process; gives values by their keys. An exec makes it last, so until then it is zeros.

use std::io;

/// Its pairs, as they were at one moment.
pub struct AuxiliaryVector(Vec<u8>);

impl AuxiliaryVector {
    /// Of a process.
    ///
    /// # Errors
    /// It is gone, or may not be looked at.
    pub fn of(pid: u32) -> io::Result<Self> {
        Ok(Self(std::fs::read(format!("/proc/{pid}/auxv"))?))
    }

    /// The value of a key, as `libc::AT_BASE`.
    pub fn value(&self, key: u64) -> Option<u64> {
        self.0.chunks_exact(16).find_map(|pair| {
            let (k, v) = pair.split_at(8);
            let is_it = u64::from_le_bytes(k.try_into().ok()?) == key;
            is_it.then(|| Some(u64::from_le_bytes(v.try_into().ok()?)))?
        })
    }

    /// False while an exec is still mapping the program.
    pub fn is_made(&self) -> bool {
        self.0.iter().any(|b| *b != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_one_with_what_libc_says() {
        let own = AuxiliaryVector::of(std::process::id()).expect("this process");
        // SAFETY: a plain query.
        let entry = unsafe { libc::getauxval(libc::AT_ENTRY) };
        assert!(own.is_made());
        assert_eq!(own.value(libc::AT_ENTRY), Some(entry));
        assert_eq!(own.value(0x7777), None);
    }
}
