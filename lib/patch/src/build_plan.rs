//! Builds the plan of a module: functions, sites with their slots, templates, special functions.

mod acts;
mod hand_over;
mod levels;
mod returns;
mod write;

use std::collections::HashSet;
use std::ops::Range;

use sptrace_addr::Svma;
use sptrace_code::{Analysis, Function, FunctionFlags, Site, SiteKind};
use sptrace_image::Object;
use sptrace_wire::plan::*;

use crate::counts::Creators;
use crate::ends::may_end_in;
use crate::kept::{Keep, Kept};
use crate::lanes::uncalled;
use crate::leaf::calls_nothing;
use crate::repeatable::repeatable;
use crate::special;
use crate::springboard::Springboards;
use crate::tactic::{JUMP_BYTES, Refusal, Tactic, Verdict, choose};
use crate::template::Builder;

use hand_over::{hand_over, is_tail};

pub use acts::build_plan_with_acts;
pub use levels::{
    build_counting_plan, build_plan_in_order, build_plan_mixed, build_plan_with_levels,
    build_plan_with_levels_in_order, creations_alone, in_order_for_good,
};
pub use returns::build_plan_with_returns;

const HEADER_BYTES: usize = PlanHeader::BYTES;
/// Links of a function, at most: as many as the agent follows at once.
const LINKS_MAX: usize = 255;

struct PlanBuilder<'a> {
    object: &'a Object<'a>,
    analysis: &'a Analysis,
    base: Svma,
    reads_return: HashSet<u64>,
    functions: Vec<PlanFunction>,
    sites: Vec<PlanSite>,
    links: Vec<u32>,
    specials: Vec<PlanSpecial>,
    /// The plan from its start: room for the header, then the templates. They are most of a plan,
    /// so they are not copied again.
    out: Vec<u8>,
    area_used: u32,
    /// Where the slots of sites begin.
    slots_start: u32,
    springboards: Springboards,
    kept: Kept,
    /// Who calls these keeps something below the return address.
    keep_below_return: Vec<Range<Svma>>,
    /// Calls are counted, or recorded in order: they keep their return addresses.
    counts: Option<Creators>,
    /// They are recorded in order, not counted.
    is_in_order: bool,
    /// Calls through pointers keep callees that have acts.
    keeps_acts: bool,
    /// Calls keep their return addresses, and are recorded.
    keeps_returns: bool,
    twins: u32,
    /// Functions that set the gs base have no row.
    leaves_out_gs: bool,
}

/// What becomes of the calls of a module.
enum Calls {
    /// They are recorded with their times and ends.
    Recorded,
    /// The same, but for callees of pointers whose acts need no frame.
    WithActs,
    /// They are recorded, and keep their return addresses.
    Kept,
    /// They are counted.
    Counted(Creators),
    /// They are recorded in order.
    InOrder(Creators),
}

/// The plan of a module whose calls are recorded.
pub fn build_plan(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    builder(object, analysis, Calls::Recorded, SLOTS_START).finish()
}

/// The plan of a module of which no call is recorded: it has the functions that are intercepted
/// whatever is recorded, and no others.
pub fn build_plan_without_calls(object: &Object<'_>, analysis: &Analysis) -> Vec<u8> {
    let mut b = begun(object, analysis, Calls::Recorded, SLOTS_START);
    let sets_gs = |f: &Function| f.flags.contains(FunctionFlags::SETS_GS);
    b.leaves_out_gs = analysis.functions.iter().any(sets_gs);
    b.finish()
}

/// A plan without its header; its slots lie from `slots_start` on.
fn builder<'a>(
    object: &'a Object<'a>,
    analysis: &'a Analysis,
    calls: Calls,
    slots_start: u32,
) -> PlanBuilder<'a> {
    let mut b = begun(object, analysis, calls, slots_start);
    let readers = b.reads_return.iter().map(|entry| Svma(*entry)).collect();
    let ends = may_end_in(analysis, &readers);
    let unwinder = Unwinder::of(object);
    let is_loader = is_loader(object);
    for (i, f) in analysis.functions.iter().enumerate() {
        let mut flags = b.flags_of(f);
        if unwinder.holds(f.entry) {
            // Small functions of libgcc_s count bits, and the like.
            flags |= FN_MUTED | calls_nothing(object, f);
        } else if b.counts.is_none() && ends.contains(&i) {
            // Not of an unwinder: its parts read what its entry was given back, and every throw
            // calls them.
            flags |= FN_TAILS;
        }
        if is_loader && b.is_resolver(f) {
            flags |= FN_RESOLVER;
        }
        b.function(f, flags);
    }
    b.stubs();
    b
}

