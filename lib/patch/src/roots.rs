//! Hooks at function entries, added to a copy of a plan for one recording: recording begins there
//! (`run -F`), or the agent looks for new modules there.
//!
//! Given the image, the plan and the functions; gives the new plan, in which the hooks' slots lie
//! before all others (of which a fork child copies what is used), and which functions cannot be
//! hooked: those whose first instructions cannot be moved or are jumped to, and special functions. A site among the first
//! instructions keeps its slot, to which the hook leads, or is refused. Knows no names but that of the debugger's rendezvous.

use sptrace_addr::Svma;
use sptrace_image::Object;
use sptrace_wire::plan::*;

use crate::read_plan::{PlanReader, header_bytes};
use crate::special::{Joined, hook_range, jumps_into, may_have_data_below};
use crate::tactic::Refusal;
use crate::template::Builder;

/// A function to hook.
#[derive(Clone, Debug)]
pub struct Hook {
    /// Its entry.
    pub entry: Svma,
    /// End of its code.
    pub end: Svma,
    /// `SPECIAL_*`.
    pub kind: u32,
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
        kind: SPECIAL_MAPPED,
        linked: Vec::new(),
    })
}

/// Adds `hooks`, sorted by entry. `None`: the bytes are no plan.
pub fn add_hooks(object: &Object<'_>, plan: &[u8], hooks: &[Hook]) -> Option<Hooked> {
    let reader = PlanReader::new(plan)?;
    let h = reader.header();
    // Twice: where the sites' slots will lie is known when the hooks' own are counted.
    let joinable = Joinable::new(reader);
    let mut made = Made::default();
    let mut impossible = Vec::new();
    let mut shift = 0;
    for _ in 0..2 {
        made = Made {
            base: h.base_svma,
            slot: SLOTS_START,
            blob_bytes: h.blob_bytes.next_multiple_of(8),
            shift,
            special: reader.specials().iter().map(|s| s.entry).collect(),
            ..Made::default()
        };
        let failed = hooks
            .iter()
            .filter(|hook| !made.hook(object, hook, &joinable));
        impossible = failed.map(|hook| hook.entry).collect();
        shift = (made.slot - SLOTS_START).next_multiple_of(64);
    }
    let mut specials = std::mem::take(&mut made.specials);
    specials.extend(reader.specials().into_iter().map(|s| PlanSpecial {
        slot: s.slot + shift,
        ..s
    }));
    let bytes = Rewritten {
        reader,
        made: &made,
        shift,
        specials: &specials,
    };
    Some(Hooked {
        plan: bytes.write(plan)?,
        impossible,
    })
}

/// Sites that a hook can lead to: those that are a plain jump to their slot. By start.
struct Joinable(Vec<(u32, u32, u32)>);

impl Joinable {
    fn new(reader: PlanReader<'_>) -> Self {
        let sites = (0..reader.header().sites).filter_map(|i| reader.site(i));
        let plain = sites.filter(|s| {
            s.form != FORM_REFUSED && s.flags & !(SITE_TAIL | SITE_INDIRECT | SITE_REPEATABLE) == 0
        });
        let mut all: Vec<_> = plain
            .filter_map(|s| Some((s.start, s.start + u32::from(s.span), reader.slot_entry(&s)?)))
            .collect();
        all.sort_unstable();
        Self(all)
    }

    fn at(&self, start: u32) -> Option<(u32, u32)> {
        let found = self.0.binary_search_by_key(&start, |s| s.0).ok()?;
        self.0.get(found).map(|s| (s.1, s.2))
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
            let (end, entry) = joinable.at(svma.0.wrapping_sub(self.base) as u32)?;
            Some(Joined {
                end: Svma(self.base + u64::from(end)),
                slot_entry: entry + self.shift,
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
        let bytes = (range.covered.0 - range.start.0) as usize;
        let original = object.code_from(range.start).and_then(|c| c.get(..bytes));
        let (true, Some(original)) = (t.hook(object, &range), original) else {
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
            span: end - start,
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
    reader: PlanReader<'a>,
    made: &'a Made,
    shift: u32,
    specials: &'a [PlanSpecial],
}

impl Rewritten<'_> {
    fn write(&self, plan: &[u8]) -> Option<Vec<u8>> {
        let old = self.reader.header();
        let part = |offset: u32, bytes: u32| plan.get(offset as usize..(offset + bytes) as usize);
        let mut at = size_of::<PlanHeader>() as u32;
        let mut place = |bytes: u32| {
            let here = at;
            at = (at + bytes).next_multiple_of(8);
            here
        };
        let blob_bytes = self.made.blob_bytes + self.made.blob.len() as u32;
        let header = PlanHeader {
            functions_offset: place(old.functions * 16),
            sites_offset: place(old.sites * 16),
            links_offset: place(old.links * 4),
            specials_offset: place(self.specials.len() as u32 * 24),
            blob_offset: place(blob_bytes),
            total_bytes: at,
            area_bytes: (old.area_bytes + self.shift).next_multiple_of(4096),
            specials: self.specials.len() as u32,
            blob_bytes,
            ..old
        };
        let mut out = header_bytes(&header);
        out.extend(part(old.functions_offset, old.functions * 16)?);
        out.resize(header.sites_offset as usize, 0);
        for i in 0..old.sites {
            let site = self.site(i)?;
            let words = [site.start, site.slot, site.argument];
            out.extend(words.iter().flat_map(|v| v.to_le_bytes()));
            out.extend([site.span, site.form, site.tactic, site.flags]);
        }
        out.resize(header.links_offset as usize, 0);
        out.extend(part(old.links_offset, old.links * 4)?);
        out.resize(header.specials_offset as usize, 0);
        for s in self.specials {
            let words = [s.entry, s.kind, s.slot, s.argument, s.start, s.span];
            out.extend(words.iter().flat_map(|v| v.to_le_bytes()));
        }
        out.resize(header.blob_offset as usize, 0);
        out.extend(part(old.blob_offset, old.blob_bytes)?);
        out.resize((header.blob_offset + self.made.blob_bytes) as usize, 0);
        out.extend(&self.made.blob);
        out.resize(header.total_bytes as usize, 0);
        Some(out)
    }

    fn site(&self, i: u32) -> Option<PlanSite> {
        let mut site = self.reader.site(i)?;
        if site.form == FORM_REFUSED {
            return Some(site);
        }
        site.slot += self.shift;
        if self.made.joined.binary_search(&site.start).is_ok() {
            site.flags |= SITE_IN_HOOK;
            return Some(site);
        }
        let spring = self.reader.springboard(&site);
        let spring = spring.is_some_and(|(start, end)| self.made.covers(start, end));
        if spring
            || self
                .made
                .covers(site.start, site.start + u32::from(site.span))
        {
            site.form = FORM_REFUSED;
            site.tactic = Refusal::NoRoom as u8;
        }
        Some(site)
    }
}
