//! `sptrace cache`: what analyses are kept, filling the place of all users, emptying.
//!
//! Given folders and files; prints one line for each analysis, or what was done.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use clap::{Args, Subcommand};
use sptrace_code::{self as code, Kept, Places};
use sptrace_collect::modules::load;

use crate::talk::say;

const EXAMPLES: &str = "\
Examples:
  sptrace cache                                 what is kept, and how much room it takes
  sptrace cache fill /usr/bin/python3           analyse now what would be analysed when it runs
  sudo sptrace cache fill --system /usr/lib/x86_64-linux-gnu/*.so*
                                                for all users of this machine
  sptrace cache fill --into DIR FILE...         for a package, which installs them into
                                                /usr/share/sptrace/analyses
  sptrace cache clear                           nothing is lost but time

An analysis is found by where its file lies and when it was changed; those of all users by the
build id and the code. The user's own folder is $XDG_CACHE_HOME/sptrace or ~/.cache/sptrace; what
was not used for longest is removed where it would grow beyond 1 GiB.";

/// Arguments of `sptrace cache`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CacheArgs {
    #[command(subcommand)]
    what: Option<What>,
}

/// What to do; without it, `show`.
#[derive(Subcommand, Debug)]
enum What {
    /// List the analyses: size, last use, and of which file
    Show {
        /// Those of all users
        #[arg(long)]
        system: bool,
    },
    /// Analyse files now
    Fill {
        /// Put them where all users find them (needs root)
        #[arg(long, conflicts_with = "into")]
        system: bool,
        /// Put them into DIR, named by the build id, to be installed by a package
        #[arg(long, value_name = "DIR")]
        into: Option<PathBuf>,
        /// Programs and libraries
        #[arg(required = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        files: Vec<PathBuf>,
    },
    /// Remove all analyses
    Clear {
        /// Those of all users (needs root)
        #[arg(long)]
        system: bool,
    },
}

/// Where analyses are kept.
pub(crate) fn places() -> Places {
    Places::default()
}

/// Runs it. False: something could not be done, and was said.
///
/// # Errors
/// Standard output cannot be written, there is no folder, or it cannot be emptied.
pub fn run(args: &CacheArgs) -> anyhow::Result<bool> {
    match &args.what {
        None => show(false).map(|()| true),
        Some(What::Show { system }) => show(*system).map(|()| true),
        Some(What::Clear { system }) => clear(*system).map(|()| true),
        Some(What::Fill {
            system,
            into,
            files,
        }) => {
            let into = match system {
                true => Some(Places::of_system()),
                false => into.clone(),
            };
            fill(into.as_deref(), files)
        }
    }
}

fn folder(is_of_system: bool) -> anyhow::Result<PathBuf> {
    match is_of_system {
        true => Ok(Places::of_system()),
        false => places()
            .own
            .context("neither XDG_CACHE_HOME nor HOME says where analyses are kept"),
    }
}

fn show(is_of_system: bool) -> anyhow::Result<()> {
    let folder = folder(is_of_system)?;
    let all = code::list(&folder);
    let mut out = std::io::stdout().lock();
    let bytes: u64 = all.iter().map(|kept| kept.bytes).sum();
    for kept in &all {
        let image = code::image_of(kept);
        let image = image.map_or("(of another version)".to_owned(), |path| {
            path.display().to_string()
        });
        writeln!(out, "{:>10}  {:>12}  {image}", size(kept.bytes), age(kept))?;
    }
    let limit = match is_of_system {
        true => String::new(),
        false => format!(" of at most {}", size(places().limit_bytes)),
    };
    let (count, total) = (all.len(), size(bytes));
    writeln!(
        out,
        "{count} analyses, {total}{limit}, in {}",
        folder.display()
    )?;
    Ok(())
}

fn clear(is_of_system: bool) -> anyhow::Result<()> {
    let folder = folder(is_of_system)?;
    let (count, bytes) = code::clear(&folder)?;
    println!("{count} analyses removed, {} free", size(bytes));
    Ok(())
}

fn fill(into: Option<&Path>, files: &[PathBuf]) -> anyhow::Result<bool> {
    let mut is_whole = true;
    let mut seen = std::collections::HashSet::new();
    for file in files {
        // Libraries have several names.
        if !seen.insert(std::fs::canonicalize(file).unwrap_or_else(|_| file.clone())) {
            continue;
        }
        let done = match into {
            Some(folder) => load::fill(folder, file).map(|is_new| match is_new {
                true => "analysed",
                false => "was there",
            }),
            None => load::fill_own(&places(), file).map(|()| "kept"),
        };
        match done {
            Ok(what) => println!("{what}  {}", file.display()),
            Err(e) => {
                say(&e.to_string());
                is_whole = false;
            }
        }
    }
    Ok(is_whole)
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

fn age(kept: &Kept) -> String {
    let age = SystemTime::now().duration_since(kept.used);
    match age.unwrap_or_default().as_secs() {
        0..3600 => "this hour".to_owned(),
        s @ 3600..86_400 => format!("{} h ago", s / 3600),
        s => format!("{} days ago", s / 86_400),
    }
}
