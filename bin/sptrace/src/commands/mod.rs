//! One file for each subcommand.
pub mod analyze;
pub mod attach;
pub mod cache;
pub mod config;
pub mod ctl;
pub mod doctor;
pub mod executable;
pub mod kernel_side;
pub mod ktrace;
mod lines;
mod live;
pub mod record;
pub mod report;
pub mod run;
pub mod script;
mod selection;
mod top;
mod values;
