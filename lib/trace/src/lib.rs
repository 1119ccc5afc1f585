//! Event model, trace file, call tree, statistics.
