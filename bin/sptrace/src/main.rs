//! The sptrace command: parse, dispatch, exit status.
fn main() {}
