//! The plan of one module: what the host found out about its code, in the form that the agent
//! applies without decoding an instruction.
//!
//! A plan is position-independent: addresses are offsets from `base_svma`. The agent finds a
//! function by binary search, and for each of its sites writes a *slot* (the generated code, in the
//! patch area) and then the jump to it (in the text). [`view`] is how both sides read it; the
//! structures say where each byte is.
//!
//! Must not know: how code is analysed, and what is written when.

pub mod area;
pub mod function;
pub mod header;
pub mod kept_order;
pub mod site;
pub mod special;
pub mod template;
pub mod values;
pub mod view;

pub use area::*;
pub use function::*;
pub use header::*;
pub use site::*;
pub use special::*;
pub use template::*;
pub use values::*;
pub use view::{PlanView, TemplateView};
