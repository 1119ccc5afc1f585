//! Hooks at function entries, added to a copy of a plan for one recording: recording begins there
//! (`run -F`), or the agent looks for new modules there.
//!
//! Given the image, the plan and the functions; gives the new plan, in which the hooks' slots lie
//! before all others (of which a fork child copies what is used), and which functions cannot be
//! hooked: those whose first instructions cannot be moved or are jumped to, and special functions.
//! A site among the first instructions keeps its slot, to which the hook leads, or is refused.
//! Knows no names but that of the debugger's rendezvous.

use sptrace_addr::Svma;
use sptrace_image::Object;
use sptrace_wire::plan::*;

use crate::special::{Joined, hook_range, jumps_into, may_have_data_below};
use crate::system_calls::refused_call;
use crate::tactic::Refusal;
use crate::template::Builder;

/// A function to hook.
#[derive(Clone, Debug)]
pub struct Hook {
    /// Its entry.
    pub entry: Svma,
    /// End of its code.
    pub end: Svma,
    /// Why it is hooked.
    pub kind: SpecialKind,
    /// The rules that have to do with it.
    pub rules: HookRules,
    /// Start and end of the functions that jump into it: one may lead into its first instructions.
    pub linked: Vec<(Svma, Svma)>,
}

/// A plan with hooks.
#[derive(Debug, Default)]
pub struct Hooked {
    /// The plan.
    pub plan: Vec<u8>,
    /// Entries that cannot be hooked.
    pub impossible: Vec<Svma>,
}

/// Where ld.so says that modules were mapped: the function at which debuggers stop (elf/link.h,
/// `r_brk`).
pub fn rendezvous(object: &Object<'_>) -> Option<Hook> {
    let symbol = object
        .symbols
        .iter()
        .find(|s| s.name == "_dl_debug_state")?;
    Some(Hook {
        entry: symbol.svma,
        end: Svma(symbol.svma.0 + symbol.size_bytes.max(1)),
        kind: SpecialKind::Mapped,
        rules: HookRules::default(),
        linked: Vec::new(),
    })
}

/// Adds `hooks`, sorted by entry. `None`: the bytes are no plan.
pub fn add_hooks(object: &Object<'_>, plan: &[u8], hooks: &[Hook]) -> Option<Hooked> {
    let view = PlanView::new(plan)?;
    let h = view.header();
    // What may come to be a handler can be hooked as any function.
    let is_special = |s: &PlanSpecial| s.kind != SpecialKind::Handler;
    // Twice: where the sites' slots will lie is known when the hooks' own are counted.
    let joinable = Joinable::new(view);
    let mut made = Made::default();
    let mut impossible = Vec::new();
    let mut shift = 0;
    for _ in 0..2 {
        made = Made {
            base: h.base_svma,
            slot: SLOTS_START,
            blob_bytes: h.blob_bytes.next_multiple_of(8),
            shift,
            special: view
                .specials()
                .filter(is_special)
                .map(|s| s.entry)
                .collect(),
            ..Made::default()
        };
        let failed = hooks
            .iter()
            .filter(|hook| !made.hook(object, hook, &joinable));
        impossible = failed.map(|hook| hook.entry).collect();
        shift = (made.slot - SLOTS_START).next_multiple_of(64);
    }
    let mut specials = std::mem::take(&mut made.specials);
    // A hook's jump may take the place of that of an instruction that calls the kernel, or of a
    // handler's.
    let is_hidden = |s: &PlanSpecial| {
        s.kind.is_for_system_calls() && made.covers(s.start, s.start + u32::from(s.span))
    };
    let (hidden, others): (Vec<_>, Vec<_>) = view.specials().partition(is_hidden);
    // Those without a slot stay behind all others.
    specials.extend(others.into_iter().map(|s| PlanSpecial {
        slot: s.slot.saturating_add(shift),
        ..s
    }));
    let hidden = hidden.into_iter().filter(|s| s.kind.is_system_call());
    specials.extend(hidden.map(|s| refused_call(s.entry, s.call_number(), Refusal::NoRoom)));
    let bytes = Rewritten {
        view,
        made: &made,
        shift,
        specials: &specials,
    };
    Some(Hooked {
        plan: bytes.write(plan)?,
        impossible,
    })
}

