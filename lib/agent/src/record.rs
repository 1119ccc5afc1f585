//! Floor 6: what is told to the host: records of events, questions, and the end of both.
//!
//! Given events of a thread. Gives records in its chunk, and a shadow stack that agrees with them.
//! Must not know what led to an event.

pub mod capture;
pub mod chunk;
pub mod deep;
pub mod due;
pub mod end;
pub mod in_place;
pub mod on_paths;
pub mod originals;
pub mod question;
pub mod restore;
pub mod settle;
pub mod silence;
