//! The options -A, -R and --prototypes: which values of functions are recorded.
//!
//! Given their texts; gives what a recording is asked for, or one message with the place that is
//! wrong. Must not know what becomes of it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use sptrace_collect::values::Asked;
use sptrace_types::decode::capture::Extent;
use sptrace_types::functions::parse;
use sptrace_types::functions::prototype::Prototype;
use sptrace_types::functions::spec;

/// What -A and -R ask for, with prototypes of these files; `None`: nothing.
///
/// # Errors
/// The first text that is wrong, and where.
pub fn asked(
    [arguments, results]: [&[String]; 2],
    files: &[PathBuf],
    string_bytes: u32,
) -> Result<Option<Asked>, String> {
    if arguments.is_empty() && results.is_empty() {
        if !files.is_empty() {
            return Err(
                "--prototypes is of use with -A or -R only (which say what is recorded)".to_owned(),
            );
        }
        return Ok(None);
    }
    let mut specs = Vec::new();
    for (option, texts, result_only) in [("-A", arguments, false), ("-R", results, true)] {
        for text in texts {
            let read = spec::parse(text, result_only);
            specs.extend(read.map_err(|wrong| format!("{option} {}", wrong.shown(text)))?);
        }
    }
    let mut prototypes = HashMap::new();
    for file in files {
        prototypes.extend(read(file)?);
    }
    let extent = Extent {
        string_bytes,
        verbose: true,
    };
    Ok(Some(Asked {
        specs,
        extent,
        prototypes,
    }))
}

/// The same of functions of the kernel.
///
/// # Errors
/// The first text that is wrong, and where.
pub fn of_kernel(
    texts: [&[String]; 2],
    files: &[PathBuf],
    string_bytes: u32,
) -> Result<Option<sptrace_kernel::values::Asked>, String> {
    let asked = asked(texts, files, string_bytes)?;
    Ok(asked.map(|asked| sptrace_kernel::values::Asked {
        specs: asked.specs,
        string_bytes,
        prototypes: asked.prototypes,
    }))
}

/// The prototypes of a file.
fn read(path: &Path) -> Result<Vec<(String, Prototype)>, String> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|e| format!("--prototypes {}: {e}", path.display()))?;
    let (found, wrong) = parse::file(&text);
    if let Some((number, wrong)) = wrong.first() {
        let line = text.lines().nth(number - 1).unwrap_or("").trim();
        let place = format!("{}:{number}", path.display());
        return Err(format!("{place}: {}", wrong.shown(line)));
    }
    Ok(found
        .into_iter()
        .map(|one| (one.name.clone(), one))
        .collect())
}
