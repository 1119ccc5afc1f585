//! One file for each subcommand.
pub mod analyze;
pub mod executable;
pub mod report;
pub mod run;
