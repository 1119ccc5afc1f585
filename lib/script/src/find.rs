//! Where a script comes from: a file, a folder of the search path, or the program itself.
//!
//! Given what the user has named; gives the text. Must not know what is in it.

use std::path::{Path, PathBuf};

use crate::checks::MOST_BYTES;
use crate::error::ScriptError;
use crate::ready;

/// How a script's file ends.
const ENDING: &str = "rhai";

/// A script that has been found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// For messages: its path, or its name.
    pub name: String,
    /// Its text.
    pub source: String,
    /// Where it lies; None: in the program.
    pub path: Option<PathBuf>,
}

/// Folders in which names are looked for, in this order.
pub fn folders(variable: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let split = |paths: String| {
        let folders = paths.split(':').filter(|f| !f.is_empty());
        folders.map(PathBuf::from).collect::<Vec<_>>()
    };
    let is_whole = |folder: &PathBuf| folder.is_absolute();
    let mut folders = vec![PathBuf::from(".")];
    folders.extend(split(variable("SPTRACE_PATH").unwrap_or_default()));
    let home = variable("HOME").map(|home| format!("{home}/.local/share"));
    let of_user = variable("XDG_DATA_HOME").or(home).into_iter();
    let of_all = variable("XDG_DATA_DIRS").filter(|dirs| !dirs.is_empty());
    let of_all = split(of_all.unwrap_or_else(|| "/usr/local/share:/usr/share".to_owned()));
    let data = of_user.map(PathBuf::from).chain(of_all).filter(is_whole);
    folders.extend(data.map(|folder| folder.join("sptrace/scripts")));
    folders
}

/// Finds a script: with a `/` or the ending `.rhai` it is a path, else a name.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn find(what: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Found, ScriptError> {
    if what.contains('/') || what.ends_with(".rhai") {
        return read(what, Path::new(what));
    }
    for folder in folders(variable) {
        let path = folder.join(format!("{what}.{ENDING}"));
        if path.is_file() {
            return read(&path.display().to_string(), &path);
        }
    }
    if let Some((name, source)) = ready::SCRIPTS.iter().find(|(name, _)| *name == what) {
        return Ok(Found {
            name: (*name).to_owned(),
            source: (*source).to_owned(),
            path: None,
        });
    }
    let near = ready::SCRIPTS
        .iter()
        .map(|(name, _)| (strsim::jaro_winkler(name, what), *name))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|near| near.0 > 0.8);
    let hint = match near {
        Some((_, name)) => format!("did you mean {name}?"),
        None => "`sptrace script list` names them; a path has a /".to_owned(),
    };
    Err(ScriptError::of_whole(
        what,
        "there is no such script",
        &hint,
    ))
}

fn read(name: &str, path: &Path) -> Result<Found, ScriptError> {
    let cannot = |why: &str| ScriptError::of_whole(name, &format!("cannot read it: {why}"), "");
    let meta = std::fs::metadata(path).map_err(|e| cannot(&e.to_string()))?;
    if meta.is_dir() {
        return Err(cannot("it is a folder"));
    }
    if meta.len() > MOST_BYTES as u64 {
        let reason = format!("it has {} bytes, more than {MOST_BYTES}", meta.len());
        return Err(ScriptError::of_whole(name, &reason, "split it"));
    }
    let bytes = std::fs::read(path).map_err(|e| cannot(&e.to_string()))?;
    let source = String::from_utf8(bytes).map_err(|_| cannot("it is no text in UTF-8"))?;
    Ok(Found {
        name: name.to_owned(),
        source,
        path: Some(path.to_owned()),
    })
}

/// Scripts that a name finds, with their first line; the first of a name hides others.
pub fn all(variable: &dyn Fn(&str) -> Option<String>) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    let is_new = |found: &[Found], name: &str| !found.iter().any(|f| f.name == name);
    for folder in folders(variable) {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned());
            let is_script = path.extension().is_some_and(|e| e == ENDING);
            let Some(name) = stem.filter(|name| is_script && is_new(&found, name)) else {
                continue;
            };
            if let Ok(read) = read(&path.display().to_string(), &path) {
                found.push(Found { name, ..read });
            }
        }
    }
    for (name, source) in ready::SCRIPTS {
        if is_new(&found, name) {
            found.push(Found {
                name: (*name).to_owned(),
                source: (*source).to_owned(),
                path: None,
            });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}
