//! Loaded objects: symbols, PLT, unwind ranges, build ids.
//!
//! Bytes of an ELF file in, values out: no I/O, no instructions beyond the shape of a PLT stub. The
//! files are hostile until proven otherwise.
#![forbid(unsafe_code)]

mod build_id;
mod debug_file;
mod debug_links;
mod debug_sections;
mod dynamic;
mod error;
mod go_table;
mod go_version;
mod headers;
mod lsda;
mod object;
mod plt;
mod relocations;
mod runtime;
mod sections;
mod space;
mod symbols;
mod tables;
mod unwind;

pub use debug_file::debug_symbols;
pub use debug_links::DebugLinks;
pub use debug_sections::{DebugSection, debug_sections};
pub use error::ImageError;
pub use go_table::is_go_program;
pub use headers::ObjectKind;
pub use lsda::LandingPad;
pub use object::Object;
pub use plt::PltStub;
pub use relocations::CodePointer;
pub use space::{CodeRange, Segment, Space};
pub use symbols::{Symbol, SymbolKind};
pub use tables::{Table, UnwindTables};
pub use unwind::{Fde, Unwind};
