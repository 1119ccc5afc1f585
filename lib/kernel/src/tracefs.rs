//! Where tracefs is mounted.
//!
//! Given nothing; finds it where systems mount it, or mounts it in a folder of our own, which goes
//! away with the [`Tracefs`]. What a killed sptrace has left mounted, [`unmount_left_over`] finds
//! by the folder's name.
//!
//! Must not know: what is traced.

use crate::error::KernelError;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use sptrace_tracee::proc;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Where systems mount it.
const USUAL: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// How folders of ours begin; the process's number follows.
const FOLDER: &str = "sptrace-tracefs-";

/// A mounted tracefs.
#[derive(Debug)]
pub struct Tracefs {
    root: PathBuf,
    is_ours: bool,
}

impl Tracefs {
    /// Finds it, or mounts it.
    ///
    /// # Errors
    /// Not root, or the kernel does not let it be mounted.
    pub fn find() -> Result<Self, KernelError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(KernelError::NotRoot);
        }
        for usual in USUAL.map(Path::new) {
            if usual.join("trace_clock").exists() {
                return Ok(Self {
                    root: usual.to_owned(),
                    is_ours: false,
                });
            }
        }
        Self::mounted_by_us()
    }

    fn mounted_by_us() -> Result<Self, KernelError> {
        let root = std::env::temp_dir().join(format!("{FOLDER}{}", std::process::id()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&root);
        made.map_err(KernelError::of(&root))?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        if let Err(e) = mount(Some("tracefs"), &root, Some("tracefs"), flags, None::<&str>) {
            let _ = std::fs::remove_dir(&root);
            return Err(KernelError::NoTracefs(e.into()));
        }
        Ok(Self {
            root,
            is_ours: true,
        })
    }

    /// The top level, which all users of tracing share.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// True if it was mounted for this process.
    pub fn is_ours(&self) -> bool {
        self.is_ours
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = umount2(&self.root, MntFlags::MNT_DETACH);
            let _ = std::fs::remove_dir(&self.root);
        }
    }
}

/// Unmounts what was mounted by an sptrace that is gone; gives how many there were.
pub fn unmount_left_over() -> usize {
    let entries = std::fs::read_dir(std::env::temp_dir())
        .into_iter()
        .flatten();
    let folders = entries.flatten().filter(|e| {
        let name = e.file_name();
        let pid = name
            .to_str()
            .and_then(|n| n.strip_prefix(FOLDER)?.parse::<u32>().ok());
        pid.is_some_and(|pid| !proc::exists(pid))
    });
    let is_gone = |path: &PathBuf| {
        let _ = umount2(path, MntFlags::MNT_DETACH);
        std::fs::remove_dir(path).is_ok()
    };
    folders.map(|e| e.path()).filter(is_gone).count()
}

/// Reads a file.
///
/// # Errors
/// It cannot be read.
pub fn read(path: &Path) -> Result<String, KernelError> {
    let text = std::fs::read(path).map_err(KernelError::of(path))?;
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

/// Writes a file anew, in one write(2), as the kernel wants it.
///
/// # Errors
/// The kernel refuses.
pub fn write(path: &Path, text: &str) -> Result<(), KernelError> {
    std::fs::write(path, text).map_err(KernelError::of(path))
}
