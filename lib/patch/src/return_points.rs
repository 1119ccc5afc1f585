//! Return points: where the return of a call that keeps its return address can be seen.
//!
//! Given the image, its analysis, and a plan by which calls stay calls in the text
//! ([`crate::build_plan_in_order`]); says for each call what can be done with the first bytes
//! behind it, to which its callee returns:
//!
//! - A jump over whole instructions leads to a slot: `call EXIT ; the instructions ; jmp back`.
//! - Where fewer than five bytes are free, a two-byte jump leads to that jump: in padding, as a
//!   springboard, behind the jump of another return point nearby that has room for both, or where
//!   instructions stood that are moved into the slot ([`rooms`]).
//! - Where the next site of the plan follows within fewer bytes, its slot sees the return first,
//!   and the text needs no other change.
//! - Else there is a reason.
//!
//! Control may come to a return point by a jump as well. A reader of records can tell: there is no
//! call of this site open in that frame. A call of what ends in a panic (Go) has no return point,
//! although Go's compiler writes an instruction behind it. Must not know what is recorded, and how.

mod rooms;

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use std::cell::RefCell;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use sptrace_addr::Svma;
use sptrace_code::{Analysis, Function, Site, SiteFlags, SiteKind};
use sptrace_image::Object;
use sptrace_wire::plan::{PlanSite, PlanView, SiteForm};

use crate::covered::Covered;
use crate::movable::movable;
use crate::springboard::{Springboards, is_filling};
use crate::tactic::{JUMP_BYTES, Tactic};
use crate::template::{Builder, Onward};

/// Bytes of a jump to a springboard.
const SHORT_JUMP_BYTES: u64 = 2;
/// How often a return point lends room: what leads to bytes farther behind is not known
/// ([`Site::leaders_behind`]).
const MOST_LENT: u8 = 2;
/// The functions of Go's runtime that panic or throw begin so, or are called so. Who recovers goes
/// on elsewhere, where the deferred calls of its frame are made.
const GO_PANICS: [&str; 2] = ["runtime.panic", "runtime.goPanic"];
/// See [`GO_PANICS`].
const GO_THROWS: [&str; 5] = [
    "runtime.gopanic",
    "runtime.throw",
    "runtime.fatal",
    "runtime.fatalthrow",
    "runtime.fatalpanic",
];
/// These only look whether a panic is allowed.
const GO_CHECKS: &str = "runtime.panicCheck";

/// A call that the plan takes and that comes back, and how its return can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnPoint {
    /// The call.
    pub call: Svma,
    /// Behind it.
    pub at: Svma,
    /// Something else than the return leads there, too, or to what is executed before the return
    /// is seen.
    pub is_target: bool,
    /// How.
    pub seen: Seen,
    /// Its jump makes room for the long one of another.
    pub lends: bool,
}

/// How a return can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// By a jump in the text.
    Jump(Patch),
    /// By a short jump there, to a long one in padding.
    Springboard(Patch),
    /// In the slot of the next site.
    Merged,
    /// By a short jump there, to a long one behind the jump of another return point.
    Neighbour(Patch),
    /// By a short jump there, to a long one where instructions stood that are moved away.
    MadeRoom(Patch),
    /// Not at all.
    Refused(Obstacle),
}

impl Seen {
    /// Name in reports, without the reason of a refusal.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Jump(_) => "jump",
            Self::Springboard(_) => "springboard",
            Self::Neighbour(_) => "room of a neighbour",
            Self::MadeRoom(_) => "made room",
            Self::Merged => "merged with the next site",
            Self::Refused(_) => "refused",
        }
    }
}

/// What is put at a return point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// How many bytes of the text are covered. Behind the first five there may be room for the long
    /// jumps of neighbours.
    pub span: u8,
    /// How many of them are instructions that are moved; what follows is filling.
    pub moved: u8,
    /// More than the first of them is overwritten.
    pub of_several: bool,
    /// The slot's code, and what depends on where things lie.
    pub template: Vec<u8>,
    /// Bytes of the slot.
    pub slot_bytes: u32,
}

/// Why no jump fits behind a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The function has jumps that could not be resolved: bytes behind the first instruction may
    /// be targets.
    UnresolvedJumps,
    /// A jump, or an exception's handler, leads to one of the bytes behind the first.
    Target,
    /// An instruction that cannot be executed elsewhere.
    Unmovable,
    /// Something else has changed the bytes.
    Covered,
    /// The function ends.
    End,
}

