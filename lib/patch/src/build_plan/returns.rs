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
                    Seen::Springboard(patch) | Seen::MadeRoom(patch) => {
                        End::At(point.at, patch, SITE_SPRINGBOARD)
                    }
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
        let returning = self.place_slots(&ends);
        let places = ends.iter().zip(returning).enumerate();
        let twins: Vec<PlanSite> = places
            .map(|(i, (end, slot))| self.twin(i, end, slot))
            .collect();
        self.twins = twins.len() as u32;
        self.sites.extend(twins);
    }

    /// Gives all sites their slots anew, each with that of its return point behind it: what a call
    /// executes lies together, and the rows are in the order of their slots. Gives those of the
    /// return points.
    fn place_slots(&mut self, ends: &[End<'_>]) -> Vec<u32> {
        self.area_used = self.slots_start;
        let mut returning = Vec::with_capacity(ends.len());
        for (i, end) in ends.iter().enumerate() {
            let row = self.sites[i];
            let bytes = match row.form {
                SiteForm::Refused => 0,
                SiteForm::Kept => KEPT_SLOT_BYTES,
                _ => self
                    .template(&row)
                    .map_or(0, |t| u32::from(t.head.code_bytes)),
            };
            self.sites[i].slot = self.take_slot(bytes);
            returning.push(match end {
                End::At(at, patch, shape) => {
                    let is_short = in_few_bytes(patch, self.offset(*at), *shape).is_some();
                    self.take_slot(match is_short {
                        true => u32::from(RETURN_ID) + u32::from(patch.span) + JUMP_BYTES as u32,
                        false => patch.slot_bytes,
                    })
                }
                End::InNext | End::Unseen => self.area_used,
            });
        }
        returning
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

    /// What stands for the twin of call number `i`, whose end is seen so, in this slot.
    fn twin(&mut self, i: usize, end: &End<'_>, slot: u32) -> PlanSite {
        let call = self.sites[i];
        let none = PlanSite {
            form: SiteForm::Refused,
            flags: 0,
            slot,
            verdict: Refusal::NoRoom as u8,
            ..call
        };
        match *end {
            End::At(at, patch, shape) => self.returning(&call, at, (patch, slot), shape),
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
    fn returning(
        &mut self,
        call: &PlanSite,
        at: Svma,
        (patch, slot): (&Patch, u32),
        shape: u16,
    ) -> PlanSite {
        let moved = (at, Svma(at.0 + u64::from(patch.moved)));
        let is_repeatable = repeatable(self.object, moved.0, moved.1);
        let again = if is_repeatable { SITE_REPEATABLE } else { 0 };
        let entry = self.entry_id(call).unwrap_or(0);
        let own = slot + u32::from(RETURN_ID);
        let distance = entry.wrapping_sub(own) as i32;
        let several = match patch.of_several {
            true => RETURN_OF_SEVERAL,
            false => 0,
        };
        let (form, template, verdict) = match in_few_bytes(patch, self.offset(at), shape) {
            Some((covered, rel32s)) => {
                let bytes = [&distance.to_le_bytes(), covered, &rel32s].concat();
                let verdict = several | (rel32s.len() as u8) << RETURN_REL32S;
                (SiteForm::Return, bytes, verdict)
            }
            None => {
                let mut template = patch.template.clone();
                call_of_return(&mut template, distance);
                (SiteForm::Template, template, several)
            }
        };
        PlanSite {
            start: self.offset(at),
            slot,
            argument: self.add_template(&template),
            flags: SITE_RETURN | shape | again,
            span: patch.span,
            form,
            verdict,
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

/// What [`SiteForm::Return`] says of a return point, if that says all: what its jump covers, and
/// where the rel32s in it lie that count to places in the module.
fn in_few_bytes(patch: &Patch, start: u32, shape: u16) -> Option<(&[u8], Vec<u8>)> {
    const MOST_REL32S: usize = 7;
    let t = TemplateView::read(&patch.template)?;
    let covered = t.original;
    let (first, last) = (
        usize::from(RETURN_ID),
        usize::from(RETURN_ID) + covered.len(),
    );
    let mut code = t.code.get(first..last)?.to_vec();
    let is_inside = |fixup: &Fixup| (first..last).contains(&usize::from(fixup.position));
    let mut rel32s = Vec::new();
    for fixup in t.fixups().filter(is_inside) {
        let at = usize::from(fixup.position) - first;
        // As it is in the text.
        let next = start.checked_add(at as u32 + u32::from(fixup.to_end))?;
        let rel32 = fixup.value.wrapping_sub(next as i32);
        code.get_mut(at..at + 4)?
            .copy_from_slice(&rel32.to_le_bytes());
        rel32s.push(u8::try_from(at).ok()?);
        if fixup.kind != FixupKind::Text {
            return None;
        }
    }
    // Behind instructions that control does not pass there is no jump back.
    let back = t.code.get(last..)?;
    let is_way_back = back.is_empty() || back.len() == JUMP_BYTES && back[0] == JUMP;
    let is_all = shape == 0 && t.room.is_none() && patch.moved == patch.span;
    let is_as_in_text = code == covered && rel32s.len() <= MOST_REL32S;
    (is_all && is_way_back && is_as_in_text).then_some((covered, rel32s))
}
