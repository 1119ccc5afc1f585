//! The program that a process is about to execute: its name, and whether it runs with more
//! privileges than who starts it. Under ptrace the kernel would not honour those.
//!
//! Given the process, and where it says what is to be executed. What cannot be looked at counts as
//! privileged.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::memory;
use crate::proc::files;

/// A program as a process names it.
pub struct Program {
    /// Its name, as far as it has one.
    pub name: String,
    /// Where it is found here.
    file: PathBuf,
}

impl Program {
    /// What lies at `at` in the process: in what the name is looked up, and where that lies (see
    /// `ASK_EXEC`). None: it cannot be read.
    pub fn of(pid: u32, at: u64) -> Option<Self> {
        let memory = memory::open(pid).ok()?;
        let directory = memory::word(&memory, at)? as i32;
        let path = memory::word(&memory, at.checked_add(8)?)?;
        let mut bytes = [0u8; 4096];
        let got = memory.read_at(&mut bytes, path).ok()?;
        let end = bytes[..got].iter().position(|b| *b == 0).unwrap_or(got);
        let name = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let file = match directory {
            _ if name.starts_with('/') => files::inside(pid, &name),
            libc::AT_FDCWD => files::from_folder(pid, &name),
            fd => files::from_descriptor(pid, fd, &name),
        };
        let name = match name.is_empty() {
            true => std::fs::read_link(&file).map_or(name, |f| f.to_string_lossy().into_owned()),
            false => name,
        };
        Some(Self { name, file })
    }

    /// True if nothing can be read where the process says that the name is: the kernel executes
    /// nothing then (EFAULT). `at`: as for [`Self::of`].
    pub fn is_nowhere(pid: u32, at: u64) -> bool {
        let path = |memory: &_| memory::word(memory, at.checked_add(8)?);
        let Ok(memory) = memory::open(pid) else {
            return false;
        };
        path(&memory).is_some_and(|path| !matches!(memory.read_at(&mut [0], path), Ok(1)))
    }

    /// There is such a file.
    pub fn exists(&self) -> bool {
        std::fs::metadata(&self.file).is_ok()
    }

    /// Set-id bits or file capabilities, which the kernel would not honour under ptrace
    /// (execve(2)), unless the tracer is root.
    pub fn is_privileged(&self) -> bool {
        // SAFETY: no arguments.
        if unsafe { libc::geteuid() } == 0 {
            return false;
        }
        std::fs::metadata(&self.file).is_ok_and(|m| m.mode() & 0o6000 != 0)
            || has_capabilities(&self.file)
    }
}

fn has_capabilities(file: &Path) -> bool {
    let Ok(file) = CString::new(file.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: NUL-terminated names; a null buffer of size 0 asks for the size.
    unsafe {
        libc::getxattr(
            file.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        ) > 0
    }
}
