//! Plans of modules whose calls are counted: all of them, or those of some functions at times.
//!
//! The second kind is two plans in one: how calls are recorded, and of each site a twin, by which
//! its calls are counted instead. Must not know when which is wanted.

use sptrace_code::Analysis;
use sptrace_image::Object;
use sptrace_wire::plan::*;

use super::{HEADER_BYTES, PlanBuilder, builder};
use crate::counts::{Creators, is_creation};
use crate::system_calls::{system_calls, with_system_calls};

/// The plan of a module whose calls are counted: see [`crate::counts`].
pub fn build_counting_plan(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    let creators = Creators::of(object, analysis);
    creations_alone(
        object,
        analysis,
        builder(object, analysis, Some(creators), SLOTS_START).finish(),
    )
}

/// The plan of a module whose calls are recorded, and those of some functions counted at times: its
/// sites have twins ([`PlanHeader::twins`]), and its instructions that make tasks are intercepted.
pub fn build_plan_with_levels(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    let mut b = builder(object, analysis, None, SLOTS_START);
    let creators = Creators::of(object, analysis);
    let twins = builder(object, analysis, Some(creators), b.area_used);
    b.add_twins(twins);
    creations_alone(object, analysis, b.finish())
}

/// Of the instructions that call the kernel those are intercepted that make new tasks.
fn creations_alone(object: &Object<'_>, analysis: &Analysis, plan: Vec<u8>) -> Vec<u8> {
    let mut found = system_calls(object, analysis, &plan);
    found
        .taken
        .retain(|call| is_creation(object, analysis, call));
    found.refused.clear();
    found.handlers.clear();
    with_system_calls(&plan, &found).unwrap_or(plan)
}

impl PlanBuilder<'_> {
    /// The sites of another plan of the same module, whose slots lie behind these, become twins.
    fn add_twins(&mut self, twins: PlanBuilder<'_>) {
        if twins.sites.len() != self.sites.len() {
            return;
        }
        let templates = (self.out.len() - HEADER_BYTES) as u32;
        self.out
            .extend(twins.out.get(HEADER_BYTES..).unwrap_or(&[]));
        let pairs = self.sites.iter_mut().zip(twins.sites);
        let twins_of: Vec<PlanSite> = pairs.map(|(site, twin)| as_twin(site, twin)).collect();
        self.twins = twins_of.len() as u32;
        self.sites.extend(twins_of.into_iter().map(|twin| PlanSite {
            argument: match twin.form {
                SiteForm::Template => twin.argument + templates,
                _ => twin.argument,
            },
            ..twin
        }));
        self.area_used = twins.area_used;
    }
}

/// `twin`, if what stands in the text can be changed from one to the other while a thread may be
/// anywhere, else refused. Of a site only the first instruction is changed, or the last behind
/// filling, and in both the same: `site` is made so.
fn as_twin(site: &mut PlanSite, twin: PlanSite) -> PlanSite {
    const SHAPED: u16 = SITE_SPRINGBOARD | SITE_IN_HOOK;
    let is_other = site.form == SiteForm::Refused
        || site.is_any(SHAPED)
        || twin.is_any(SHAPED)
        || (site.start, site.span) != (twin.start, twin.span)
        || site.is_any(SITE_KEEP_OPCODE) != twin.is_any(SITE_KEEP_OPCODE)
        || site.is_any(SITE_KEEP_CALL) && !twin.is_any(SITE_KEEP_CALL);
    let is_last = twin.form == SiteForm::Template && twin.is_any(SITE_KEEP_CALL);
    const SHAPES: u16 = SITE_SPRINGBOARD | SITE_KEEP_CALL | SITE_KEEP_OPCODE;
    if !is_other && is_last && site.form == SiteForm::Template && !site.is_any(SHAPES) {
        site.flags |= SITE_JUMP_LAST;
    }
    match is_other {
        true => PlanSite {
            form: SiteForm::Refused,
            flags: 0,
            ..twin
        },
        false => twin,
    }
}
