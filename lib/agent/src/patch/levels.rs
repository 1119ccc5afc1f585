//! The call sites of some functions are patched in their other way: counted, or recorded again; or
//! what was counted gets the program's own instruction back.
//!
//! Given functions by their addresses; has the text of all call sites that certainly lead to them,
//! in functions that are instrumented, lead to the site's other slot. Given a site through a
//! pointer by its id; does the same with that. Other threads may be anywhere meanwhile: both ways
//! differ in one instruction, and a frame that was recorded when it began returns to its own slot.
//! Under the propagation lock. Must not know why, and who asks.
//!
//! All sites of the process are looked at, a hundred thousand in large programs, and the thread
//! that does it stands still meanwhile. So what is not wished for is left as early as can be, and
//! the tables that the linker filled are read by the row, as each look at memory that may be gone
//! is a system call.

use crate::memory::sys;
use crate::memory::table::{INSTRUMENTED, Module};
use crate::patch::{site, text};
use crate::plans::patched::Patch;
use crate::plans::{plan, slot};
use sptrace_wire::levels::{OFF, RECORDED};
use sptrace_wire::plan::*;

/// So many functions are looked for at once.
pub const WISHES: usize = 64;

/// Bits of [`Wishes::marks`]; a power of two.
const MARKS: usize = 1024;
/// Rows of words that are kept of the linker's tables, and the words of a row; powers of two.
const ROWS: usize = 16;
const ROW_WORDS: usize = 64;

/// Functions or sites, and the level that each is to have.
pub struct Wishes {
    wishes: [(u64, u32); WISHES],
    count: usize,
    /// One for each address that there is, and maybe for others.
    marks: [u64; MARKS / 64],
}

/// Words of the program that may not be there. For a moment: they can change.
struct Words {
    rows: [Row; ROWS],
}

/// The words from `at` on, as many as could be read.
#[derive(Clone, Copy)]
struct Row {
    at: u64,
    words: [u64; ROW_WORDS],
    count: usize,
}

impl Wishes {
    /// None.
    pub const fn none() -> Self {
        Self {
            wishes: [(0, 0); WISHES],
            count: 0,
            marks: [0; MARKS / 64],
        }
    }

    /// One more, which counts more than those before; false: there is no room.
    pub fn add(&mut self, avma: u64, level: u32) -> bool {
        let taken = self.wishes.get_mut(..self.count).unwrap_or(&mut []);
        if let Some(known) = taken.iter_mut().find(|wish| wish.0 == avma) {
            known.1 = level;
            return true;
        }
        let place = self.wishes.get_mut(self.count);
        place.is_some_and(|place| {
            *place = (avma, level);
            self.count += 1;
            let (word, bit) = mark(avma);
            self.marks[word] |= bit;
            true
        })
    }

    #[inline]
    fn level_of(&self, avma: u64) -> Option<u32> {
        let (word, bit) = mark(avma);
        (self.marks[word] & bit != 0).then(|| self.find(avma))?
    }

    fn find(&self, avma: u64) -> Option<u32> {
        let all = self.wishes.get(..self.count).unwrap_or(&[]);
        let found = all.iter().find(|wish| wish.0 == avma);
        found.map(|wish| wish.1)
    }
}

/// Where the mark of an address is.
#[inline]
fn mark(avma: u64) -> (usize, u64) {
    let mixed = avma.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let at = mixed as usize % MARKS;
    (at / 64, 1 << (at % 64))
}

impl Words {
    fn new() -> Self {
        let none = Row {
            at: u64::MAX,
            words: [0; ROW_WORDS],
            count: 0,
        };
        Self { rows: [none; ROWS] }
    }

