//! `sptrace config`: which settings are in force, and where they were made.
//!
//! Given the settings, or why they cannot be read; prints files, settings, variables and places.

use std::io::Write;

use clap::Args;

use super::cache;
use crate::settings::{Found, OTHER_VARIABLES, Settings, SettingsError};

const EXAMPLES: &str = "\
Examples:
  sptrace config                        what is in force, and from where
  SPTRACE_RUN_MAX_SIZE=2G sptrace config

A file of settings is TOML. A key is the long name of an option: at the top it is set for all
commands that have it, in a table for one.

  color = \"never\"

  [run]
  max-size = \"4G\"
  notrace = [\"malloc\", \"free\"]

Each option is a variable too: SPTRACE_COLOR for all commands, SPTRACE_RUN_MAX_SIZE for one; but
SPTRACE_OUTPUT is the file of recordings, not that of reports. What counts more: the command line;
SPTRACE_COMMAND_OPTION; SPTRACE_OPTION; the file that SPTRACE_CONFIG names; the user's file; the
machine's. A file that belongs to somebody else, or that others may write, is not used.";

/// Arguments of `sptrace config`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ConfigArgs {}

/// Other variables that say where things are, or how they look.
const VARIABLES: [&str; 4] = [
    "NO_COLOR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
];

/// Runs it.
///
/// # Errors
/// A file of settings cannot be read, or standard output cannot be written.
pub fn run(_: &ConfigArgs, settings: Result<&Settings, SettingsError>) -> anyhow::Result<()> {
    let settings = settings?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "Files (the later ones count more)")?;
    for (path, found) in &settings.files {
        let found = match found {
            Found::Absent => "not there".to_owned(),
            Found::Read(1) => "1 setting".to_owned(),
            Found::Read(count) => format!("{count} settings"),
            Found::Distrusted(why) => (*why).to_owned(),
        };
        writeln!(out, "  {}  {found}", path.display())?;
    }
    writeln!(out, "\nSettings in force")?;
    if settings.all.is_empty() {
        writeln!(out, "  none: every option is what its help says")?;
    }
    for s in &settings.all {
        let values: Vec<_> = s.values.iter().map(|v| format!("{v:?}")).collect();
        let values = values.join(", ");
        writeln!(
            out,
            "  {}.{} = {values}  ({})",
            s.command, s.option, s.origin
        )?;
    }
    writeln!(out, "\nVariables")?;
    for name in OTHER_VARIABLES.iter().chain(&VARIABLES) {
        if let Some(value) = std::env::var_os(name) {
            writeln!(out, "  {name}={}", value.to_string_lossy())?;
        }
    }
    for name in &settings.unknown {
        writeln!(out, "  {name}: no option is called so")?;
    }
    writeln!(out, "\nPlaces")?;
    let places = cache::places();
    let own = places.own.as_ref();
    let own = own.map_or("nowhere".to_owned(), |p| p.display().to_string());
    writeln!(out, "  analyses           {own}")?;
    for shared in &places.shared {
        writeln!(out, "  analyses of all    {}", shared.display())?;
    }
    let scripts = sptrace_script::find::folders(&|name| std::env::var(name).ok());
    for folder in scripts {
        writeln!(out, "  scripts            {}", folder.display())?;
    }
    Ok(())
}
