//! What recordings have learned of an image, kept beside its analysis.
//!
//! Given bytes; keeps them in a file of the same name with another ending, which goes when the
//! analysis goes. Who reads it believes it as far as an analysis: it is the same user's. Must not
//! know what the bytes say.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::files::{self, Readers};

/// Longer ones are not read.
const MOST_BYTES: u64 = 64 << 20;

/// The place for what is learned of an image.
#[derive(Debug, Clone)]
pub struct Beside {
    folder: PathBuf,
    owner: u32,
    name: String,
}

impl Beside {
    /// Beside the analysis with this file name.
    pub(super) fn of(folder: &Path, owner: u32, analysis: &str) -> Self {
        Self {
            folder: folder.to_owned(),
            owner,
            name: name_of(analysis),
        }
    }

    /// What was kept; `None`: nothing, or it cannot be read.
    pub fn read(&self) -> Option<Vec<u8>> {
        let file = files::open(&self.folder.join(&self.name), self.owner)?;
        let mut bytes = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Keeps this in its place. A failure is no error: the next recording learns it anew.
    pub fn write(&self, bytes: &[u8]) {
        let kept = files::store(&self.folder, self.owner, &self.name, bytes, Readers::Owner);
        if kept.is_none() {
            log::debug!("{} was not kept", self.name);
        }
    }
}

fn name_of(analysis: &str) -> String {
    let path = Path::new(analysis).with_extension(files::LEARNED);
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_kept_is_read_and_goes_with_its_analysis() {
        let folder = std::env::temp_dir().join(format!("sptrace-beside-{}", std::process::id()));
        let owner = super::super::own_user().unwrap();
        let beside = Beside::of(&folder, owner, "0123.analysis");
        assert_eq!(beside.read(), None);
        beside.write(b"one");
        beside.write(b"other");
        assert_eq!(beside.read().as_deref(), Some(&b"other"[..]));
        // There is no analysis, which is told.
        assert!(files::remove(&folder.join("0123.analysis")).is_err());
        assert_eq!(beside.read(), None);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn its_bytes_count_with_its_analysis() {
        let folder = std::env::temp_dir().join(format!("sptrace-counted-{}", std::process::id()));
        let owner = super::super::own_user().unwrap();
        let analysis = "0123.analysis";
        files::store(&folder, owner, analysis, &[0; 100], Readers::Owner).unwrap();
        Beside::of(&folder, owner, analysis).write(&[0; 7]);
        let sizes: Vec<u64> = files::list(&folder).iter().map(|kept| kept.bytes).collect();
        assert_eq!(sizes, [107]);
        assert_eq!(files::clear(&folder).unwrap(), (1, 107));
        fs::remove_dir_all(folder).unwrap();
    }
}
