//! The files that a process executes and has open, and by which path they can be opened from here.
//!
//! Given its number; gives names and paths under `/proc`, which lead into the process's own mount
//! namespace and to files that have no name any more. Opens the program alone, to read its header.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// By which the file that a process executes can be opened, also if it was deleted.
pub fn program(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/exe"))
}

/// What the process calls the file that it executes.
///
/// # Errors
/// It is gone, has no program, or may not be looked at.
pub fn program_name(pid: u32) -> io::Result<String> {
    let name = fs::read_link(program(pid))?;
    Ok(name.to_string_lossy().into_owned())
}

/// True if the process executes a program: threads of the kernel, and who has ended, do not.
pub fn has_program(pid: u32) -> bool {
    program(pid).exists()
}

/// True if that is a 64-bit x86 program.
///
/// # Errors
/// It cannot be read.
pub fn is_64_bit(pid: u32) -> io::Result<bool> {
    const CLASS_64: u8 = 2;
    const MACHINE_X86_64: u8 = 62;
    let mut head = [0u8; 20];
    File::open(program(pid))?.read_exact_at(&mut head, 0)?;
    Ok(head[4] == CLASS_64 && head[18] == MACHINE_X86_64)
}

/// By which a path that begins at the process's root can be opened.
pub fn inside(pid: u32, path: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root{path}"))
}

/// By which a path can be opened that begins at the folder the process is in.
pub fn from_folder(pid: u32, path: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/cwd/{path}"))
}

/// By which what a descriptor leads to can be opened, or a path from there.
pub fn from_descriptor(pid: u32, fd: i32, path: &str) -> PathBuf {
    match path {
        "" => PathBuf::from(format!("/proc/{pid}/fd/{fd}")),
        path => PathBuf::from(format!("/proc/{pid}/fd/{fd}/{path}")),
    }
}

/// The folder that the process is in.
pub fn folder(pid: u32) -> Option<String> {
    link(Path::new(&format!("/proc/{pid}/cwd")))
}

/// The descriptors of a process.
pub fn descriptors(pid: u32) -> Vec<u32> {
    super::numbers_in(&format!("/proc/{pid}/fd"))
}

/// What a descriptor of a process leads to, as proc_pid_fd(5) names it.
pub fn descriptor_name(pid: u32, fd: u32) -> Option<String> {
    link(Path::new(&format!("/proc/{pid}/fd/{fd}")))
}

fn link(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    Some(target.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_is_open_is_named_and_can_be_opened() {
        let own = std::process::id();
        let file = File::open("/dev/null").expect("there is one");
        let number = file.as_raw_fd();
        assert!(descriptors(own).contains(&(number as u32)));
        assert_eq!(
            descriptor_name(own, number as u32).as_deref(),
            Some("/dev/null")
        );
        assert!(File::open(from_descriptor(own, number, "")).is_ok());
        let folder = folder(own).expect("this process is somewhere");
        assert_eq!(Path::new(&folder), std::env::current_dir().expect("it is"));
        assert!(from_folder(own, "Cargo.toml").exists() && inside(own, "/dev/null").exists());
        assert!(is_64_bit(own).expect("this program") && has_program(own));
        let name = program_name(own).expect("this program");
        assert_eq!(
            Path::new(&name),
            std::env::current_exe().expect("it has one")
        );
    }
}
