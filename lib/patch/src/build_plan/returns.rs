//! Plans of modules whose calls keep their return addresses, and whose ends are seen where they
//! return to ([`crate::return_points`]).
//!
//! The text keeps a call to the slot, which records it and jumps to the callee; and where the call
//! returns to, a jump leads to a slot that records its end. That place is the twin of the call's
//! site ([`SITE_RETURN`]). Where no jump fits behind a call, its return address is replaced as it
//! always was, or, in code whose return addresses must stay, its end is not seen. Must not know
//! what is recorded.

use rustc_hash::FxHashMap as HashMap;

use sptrace_addr::Svma;
use sptrace_code::{Analysis, Function, Site, SiteKind};
use sptrace_image::Object;
use sptrace_wire::plan::*;

use super::{Calls, HEADER_BYTES, PlanBuilder, builder, is_tail};
use crate::counts::needs_its_stack;
use crate::repeatable::repeatable;
use crate::return_points::{Patch, ReturnPoint, Seen, return_points};
use crate::tactic::{Refusal, Tactic};
use crate::template::{Builder, call_of_return};

/// The plan of a module whose calls are recorded and keep their return addresses.
pub fn build_plan_with_returns(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    let mut b = builder(object, analysis, Calls::Kept, SLOTS_START);
    let points = return_points(object, analysis, &b.bytes());
    b.add_returns(points);
    b.finish()
}

/// Where the end of a call is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End<'a> {
    /// Nowhere: it does not come back.
    Unseen,
    /// In the slot of the next site.
    InNext,
    /// At its return point, by this patch of this shape.
    At(Svma, &'a Patch, u16),
}

