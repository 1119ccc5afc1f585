//! One file for each subcommand.
pub mod analyze;
pub mod ctl;
pub mod executable;
pub mod report;
pub mod run;