/// Sites that a hook can lead to: those that are a plain jump to their slot, wherever it stands
/// among their bytes. By start.
struct Joinable(Vec<(u32, Join)>);

/// Where such a site ends, and its slot is entered; and whether by a call.
#[derive(Clone, Copy)]
struct Join {
    end: u32,
    slot_entry: u32,
    is_called: bool,
}

impl Joinable {
    fn new(view: PlanView<'_>) -> Self {
        const PLAIN: u16 = SITE_TAIL | SITE_INDIRECT | SITE_REPEATABLE | SITE_JUMP_LAST;
        let own = view.header().sites.saturating_sub(view.header().twins);
        // The hook pushes the address that a recorded call keeps.
        let kept = match view.sites().skip(own as usize).any(|s| s.is_return()) {
            true => SITE_KEEP_CALL,
            false => 0,
        };
        let plain = view.sites().take(own as usize).filter(|s| {
            // A call in order needs a return address, which a hook does not push.
            let in_order = match (s.is_any(SITE_TAIL), s.keeps_in_order()) {
                (true, true) => SITE_IN_ORDER | SITE_KEEPS_CALLEE,
                (true, false) => SITE_IN_ORDER,
                (false, _) => 0,
            };
            !s.is_any(!(PLAIN | in_order | kept))
        });
        let mut all: Vec<_> = plain
            .filter_map(|s| {
                let join = Join {
                    end: s.start + u32::from(s.span),
                    slot_entry: view.slot_entry(&s)?,
                    is_called: s.is_any(SITE_KEEP_CALL),
                };
                Some((s.start, join))
            })
            .collect();
        all.sort_unstable_by_key(|(start, _)| *start);
        Self(all)
    }

    fn at(&self, start: u32) -> Option<Join> {
        let found = self.0.binary_search_by_key(&start, |s| s.0).ok()?;
        self.0.get(found).map(|s| s.1)
    }
}

#[derive(Default)]
struct Made {
    base: u64,
    slot: u32,
    blob_bytes: u32,
    /// How far the other slots move.
    shift: u32,
    /// Entries that are intercepted already, for another reason.
    special: Vec<u32>,
    specials: Vec<PlanSpecial>,
    blob: Vec<u8>,
    /// Starts of the sites that the hooks lead to, sorted.
    joined: Vec<u32>,
    /// Offsets of the text that the hooks cover, sorted.
    covered: Vec<(u32, u32)>,
}

impl Made {
    fn hook(&mut self, object: &Object<'_>, hook: &Hook, joinable: &Joinable) -> bool {
        let site_at = |svma: Svma| {
            let join = joinable.at(svma.0.wrapping_sub(self.base) as u32)?;
            Some(Joined {
                end: Svma(self.base + u64::from(join.end)),
                slot_entry: join.slot_entry + self.shift,
                is_called: join.is_called,
            })
        };
        if may_have_data_below(object, (hook.entry, hook.end)) {
            return false;
        }
        let Some(range) = hook_range(object, hook.entry, hook.end, &site_at) else {
            return false;
        };
        let own = [(hook.entry, hook.end)];
        let is_led_into = own
            .iter()
            .chain(&hook.linked)
            .any(|f| jumps_into(object, *f, &range));
        if is_led_into
            || self
                .special
                .contains(&(hook.entry.0.wrapping_sub(self.base) as u32))
        {
            return false;
        }
        let mut t = Builder::new(Svma(self.base));
        let is_ruled = hook.rules.opens | hook.rules.closes != 0;
        let bytes = (range.covered.0 - range.start.0) as usize;
        let original = object.code_from(range.start).and_then(|c| c.get(..bytes));
        let (true, Some(original)) = (t.hook(object, &range, is_ruled), original) else {
            return false;
        };
        let offset = |svma: Svma| svma.0.wrapping_sub(self.base) as u32;
        let (start, end) = (offset(range.start), offset(range.covered));
        if self.covered.last().is_some_and(|last| last.1 > start) {
            return false;
        }
        self.specials.push(PlanSpecial {
            entry: offset(hook.entry),
            kind: hook.kind,
            slot: self.slot,
            argument: self.blob_bytes + self.blob.len() as u32,
            start,
            span: bytes as u8,
            rules: hook.rules.obeys,
            opens: hook.rules.opens,
            closes: hook.rules.closes,
        });
        self.covered.push((start, end));
        if range.leads_to.is_some() {
            self.joined.push(offset(range.moved_end));
        }
        self.slot += t.slot_bytes().next_multiple_of(8);
        self.blob.extend(t.finish(original));
        true
    }

