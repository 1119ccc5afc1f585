//! The end of a slot that records: how it hands over to the callee.
//!
//! Given a site and its tactic; writes the calls of the common routines, and the call or jump. Must
//! not know what stands before them in the slot.

use sptrace_addr::Svma;
use sptrace_code::{Site, SiteKind};
use sptrace_wire::plan::*;

use crate::tactic::Tactic;
use crate::template::Builder;

/// Ends a slot: the call or jump that the site makes, by way of the common routine for its kind.
/// Gives the flags that say which.
pub(super) fn hand_over(t: &mut Builder, site: &Site, tactic: Tactic, back: Svma) -> u16 {
    let through_pointer = site.got_slot.0 != 0 || site.target.0 == 0;
    match (tactic, is_tail(site), through_pointer) {
        (Tactic::EntryOnly, false, false) => {
            t.direct_jump(common::ENTRY_ONLY_FIRST, site.target);
            SITE_KEEP_CALL | SITE_ENTRY_ONLY
        }
        (Tactic::ConditionalTail, _, true) => {
            t.finish_indirect_tail();
            SITE_KEEP_OPCODE | SITE_TAIL | SITE_INDIRECT
        }
        (Tactic::ConditionalTail, _, false) => {
            t.direct_jump(common::TAIL_FIRST, site.target);
            SITE_KEEP_OPCODE | SITE_TAIL
        }
        (_, false, true) => {
            t.finish_indirect_call(back);
            SITE_INDIRECT
        }
        (_, false, false) => {
            t.direct_call(site.target, back);
            0
        }
        (_, true, true) => {
            t.finish_indirect_tail();
            SITE_INDIRECT | SITE_TAIL
        }
        (_, true, false) => {
            t.direct_jump(common::TAIL_FIRST, site.target);
            SITE_TAIL
        }
    }
}

pub(super) fn is_tail(site: &Site) -> bool {
    matches!(
        site.kind,
        SiteKind::TailDirect | SiteKind::TailConditional | SiteKind::TailIndirect
    )
}
