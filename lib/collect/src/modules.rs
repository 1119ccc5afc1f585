//! The agent's questions: which module lies at an address, what its plan is, and where its patch
//! area may lie.
//!
//! | file | what for |
//! |---|---|
//! | `answer.rs` | takes questions and answers them |
//! | `load.rs` | the file of a module, as it can be opened from here |
//! | `expected.rs` | what was read of modules that were not asked for yet |
//! | `filters.rs`, `decide.rs` | which functions are recorded |
//! | `learned.rs` | which calls begin in order, as former recordings have learned |
//! | `details.rs` | what takes longer to find out of a function |
//! | `mappings.rs`, `snapshots.rs`, `placement.rs` | what lies where, and where there is room |

pub mod answer;
pub mod decide;
pub mod details;
pub(crate) mod expected;
pub mod filters;
pub mod learned;
pub mod load;
pub(crate) mod mappings;
pub mod placement;
pub(crate) mod snapshots;