    fn covers(&self, start: u32, end: u32) -> bool {
        let after = self.covered.partition_point(|c| c.1 <= start);
        self.covered.get(after).is_some_and(|c| c.0 < end)
    }
}

struct Rewritten<'a> {
    view: PlanView<'a>,
    made: &'a Made,
    shift: u32,
    specials: &'a [PlanSpecial],
}

impl Rewritten<'_> {
    fn write(&self, plan: &[u8]) -> Option<Vec<u8>> {
        let old = self.view.header();
        let part = |offset: u32, bytes: u32| plan.get(offset as usize..(offset + bytes) as usize);
        let mut at = PlanHeader::BYTES as u32;
        let mut place = |bytes: u32| {
            let here = at;
            at = (at + bytes).next_multiple_of(8);
            here
        };
        let blob_bytes = self.made.blob_bytes + self.made.blob.len() as u32;
        let (functions, links) = (
            old.functions * PlanFunction::BYTES as u32,
            old.links * size_of::<u32>() as u32,
        );
        let header = PlanHeader {
            functions_offset: place(functions),
            sites_offset: place(old.sites * PlanSite::BYTES as u32),
            links_offset: place(links),
            specials_offset: place((self.specials.len() * PlanSpecial::BYTES) as u32),
            blob_offset: place(blob_bytes),
            total_bytes: at,
            area_bytes: (old.area_bytes + self.shift).next_multiple_of(4096),
            specials: self.specials.len() as u32,
            blob_bytes,
            ..*old
        };
        let mut out = header.to_bytes().to_vec();
        out.extend(part(old.functions_offset, functions)?);
        out.resize(header.sites_offset as usize, 0);
        let sites = self.view.sites().enumerate();
        out.extend(sites.flat_map(|(i, s)| self.site(i, s).to_bytes()));
        out.resize(header.links_offset as usize, 0);
        out.extend(part(old.links_offset, links)?);
        out.resize(header.specials_offset as usize, 0);
        out.extend(self.specials.iter().flat_map(|r| r.to_bytes()));
        out.resize(header.blob_offset as usize, 0);
        out.extend(part(old.blob_offset, old.blob_bytes)?);
        out.resize((header.blob_offset + self.made.blob_bytes) as usize, 0);
        out.extend(&self.made.blob);
        out.resize(header.total_bytes as usize, 0);
        Some(out)
    }

    fn site(&self, index: usize, mut site: PlanSite) -> PlanSite {
        site.slot += self.shift;
        if site.form == SiteForm::Refused {
            return site;
        }
        let is_twin = || {
            let h = self.view.header();
            index >= h.sites.saturating_sub(h.twins) as usize
        };
        if self.made.joined.binary_search(&site.start).is_ok() && !is_twin() {
            site.flags = site.flags & !SITE_JUMP_LAST | SITE_IN_HOOK;
            return site;
        }
        let is_covered = |(start, end)| self.made.covers(start, end);
        let own = (site.start, site.start + u32::from(site.span));
        if is_covered(own) || self.view.springboard(&site).is_some_and(is_covered) {
            site.form = SiteForm::Refused;
            site.verdict = Refusal::NoRoom as u8;
        }
        site
    }
}
