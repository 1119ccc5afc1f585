//! Floor 4: what the plans say of the process: modules, functions, patches, slots.
//!
//! Given the plans in the arena and the table of modules. Gives answers, and changes nothing but
//! its own tables. Must not know how a plan is got or carried out.

pub mod counted;
pub mod kept_acts;
pub mod kept_order;
pub mod modules;
pub mod padding;
pub mod patched;
pub mod payloads;
pub mod place;
pub mod plan;
pub mod ready;
pub mod slot;
