//! Plans of modules whose calls are counted, or recorded in order: all of them, or those of some
//! functions at times.
//!
//! A call that is counted and one that is recorded in order keep their return addresses: their
//! slots end in a jump to the callee. The plan with some functions is two plans in one: how calls
//! are recorded, and of each site a twin, by which its calls are counted instead. Must not know
//! when which is wanted.

use sptrace_addr::Svma;
use sptrace_code::{Analysis, Function, Site, SiteKind};
use sptrace_image::Object;
use sptrace_wire::plan::*;

use super::{Calls, HEADER_BYTES, PlanBuilder, builder, is_tail};
use crate::counts::{Creators, flags_are_dead, is_creation, needs_its_stack};
use crate::mute::put;
use crate::system_calls::{system_calls, with_system_calls};
use crate::tactic::{JUMP_BYTES, Tactic};
use crate::template::{Builder, leaves_r11};

/// The plan of a module whose calls are counted: see [`crate::counts`].
pub fn build_counting_plan(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    let calls = Calls::Counted(Creators::of(object, analysis));
    let plan = builder(object, analysis, calls, SLOTS_START).finish();
    creations_alone(object, analysis, plan)
}

/// The plan of a module whose calls are recorded in order ([`SITE_IN_ORDER`]). Whose thread runs is
/// known as where calls are counted; so instructions that make tasks must be intercepted as well.
pub fn build_plan_in_order(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    let calls = Calls::InOrder(Creators::of(object, analysis));
    let mut b = builder(object, analysis, calls, SLOTS_START);
    b.tell_who_reads_no_flags();
    b.finish()
}

/// The plan of a module whose calls are recorded, and those of some functions counted at times: its
/// sites have twins ([`PlanHeader::twins`]). Instructions that make tasks must be intercepted as
/// well.
pub fn build_plan_with_levels(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    let mut b = builder(object, analysis, Calls::Recorded, SLOTS_START);
    let calls = Calls::Counted(Creators::of(object, analysis));
    let twins = builder(object, analysis, calls, b.area_used);
    b.add_twins(twins, &as_twin);
    b.finish()
}

/// The same where those that are counted are recorded in order for that: whoever reads the records
/// counts them.
pub fn build_plan_with_levels_in_order(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    let mut b = builder(object, analysis, Calls::Recorded, SLOTS_START);
    let calls = Calls::InOrder(Creators::of(object, analysis));
    let twins = builder(object, analysis, calls, b.area_used);
    b.add_twins(twins, &as_twin);
    b.tell_who_reads_no_flags();
    b.finish()
}

/// The plan of a module whose calls are recorded, and those of some functions in order at times.
/// What has no end of its own is in order at all times: jumps that go on with a call, which would
/// need the frame of a call that may be in order, and calls whose return addresses must stay.
/// Instructions that make tasks must be intercepted as well.
pub fn build_plan_mixed(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    let mut b = builder(object, analysis, Calls::Recorded, SLOTS_START);
    let calls = Calls::InOrder(Creators::of(object, analysis));
    let twins = builder(object, analysis, calls, b.area_used);
    b.add_twins(twins, &|site, twin| match is_endless(site) {
        true => in_its_place(site, twin),
        false => as_twin(site, twin),
    });
    b.tell_who_reads_no_flags();
    b.finish()
}

/// The plan with the instructions intercepted that make new tasks, of those that call the kernel.
pub fn creations_alone(object: &Object<'_>, analysis: &Analysis, plan: Vec<u8>) -> Vec<u8> {
    let mut found = system_calls(object, analysis, &plan);
    found
        .taken
        .retain(|call| is_creation(object, analysis, call));
    found.refused.clear();
    found.handlers.clear();
    with_system_calls(&plan, &found).unwrap_or(plan)
}

