//! Functions, basic blocks, call sites; the cache of analyses.