impl Obstacle {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 5] = [
        Self::UnresolvedJumps,
        Self::Target,
        Self::Unmovable,
        Self::Covered,
        Self::End,
    ];

    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnresolvedJumps => "function with unresolved jumps",
            Self::Target => "jump target behind the call",
            Self::Unmovable => "instruction that cannot be moved",
            Self::Covered => "bytes that are changed already",
            Self::End => "end of the function",
        }
    }
}

/// The return points of the calls that `plan` takes and that come back, in the order of the
/// analysis. Nothing is found if the bytes are no plan of this image.
pub fn return_points(object: &Object<'_>, analysis: &Analysis, plan: &[u8]) -> Vec<ReturnPoint> {
    let Some(plan) = PlanView::new(plan) else {
        return Vec::new();
    };
    let pads = object.unwind.landing_pads().iter().map(|p| p.pad.0);
    let pointers = object.code_pointers.iter().map(|p| p.target.0);
    let mut stated: Vec<u64> = pads.chain(pointers).collect();
    stated.sort_unstable();
    let panics = object.symbols.iter().filter(|s| is_go_panic(s.name));
    let mut finder = Finder {
        object,
        analysis,
        base: Svma(plan.header().base_svma),
        covered: Covered::by(plan),
        springboards: Springboards::find_with_ends(object, analysis),
        stated,
        panics: panics.map(|s| s.svma.0).collect(),
        factory: RefCell::new(InstructionInfoFactory::new()),
        lent: HashMap::default(),
    };
    finder.all(plan)
}

struct Finder<'a> {
    object: &'a Object<'a>,
    analysis: &'a Analysis,
    base: Svma,
    covered: Covered,
    springboards: Springboards,
    /// Where the image says without an instruction that control comes: where exceptions are caught,
    /// and what pointers in data lead to. Sorted.
    stated: Vec<u64>,
    /// Functions of Go's runtime that do not return.
    panics: HashSet<u64>,
    /// What instructions do is found out with it; used again and again.
    factory: RefCell<InstructionInfoFactory>,
    /// How often return points have lent their room, by call.
    lent: HashMap<u64, u8>,
}

/// A call and what comes next in its function.
struct Place<'a> {
    function: &'a Function,
    site: Site,
    next: Option<(Site, PlanSite)>,
}

/// Instructions behind a call that can be executed in a slot.
#[derive(Debug, Default)]
struct Run {
    /// Where each of them ends.
    ends: Vec<u64>,
    /// How control goes on behind the last of them, if not to the next instruction.
    onward: Option<Onward>,
    /// Behind the last of them, and the filling that follows where control does not go on.
    end: u64,
    /// Why it ends so early; `None`: there is room for a jump.
    stopped: Option<Stop>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    At(Obstacle),
    /// At the next site, which the plan takes.
    Site,
}

impl<'a> Finder<'a> {
    /// First what finds room by itself, then what needs more.
    fn all(&mut self, plan: PlanView<'_>) -> Vec<ReturnPoint> {
        let places = self.places(plan);
        let mut found: Vec<ReturnPoint> = places.iter().map(|place| self.first(place)).collect();
        for (at, place) in places.iter().enumerate() {
            if !matches!(found[at].seen, Seen::Refused(_)) {
                continue;
            }
            let run = self.run(place, JUMP_BYTES);
            if let Some(patch) = self.with_springboard(place, &run) {
                found[at].seen = Seen::Springboard(patch);
            } else if let Some((lender, wider, patch)) = self.lent(&found, &places, at, &run) {
                found[lender].seen = Seen::Jump(wider);
                found[lender].lends = true;
                found[at].seen = Seen::Neighbour(patch);
            }
        }
        // Last, since nothing else may be changed where instructions are moved away.
        for (point, place) in found.iter_mut().zip(&places) {
            if matches!(point.seen, Seen::Refused(_))
                && let Some(patch) = self.with_made_room(place)
            {
                point.seen = Seen::MadeRoom(patch);
            }
        }
        found
    }

