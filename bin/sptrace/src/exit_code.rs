//! Exit statuses, as env(1), timeout(1) and nohup(1) use them.

/// `run` itself failed before the command was started.
pub const OWN_FAILURE: u8 = 125;
/// The command was found but could not be executed.
pub const CANNOT_EXECUTE: u8 = 126;
/// The command was not found.
pub const NOT_FOUND: u8 = 127;
/// `analyze` and `report` failed.
pub const FAILURE: u8 = 1;
/// The options contradict each other; clap's own number.
pub const WRONG_USAGE: u8 = 2;
