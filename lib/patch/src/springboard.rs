//! Springboards: five bytes of padding that no control flow reaches, within a two-byte jump's
//! reach.
//!
//! Padding between two functions is taken where the unwind table ends one and begins the other, no
//! function is known inside, all bytes are filling (nop forms, int3), and the function before ends
//! in an instruction after which control cannot go on: so that not even a wrong idea of what
//! returns could lead there. Inside a function the filling that aligns a label is taken: nop forms
//! after a return or an unconditional jump, up to an address divisible by 8, that no direct branch
//! of the function targets (a jump table's label stands behind the filling, not in it).

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};
use sptrace_addr::Svma;
use sptrace_code::{Analysis, Function};
use sptrace_image::Object;

/// Bytes of a long jump.
const JUMP_BYTES: u64 = 5;
/// A two-byte jump reaches this far from its end.
const REACH_BYTES: i64 = 127;

/// Padding of a module, handed out piece by piece.
pub struct Springboards {
    /// Filling inside functions that were looked at, and whether it is still free.
    inside: HashMap<u64, Vec<(u64, u64)>>,
    /// (start, end), sorted, disjoint, checked except for the function before.
    gaps: Vec<(u64, u64)>,
    /// Filling at a function's end, which is taken to be a part of it, is taken, too.
    takes_ends: bool,
}

impl Springboards {
    /// All gaps between FDEs that are wide enough.
    pub fn find(object: &Object<'_>, analysis: &Analysis) -> Self {
        let fdes = object.unwind.fdes();
        let gaps = fdes
            .windows(2)
            .map(|pair| (pair[0].end.0, pair[1].start.0))
            .filter(|(start, end)| end.saturating_sub(*start) >= JUMP_BYTES && end - start < 256)
            .filter(|(start, end)| {
                let next = analysis.functions.partition_point(|f| f.entry.0 < *start);
                analysis
                    .functions
                    .get(next)
                    .is_none_or(|f| f.entry.0 >= *end)
            })
            .collect();
        Self {
            inside: HashMap::default(),
            gaps,
            takes_ends: false,
        }
    }

    /// The same, with the filling at the ends of functions where nothing says that it is between
    /// them, as in Go's table of functions.
    pub fn find_with_ends(object: &Object<'_>, analysis: &Analysis) -> Self {
        Self {
            takes_ends: true,
            ..Self::find(object, analysis)
        }
    }

    /// Takes a springboard for a two-byte jump at `site`. Gives the signed distance from the jump's
    /// end.
    pub fn take(&mut self, object: &Object<'_>, function: &Function, site: Svma) -> Option<i8> {
        self.take_between(object, site)
            .or_else(|| self.take_inside(object, function, site))
    }

    fn take_inside(&mut self, object: &Object<'_>, f: &Function, site: Svma) -> Option<i8> {
        let from = site.0 as i64 + 2;
        let free = self
            .inside
            .entry(f.entry.0)
            .or_insert_with(|| filling_inside(object, f, self.takes_ends));
        let reachable = |g: &(u64, u64)| {
            let at = g.0.max((from - REACH_BYTES).max(0) as u64);
            (at + JUMP_BYTES <= g.1 && (at as i64 - from).abs() <= REACH_BYTES).then_some(at)
        };
        let (i, at) = free
            .iter()
            .enumerate()
            .find_map(|(i, g)| Some((i, reachable(g)?)))?;
        free[i].0 = at + JUMP_BYTES;
        i8::try_from(at as i64 - from).ok()
    }

    fn take_between(&mut self, object: &Object<'_>, site: Svma) -> Option<i8> {
        let from = site.0 as i64 + 2;
        let near = |at: u64| (at as i64 - from).abs() <= REACH_BYTES;
        let first = self
            .gaps
            .partition_point(|g| (g.1 as i64) < from - REACH_BYTES);
        for i in first..self.gaps.len() {
            let (start, end) = self.gaps[i];
            if start as i64 > from + REACH_BYTES {
                return None;
            }
            // Out of reach at the gap's start, its nearest place may be in reach.
            let at = start.max((from - REACH_BYTES).max(0) as u64);
            if at + JUMP_BYTES > end || !near(at) || !is_dead_filling(object, start, end) {
                continue;
            }
            self.gaps[i].0 = at + JUMP_BYTES;
            return i8::try_from(at as i64 - from).ok();
        }
        None
    }
}

/// Fills the space between labels.
pub(crate) fn is_filling(i: &iced_x86::Instruction) -> bool {
    matches!(i.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
        || i.mnemonic() == Mnemonic::Xchg && i.op0_register() == i.op1_register()
}

/// Runs of filling in a function that no control flow reaches.
fn filling_inside(object: &Object<'_>, f: &Function, takes_ends: bool) -> Vec<(u64, u64)> {
    let bytes = f.end.0.saturating_sub(f.entry.0) as usize;
    let Some(code) = object.code_from(f.entry).and_then(|c| c.get(..bytes)) else {
        return Vec::new();
    };
    let mut decoder = Decoder::with_ip(64, code, f.entry.0, DecoderOptions::NONE);
    let (mut runs, mut targets) = (Vec::new(), HashSet::default());
    let mut after_end = false;
    let mut run: Option<u64> = None;
    while decoder.can_decode() {
        let i = decoder.decode();
        if i.is_invalid() {
            // Data in the code: what follows cannot be trusted.
            return Vec::new();
        }
        let filling = is_filling(&i);
        match run {
            None if after_end && filling => run = Some(i.ip()),
            Some(start) if !filling => {
                runs.push((start, i.ip()));
                run = None;
            }
            _ => {}
        }
        if !filling {
            after_end = matches!(
                i.flow_control(),
                FlowControl::Return | FlowControl::UnconditionalBranch
            );
        }
        if i.near_branch_target() != 0 {
            targets.insert(i.near_branch_target());
        }
    }
    if let Some(start) = run.filter(|_| takes_ends) {
        runs.push((start, f.end.0));
    }
    let free = |r: &(u64, u64)| {
        r.1 - r.0 >= JUMP_BYTES
            && r.1.is_multiple_of(8)
            && !(r.0..r.1).any(|a| targets.contains(&a))
    };
    runs.into_iter().filter(free).collect()
}

/// All filling, and not reached from the instruction before.
fn is_dead_filling(object: &Object<'_>, start: u64, end: u64) -> bool {
    let Some(fde) = object
        .unwind
        .fde_at(Svma(start - 1))
        .or_else(|| object.unwind.fde_at(Svma(start - 6)))
    else {
        return false;
    };
    let Some(code) = object.code_from(fde.start) else {
        return false;
    };
    let Some(body) = code.get(..(fde.end.0 - fde.start.0) as usize) else {
        return false;
    };
    let mut decoder = Decoder::with_ip(64, body, fde.start.0, DecoderOptions::NONE);
    let mut ends = false;
    while decoder.can_decode() {
        let i = decoder.decode();
        ends = matches!(
            i.flow_control(),
            FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
        ) || i.mnemonic() == Mnemonic::Ud2;
    }
    let Some(filling) = code.get((fde.end.0 - fde.start.0) as usize..(end - fde.start.0) as usize)
    else {
        return false;
    };
    let mut decoder = Decoder::with_ip(64, filling, fde.end.0, DecoderOptions::NONE);
    let mut all_nops = true;
    while decoder.can_decode() {
        let i = decoder.decode();
        all_nops &= is_filling(&i);
    }
    ends && all_nops
}
