//! Programs that run with more privileges than who starts them: under ptrace the kernel would not honour those.
//!
//! Given a process that is about to exec, and where the path lies in it. What cannot be looked at counts as
//! privileged.

use std::ffi::CString;
use std::fs::File;

/// Set-id bits or file capabilities of the program at `path` in `pid`: under ptrace the kernel would
/// not honour them (execve(2)).
pub fn is_privileged(pid: u32, path: u64) -> bool {
    use std::os::unix::fs::{FileExt, MetadataExt};
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } == 0 {
        return false;
    }
    let mut bytes = [0u8; 4096];
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else {
        return true;
    };
    let Ok(got) = memory.read_at(&mut bytes, path) else {
        return true;
    };
    let end = bytes[..got].iter().position(|b| *b == 0).unwrap_or(got);
    let name = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let file = if name.starts_with('/') {
        format!("/proc/{pid}/root{name}")
    } else {
        format!("/proc/{pid}/cwd/{name}")
    };
    std::fs::metadata(&file).is_ok_and(|m| m.mode() & 0o6000 != 0) || has_capabilities(&file)
}

fn has_capabilities(file: &str) -> bool {
    let Ok(file) = CString::new(file) else {
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
