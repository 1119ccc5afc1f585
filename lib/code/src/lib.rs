//! Functions, basic blocks, call sites; the cache of analyses.
#![forbid(unsafe_code)]

mod model;

pub use model::{Analysis, Function, FunctionFlags, Site, SiteFlags, SiteKind, Summary};
