//! Where names and debug information come from that are not in the images: options of several
//! commands.
//!
//! Given the options; tells the crate `symbols` where to look, and gives the names of symbol files.
//! Must not know what is shown.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use sptrace_addr::Svma;
use sptrace_dwarf::{Line, Lines};
use sptrace_symbols::{Listed, Places, Servers, read_symbol_file, set_places};
use sptrace_trace::{CallPlace, SourceLine, demangle, without_parameters};

use crate::talk::say;

/// Where debug files lie.
#[derive(Args, Debug, Default)]
pub struct DebugArgs {
    /// Look for separate debug files in DIR too, before /usr/lib/debug: as
    /// DIR/.build-id/xx/yyyy.debug, and by the name in .gnu_debuglink. May be repeated
    #[arg(long, value_name = "DIR")]
    debug_dir: Vec<PathBuf>,
}

/// All of these options.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Symbols and sources")]
pub struct SymbolArgs {
    #[command(flatten)]
    debug: DebugArgs,
    /// Ask the servers of DEBUGINFOD_URLS for debug files that are nowhere else, and keep them as
    /// debuginfod's other clients do. https:// needs curl
    #[arg(long)]
    debuginfod: bool,
    /// Take names from FILE: lines of address and name, or what nm prints. They are of the program,
    /// of MODULE (its file name, path or build id), or of what a line `MODULE:` says. May be
    /// repeated
    #[arg(long, value_name = "[MODULE=]FILE")]
    symbols: Vec<String>,
}

impl DebugArgs {
    /// Looks there from now on.
    pub fn apply(&self) -> anyhow::Result<()> {
        self.apply_with(None)
    }

    fn apply_with(&self, servers: Option<Servers>) -> anyhow::Result<()> {
        for folder in &self.debug_dir {
            if !folder.is_dir() {
                bail!("--debug-dir {}: there is no such folder", folder.display());
            }
        }
        set_places(Places {
            folders: self.debug_dir.clone(),
            servers,
        });
        Ok(())
    }
}

impl SymbolArgs {
    /// Looks for debug files as is said from now on.
    ///
    /// # Errors
    /// A sentence: a folder is not there, no server is named.
    pub fn apply(&self) -> anyhow::Result<()> {
        let variable = |name: &str| std::env::var(name).ok();
        let servers = match self.debuginfod {
            true => Some(Servers::of_variables(&variable).map_err(|why| anyhow!("{why}"))?),
            false => None,
        };
        self.debug.apply_with(servers)
    }

    /// True if other places than the usual ones are named.
    pub fn is_any(&self) -> bool {
        self.debuginfod || !self.debug.debug_dir.is_empty()
    }

    /// The names of all symbol files, by module.
    ///
    /// # Errors
    /// A sentence: one cannot be read, or has no names.
    pub fn listed(&self) -> anyhow::Result<Vec<Listed>> {
        let mut all = Vec::new();
        for text in &self.symbols {
            let (module, path) = match text.split_once('=') {
                Some((module, path)) if !Path::new(text).exists() => (Some(module), path),
                _ => (None, text.as_str()),
            };
            let bytes = std::fs::read(path).with_context(|| format!("--symbols {path}"))?;
            let (listed, unknown) = read_symbol_file(&bytes);
            if listed.is_empty() {
                bail!(
                    "--symbols {path}: it has no names (its lines are address and name, or what nm prints)"
                );
            }
            if unknown > 0 {
                say(&format!(
                    "{path}: lines that are no address with a name: {unknown}"
                ));
            }
            all.extend(listed.into_iter().map(|one| Listed {
                module: one.module.or_else(|| module.map(str::to_owned)),
                ..one
            }));
        }
        Ok(all)
    }
}

/// True if what a user calls a module is this one; without a name it is the program.
pub fn is_meant(wanted: Option<&str>, path: &str, build_id: &[u8], is_program: bool) -> bool {
    let Some(wanted) = wanted else {
        return is_program;
    };
    let hex: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let file = path.rsplit('/').next().unwrap_or(path);
    wanted == path || wanted == file || (!hex.is_empty() && wanted.eq_ignore_ascii_case(&hex))
}

/// A line as traces have it.
pub fn source_line(line: Line) -> SourceLine {
    SourceLine {
        file: line.file,
        line: line.line,
    }
}

/// Where in the source the call at an address was written, and in which inlined functions.
pub fn call_place(lines: &Lines, svma: Svma) -> Option<CallPlace> {
    let frames = lines.frames(svma);
    let at = match frames.first() {
        Some(frame) => frame.at.clone(),
        None => lines.at(svma),
    };
    let inlined = frames.split_last().map_or(&[][..], |(_, inlined)| inlined);
    let name = |name: &Option<String>| {
        let readable = name.as_deref().map(demangle);
        let clean = readable.map(|name| name.replace(char::is_control, "\u{fffd}"));
        clean.map_or_else(
            || "?".to_owned(),
            |name| without_parameters(&name).to_owned(),
        )
    };
    Some(CallPlace {
        at: source_line(at?),
        inlined: inlined.iter().map(|frame| name(&frame.function)).collect(),
    })
}
