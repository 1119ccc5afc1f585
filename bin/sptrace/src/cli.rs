//! The command line's types: no input or output here. Their comments are the only help text.

use crate::commands;
use clap::{Parser, Subcommand};

/// Shows what a program really does: every function call of an unmodified Linux program
#[derive(Parser, Debug)]
#[command(name = "sptrace", version, max_term_width = 100)]
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
    /// Show what sptrace knows of a program or library: functions, call sites, refusals
    Analyze(commands::analyze::AnalyzeArgs),
    /// Show views of a trace: summary, functions, tree, coverage, folded stacks
    Report(commands::report::ReportArgs),
}
