//! Which slot an address of a patch area lies in, and where its parts are.
//!
//! Given an address in an area; gives a [`Place`] from the module's plan. Slow (it looks through
//! all sites): for contexts that a signal interrupted, not for events.

use crate::memory::table::Module;
use crate::plans::kept_acts;
use sptrace_wire::plan::kept_acts as kept;
use sptrace_wire::plan::*;

/// A slot; all addresses are in the process.
#[derive(Default)]
pub struct Place {
    /// Where the text jumps to.
    pub start: u64,
    /// After the call of the entry's routine.
    pub entry: u64,
    /// After the call of the exit's routine; 0 without.
    pub exit: u64,
    /// Bytes from `start` on that are moved instructions and must not be begun again.
    pub moved: u64,
    /// The patched instruction in the text; 0 if going back to it is not safe.
    pub text: u64,
    /// The operand is pushed just before the routine is called.
    pub operand: bool,
    /// Reached by a call that has pushed the original return address.
    pub keep_call: bool,
    /// It lies under a hook, which leads to this slot.
    pub in_hook: bool,
    /// A tail jump.
    pub tail: bool,
    /// A call whose end is not seen.
    pub is_open: bool,
    /// Before `start`: the event of the call that returns there; 0: there is none.
    pub returned: u64,
    /// What was moved there may be executed again after any part of it.
    pub is_repeatable: bool,
    /// No site but a return point: `exit` is its id, and what was moved stands behind that.
    pub is_return: bool,
    /// The entry of a special function.
    pub special: bool,
    /// The same of a hooked one, whose return leads to `start`.
    pub hook: bool,
    /// Of an instruction that calls the kernel.
    pub system_call: Option<SystemCall>,
    /// A direct call or jump that is counted behind `entry`.
    pub counted: bool,
    /// The same, recorded in order.
    pub in_order: bool,
    /// The same, whose callee's acts run behind `entry`.
    pub acts: bool,
    /// Where a slot that keeps its callee jumps to it, having counted the call; 0: it is none.
    pub kept_jump: u64,
    /// In a slot that keeps a callee, whose calls it records in order: where it looks which is
    /// called, behind [`Self::push`] if there is one; 0: it is none.
    pub looks: u64,
    /// It keeps a callee that has acts.
    pub keeps_acts: bool,
    /// Between the moved instructions and the operand's, where a return address is pushed; 0: it is
    /// not.
    pub push: u64,
}

/// In a slot that keeps its callee and counts: from where that is in r11 to the jump there.
const LOADED_TO_JUMP: u64 = 18;

impl Place {
    /// True if this is the id of the event of a return to here.
    pub fn sees_return(&self, id: u64) -> bool {
        self.is_return || self.returned != 0 && id == self.start
    }

    /// In a slot that keeps its callee: from here on r11 holds the one that is called.
    pub fn loaded(&self) -> u64 {
        self.kept_jump - LOADED_TO_JUMP
    }

    /// Behind the instructions that can be executed for the program: the moved ones, and what loads
    /// r11 if it follows them.
    pub fn moved_end(&self) -> u64 {
        match self.kept_jump != 0 && self.push == 0 {
            true => self.loaded(),
            false => self.start + self.moved,
        }
    }
}

/// Where the parts of a slot are that belongs to an instruction that calls the kernel
/// ([`SYSTEM_CALL_ALONE`]).
#[derive(Clone, Copy)]
pub struct SystemCall {
    /// The instruction in the text; 0: the jump stands there.
    pub at: u64,
    /// Behind it.
    pub back: u64,
}

