//! One file for each subcommand.
pub mod analyze;
pub mod executable;
pub mod run;
pub mod report;
