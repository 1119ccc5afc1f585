//! A folder of tracefs that has buffers: the top level, or an instance.
//!
//! Given its path; reads and writes its files in the ways that the kernel wants.
//!
//! Must not know: who uses it, and for what.

use crate::error::KernelError;
use crate::tracefs;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// The folder at `path`.
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// One of its files.
    pub fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// Itself.
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// Reads one of its files.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self, file: &str) -> Result<String, KernelError> {
        tracefs::read(&self.path(file))
    }

    /// Writes one of its files.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set(&self, file: &str, text: &str) -> Result<(), KernelError> {
        tracefs::write(&self.path(file), text)
    }

    /// Adds to what one of its files has.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn add(&self, file: &str, text: &str) -> Result<(), KernelError> {
        let path = self.path(file);
        let opened = File::options().append(true).open(&path);
        let added = opened.and_then(|mut f| f.write_all(text.as_bytes()));
        added.map_err(KernelError::of(&path))
    }

    /// Makes these the lines of one of its lists, which may be none. Some take one a write(2).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_list<S: AsRef<str>>(
        &self,
        file: &str,
        lines: impl IntoIterator<Item = S>,
    ) -> Result<(), KernelError> {
        let path = self.path(file);
        let write = || {
            // Opened so, a list is empty.
            let mut list = File::options().write(true).truncate(true).open(&path)?;
            for line in lines {
                list.write_all(format!("{}\n", line.as_ref()).as_bytes())?;
            }
            Ok(())
        };
        write().map_err(KernelError::of(&path))
    }

    /// The processors that have a buffer.
    pub fn processors(&self) -> Vec<u32> {
        let entries = std::fs::read_dir(self.path("per_cpu"));
        let mut numbers: Vec<u32> = entries
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.strip_prefix("cpu")?.parse().ok())
            .collect();
        numbers.sort_unstable();
        numbers
    }
}
