//! The command line's types: no input or output here. Their comments are the only help text.

use crate::commands;
use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  sptrace run -- sqlite3 :memory: 'select 1'    record every call into sptrace.data
  sptrace report                                what ran, and what took the time
  sptrace report tree | less                    every call, nested, with its duration

The recorded program needs no preparation. Its output and exit status are its own; what sptrace
says goes to stderr, each line begun by its name.

Exit status:
  run       the command's own, or death by the same signal; 125 if sptrace failed, 126 if the
            command cannot be executed, 127 if it is not found
  attach    0, or 1 if nothing could be attached to
  ktrace    as run with a command, else 0, or 1 on failure
  report, ctl, analyze, cache, config, doctor, script
            0, or 1 on failure
  2         wrong usage";

/// Shows what a program really does: every function call of an unmodified Linux program
#[derive(Parser, Debug)]
#[command(name = "sptrace", version = crate::version::SHORT, long_version = crate::version::LONG, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// Subcommands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Start a command under trace and write sptrace.data
    Run(commands::run::RunArgs),
    /// Record running processes, and let them go as they were
    Attach(commands::attach::AttachArgs),
    /// Show what sptrace knows of a program or library: functions, call sites, refusals
    Analyze(commands::analyze::AnalyzeArgs),
    /// Record what the kernel does for a command, for processes, or for the whole machine
    Ktrace(commands::ktrace::KtraceArgs),
    /// Say a word to a running recording, or list those that wait for words
    Ctl(commands::ctl::CtlArgs),
    /// Show, fill or empty the folder in which analyses of programs are kept
    Cache(commands::cache::CacheArgs),
    /// Show which settings are in force, and where they were made
    Config(commands::config::ConfigArgs),
    /// Say what can be recorded on this machine, and what would allow more
    Doctor(commands::doctor::DoctorArgs),
    /// Show views of a trace: summary, functions, tree, coverage, folded stacks
    Report(commands::report::ReportArgs),
    /// Check, explain and list scripts: policies of recordings, and what is made of traces
    Script(commands::script::ScriptArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn what_is_laid_out_by_hand_fits_the_width_of_the_help() {
        let command = Cli::command();
        for c in command.get_subcommands().chain([&command]) {
            let text = c.get_after_help().map(ToString::to_string);
            let text = text.unwrap_or_default();
            let long: Vec<_> = text.lines().filter(|l| l.chars().count() > 100).collect();
            assert!(long.is_empty(), "{}: {long:#?}", c.get_name());
        }
    }
}