    /// The word at `at`, if it can be read.
    fn read(&mut self, at: u64) -> Option<u64> {
        const ROW_BYTES: u64 = (ROW_WORDS * 8) as u64;
        if !at.is_multiple_of(8) {
            return sys::read_word(at);
        }
        let start = at / ROW_BYTES * ROW_BYTES;
        let row = &mut self.rows[(at / ROW_BYTES) as usize % ROWS];
        if row.at != start {
            // A page's end is a row's end, too.
            row.count = sys::read_words(start, &mut row.words) / 8;
            row.at = start;
        }
        let words = row.words.get(..row.count)?;
        words.get(((at - start) / 8) as usize).copied()
    }
}

/// Carries them out in the text of a module.
pub fn carry_out(m: &Module, wishes: &Wishes) {
    let Some(plan) = m.plan().filter(|_| m.is_planned() && !m.doubtful.get()) else {
        return;
    };
    let mut batch = text::Batch::of(m);
    let mut words = Words::new();
    for (i, f) in plan::functions(m) {
        if m.function(i) != INSTRUMENTED {
            continue;
        }
        for site in f.first_site..f.first_site.saturating_add(f.site_count) {
            let Some(recorded) = plan.site(site) else {
                break;
            };
            let callee = callee(m, &plan, &recorded, &mut words);
            let wished = callee.map(|callee| wishes.level_of(callee));
            if wished == Some(None) {
                continue;
            }
            let Some(counted) = plan.twin(site) else {
                continue;
            };
            let level = match wished {
                Some(level) => level,
                // It is named as its last calls were: recorded, or counted.
                None => [&recorded, &counted]
                    .into_iter()
                    .find_map(|s| wishes.level_of(id(m, &plan, s)?)),
            };
            if let Some(level) = level {
                lead(m, (&recorded, &counted), level, &mut batch);
            }
        }
    }
    batch.flush();
}

/// Where the calls of a site certainly lead: the callee that it names, or that the linker has put
/// into its slot of the global offset table.
fn callee(m: &Module, plan: &PlanView<'_>, s: &PlanSite, words: &mut Words) -> Option<u64> {
    let in_process = |svma: u64| svma.wrapping_sub(plan.header().base_svma) + m.base.get();
    match plan.callee(s) {
        Some(callee) => Some(in_process(callee)),
        None => words.read(in_process(plan.got_slot(s)?)),
    }
}

/// By which the calls of a site are recorded, or counted.
fn id(m: &Module, plan: &PlanView<'_>, s: &PlanSite) -> Option<u64> {
    let (entry, _) = plan.ids(s)?;
    Some(m.area_start() + u64::from(s.slot) + u64::from(entry))
}

/// Back to being recorded only where both have the same bytes before their last instruction: a
/// thread may stand between them.
fn lead(
    m: &Module,
    (recorded, counted): (&PlanSite, &PlanSite),
    level: u32,
    batch: &mut text::Batch,
) {
    let patches = (Patch::of_site(m, recorded), Patch::of_site(m, counted));
    let (Some(records), Some(counts)) = patches else {
        return;
    };
    let stands = |p: &Patch| m.stands(p.at, p.ours.bytes());
    // One instruction of the same length, whose slots were written before it was off.
    let can_be_off = counted.form == SiteForm::Counted;
    let id = || m.area_start() + u64::from(counted.slot) + u64::from(COUNTED_ID);
    let is_off = can_be_off
        && m.has_off.get()
        && !m.is_written.get()
        && m.stands(counts.at, counts.overwritten())
        && slot::cell_of(id()).is_some();
    if level == OFF && can_be_off && !m.is_written.get() {
        if stands(&counts) || stands(&records) && site::write_slot(m, counted) {
            m.has_off.set(true);
            batch.add_bytes(counts.at, counts.overwritten());
        }
    } else if level != RECORDED {
        if is_off || stands(&records) && site::write_slot(m, counted) {
            batch.add(&counts);
        }
    } else if is_off || counts.ours.bytes().len() == records.ours.bytes().len() && stands(&counts) {
        // A site that began with its other slot may have none that records, or what a former agent
        // has left in its place.
        if is_off || !counted.begins() || site::write_slot(m, recorded) {
            batch.add(&records);
        }
    }
}
