//! What stands at a patched place, and what stood there before.
//!
//! Given a site or a special function of a plan; gives a [`Patch`]. All that writes the text, puts
//! it back or looks what is there asks here, so that the shape of a patch is told once.
//!
//! Must not know: when something is written, and what the slot holds.

use crate::memory::table::Module;
use crate::plans::plan;
use sptrace_wire::plan::*;

/// Text that a patch covers or writes, at most: a run of moved instructions is shorter.
const BYTES: usize = 32;

/// A few bytes of text.
#[derive(Clone, Copy)]
pub struct Text {
    bytes: [u8; BYTES],
    length: u8,
}

impl Text {
    /// `None`: more than there is room for.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let mut text = Self {
            bytes: [NOP; BYTES],
            length: u8::try_from(bytes.len()).ok()?,
        };
        text.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(text)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length as usize).unwrap_or(&[])
    }
}

/// What stands at a place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stands {
    /// The patch.
    Ours,
    /// What the plan says.
    Original,
    /// Something else.
    Foreign,
}

/// What stands at `at` in the text of a module, given both possibilities.
pub fn standing(m: &Module, at: u64, ours: &[u8], original: &[u8]) -> Stands {
    if m.stands(at, ours) {
        Stands::Ours
    } else if m.stands(at, original) {
        Stands::Original
    } else {
        Stands::Foreign
    }
}

/// The bytes before `at` in the text of a module as the program has them, whatever of them is
/// patched now: another thread may patch a function while this one is in a call that it has made.
pub fn original_before(m: &Module, at: u64) -> Option<[u8; 8]> {
    let mut text = m.text::<8>(at - 8)?;
    let (_, function) = plan::function_around(m, at - 1)?;
    for (site, twin) in plan::sites_with_twins(m, function) {
        for site in [Some(site), twin].into_iter().flatten() {
            if let Some(patch) = Patch::of_site(m, &site) {
                put_back(&mut text, at - 8, patch.at, patch.original.bytes());
            }
            let room = Springboard::of_site(m, &site).and_then(|spring| spring.room);
            if let Some(room) = room {
                put_back(&mut text, at - 8, room.start, room.original);
            }
        }
    }
    Some(text)
}

/// What of `original`, which stands at `at`, lies in the text from `start` on.
fn put_back(text: &mut [u8], start: u64, at: u64, original: &[u8]) {
    for (at, byte) in (at..).zip(original) {
        let place = at.checked_sub(start).and_then(|i| text.get_mut(i as usize));
        if let Some(place) = place {
            *place = *byte;
        }
    }
}

/// How a place is patched.
#[derive(Clone, Copy)]
pub struct Patch {
    /// Its first byte.
    pub at: u64,
    /// All bytes of the program's that are covered, and must be found there before they are.
    pub original: Text,
    /// What is written over the first of them.
    pub ours: Text,
    /// Where in the patch area the text leads.
    pub to: u64,
}

impl Patch {
    /// Of the original bytes those that are overwritten.
    pub fn overwritten(&self) -> &[u8] {
        let original = self.original.bytes();
        original.get(..self.ours.bytes().len()).unwrap_or(original)
    }

    /// The patch of a site. `None`: it has none.
    pub fn of_site(m: &Module, s: &PlanSite) -> Option<Self> {
        let (plan, base, area) = (m.plan_ref()?, m.base.get(), m.area_start());
        let at = base + u64::from(s.start);
        let to = area + u64::from(plan.slot_entry(s)?);
        if s.form == SiteForm::Direct {
            let callee = base + u64::from(s.argument);
            return Some(Self {
                at,
                original: Text::of(&branch(CALL, at, callee))?,
                ours: Text::of(&branch(JUMP, at, to))?,
                to,
            });
        }
        if let Some(point) = plan.return_point(s) {
            return Some(Self {
                at,
                original: Text::of(point.covered)?,
                ours: Text::of(&branch(JUMP, at, to))?,
                to,
            });
        }
        if matches!(
            s.form,
            SiteForm::Counted | SiteForm::Ordered | SiteForm::Acts | SiteForm::Kept
        ) {
            let callee = base + u64::from(s.argument);
            let opcode = match s.flags & (SITE_KEEP_CALL | SITE_KEEP_OPCODE) {
                SITE_KEEP_CALL => CALL,
                SITE_KEEP_OPCODE => CONDITIONAL_JUMP | (s.flags >> SITE_CONDITION_SHIFT) as u8,
                _ => JUMP,
            };
            return Some(Self {
                at,
                original: Text::of(&branch(opcode, at, callee))?,
                ours: Text::of(&branch(opcode, at, to))?,
                to,
            });
        }
        let t = plan.template(s.argument)?;
        let first = *t.original.first()?;
        const SHAPES: u16 = SITE_SPRINGBOARD | SITE_KEEP_CALL | SITE_KEEP_OPCODE | SITE_JUMP_LAST;
        let ours = match s.flags & SHAPES {
            0 => Text::of(&branch(JUMP, at, to))?,
            SITE_SPRINGBOARD => Text::of(&[SHORT_JUMP, t.head.springboard as u8])?,
            flags if flags & SITE_SPRINGBOARD != 0 => Text::of(&[first, t.head.springboard as u8])?,
            SITE_KEEP_CALL => last(CALL, at, t.original.len(), to)?,
            SITE_JUMP_LAST => last(JUMP, at, t.original.len(), to)?,
            _ => Text::of(&branch(first, at, to))?,
        };
        Some(Self {
            at,
            original: Text::of(t.original)?,
            ours,
            to,
        })
    }