impl PlanBuilder<'_> {
    /// As [`Self::taken`], of a call that keeps its return address.
    pub(super) fn kept_call(
        &mut self,
        f: &Function,
        site: &Site,
        tactic: Tactic,
    ) -> Option<PlanSite> {
        self.kept_call_in(Builder::new(self.base), f, site, tactic)
    }

    /// The same, behind what is in the slot already.
    fn kept_call_in(
        &mut self,
        mut t: Builder,
        f: &Function,
        site: &Site,
        tactic: Tactic,
    ) -> Option<PlanSite> {
        let back = Svma(site.address.0 + u64::from(site.length));
        let is_plain =
            site.kind == SiteKind::CallDirect && site.length == 5 && site.got_slot.0 == 0;
        if is_plain && tactic == Tactic::CallInstruction && t.is_empty() {
            return Some(PlanSite {
                start: self.offset(site.address),
                slot: self.take_slot(KEPT_SLOT_BYTES),
                argument: self.offset(site.target),
                span: 5,
                form: SiteForm::Kept,
                verdict: tactic as u8,
                flags: SITE_KEEP_CALL,
            });
        }
        let (start, mut flags) = self.moved_before(&mut t, f, site, tactic)?;
        let is_long = matches!(
            tactic,
            Tactic::CallInstruction | Tactic::CallBlock | Tactic::EntryOnly
        );
        if is_long && !needs_its_stack(self.object, start, site.address) {
            flags |= SITE_KEEP_CALL;
        } else {
            t.push_address(back);
            flags |= SITE_PUSHES_BACK;
        }
        if site.got_slot.0 == 0 && site.target.0 != 0 {
            t.direct_jump(common::KEPT_FIRST, site.target);
            t.end_is_seen();
            return self.with_slot((site, tactic, back), t, start, flags);
        }
        if site.got_slot.0 != 0 && site.target.0 != 0 {
            t.push_slot(site.got_slot);
        } else if !t.push_operand_below(self.object, (site.address, site.length), true) {
            return None;
        }
        t.finish_counted(common::KEPT_INDIRECT);
        t.end_is_seen();
        self.with_slot((site, tactic, back), t, start, flags | SITE_INDIRECT)
    }

    /// Adds the return points of the calls.
    fn add_returns(&mut self, points: Vec<ReturnPoint>) {
        let points: HashMap<u64, ReturnPoint> = points.into_iter().map(|p| (p.call.0, p)).collect();
        let analysis = self.analysis;
        let mut ends = vec![End::Unseen; self.sites.len()];
        for f in &analysis.functions {
            let sites: Vec<Site> = analysis.sites_of(f).collect();
            // The last first: where a return is seen in the slot of the next site depends on that.
            for (i, site) in sites.iter().enumerate().rev() {
                let next = sites.get(i + 1);
                let i = i + f.first_site as usize;
                let point = points.get(&site.address.0).filter(|_| !is_tail(site));
                let Some(point) = point else {
                    // It does not come back, or jumps away.
                    continue;
                };
                let lends = if point.lends { SITE_LENDS } else { 0 };
                ends[i] = match &point.seen {
                    Seen::Jump(patch) => End::At(point.at, patch, lends),
                    Seen::Springboard(patch) => End::At(point.at, patch, SITE_SPRINGBOARD),
                    Seen::Neighbour(patch) => {
                        End::At(point.at, patch, SITE_SPRINGBOARD | SITE_LENDS)
                    }
                    Seen::Merged if next.is_some_and(|next| self.returns_first(f, next, i + 1)) => {
                        End::InNext
                    }
                    Seen::Merged | Seen::Refused(_) => self.open(i),
                };
            }
        }
        let twins: Vec<PlanSite> = (0..ends.len()).map(|i| self.twin(i, &ends[i])).collect();
        self.twins = twins.len() as u32;
        self.sites.extend(twins);
    }

    /// The end of call number `i` is not seen.
    fn open(&mut self, i: usize) -> End<'static> {
        let Some(row) = self.sites.get(i).copied() else {
            return End::Unseen;
        };
        let mark = self
            .template(&row)
            .filter(|_| row.form == SiteForm::Template);
        let mark = mark.map(|t| {
            let room = t.room.map_or(0, |(_, moved)| Room::BYTES + moved.len());
            let code =
                HEADER_BYTES + row.argument as usize + Template::BYTES + t.original.len() + room;
            let end = match t.head.room_to {
                0 => t.head.code_bytes,
                room_to => room_to,
            };
            code + usize::from(end) - 1
        });
        if row.form == SiteForm::Kept {
            self.sites[i].flags |= SITE_ENTRY_ONLY;
        }
        if let Some(place) = mark.and_then(|at| self.out.get_mut(at)) {
            *place = END_UNSEEN;
            self.sites[i].flags |= SITE_ENTRY_ONLY;
        }
        End::Unseen
    }

    /// Has the slot of site number `i` begin with the return of the call before it. False: it
    /// cannot.
    fn returns_first(&mut self, f: &Function, site: &Site, i: usize) -> bool {
        let Some(row) = self.sites.get(i).copied() else {
            return false;
        };
        let Some(tactic) = Tactic::ALL.get(usize::from(row.verdict)).copied() else {
            return false;
        };
        let is_tail = is_tail(site);
        let is_simple = match tactic {
            Tactic::TailInstruction => is_tail,
            Tactic::CallInstruction | Tactic::CallBlock | Tactic::EntryOnly => {
                !is_tail && row.is_any(SITE_KEEP_CALL)
            }
            _ => false,
        };
        if !is_simple || !matches!(row.form, SiteForm::Template | SiteForm::Kept) {
            return false;
        }
        let mut t = Builder::new(self.base);
        t.return_of_other(match is_tail {
            true => common::RETURN,
            false => common::RETURN_IN_CALL,
        });
        let made = match is_tail {
            true => self.recorded_in(t, f, site, tactic),
            false => self.kept_call_in(t, f, site, tactic),
        };
        let first = made.map(|made| PlanSite {
            flags: made.flags | SITE_RETURNS_FIRST,
            ..made
        });
        let Some(first) = first else {
            return false;
        };
        self.sites[i] = first;
        if row.is_any(SITE_ENTRY_ONLY) {
            self.open(i);
        }
        true
    }

    /// What stands for the twin of call number `i`, whose end is seen so.
    fn twin(&mut self, i: usize, end: &End<'_>) -> PlanSite {
        let call = self.sites[i];
        let none = PlanSite {
            form: SiteForm::Refused,
            flags: 0,
            verdict: Refusal::NoRoom as u8,
            ..call
        };
        match *end {
            End::At(at, patch, shape) => self.returning(&call, at, patch, shape),
            End::InNext => {
                let distance = self.sites.get(i + 1).and_then(|next| {
                    let own = next.slot + u32::from(RETURN_ID);
                    Some((
                        next.argument,
                        self.entry_id(&call)?.wrapping_sub(own) as i32,
                    ))
                });
                if let Some((argument, distance)) = distance
                    && let Some(template) = self.out.get_mut(HEADER_BYTES + argument as usize..)
                {
                    call_of_return(template, distance);
                }
                none
            }
            End::Unseen => none,
        }
    }

    /// The row of the return point at `at`, of the call with this row.
    fn returning(&mut self, call: &PlanSite, at: Svma, patch: &Patch, shape: u16) -> PlanSite {
        let moved = (at, Svma(at.0 + u64::from(patch.moved)));
        let is_repeatable = repeatable(self.object, moved.0, moved.1);
        let again = if is_repeatable { SITE_REPEATABLE } else { 0 };
        let slot = self.take_slot(patch.slot_bytes);
        let entry = self.entry_id(call).unwrap_or(0);
        let own = slot + u32::from(RETURN_ID);
        let distance = entry.wrapping_sub(own) as i32;
        let (form, template) = match plain_bytes(patch).filter(|_| shape == 0) {
            Some(covered) => {
                let bytes = [&distance.to_le_bytes(), covered].concat();
                (SiteForm::Return, bytes)
            }
            None => {
                let mut template = patch.template.clone();
                call_of_return(&mut template, distance);
                (SiteForm::Template, template)
            }
        };
        PlanSite {
            start: self.offset(at),
            slot,
            argument: self.add_template(&template),
            flags: SITE_RETURN | shape | again,
            span: patch.span,
            form,
            verdict: if patch.of_several {
                RETURN_OF_SEVERAL
            } else {
                0
            },
        }
    }

    fn template(&self, site: &PlanSite) -> Option<TemplateView<'_>> {
        let templates = self.out.get(HEADER_BYTES..)?;
        TemplateView::read(templates.get(site.argument as usize..)?)
    }

    /// Where the entry id of a site lies in the area.
    fn entry_id(&self, site: &PlanSite) -> Option<u32> {
        let id = match site.form {
            SiteForm::Kept => KEPT_ID,
            _ => self.template(site)?.head.entry_id,
        };
        Some(site.slot + u32::from(id))
    }
}

/// What the jump of a return point covers, if that may stand anywhere as it is, and the slot goes
/// back behind it: that is what [`SiteForm::Return`] says in few bytes.
fn plain_bytes(patch: &Patch) -> Option<&[u8]> {
    let t = TemplateView::read(&patch.template)?;
    let bytes = t.original;
    let (first, last) = (usize::from(RETURN_ID), usize::from(RETURN_ID) + bytes.len());
    let is_moved = patch.moved == patch.span && t.code.get(first..last) == Some(bytes);
    let is_simple = t.head.fixups == 2 && t.room.is_none() && t.code.len() == last + JUMP_BYTES;
    (is_moved && is_simple && t.code.get(last) == Some(&JUMP)).then_some(bytes)
}
