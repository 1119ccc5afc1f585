//! What this build is.

/// For `-V`.
pub const SHORT: &str = env!("CARGO_PKG_VERSION");
/// For `--version`: also what a report of a fault needs.
pub const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("SPTRACE_BUILD"),
    ")\n",
    env!("SPTRACE_COMPILER"),
    ", for ",
    env!("SPTRACE_TARGET"),
    "\nfeatures: ",
    env!("SPTRACE_FEATURES"),
);