    /// The patch of a special function, or of a hook.
    pub fn of_special(m: &Module, s: &PlanSpecial) -> Option<Self> {
        let (plan, base, area) = (m.plan_ref()?, m.base.get(), m.area_start());
        let at = base + u64::from(s.start);
        let entry = if s.kind.is_hook() { HOOK_ENTRY } else { 0 };
        let to = area + u64::from(s.slot) + entry;
        let t = plan.template(s.argument)?;
        let ours = match s.kind {
            SpecialKind::SystemCallFar => Text::of(&[SHORT_JUMP, t.head.springboard as u8])?,
            _ => Text::of(&branch(JUMP, at, to))?,
        };
        Some(Self {
            at,
            original: Text::of(t.original)?,
            ours,
            to,
        })
    }
}

/// The call or jump at the end of `span` bytes leads to `to`, with nops before it.
fn last(opcode: u8, at: u64, span: usize, to: u64) -> Option<Text> {
    let nops = span.checked_sub(JUMP_BYTES)?;
    let mut bytes = [NOP; BYTES];
    let branch = branch(opcode, at + nops as u64, to);
    bytes.get_mut(nops..span)?.copy_from_slice(&branch);
    Text::of(bytes.get(..span)?)
}

/// The long jump of a site that is patched by a short one.
#[derive(Clone, Copy)]
pub struct Springboard {
    /// Where it stands.
    pub at: u64,
    /// It.
    pub jump: [u8; JUMP_BYTES],
    /// The room that was made for it; `None`: it stands in padding.
    pub room: Option<MadeRoom>,
    /// It stands in the patch of another return point.
    pub is_lent: bool,
}

/// Instructions that were moved into a slot, so that a springboard finds place.
#[derive(Clone, Copy)]
pub struct MadeRoom {
    /// Where they began.
    pub start: u64,
    /// Their bytes.
    pub original: &'static [u8],
    /// What is written over the first of them: a jump to where they are now.
    pub jump: [u8; JUMP_BYTES],
}

impl Springboard {
    /// That of a special function. `None`: it has none.
    pub fn of_special(m: &Module, s: &PlanSpecial) -> Option<Self> {
        if s.kind != SpecialKind::SystemCallFar {
            return None;
        }
        let (plan, base, area) = (m.plan_ref()?, m.base.get(), m.area_start());
        let short_end = base + u64::from(s.start) + 2;
        let distance = plan.template(s.argument)?.head.springboard;
        let at = short_end.wrapping_add_signed(i64::from(distance));
        let slot = area + u64::from(s.slot);
        Some(Self {
            at,
            jump: branch(JUMP, at, slot),
            room: None,
            is_lent: false,
        })
    }

    /// That of a site. `None`: it has none.
    pub fn of_site(m: &Module, s: &PlanSite) -> Option<Self> {
        if !s.is_any(SITE_SPRINGBOARD) {
            return None;
        }
        let (plan, base, area) = (m.plan_ref()?, m.base.get(), m.area_start());
        let t = plan.template_of(s)?;
        let short_end = base + u64::from(s.start) + 2;
        let at = short_end.wrapping_add_signed(i64::from(t.head.springboard));
        let slot = area + u64::from(s.slot);
        let entry = area + u64::from(plan.slot_entry(s)?);
        let room = t.room.map(|(room, original)| {
            let start = at - u64::from(room.back);
            let moved_to = slot + u64::from(t.head.room_to);
            MadeRoom {
                start,
                original,
                jump: branch(JUMP, start, moved_to),
            }
        });
        Some(Self {
            at,
            jump: branch(JUMP, at, entry),
            room,
            is_lent: s.borrows(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_call_has_nops_before_it() {
        let text = last(CALL, 0x1000, 7, 0x2000).map(|t| t.bytes().to_vec());
        let rel = (0x2000u32 - 0x1007).to_le_bytes();
        assert_eq!(text, Some([&[NOP, NOP, CALL][..], &rel].concat()));
        assert!(last(CALL, 0x1000, 4, 0x2000).is_none());
        assert!(last(CALL, 0x1000, BYTES + 1, 0x2000).is_none());
    }

    #[test]
    fn original_bytes_are_put_back_as_far_as_they_lie_in_the_text() {
        let put = |at: u64| {
            let mut text = [1u8, 2, 3, 4];
            put_back(&mut text, 0x1000, at, &[7, 8, 9]);
            text
        };
        assert_eq!(put(0xffe), [9, 2, 3, 4]);
        assert_eq!(put(0x1001), [1, 7, 8, 9]);
        assert_eq!(put(0x1003), [1, 2, 3, 7]);
        assert_eq!([put(0xffd), put(0x1004)], [[1, 2, 3, 4]; 2]);
    }

    #[test]
    fn what_stands_is_compared_as_a_whole() {
        let text = [0xe9u8, 1, 2, 3, 4, 0x90];
        let at = text.as_ptr() as u64;
        let m = Module::none();
        m.start.set(at);
        m.end.set(at + 6);
        let found = |ours: &[u8], original: &[u8]| standing(&m, at, ours, original);
        assert!(found(&text[..5], &[0xe8]) == Stands::Ours);
        assert!(found(&[0xe9, 1, 2, 3, 5], &text) == Stands::Original);
        assert!(found(&[0xeb], &[0xe9, 2]) == Stands::Foreign);
    }
}
