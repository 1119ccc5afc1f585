//! Plans of modules whose callees may have acts that need no frame.
//!
//! Given an image and its analysis; calls through pointers whose text can keep a call get slots in
//! which such acts run ([`sptrace_wire::plan::SITE_KEEPS_ACTS`]). Must not know which functions
//! have any.

use sptrace_addr::Svma;
use sptrace_code::{Analysis, Site};
use sptrace_image::Object;
use sptrace_wire::plan::*;

use super::{Calls, PlanBuilder, builder, is_tail};
use crate::counts::needs_its_stack;
use crate::tactic::Tactic;
use crate::template::Builder;

/// The plan of a module whose calls are recorded, but for those of callees whose acts say otherwise
/// ([`SlotActs`]).
pub fn build_plan_with_acts(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    builder(object, analysis, Calls::WithActs, SLOTS_START).finish()
}

impl PlanBuilder<'_> {
    /// Ends the slot of a call through a pointer, behind what was moved there from `start` on; what
    /// was moved finds the return address on the stack. Gives the flags of its site. `None`: its
    /// slot is none of these.
    pub(super) fn keep_acts(
        &self,
        t: &mut Builder,
        (site, tactic, start): (&Site, Tactic, Svma),
    ) -> Option<u16> {
        let place = (site.address, site.length);
        let got_slot = (site.got_slot.0 != 0 && site.target.0 != 0).then_some(site.got_slot);
        let is_kept = self.keeps_acts
            && !is_tail(site)
            && (got_slot.is_some() || site.target.0 == 0)
            && matches!(tactic, Tactic::CallInstruction | Tactic::CallBlock)
            && !needs_its_stack(self.object, start, site.address);
        (is_kept && t.keep_acts(self.object, place, got_slot))
            .then_some(SITE_INDIRECT | SITE_KEEP_CALL | SITE_KEEPS_ACTS)
    }
}