/// The slot that holds `address`, which lies in the area of `m`.
pub fn place(m: &Module, address: u64) -> Option<Place> {
    let (plan, base, area) = (m.plan()?, m.base.get(), m.area_start());
    let offset = (address - area) as u32;
    let site = plan
        .sites()
        .filter(|s| s.form != SiteForm::Refused && s.slot <= offset)
        .max_by_key(|s| s.slot);
    let special = plan
        .specials()
        .filter(|s| s.slot <= offset)
        .max_by_key(|s| s.slot);
    match (site, special) {
        (Some(site), special) if special.is_none_or(|s| s.slot < site.slot) => {
            of_site(m, &plan, &site, offset)
        }
        (_, Some(s)) => {
            let t = inside(&plan, s.argument, offset - s.slot, 0)?;
            let slot = area + s.slot as u64;
            if s.kind.is_system_call() {
                return Some(of_system_call(slot, base, &s, &t));
            }
            let hook = s.kind.is_hook();
            Some(Place {
                start: slot,
                entry: slot + t.entry_id as u64,
                exit: if hook { slot + HOOK_EXIT_ID } else { 0 },
                text: base + s.start as u64,
                special: true,
                hook,
                ..Place::default()
            })
        }
        _ => None,
    }
}

/// The start of the template at `argument`, if `offset` lies in its slot, from which it counts, or
/// in so many bytes behind it.
fn inside(plan: &PlanView<'_>, argument: u32, offset: u32, more: u32) -> Option<Template> {
    let t = plan.template(argument)?;
    (offset < t.code.len() as u32 + more).then_some(t.head)
}

fn of_system_call(slot: u64, base: u64, s: &PlanSpecial, t: &Template) -> Place {
    let at = base + u64::from(s.entry);
    // Or the short jump stands there, which leads to this slot again.
    let is_intact = s.kind == SpecialKind::SystemCallFar || s.entry - s.start >= JUMP_BYTES as u32;
    Place {
        start: slot,
        entry: slot + u64::from(t.entry_id),
        exit: slot + u64::from(t.exit_id),
        moved: t.moved.into(),
        text: base + u64::from(s.start),
        special: true,
        system_call: Some(SystemCall {
            at: if is_intact { at } else { 0 },
            back: at + SYSTEM_CALL_BYTES,
        }),
        ..Place::default()
    }
}

/// Where a context can be led back to before the event of a site; 0: nowhere.
fn text_of(m: &Module, s: &PlanSite) -> u64 {
    let at = m.base.get() + u64::from(s.start);
    match s.flags & (SITE_KEEP_OPCODE | SITE_SPRINGBOARD) {
        // The jump to the hook may stand there.
        _ if s.is_any(SITE_IN_HOOK) => 0,
        // The second byte of a conditional jump.
        SITE_KEEP_OPCODE if m.text(at - 1) == Some([0x0f]) => at - 1,
        SITE_KEEP_OPCODE => 0,
        _ => at,
    }
}

/// The address if that is so, else 0.
fn only(is_so: bool, address: u64) -> u64 {
    if is_so { address } else { 0 }
}

fn of_site(m: &Module, plan: &PlanView<'_>, s: &PlanSite, offset: u32) -> Option<Place> {
    let area = m.area_start();
    let slot = area + s.slot as u64;
    let moved = match s.form {
        SiteForm::Direct if offset - s.slot < DIRECT_SLOT_BYTES => 0,
        SiteForm::Counted if offset - s.slot < COUNTED_SLOT_BYTES => 0,
        SiteForm::Ordered if offset - s.slot < ORDERED_SLOT_BYTES => 0,
        SiteForm::Acts if offset - s.slot < DIRECT_SLOT_BYTES => 0,
        SiteForm::Kept if offset - s.slot < KEPT_SLOT_BYTES => 0,
        SiteForm::Return if offset - s.slot < s.return_slot_bytes() => 0,
        SiteForm::Template if s.keeps_in_order() => {
            inside(plan, s.argument, offset - s.slot, kept_order::BYTES)?.moved
        }
        SiteForm::Template => inside(plan, s.argument, offset - s.slot, 0)?.moved,
        _ => return None,
    };
    let (entry, exit) = plan.ids(s)?;
    let in_hook = s.is_any(SITE_IN_HOOK);
    let text = text_of(m, s);
    let jumped_to = area + plan.slot_entry(s)? as u64;
    let (returned, start, moved) = match s.returns_first() {
        // The call of a routine.
        true => (jumped_to, jumped_to + 5, moved - RETURN_ID),
        false => (0, jumped_to, moved),
    };
    Some(Place {
        start,
        entry: slot + entry as u64,
        exit: match exit {
            _ if returned != 0 => 0,
            0 => 0,
            exit => slot + u64::from(exit),
        },
        moved: only(!s.is_any(SITE_REPEATABLE) || in_hook, moved.into()),
        text,
        operand: s.is_any(SITE_INDIRECT),
        keep_call: s.is_any(SITE_KEEP_CALL) && !s.keeps_acts(),
        in_hook,
        tail: s.is_any(SITE_TAIL),
        is_open: s.is_any(SITE_ENTRY_ONLY),
        returned,
        is_repeatable: s.is_any(SITE_REPEATABLE),
        is_return: s.is_return(),
        counted: s.form == SiteForm::Counted,
        in_order: s.form == SiteForm::Ordered,
        acts: s.form == SiteForm::Acts,
        looks: only(s.keeps_in_order(), start + u64::from(moved)),
        kept_jump: only(
            s.is_any(SITE_KEEPS_CALLEE) && !s.keeps_in_order(),
            slot + u64::from(entry) - KEPT_JUMP_TO_ID,
        ),
        keeps_acts: s.keeps_acts(),
        push: only(s.is_any(SITE_PUSHES_BACK), start + u64::from(moved)),
        ..Place::default()
    })
}

