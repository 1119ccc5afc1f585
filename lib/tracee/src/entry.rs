//! Where a program begins that a process stands before, at its exec stop.
//!
//! Given the process; gives the first instructions of the program and of ld.so, so that the agent
//! can be started before either. Must not know what is done there.

use crate::error::TraceeError;
use crate::memory;
use crate::proc::{AuxiliaryVector, files};

/// First instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entries {
    /// Of the program.
    pub program_avma: u64,
    /// Of ld.so, which runs before; None: the program needs none.
    pub loader_avma: Option<u64>,
}

/// Where `e_entry` stands in the header of an ELF file.
const ENTRY_OFFSET: u64 = 24;

/// Of the program in `pid`.
///
/// # Errors
/// It is no 64-bit x86 program, or the process is gone.
pub fn entries(pid: u32) -> Result<Entries, TraceeError> {
    let failed = |what| move |source| TraceeError::System { what, source };
    if !files::is_64_bit(pid).map_err(failed("reading the program"))? {
        return Err(TraceeError::NoRoom("it is not a 64-bit x86 program"));
    }
    let auxv = AuxiliaryVector::of(pid).map_err(failed("reading auxv"))?;
    let entry = auxv.value(libc::AT_ENTRY);
    let program_avma = entry.ok_or(TraceeError::NoRoom("no entry point in auxv"))?;
    let loader_avma = match loader_base(&auxv) {
        None => None,
        Some(base) => {
            let memory = memory::open(pid)?;
            let e_entry = memory::word(&memory, base + ENTRY_OFFSET);
            let e_entry = e_entry.ok_or_else(|| TraceeError::last("reading ld.so's header"))?;
            Some(base.wrapping_add(e_entry))
        }
    };
    Ok(Entries {
        program_avma,
        loader_avma,
    })
}

/// Where ld.so lies in a process; None: its program needs none, or it is gone.
pub fn loader(pid: u32) -> Option<u64> {
    loader_base(&AuxiliaryVector::of(pid).ok()?)
}

fn loader_base(auxv: &AuxiliaryVector) -> Option<u64> {
    auxv.value(libc::AT_BASE).filter(|base| *base != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_begins_where_libc_says() {
        let own = std::process::id();
        let entries = entries(own).expect("this process");
        // SAFETY: plain queries.
        let (entry, base) = unsafe {
            (
                libc::getauxval(libc::AT_ENTRY),
                libc::getauxval(libc::AT_BASE),
            )
        };
        assert_eq!(entries.program_avma, entry);
        assert_eq!(loader(own), (base != 0).then_some(base));
        assert!(entries.loader_avma.is_none_or(|avma| avma > base));
    }
}
