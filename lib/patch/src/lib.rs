//! Chooses a tactic for each call site and builds the plan for the agent.
//!
//! Given an image and its analysis; gives the bytes of a plan (`sptrace-wire`),
//! position-independent and therefore kept in the cache beside the analysis. Writes to no process
//! and knows no address of one.
#![forbid(unsafe_code)]

pub mod build_plan;
pub mod counts;
mod covered;
pub mod ends;
pub mod errno;
pub mod gate;
pub mod handlers;
pub mod kept;
pub mod lanes;
mod leaf;
pub mod movable;
pub mod mute;
pub mod repeatable;
pub mod return_points;
pub mod root_calls;
pub mod roots;
pub mod special;
pub mod springboard;
pub mod system_calls;
pub mod tactic;
pub mod template;
pub mod values;

pub use build_plan::{
    build_counting_plan, build_plan, build_plan_in_order, build_plan_mixed, build_plan_with_acts,
    build_plan_with_levels, build_plan_with_levels_in_order, build_plan_with_returns,
    build_plan_without_calls, creations_alone, in_order_for_good,
};
pub use tactic::{Refusal, Tactic, Verdict};