    /// The calls that come back and that the plan takes, by address.
    fn places(&self, plan: PlanView<'_>) -> Vec<Place<'a>> {
        let mut places = Vec::new();
        for function in &self.analysis.functions {
            let first = function.first_site as usize;
            let sites = self.analysis.sites_of(function);
            let rows = (first..).map_while(|i| plan.site(i as u32));
            let mut all = sites.zip(rows).peekable();
            while let Some((site, row)) = all.next() {
                if row.form != SiteForm::Refused && self.comes_back(&site) {
                    places.push(Place {
                        function,
                        site,
                        next: all.peek().copied(),
                    });
                }
            }
        }
        places
    }

    /// A call after which its function goes on.
    fn comes_back(&self, site: &Site) -> bool {
        matches!(site.kind, SiteKind::CallDirect | SiteKind::CallIndirect)
            && !site.flags.contains(SiteFlags::NO_RETURN_CALLEE)
            && !self.panics.contains(&site.target.0)
    }

    fn first(&mut self, place: &Place<'_>) -> ReturnPoint {
        let run = self.run(place, JUMP_BYTES);
        let seen = self.without_springboard(&place.site, &run);
        if let Seen::Jump(patch) = &seen {
            self.cover(&place.site, patch);
        }
        ReturnPoint {
            call: place.site.address,
            at: Svma(end_of(&place.site)),
            is_target: self.is_target(place, &seen),
            seen,
            lends: false,
        }
    }

    fn cover(&mut self, site: &Site, patch: &Patch) {
        let start = self.offset(end_of(site));
        self.covered.insert((start, start + u32::from(patch.span)));
    }

    /// A long jump behind that of another return point, which gets room for it. Gives the number
    /// of that one, what is put there, and what is put at number `at`.
    fn lent(
        &mut self,
        found: &[ReturnPoint],
        places: &[Place<'_>],
        at: usize,
        run: &Run,
    ) -> Option<(usize, Patch, Patch)> {
        let start = end_of(&places[at].site);
        if !self.has_short_room(start, run) {
            return None;
        }
        let from = start + SHORT_JUMP_BYTES;
        let distance = |i: usize| {
            let lender = &places[i].site;
            let lent = self.lent.get(&lender.address.0).copied().unwrap_or(0);
            let jump = end_of(lender) + JUMP_BYTES * (1 + u64::from(lent));
            i8::try_from(jump.wrapping_sub(from) as i64).ok()
        };
        let before = (0..at).rev().map_while(|i| Some((i, distance(i)?)));
        let behind = (at + 1..places.len()).map_while(|i| Some((i, distance(i)?)));
        // Of another function nobody knows whether it is executed when this one is patched.
        let is_near = |place: &Place<'_>| place.function.entry == places[at].function.entry;
        let near = before.chain(behind).filter(|(i, _)| is_near(&places[*i]));
        let near: Vec<(usize, i8)> = near.collect();
        near.into_iter().find_map(|(lender, distance)| {
            let Seen::Jump(narrow) = &found[lender].seen else {
                return None;
            };
            let site = &places[at].site;
            let patch = self.patch(site, run, SHORT_JUMP_BYTES, Some(distance))?;
            let wider = self.wider(&places[lender], narrow)?;
            self.cover(site, &patch);
            Some((lender, wider, patch))
        })
    }

    /// The same patch with room for one more jump, if that is there.
    fn wider(&mut self, place: &Place<'_>, narrow: &Patch) -> Option<Patch> {
        let lent = self.lent.get(&place.site.address.0).copied().unwrap_or(0);
        if lent == MOST_LENT {
            return None;
        }
        let bytes = JUMP_BYTES * (2 + u64::from(lent));
        let start = self.offset(end_of(&place.site));
        let own = (start, start + u32::from(narrow.span));
        self.covered.remove(own);
        let run = self.run(place, bytes);
        let wider = match run.stopped {
            None => self.patch(&place.site, &run, bytes, None),
            Some(_) => None,
        };
        match &wider {
            Some(patch) => {
                self.lent.insert(place.site.address.0, lent + 1);
                self.cover(&place.site, patch);
            }
            None => self.covered.insert(own),
        }
        wider
    }

    fn offset(&self, svma: u64) -> u32 {
        svma.wrapping_sub(self.base.0) as u32
    }

    fn is_free(&self, start: u64, end: u64) -> bool {
        self.covered.is_free(self.offset(start), self.offset(end))
    }

    /// The analysis knows that something leads to `svma`, close behind the site.
    fn is_led_to(&self, site: &Site, svma: u64) -> bool {
        let behind = svma.wrapping_sub(end_of(site));
        let is_leader = behind < u64::from(u16::BITS) && site.leaders_behind >> behind & 1 != 0;
        is_leader || self.stated.binary_search(&svma).is_ok()
    }

    fn is_target(&self, place: &Place<'_>, seen: &Seen) -> bool {
        let first = end_of(&place.site);
        let last = match (seen, place.next) {
            (Seen::Merged, Some((next, _))) => next.address.0,
            _ => first,
        };
        (first..=last).any(|svma| self.is_led_to(&place.site, svma))
    }

    /// What stands behind a call, up to so many bytes or more.
    fn run(&self, place: &Place<'_>, wanted: u64) -> Run {
        let site = &place.site;
        let start = end_of(site);
        let mut run = Run {
            end: start,
            ..Run::default()
        };
        let mut decoder = self.decoder(start, place.function.end.0);
        let mut factory = self.factory.borrow_mut();
        let mut moves_stack = false;
        while run.end < start + wanted {
            if place
                .next
                .is_some_and(|next| self.is_seen_at(run.end, next))
            {
                // The return is known by the stack pointer, which is another by then.
                run.stopped = Some(match moves_stack {
                    true => Stop::At(Obstacle::Unmovable),
                    false => Stop::Site,
                });
                return run;
            }
            if !decoder.can_decode() {
                run.stopped = Some(Stop::At(Obstacle::End));
                return run;
            }
            let i = decoder.decode();
            if let Some(obstacle) = self.obstacle(site, &i) {
                run.stopped = Some(Stop::At(obstacle));
                return run;
            }
            moves_stack |= changes_rsp(&i, &mut factory);
            run.end = i.next_ip();
            run.ends.push(run.end);
            run.onward = onward(&i);
            if run.onward.is_some() {
                self.add_filling(site, &mut run, start + wanted);
                return run;
            }
        }
        run
    }

    /// Takes in filling behind an instruction that control does not pass, in the function or
    /// between it and the next one, as far as it is needed.
    fn add_filling(&self, site: &Site, run: &mut Run, enough: u64) {
        let after = self
            .analysis
            .functions
            .partition_point(|f| f.entry.0 < run.end);
        let next_entry = self.analysis.functions.get(after).map(|f| f.entry.0);
        // The last function's filling ends nobody knows where.
        let limit = next_entry.unwrap_or(run.end);
        let mut decoder = self.decoder(run.end, limit);
        while run.end < enough {
            if !decoder.can_decode() {
                run.stopped = Some(Stop::At(Obstacle::End));
                return;
            }
            let i = decoder.decode();
            let obstacle = match is_filling(&i) {
                true => self.obstacle(site, &i),
                // Something leads there.
                false => Some(Obstacle::Target),
            };
            if let Some(obstacle) = obstacle {
                run.stopped = Some(Stop::At(obstacle));
                return;
            }
            run.end = i.next_ip();
        }
    }

    /// The code from `start` to `end`, as far as the image has it.
    fn decoder(&self, start: u64, end: u64) -> Decoder<'_> {
        let bytes = end.saturating_sub(start) as usize;
        let code = self.object.code_from(Svma(start)).unwrap_or(&[]);
        let code = &code[..code.len().min(bytes)];
        Decoder::with_ip(64, code, start, DecoderOptions::NONE)
    }

    /// The slot of the next site begins its work where control comes to `at` from the instruction
    /// before.
    fn is_seen_at(&self, at: u64, (next, row): (Site, PlanSite)) -> bool {
        // Not the slot of a site that is entered from another place.
        let is_taken = row.form != SiteForm::Refused && row.verdict != Tactic::WayIn as u8;
        is_taken && (next.address.0 == at || row.start == self.offset(at))
    }

    /// Why an instruction behind a call cannot be executed elsewhere.
    fn obstacle(&self, site: &Site, i: &Instruction) -> Option<Obstacle> {
        let start = end_of(site);
        let covered_from = i.ip().max(start + 1);
        let is_movable = movable(i) || i.is_jcc_short_or_near() || onward(i).is_some();
        if (covered_from..i.next_ip()).any(|svma| self.is_led_to(site, svma)) {
            Some(Obstacle::Target)
        } else if i.ip() > start && site.flags.contains(SiteFlags::LEADER_SUSPECT) {
            Some(Obstacle::UnresolvedJumps)
        } else if !is_movable && !is_filling(i) {
            Some(Obstacle::Unmovable)
        } else if !self.is_free(i.ip(), i.next_ip()) {
            Some(Obstacle::Covered)
        } else {
            None
        }
    }

    fn without_springboard(&self, site: &Site, run: &Run) -> Seen {
        match run.stopped {
            Some(Stop::Site) => Seen::Merged,
            Some(Stop::At(obstacle)) => Seen::Refused(obstacle),
            None => match self.patch(site, run, JUMP_BYTES, None) {
                Some(patch) => Seen::Jump(patch),
                None => Seen::Refused(Obstacle::Unmovable),
            },
        }
    }

    /// A two-byte jump over the first instructions behind the call.
    fn with_springboard(&mut self, place: &Place<'_>, run: &Run) -> Option<Patch> {
        let start = end_of(&place.site);
        if !self.has_short_room(start, run) {
            return None;
        }
        loop {
            let function = place.function;
            let distance = self.springboards.take(self.object, function, Svma(start))?;
            let at = (start + SHORT_JUMP_BYTES).wrapping_add_signed(i64::from(distance));
            let is_own = at < run.end && at + JUMP_BYTES > start;
            if !is_own && self.is_free(at, at + JUMP_BYTES) {
                let patch = self.patch(&place.site, run, SHORT_JUMP_BYTES, Some(distance))?;
                let jump = self.offset(at);
                self.covered.insert((jump, jump + JUMP_BYTES as u32));
                self.cover(&place.site, &patch);
                return Some(patch);
            }
        }
    }

    /// A two-byte jump fits behind the call.
    fn has_short_room(&self, start: u64, run: &Run) -> bool {
        let end = start + SHORT_JUMP_BYTES;
        run.end >= end && self.is_free(start, end)
    }

    /// A jump of at least so many bytes behind the call, and its slot.
    fn patch(&self, site: &Site, run: &Run, bytes: u64, springboard: Option<i8>) -> Option<Patch> {
        self.patch_and(site, run, bytes, |t| {
            if let Some(distance) = springboard {
                t.set_springboard(distance);
            }
            true
        })
    }

    /// The same, with something else that is done with the slot at its end. `None`: it cannot be.
    fn patch_and(
        &self,
        site: &Site,
        run: &Run,
        bytes: u64,
        then: impl FnOnce(&mut Builder) -> bool,
    ) -> Option<Patch> {
        let start = end_of(site);
        let is_enough = |end: &&u64| **end >= start + bytes;
        let moved_end = *run.ends.iter().find(is_enough).or(run.ends.last())?;
        // With filling behind it.
        let end = moved_end.max(start + bytes);
        let is_last = run.ends.last() == Some(&moved_end);
        let onward = run.onward.filter(|_| is_last);
        let mut t = Builder::new(self.base);
        let moved = (Svma(start), Svma(moved_end));
        if !t.return_point(self.object, moved, onward) || !then(&mut t) {
            return None;
        }
        let span = (end - start) as usize;
        let original = self.object.code_from(Svma(start))?.get(..span)?;
        Some(Patch {
            span: u8::try_from(span).ok()?,
            moved: u8::try_from(moved_end - start).ok()?,
            of_several: bytes > JUMP_BYTES
                || run.ends.first().is_none_or(|end| end - start < bytes),
            slot_bytes: t.slot_bytes(),
            template: t.finish(original),
        })
    }
}

/// Behind the call, where its callee returns to.
fn end_of(site: &Site) -> u64 {
    site.address.0 + u64::from(site.length)
}

fn changes_rsp(i: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
    let used = factory.info(i).used_registers().iter();
    let reads = [OpAccess::Read, OpAccess::CondRead, OpAccess::NoMemAccess];
    let changed = used.filter(|used| !reads.contains(&used.access()));
    changed
        .map(|used| used.register().full_register())
        .any(|register| register == Register::RSP)
}

fn is_go_panic(name: &str) -> bool {
    let panics = GO_PANICS.iter().any(|start| name.starts_with(start));
    panics && !name.starts_with(GO_CHECKS) || GO_THROWS.contains(&name)
}

/// How control goes on behind an instruction that it does not pass, in words of a slot; `None`: it
/// passes it, or nobody can tell.
fn onward(i: &Instruction) -> Option<Onward> {
    let bytes = i.len();
    match i.flow_control() {
        FlowControl::Return if i.mnemonic() == Mnemonic::Ret => Some(Onward::Return { bytes }),
        FlowControl::UnconditionalBranch if i.op0_kind() == OpKind::NearBranch64 => {
            let target = Svma(i.near_branch_target());
            Some(Onward::Jump { bytes, target })
        }
        _ => None,
    }
}