/// The same, without functions and sites.
fn begun<'a>(
    object: &'a Object<'a>,
    analysis: &'a Analysis,
    calls: Calls,
    slots_start: u32,
) -> PlanBuilder<'a> {
    let is_in_order = matches!(calls, Calls::InOrder(_));
    let keeps_acts = matches!(calls, Calls::WithActs);
    let keeps_returns = matches!(calls, Calls::Kept);
    let counts = match calls {
        Calls::Recorded | Calls::WithActs | Calls::Kept => None,
        Calls::Counted(creators) | Calls::InOrder(creators) => Some(creators),
    };
    let mut b = PlanBuilder {
        object,
        analysis,
        base: Svma(object.lowest_svma().0 & !4095),
        reads_return: match counts.is_some() || keeps_returns {
            // All find their own.
            true => HashSet::new(),
            false => special::returns_read(object, analysis),
        },
        functions: Vec::with_capacity(analysis.functions.len()),
        sites: Vec::with_capacity(analysis.sites.len()),
        links: Vec::new(),
        specials: Vec::new(),
        out: vec![0; HEADER_BYTES],
        area_used: slots_start,
        slots_start,
        springboards: Springboards::find(object, analysis),
        kept: Kept::of(object, analysis),
        keep_below_return: special::keep_below_return(object),
        counts,
        is_in_order,
        keeps_acts,
        keeps_returns,
        twins: 0,
        leaves_out_gs: false,
    };
    // First, so that their slots lie at the start of the area, of which a fork child copies what
    // is used.
    b.add_specials();
    b.slots_start = b.area_used;
    b
}

/// The functions of an image that walk stacks, which are never patched.
struct Unwinder {
    /// libgcc_s, libunwind: everything in it is the unwinder or reached from it.
    is_all: bool,
    entries: HashSet<u64>,
}

impl Unwinder {
    fn of(object: &Object<'_>) -> Self {
        let is_core = |name| matches!(name, "_Unwind_RaiseException" | "_ULx86_64_step");
        let named = object.symbols.iter();
        let mut entries: HashSet<u64> = named
            .filter(|s| special::is_unwinder(s.name))
            .map(|s| s.svma.0)
            .collect();
        if entries.is_empty() && object.needed.is_empty() {
            entries.extend(object.unwind.eh_return_functions().iter().map(|s| s.0));
        }
        Self {
            is_all: object.entry.0 == 0 && object.symbols.iter().any(|s| is_core(s.name)),
            entries,
        }
    }

    fn holds(&self, entry: Svma) -> bool {
        self.is_all || self.entries.contains(&entry.0)
    }
}

/// What the plan decides for each site of the analysis, in its order.
pub fn verdicts(object: &Object<'_>, analysis: &Analysis) -> Vec<Verdict> {
    let plan = build_plan(object, analysis);
    let Some(view) = PlanView::new(&plan) else {
        return Vec::new();
    };
    view.sites()
        .take(analysis.sites.len())
        .filter_map(|site| {
            let number = usize::from(site.verdict);
            Some(match site.form {
                SiteForm::Refused => Verdict::Refused(*Refusal::ALL.get(number)?),
                _ => Verdict::Taken(*Tactic::ALL.get(number)?),
            })
        })
        .collect()
}

fn is_loader(object: &Object<'_>) -> bool {
    object.interpreter.is_none()
        && object.symbols.iter().any(|s| {
            s.name == "_rtld_global"
                || s.name == "_dl_catch_exception"
                || s.name == "__tls_get_addr"
                || s.name == "_dl_exception_create"
        })
}