/// In a plan of [`build_plan_mixed`]: calls are in order for good, wherever they can be. A site
/// that a hook leads to stays as it is, as there is no other way to its slot.
pub fn in_order_for_good(plan: &mut [u8]) {
    let Some(view) = PlanView::new(plan) else {
        return;
    };
    let h = *view.header();
    let pairs = (0..h.twins).filter_map(|i| Some((i, view.site(i)?, view.twin(i)?)));
    let in_order: Vec<_> = pairs
        .filter(|(_, site, twin)| twin.form != SiteForm::Refused && !site.is_any(SITE_IN_HOOK))
        .map(|(i, mut site, twin)| {
            let none = in_its_place(&mut site, twin);
            [(i, site), (i + h.twins, none)]
        })
        .collect();
    for (i, site) in in_order.into_iter().flatten() {
        put(plan, h.sites_offset, i, &site.to_bytes());
    }
    let header = PlanHeader {
        in_slot_order: 0,
        ..h
    };
    put(plan, 0, 0, &header.to_bytes());
}

impl PlanBuilder<'_> {
    /// As [`Self::taken`], where calls are counted, or recorded in order. `is_checked`: the slot
    /// must find out whose thread runs.
    pub(super) fn counted(
        &mut self,
        f: &Function,
        site: &Site,
        tactic: Tactic,
        is_checked: bool,
    ) -> Option<PlanSite> {
        let in_order = if self.is_in_order { SITE_IN_ORDER } else { 0 };
        let is_direct = site.got_slot.0 == 0 && site.target.0 != 0;
        if is_direct
            && !is_checked
            && flags_are_dead(self.object, site.target, self.is_in_order)
            && let Some((start, flags)) = plain(self.object, site, tactic)
        {
            return Some(self.plain_site(site, tactic, start, flags | in_order));
        }
        let back = Svma(site.address.0 + u64::from(site.length));
        let mut t = Builder::new(self.base);
        let (start, mut flags) = self.moved_before(&mut t, f, site, tactic)?;
        flags |= SITE_INDIRECT | in_order;
        let is_long = matches!(tactic, Tactic::CallInstruction | Tactic::CallBlock);
        if is_tail(site) {
            flags |= SITE_TAIL;
            if tactic == Tactic::ConditionalTail {
                flags |= SITE_KEEP_OPCODE;
            }
        } else if is_long && !needs_its_stack(self.object, start, site.address) {
            flags |= SITE_KEEP_CALL;
        } else {
            t.push_address(back);
            flags |= SITE_PUSHES_BACK;
        }
        let has_back = !is_tail(site);
        let (got_slot, place) = (got_slot_of(site), (site.address, site.length));
        // A jump through any other pointer may be one within a function, to live flags and r11.
        let is_call = has_back || got_slot.is_some();
        let is_kept = is_call && leaves_r11(self.object, place);
        let keeps = !is_direct && !is_checked && is_kept;
        if keeps && !self.is_in_order {
            if !t.count_kept(self.object, place, got_slot, has_back) {
                return None;
            }
            return self.with_slot((site, tactic, back), t, start, flags | SITE_KEEPS_CALLEE);
        }
        let pushed_from = t.here();
        if !self.push_target(&mut t, site) {
            return None;
        }
        // What makes room stands behind the jump, too.
        let is_last = tactic != Tactic::MadeRoom;
        if keeps && is_last && t.may_keep_in_order(pushed_from) {
            flags |= SITE_KEEPS_CALLEE;
        }
        t.finish_counted(match self.is_in_order {
            true => common::ORDER_INDIRECT,
            false => common::COUNT_INDIRECT,
        });
        self.with_slot((site, tactic, back), t, start, flags)
    }

    /// Pushes what is called, below the return address if there is one. False: that cannot be.
    fn push_target(&self, t: &mut Builder, site: &Site) -> bool {
        if let Some(slot) = got_slot_of(site) {
            t.push_slot(slot);
        } else if site.target.0 != 0 {
            t.push_address(site.target);
        } else {
            return t.push_operand_below(self.object, (site.address, site.length), !is_tail(site));
        }
        true
    }

    /// [`FN_READS_NO_FLAGS`], of those of which that is certain.
    fn tell_who_reads_no_flags(&mut self) {
        for f in &mut self.functions {
            let entry = Svma(self.base.0 + u64::from(f.entry));
            if flags_are_dead(self.object, entry, true) {
                f.flags |= FN_READS_NO_FLAGS;
            }
        }
    }

    /// A site whose slot does by itself what is to be done at its calls.
    fn plain_site(&mut self, site: &Site, tactic: Tactic, start: Svma, flags: u16) -> PlanSite {
        let (form, slot_bytes) = match self.is_in_order {
            true => (SiteForm::Ordered, ORDERED_SLOT_BYTES),
            false => (SiteForm::Counted, COUNTED_SLOT_BYTES),
        };
        PlanSite {
            start: self.offset(start),
            slot: self.take_slot(slot_bytes),
            argument: self.offset(site.target),
            span: JUMP_BYTES as u8,
            form,
            verdict: tactic as u8,
            flags,
        }
    }

    /// The sites of another plan of the same module, whose slots lie behind these, become twins as
    /// `become_twin` says.
    fn add_twins(
        &mut self,
        twins: PlanBuilder<'_>,
        become_twin: &dyn Fn(&mut PlanSite, PlanSite) -> PlanSite,
    ) {
        if twins.sites.len() != self.sites.len() {
            return;
        }
        let templates = (self.out.len() - HEADER_BYTES) as u32;
        self.out
            .extend(twins.out.get(HEADER_BYTES..).unwrap_or(&[]));
        let others = twins.sites.into_iter().map(|twin| PlanSite {
            argument: match twin.form {
                SiteForm::Template => twin.argument + templates,
                _ => twin.argument,
            },
            ..twin
        });
        let pairs = self.sites.iter_mut().zip(others);
        let twins_of: Vec<PlanSite> = pairs.map(|(site, twin)| become_twin(site, twin)).collect();
        self.twins = twins_of.len() as u32;
        self.sites.extend(twins_of);
        self.area_used = twins.area_used;
    }
}

