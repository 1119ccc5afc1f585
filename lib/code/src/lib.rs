//! Functions, basic blocks, call sites; the cache of analyses.
//!
//! [`analyze`] follows control flow from everything that is certainly code (see `discover`) and
//! gives an [`Analysis`]. A site is listed only when control was seen to reach it, never by a
//! linear sweep. Whether and how a site is patched is decided elsewhere.
#![deny(unsafe_code)]

mod analyze;
mod bits;
mod bytes;
mod cache;
mod classify;
mod debug_file;
mod discover;
mod error;
mod follow;
pub mod graph;
mod hash;
mod history;
mod loops;
mod model;
mod names;
mod noreturn;
mod packed;
mod parallel;
mod regions;
mod site;
mod sites;
mod sweep;
mod system_call;
mod tables;

pub use analyze::analyze;
pub use bytes::Bytes;
pub use cache::{
    Beside, Cached, DEFAULT_LIMIT_BYTES, Kept, MakePlan, Places, Plan, clear, fill, image_of, kept,
    list, load_or_build, module_hash,
};
pub use debug_file::names;
pub use error::CodeError;
pub use hash::hash_bytes;
pub use loops::jumps_back;
pub use model::{Analysis, Function, FunctionFlags, Summary};
pub use names::{Name, name_of, unnamed};
pub use packed::Sites;
pub use site::{Site, SiteFlags, SiteKind};
pub use system_call::number_before;
