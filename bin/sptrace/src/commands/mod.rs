//! One file for each subcommand.
pub mod executable;
pub mod run;
pub mod report;