impl PlanBuilder<'_> {
    fn offset(&self, svma: Svma) -> u32 {
        svma.0.wrapping_sub(self.base.0) as u32
    }

    /// ld.so's lazy resolvers: they save the vector registers with xsave, xsavec or fxsave, call,
    /// and jump through a register (sysdeps/x86_64/dl-trampoline.h).
    fn is_resolver(&self, f: &Function) -> bool {
        let sites = self.analysis.sites_of(f);
        let count = |kind| sites.clone().filter(|s| s.kind == kind).count();
        if f.site_count != 2
            || count(SiteKind::TailIndirect) != 1
            || count(SiteKind::CallDirect) != 1
        {
            return false;
        }
        let Some(code) = self.object.code_from(f.entry) else {
            return false;
        };
        let code = &code[..code.len().min(f.end.0.saturating_sub(f.entry.0) as usize)];
        // 0f c7 /4 (xsavec), 0f ae /4 (xsave), 0f ae /0 (fxsave), with a memory operand on rsp.
        code.windows(4).any(|w| {
            w[0] == 0x0f
                && matches!(
                    (w[1], w[2]),
                    (0xc7, 0x64) | (0xae, 0x64) | (0xae, 0x04) | (0xae, 0x44)
                )
        })
    }

    fn function(&mut self, f: &Function, flags: u16) {
        let first_site = self.sites.len() as u32;
        let first_link = self.links.len() as u32;
        self.links
            .extend(self.analysis.links_of(f).iter().take(LINKS_MAX));
        for site in self.analysis.sites_of(f) {
            let mut plan = self.site(f, &site);
            if plan.form == SiteForm::Refused
                && (matches!(site.kind, SiteKind::TailDirect | SiteKind::TailConditional)
                    || self.keeps_returns && site.kind == SiteKind::CallDirect)
                && let Some(to) = self.analysis.function_at(site.target)
                && self.links.len() < first_link as usize + LINKS_MAX
            {
                // It is not seen, but what it leads to must be instrumented all the same.
                self.links.push(to as u32);
                plan.flags |= if self.keeps_returns {
                    SITE_CALLEE_LINKED
                } else {
                    0
                };
            }
            self.sites.push(plan);
        }
        if self.keeps_returns && f.entry == self.object.entry {
            self.links.extend(uncalled(self.object, self.analysis));
        }
        self.functions.push(PlanFunction {
            entry: self.offset(f.entry),
            first_site,
            first_link,
            site_count: self.sites.len() as u32 - first_site,
            link_count: (self.links.len() as u32 - first_link) as u16,
            flags,
        });
    }

    /// A PLT stub is a function of one tail jump when it is called through a pointer (the address
    /// of a function may be that of a stub in a fixed image). After all others, so that sites keep
    /// the numbers of the analysis.
    fn stubs(&mut self) {
        const JUMP_SLOT_BYTES: u8 = 6;
        let known: Vec<u32> = self.functions.iter().map(|f| f.entry).collect();
        for stub in &self.object.plt_stubs {
            if known.binary_search(&self.offset(stub.stub)).is_ok() {
                continue;
            }
            let before = u64::from(stub.size_bytes.saturating_sub(JUMP_SLOT_BYTES));
            let jump = Svma(stub.stub.0 + before);
            let function = Function {
                entry: stub.stub,
                end: Svma(stub.stub.0 + u64::from(stub.size_bytes)),
                first_site: 0,
                site_count: 0,
                first_link: 0,
                link_count: 0,
                flags: FunctionFlags::default(),
            };
            let site = Site {
                got_slot: stub.got_slot,
                ..Site::new(jump, JUMP_SLOT_BYTES, SiteKind::TailIndirect)
            };
            let first_site = self.sites.len() as u32;
            let plan = self.site(&function, &site);
            self.sites.push(plan);
            self.functions.push(PlanFunction {
                entry: self.offset(stub.stub),
                first_site,
                first_link: self.links.len() as u32,
                site_count: 1,
                link_count: 0,
                flags: FN_TAILS,
            });
        }
        self.functions.sort_by_key(|f| f.entry);
        // Links are numbers of functions, which have moved.
        for link in &mut self.links {
            let entry = known.get(*link as usize).copied().unwrap_or(0);
            *link = self.functions.partition_point(|f| f.entry < entry) as u32;
        }
    }

    fn site(&mut self, f: &Function, site: &Site) -> PlanSite {
        let mut below = self.keep_below_return.iter();
        if below.any(|code| code.contains(&site.target)) {
            return self.refused(site, Refusal::RedZone);
        }
        let reads = self.reads_return.contains(&site.target.0);
        let keep = match self.kept.in_function(f) {
            // So what keeps its return address.
            Keep::Returns if self.counts.is_some() || self.keeps_returns => Keep::Nothing,
            keep => keep,
        };
        match choose(site, f.flags, reads, keep) {
            // Filling that nothing reaches is better than instructions that must be moved.
            Verdict::Taken(Tactic::MadeRoom) => self
                .taken(f, site, Tactic::Springboard)
                .or_else(|| self.taken(f, site, Tactic::MadeRoom))
                .unwrap_or_else(|| self.refused(site, Refusal::NoRoom)),
            Verdict::Refused(
                reason @ (Refusal::NoRoom | Refusal::UnresolvedJumps | Refusal::ShortConditional),
            ) => self
                .taken(f, site, Tactic::Springboard)
                .unwrap_or_else(|| self.refused(site, reason)),
            Verdict::Refused(reason) => self.refused(site, reason),
            Verdict::Taken(tactic) => self
                .taken(f, site, tactic)
                .unwrap_or_else(|| self.refused(site, Refusal::Unmovable)),
        }
    }

    fn refused(&self, site: &Site, reason: Refusal) -> PlanSite {
        PlanSite {
            start: self.offset(site.address),
            // It has none. So all rows are in the order of their slots.
            slot: self.area_used,
            span: site.length,
            form: SiteForm::Refused,
            verdict: reason as u8,
            flags: if is_tail(site) { SITE_TAIL } else { 0 },
            ..PlanSite::default()
        }
    }

    /// What the analysis says of the function itself.
    fn flags_of(&self, f: &Function) -> u16 {
        let mut flags = 0;
        if self.reads_return.contains(&f.entry.0) {
            flags |= FN_RETURN_ADDRESS;
        }
        if f.flags.contains(FunctionFlags::USES_GS) {
            flags |= FN_USES_GS;
        }
        if f.flags.contains(FunctionFlags::UNRESOLVED_JUMPS) {
            flags |= FN_UNRESOLVED | calls_nothing(self.object, f);
        }
        if self.kept.in_function(f) != Keep::Nothing {
            flags |= FN_RUNTIME;
        }
        flags
    }

    /// Gives its place among the templates.
    fn add_template(&mut self, template: &[u8]) -> u32 {
        let argument = (self.out.len() - HEADER_BYTES) as u32;
        self.out.extend(template);
        argument
    }

    fn take_slot(&mut self, bytes: u32) -> u32 {
        let slot = self.area_used;
        self.area_used += (bytes + 7) & !7;
        slot
    }

    /// The row of a site that gets a slot, whose code is added to the plan; `None`: it cannot have
    /// one after all.
    fn taken(&mut self, f: &Function, site: &Site, tactic: Tactic) -> Option<PlanSite> {
        if let Some(creators) = &self.counts {
            let is_checked = creators.holds(f) || self.kept.in_function(f) != Keep::Nothing;
            return self.counted(f, site, tactic, is_checked);
        }
        if self.keeps_returns && !is_tail(site) {
            return self.kept_call(f, site, tactic);
        }
        let plain = site.kind == SiteKind::CallDirect && site.length == 5 && site.got_slot.0 == 0;
        if plain && tactic == Tactic::CallInstruction {
            return Some(PlanSite {
                start: self.offset(site.address),
                slot: self.take_slot(DIRECT_SLOT_BYTES),
                argument: self.offset(site.target),
                span: 5,
                form: SiteForm::Direct,
                verdict: tactic as u8,
                flags: 0,
            });
        }
        self.recorded_in(Builder::new(self.base), f, site, tactic)
    }

    /// A site that is recorded with its end, behind what is in the slot already.
    fn recorded_in(
        &mut self,
        mut t: Builder,
        f: &Function,
        site: &Site,
        tactic: Tactic,
    ) -> Option<PlanSite> {
        let back = Svma(site.address.0 + u64::from(site.length));
        let (start, mut flags) = self.moved_before(&mut t, f, site, tactic)?;
        if let Some(kept) = self.keep_acts(&mut t, (site, tactic, start)) {
            return self.with_slot((site, tactic, back), t, start, flags | kept);
        }
        if site.got_slot.0 != 0 && site.target.0 != 0 {
            t.push_slot(site.got_slot);
        } else if site.target.0 == 0 && !t.push_operand(self.object, site.address, site.length) {
            return None;
        }
        flags |= hand_over(&mut t, site, tactic, back);
        self.with_slot((site, tactic, back), t, start, flags)
    }

    /// The row of a site whose slot's code is in `t`.
    fn with_slot(
        &mut self,
        (site, tactic, back): (&Site, Tactic, Svma),
        mut t: Builder,
        mut start: Svma,
        mut flags: u16,
    ) -> Option<PlanSite> {
        if tactic == Tactic::ConditionalTail {
            start = Svma(site.address.0 + 1);
        }
        let mut span = (back.0 - start.0) as u8;
        if tactic == Tactic::WayIn {
            // The jump keeps its condition; only where it leads changes.
            flags |= SITE_KEEP_OPCODE;
            start = Svma(site.way_in.0 + 1);
            span = JUMP_BYTES as u8;
        }
        if tactic == Tactic::MadeRoom {
            let room = (site.room, Svma(site.room.0 + u64::from(site.room_bytes)));
            if self.is_intercepted(room) || !t.make_room(self.object, room, site.address) {
                return None;
            }
        }
        let original = self.object.code_from(start)?.get(..usize::from(span))?;
        let slot_bytes = t.slot_bytes();
        let argument = self.add_template(&t.finish(original));
        let site = PlanSite {
            start: self.offset(start),
            slot: 0,
            argument,
            span,
            form: SiteForm::Template,
            verdict: tactic as u8,
            flags,
        };
        let more = match site.keeps_in_order() {
            true => kept_order::BYTES,
            false => 0,
        };
        let slot = self.take_slot(slot_bytes + more);
        Some(PlanSite { slot, ..site })
    }

    /// Puts what stands before the site's instruction, and is covered by the patch with it, into
    /// the slot. Gives where the patch starts, and the first flags of the site.
    fn moved_before(
        &mut self,
        t: &mut Builder,
        f: &Function,
        site: &Site,
        tactic: Tactic,
    ) -> Option<(Svma, u16)> {
        let mut start = site.address;
        let mut flags = 0;
        if matches!(tactic, Tactic::Springboard | Tactic::MadeRoom) {
            flags |= SITE_SPRINGBOARD;
            if site.kind == SiteKind::TailConditional {
                flags |= SITE_KEEP_OPCODE;
            }
            if tactic == Tactic::Springboard {
                t.set_springboard(self.springboards.take(self.object, f, site.address)?);
            }
        } else if tactic == Tactic::WayIn {
            if !t.relocate(self.object, site.window_start, site.address) {
                return None;
            }
        } else if u64::from(site.length) < JUMP_BYTES {
            start = self.start_in_window(site)?;
            if !t.relocate(self.object, start, site.address) {
                return None;
            }
            if repeatable(self.object, start, site.address) {
                flags |= SITE_REPEATABLE;
            }
        }
        t.end_of_moved();
        Some((start, flags))
    }

    /// True if the interception of a function covers a byte of the room.
    fn is_intercepted(&self, room: (Svma, Svma)) -> bool {
        self.specials.iter().any(|s| {
            let from = self.base.0 + u64::from(s.start);
            from < room.1.0 && room.0.0 < from + u64::from(s.span)
        })
    }

    /// The latest instruction boundary in the window that leaves room for the jump.
    fn start_in_window(&self, site: &Site) -> Option<Svma> {
        let bytes = (site.address.0 - site.window_start.0) as usize;
        let code = self.object.code_from(site.window_start)?.get(..bytes)?;
        let mut decoder = iced_x86::Decoder::with_ip(
            64,
            code,
            site.window_start.0,
            iced_x86::DecoderOptions::NONE,
        );
        let end = site.address.0 + u64::from(site.length);
        let mut best = None;
        while decoder.can_decode() {
            let i = decoder.decode();
            if end - i.ip() >= JUMP_BYTES {
                best = Some(Svma(i.ip()));
            }
        }
        best
    }

    /// The interceptions of special functions.
    fn add_specials(&mut self) {
        for (entry, kind) in special::entries(self.object) {
            let end = self
                .analysis
                .function_at(entry)
                .map_or(Svma(entry.0 + 4096), |i| self.analysis.functions[i].end);
            let Some((start, covered)) = special::prologue(self.object, entry, end) else {
                continue;
            };
            let mut t = Builder::new(self.base);
            if !t.special(self.object, start, covered) {
                continue;
            }
            let Some(original) = self
                .object
                .code_from(start)
                .and_then(|c| c.get(..(covered.0 - start.0) as usize))
            else {
                continue;
            };
            let slot = self.take_slot(t.slot_bytes());
            let argument = self.add_template(&t.finish(original));
            self.specials.push(PlanSpecial {
                entry: self.offset(entry),
                kind,
                slot,
                argument,
                start: self.offset(start),
                span: (covered.0 - start.0) as u8,
                ..PlanSpecial::default()
            });
        }
        self.specials.sort_by_key(|s| s.entry);
        // A walker gets its own return address back with all others, at its entry.
        let is_walker =
            |s: &&PlanSpecial| matches!(s.kind, SpecialKind::Unwind | SpecialKind::Walk);
        for s in self.specials.iter().filter(is_walker) {
            self.reads_return
                .remove(&(self.base.0 + u64::from(s.entry)));
        }
    }
}