/// The GOT slot that a call or jump goes through.
fn got_slot_of(site: &Site) -> Option<Svma> {
    (site.got_slot.0 != 0 && site.target.0 != 0).then_some(site.got_slot)
}

/// A site whose calls have no end of their own, or cannot be recorded with one.
fn is_endless(site: &PlanSite) -> bool {
    site.is_any(SITE_TAIL | SITE_ENTRY_ONLY) || site.form == SiteForm::Refused
}

/// The site becomes its twin for good, if that can be, and has none. Gives what stands for that.
fn in_its_place(site: &mut PlanSite, twin: PlanSite) -> PlanSite {
    if twin.form != SiteForm::Refused {
        *site = twin;
    }
    PlanSite {
        form: SiteForm::Refused,
        flags: 0,
        ..twin
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

/// Where the text of a site that is an opcode with a rel32 is changed, and how, if its slot can be
/// a counted site's; `None`: it cannot.
fn plain(object: &Object<'_>, site: &Site, tactic: Tactic) -> Option<(Svma, u16)> {
    match (tactic, site.kind, site.length) {
        (Tactic::CallInstruction, SiteKind::CallDirect, 5) => Some((site.address, SITE_KEEP_CALL)),
        (Tactic::TailInstruction, SiteKind::TailDirect, 5) => Some((site.address, SITE_TAIL)),
        (Tactic::ConditionalTail, SiteKind::TailConditional, 6) => {
            let opcode = *object.code_from(site.address)?.get(1)?;
            let condition = u16::from(opcode ^ CONDITIONAL_JUMP) << SITE_CONDITION_SHIFT;
            let flags = SITE_TAIL | SITE_KEEP_OPCODE | condition;
            (opcode & 0xf0 == CONDITIONAL_JUMP).then_some((Svma(site.address.0 + 1), flags))
        }
        _ => None,
    }
}
