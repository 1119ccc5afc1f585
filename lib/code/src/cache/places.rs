//! Where analyses are kept.
//!
//! Given the environment of the process; gives folders. Must not know what lies in them.

use std::path::PathBuf;

/// Folders that may hold analyses for all users, filled by root ([`crate::fill`]) or by packages,
/// which ship analyses of what they install.
const SHARED: [&str; 2] = ["/var/cache/sptrace", "/usr/share/sptrace/analyses"];
/// What the folder of one user may hold, unless something else is asked for: a thousand libraries.
pub const DEFAULT_LIMIT_BYTES: u64 = 1 << 30;

/// The folders in which an analysis is looked for, and in which a new one is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The user's own; None: nothing is kept.
    pub own: Option<PathBuf>,
    /// The own folder is not let grow beyond this: what was not used for longest goes first.
    pub limit_bytes: u64,
    /// Folders of all users, in the order in which they are looked through.
    pub shared: Vec<PathBuf>,
}

impl Places {
    /// `$XDG_CACHE_HOME/sptrace` or `~/.cache/sptrace`, and the folders of the system.
    pub fn of_user(limit_bytes: u64) -> Self {
        let absolute = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|p| p.is_absolute())
        };
        let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
        Self {
            own: base.map(|base| base.join("sptrace")),
            limit_bytes,
            shared: SHARED.iter().map(PathBuf::from).collect(),
        }
    }

    /// One folder alone, without a limit.
    pub fn only(own: PathBuf) -> Self {
        Self {
            own: Some(own),
            limit_bytes: u64::MAX,
            shared: Vec::new(),
        }
    }

    /// The folder that `sptrace cache fill --system` writes into.
    pub fn of_system() -> PathBuf {
        PathBuf::from(SHARED[0])
    }
}

impl Default for Places {
    fn default() -> Self {
        Self::of_user(DEFAULT_LIMIT_BYTES)
    }
}
