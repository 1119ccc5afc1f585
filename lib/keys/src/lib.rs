//! Keys that somebody waits for on the controlling terminal.
//!
//! Given keys by their names, each with a number; gives the numbers of those that were pressed, and
//! when. If nobody else reads the terminal, [`Reading`] does. If a command does, it gets a terminal
//! of its own, and a process between both hands everything on but these keys ([`Relay`]).
//!
//! Must not know: what a key does, and what is recorded.

pub mod key;
mod pressed;
pub mod reading;
pub mod relay;
mod settings;

pub use key::{Key, KeyError};
pub use pressed::{Clock, Pressed};
pub use reading::Reading;
pub use relay::Relay;
pub use settings::is_controlling;
