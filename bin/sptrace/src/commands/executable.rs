//! Finds the command's file as execvp(3) does, and says beforehand why the kernel would refuse it.
//!
//! execvp hands a file that the kernel refuses to a shell; for a damaged program that means running
//! its bytes as a script. Here such a file is an error. The rules are those of Linux'
//! `fs/binfmt_elf.c` for ENOEXEC; where another format is registered (binfmt_misc), the kernel
//! decides alone.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use sptrace_code::Bytes;
use sptrace_image::{Object, is_go_program};
use sptrace_patch::lanes::lanes;

/// Why a command cannot be started.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// No such file.
    NotFound(String),
    /// A file, but no program for us; the reason with a hint.
    CannotExecute(String),
}

/// Checks the command named `name`.
///
/// # Errors
/// The reason, for the user.
pub fn check(name: &OsStr) -> Result<(), Refused> {
    let path = find(name)?;
    let refused = |why: &str| Err(Refused::CannotExecute(why.to_owned()));
    let Ok(metadata) = std::fs::metadata(&path) else {
        return Err(Refused::NotFound("no such file; check the path".to_owned()));
    };
    if metadata.is_dir() {
        return refused("it is a directory; name a program in it");
    }
    if !metadata.is_file() {
        return refused("it is no regular file; name a program");
    }
    if metadata.mode() & 0o111 == 0 {
        return refused("it is not executable; `chmod +x` makes it so");
    }
    let Ok(file) = File::open(&path) else {
        return Ok(()); // may be executed without being readable
    };
    check_format(&file, metadata.len())
}

/// True if the command named `name` is a Go program.
pub fn is_go(name: &OsStr) -> bool {
    let file = find(name).ok().filter(|path| path.is_file());
    let bytes = file.and_then(|path| Bytes::open(&path).ok());
    bytes.is_some_and(|bytes| is_go_program(bytes.bytes()))
}

/// True if the goroutines of that program can be told from each other.
pub fn has_lanes(name: &OsStr) -> bool {
    let file = find(name).ok().filter(|path| path.is_file());
    let bytes = file.and_then(|path| Bytes::open(&path).ok());
    let object = bytes.as_ref().map(|bytes| Object::parse(bytes.bytes()));
    object.is_some_and(|object| object.is_ok_and(|object| lanes(&object).number != 0))
}

/// The file that execvp(3) would try.
fn find(name: &OsStr) -> Result<PathBuf, Refused> {
    let not_found = |why: &str| Err(Refused::NotFound(why.to_owned()));
    if name.is_empty() {
        return not_found("the name is empty; give a command after --");
    }
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut second_choice = None;
    for folder in std::env::split_paths(&path) {
        let file = if folder.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            folder
        }
        .join(name);
        match std::fs::metadata(&file) {
            Ok(m) if m.is_file() && m.mode() & 0o111 != 0 => return Ok(file),
            Ok(_) => second_choice = second_choice.or(Some(file)),
            Err(_) => {}
        }
    }
    match second_choice {
        Some(file) => Ok(file),
        None if Path::new(name).is_file() => {
            not_found("not found in PATH; there is one here: put ./ before it")
        }
        None => not_found("not found in PATH; check the spelling or give its path"),
    }
}

fn check_format(file: &File, size_bytes: u64) -> Result<(), Refused> {
    let refused = |why: &str| Err(Refused::CannotExecute(why.to_owned()));
    let mut head = [0u8; 256];
    let Ok(got) = file.read_at(&mut head, 0) else {
        return Ok(());
    };
    let head = &head[..got];
    if head.starts_with(b"#!") {
        return check_interpreter(head);
    }
    if other_formats_are_registered() {
        return Ok(());
    }
    if head.is_empty() {
        return refused("the file is empty; build it again");
    }
    if !head.starts_with(b"\x7fELF") {
        return refused("not an executable format; a script needs a first line like #!/bin/sh");
    }
    let Some(header) = head.get(..64) else {
        return refused("the ELF file is truncated: its header is incomplete; build it again");
    };
    let u16_at = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    match (header[4], u16_at(18)) {
        (2, 62) => {}
        (1, 3) => return refused("a 32-bit program; sptrace traces 64-bit x86 ones (x86-64)"),
        (_, machine) => {
            let name = match machine {
                183 => "aarch64".to_owned(),
                40 => "arm".to_owned(),
                243 => "riscv".to_owned(),
                62 => "x32".to_owned(),
                other => format!("machine {other}"),
            };
            return refused(&format!(
                "an ELF file for {name}; sptrace traces x86-64 programs"
            ));
        }
    }
    check_elf(file, header, size_bytes)
}

/// What `load_elf_binary` looks at before it gives up the old program.
fn check_elf(file: &File, header: &[u8], size_bytes: u64) -> Result<(), Refused> {
    let refused = |why: &str| Err(Refused::CannotExecute(why.to_owned()));
    let word = |bytes: &[u8], at: usize| {
        bytes
            .get(at..at + 8)
            .and_then(|b| b.try_into().ok())
            .map_or(0, u64::from_le_bytes)
    };
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    if !matches!(half(16), 2 | 3) {
        return refused("an ELF file, but no program (an object or a core file); link it first");
    }
    let (offset, count) = (word(header, 32), usize::from(half(56)));
    let table_bytes = count * 56;
    if half(54) != 56 || count == 0 || table_bytes > 65536 {
        return refused("the ELF file is damaged: no proper program headers; build it again");
    }
    let mut table = vec![0u8; table_bytes];
    if offset > size_bytes || file.read_exact_at(&mut table, offset).is_err() {
        return refused(
            "the ELF file is truncated: its program headers are missing; build it again",
        );
    }
    const PT_INTERP: &[u8] = &[3, 0, 0, 0];
    let Some(entry) = table.chunks_exact(56).find(|h| h.starts_with(PT_INTERP)) else {
        return Ok(());
    };
    let (offset, length) = (word(entry, 8), word(entry, 32));
    if !(2..=4096).contains(&length) {
        return refused("the ELF file is damaged: a wrong interpreter; build it again");
    }
    let mut name = vec![0u8; length as usize];
    if offset > size_bytes || file.read_exact_at(&mut name, offset).is_err() {
        return refused(
            "the ELF file is truncated: its interpreter's name is missing; build it again",
        );
    }
    if name.last() != Some(&0) {
        return refused("the ELF file is damaged: a wrong interpreter; build it again");
    }
    let name = name.split(|b| *b == 0).next().unwrap_or_default();
    exists(name, "its dynamic linker")
}

fn check_interpreter(head: &[u8]) -> Result<(), Refused> {
    let line = head[2..].split(|b| *b == b'\n').next().unwrap_or_default();
    let name = line
        .split(|b| matches!(b, b' ' | b'\t'))
        .find(|word| !word.is_empty());
    match name {
        Some(name) => exists(name, "its interpreter"),
        None => Err(Refused::CannotExecute(
            "its first line names no interpreter; write one like #!/bin/sh".to_owned(),
        )),
    }
}

fn exists(name: &[u8], what: &str) -> Result<(), Refused> {
    let path = Path::new(OsStr::from_bytes(name));
    if path.exists() {
        return Ok(());
    }
    Err(Refused::CannotExecute(format!(
        "{what} {} does not exist; install it or correct the name",
        path.to_string_lossy().escape_debug()
    )))
}

fn other_formats_are_registered() -> bool {
    std::fs::read_dir("/proc/sys/fs/binfmt_misc").is_ok_and(|entries| {
        entries
            .flatten()
            .any(|e| !matches!(e.file_name().as_bytes(), b"register" | b"status"))
    })
}
