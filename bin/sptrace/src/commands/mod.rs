//! One file for each subcommand.
pub mod analyze;
pub mod run;
pub mod report;