/// A part of the slot of an instruction that calls the kernel.
pub struct Part {
    /// The instruction has been executed.
    pub is_over: bool,
    /// The stack pointer stands below the red zone.
    pub is_below: bool,
    /// The call has a shadow frame.
    pub has_frame: bool,
}

/// In which part of such a slot `rip` stands, behind the moved instructions.
pub fn part_of(rip: u64, moved_end: u64, place: &Place) -> Part {
    let (alone, unseen) = (
        place.exit + SYSTEM_CALL_ALONE,
        place.exit + SYSTEM_CALL_UNSEEN,
    );
    let (start, at) = match rip {
        _ if rip >= unseen => (unseen, unseen + SYSTEM_CALL_AT),
        _ if rip >= alone => (alone, alone + SYSTEM_CALL_AT),
        _ => (moved_end, place.entry + SYSTEM_CALL_AT),
    };
    let is_nested = rip < alone;
    let second_exit = place.exit + SYSTEM_CALL_ALONE_ID;
    let lies_below = if is_nested {
        // From behind the first instruction to the last of each half.
        rip > start && rip <= place.entry || rip + 5 == place.exit || rip == place.exit
    } else {
        rip == start || rip + 5 == second_exit || rip == second_exit
    };
    Part {
        is_over: rip > at,
        is_below: lies_below,
        has_frame: is_nested && rip >= place.entry && rip < place.exit,
    }
}

/// Of a slot that records in order: the id of the routine that it calls where there is no room.
pub fn full_of(place: &Place) -> u64 {
    place.start + u64::from(ORDERED_FULL_ID)
}

/// Of a slot in which acts run: behind the call of their code.
pub fn acts_end_of(place: &Place) -> u64 {
    match place.keeps_acts {
        true => kept_acts::part(place.entry, kept::DONE),
        false => place.start + u64::from(ACTS_JUMP),
    }
}

/// Of a slot that keeps a callee with acts: behind the question which.
pub fn asked_of(place: &Place) -> u64 {
    kept_acts::part(place.entry, kept::ASKED)
}

/// True if a routine that was called at this place has this return address, or has put it there.
pub fn is_id(place: &Place, id: u64) -> bool {
    let ways = [SYSTEM_CALL_ALONE_ID, SYSTEM_CALL_ALONE, SYSTEM_CALL_UNSEEN];
    let is_way = || ways.iter().any(|way| id == place.exit + way);
    let is_full = place.in_order && id == full_of(place);
    let is_acts_end = (place.acts || place.keeps_acts) && id == acts_end_of(place);
    let is_question = place.keeps_acts && id == asked_of(place);
    let is_of_acts = is_acts_end || is_question;
    let is_return = place.sees_return(id) && !place.is_return;
    let is_of_call = id == place.entry || id == place.exit || is_return || is_full || is_of_acts;
    is_of_call || place.system_call.is_some() && is_way()
}
