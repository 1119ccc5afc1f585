//! The logic that runs inside the traced program.
