//! Servers of debug files (debuginfod(8)), and the cache that all their clients share.
//!
//! `SERVER/buildid/ID/debuginfo` is the file; it is kept in `CACHE/ID/debuginfo`, where an empty
//! file says that no server had it, for ten minutes (debuginfod_find_debuginfo(3)). Nothing is
//! asked unless the user has said so. A server's name over http is asked by us; one over https by
//! curl(1), as no implementation of TLS is without code in C or assembly.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::http;

/// How long it is believed that no server has a file.
const MISSED_FOR: Duration = Duration::from_secs(600);
/// So long an answer may take to begin, and to go on (DEBUGINFOD_TIMEOUT).
const TIMEOUT: Duration = Duration::from_secs(90);

/// Servers, and where their answers are kept.
#[derive(Clone, Debug)]
pub struct Servers {
    urls: Vec<String>,
    cache: PathBuf,
    timeout: Duration,
}

impl Servers {
    /// As debuginfod's variables say.
    ///
    /// # Errors
    /// A sentence: no server is named, or there is no place for a cache.
    pub fn of_variables(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let named = variable("DEBUGINFOD_URLS").unwrap_or_default();
        let urls: Vec<String> = named.split_whitespace().map(str::to_owned).collect();
        if urls.is_empty() {
            return Err(
                "DEBUGINFOD_URLS names no server to ask; set it, or leave --debuginfod out"
                    .to_owned(),
            );
        }
        let of = |name: &str| variable(name).filter(|value| !value.is_empty());
        let own = of("DEBUGINFOD_CACHE_PATH").map(PathBuf::from);
        let cache = own.or_else(|| {
            let base = of("XDG_CACHE_HOME").map(PathBuf::from);
            let base = base.or_else(|| Some(PathBuf::from(of("HOME")?).join(".cache")))?;
            Some(base.join("debuginfod_client"))
        });
        let seconds = of("DEBUGINFOD_TIMEOUT").and_then(|text| text.parse().ok());
        Ok(Self {
            urls,
            cache: cache.ok_or("HOME is not set: what servers send has no place")?,
            timeout: seconds.map_or(TIMEOUT, Duration::from_secs),
        })
    }

    /// Where the debug file of a build id is kept.
    pub fn kept_at(&self, build_id: &[u8]) -> PathBuf {
        self.cache.join(hex(build_id)).join("debuginfo")
    }

    /// The debug file of a build id; `None`: no server has it.
    ///
    /// # Errors
    /// A sentence: a server could not be asked.
    pub fn debug_file(&self, build_id: &[u8]) -> Result<Option<(PathBuf, Vec<u8>)>, String> {
        let path = self.kept_at(build_id);
        match kept(&path) {
            Kept::Whole(bytes) => return Ok(Some((path, bytes))),
            Kept::Missed => return Ok(None),
            Kept::Nothing => {}
        }
        let mut failed = None;
        for url in &self.urls {
            let base = url.trim_end_matches('/');
            let wanted = format!("{base}/buildid/{}/debuginfo", hex(build_id));
            log::info!("asking {wanted}");
            match http::get(&wanted, self.timeout) {
                Ok(Some(bytes)) => {
                    keep(&path, &bytes);
                    return Ok(Some((path, bytes)));
                }
                Ok(None) => {}
                Err(why) => {
                    failed.get_or_insert_with(|| format!("{base} could not be asked: {why}"));
                }
            }
        }
        match failed {
            Some(why) => Err(why),
            None => {
                keep(&path, b"");
                Ok(None)
            }
        }
    }
}

enum Kept {
    Whole(Vec<u8>),
    Missed,
    Nothing,
}

fn kept(path: &Path) -> Kept {
    let Ok(metadata) = fs::metadata(path) else {
        return Kept::Nothing;
    };
    if metadata.len() > 0 {
        return fs::read(path).map_or(Kept::Nothing, Kept::Whole);
    }
    let age = metadata
        .modified()
        .ok()
        .and_then(|at| SystemTime::now().duration_since(at).ok());
    match age {
        Some(age) if age < MISSED_FOR => Kept::Missed,
        _ => Kept::Nothing,
    }
}

/// Whole or not at all, for others may read it. That it cannot be kept only costs time.
fn keep(path: &Path, bytes: &[u8]) {
    let Some(folder) = path.parent() else { return };
    let own = folder.join(format!("debuginfo.sptrace-{}", std::process::id()));
    let kept = fs::create_dir_all(folder)
        .and_then(|()| fs::write(&own, bytes))
        .and_then(|()| fs::rename(&own, path));
    if let Err(error) = kept {
        log::warn!("cannot keep {}: {error}", path.display());
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
