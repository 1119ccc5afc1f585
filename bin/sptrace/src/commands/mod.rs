//! One file for each subcommand.
pub mod run;
pub mod report;
