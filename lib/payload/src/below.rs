//! Where code keeps what it needs: 128 bytes below the stack pointer, which signals leave alone.
//!
//! Temporaries and locals lie above ([`crate::in_place`]). Must not know what is kept there.

use crate::acts::MOST_LOCALS;
use crate::contract::in_place::*;
use crate::in_place::LOCAL_AT;
use crate::tables::MOST_KEYS;

/// Words below the stack pointer, behind the locals: keys, what is added, probes, rdx.
pub(crate) const KEYS_AT: i32 = LOCAL_AT - 8 * MOST_LOCALS as i32;
pub(crate) const VALUE_AT: i32 = KEYS_AT - 8 * MOST_KEYS as i32;
pub(crate) const PROBES_AT: i32 = VALUE_AT - 4;
pub(crate) const RECORDED_AT: i32 = VALUE_AT - 8;
pub(crate) const RDX_AT: i32 = VALUE_AT - 16;
const _: () = assert!(RDX_AT >= -128);
/// In the place of the last local: how long the call took.
pub(crate) const ELAPSED_AT: i32 = LOCAL_AT - 8 * (MOST_LOCALS as i32 - 1);
/// In that of the one before it: the same without what is inside.
pub(crate) const SELF_AT: i32 = LOCAL_AT - 8 * (MOST_LOCALS as i32 - 2);
// Keys are not needed any more where words are kept for the return.
const _: () = assert!(KEPT_AT == KEYS_AT && KEPT_IN_PLACE <= MOST_KEYS);
