//! Loaded objects: symbols, PLT, unwind ranges, build ids.
