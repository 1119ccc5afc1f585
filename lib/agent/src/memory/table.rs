//! The table of modules: where the code of each lies, and what is known of it.
//!
//! Given by those who make a module known; gives references to its entry. Entries stay for life,
//! so who has one may keep it; a fork child alone moves them. Changed under the propagation lock.
//! Must not know where a module comes from.

use crate::memory::area::Area;
use crate::memory::live;
use crate::memory::word::{Bound, Flag, Word};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, Ordering};
use sptrace_wire::plan::{MET, PlanView};

/// Where a module's code lies and what is known of it.
pub struct Module {
    /// First executable avma.
    pub start: Word,
    /// End of the executable part.
    pub end: Word,
    /// avma of the plan's `base_svma`.
    pub base: Word,
    /// What its first bytes were when it was met: see [`crate::reach::check`].
    pub print: Word,
    plan: PlanCell,
    /// Execute view of the patch area; 0: the module is left alone.
    area: Bound,
    /// Write view of the same bytes.
    area_rw: Bound,
    /// Bytes of the area.
    area_bytes: Bound,
    /// One byte a function of the plan: [`UNTOUCHED`], [`TAILS`], [`ROOTS`], [`INSTRUMENTED`].
    functions: Bound,
    /// One byte a function in the arena ([`sptrace_wire::plan::PlanHeader::met_at`]).
    met: Bound,
    /// Its functions that were met before have not been looked at: see
    /// [`crate::reach::instrument::ahead`].
    pub is_new: Flag,
    /// It must be checked before use (dlclose happened).
    pub doubtful: Flag,
    /// It is unmapped.
    pub gone: Flag,
    /// Something was done to its constants: see [`crate::memory::constants`].
    pub is_changed: Flag,
    /// Calls of some functions are off: sites of functions that are instrumented may be as they
    /// were ([`sptrace_wire::levels::OFF`]).
    pub has_off: Flag,
    /// The program may write to its text: sites of ours were put back for that, for good.
    pub is_written: Flag,
    /// Calls through pointers into it are recorded with the callee's full address, by the slow
    /// path.
    pub wide: Flag,
    /// It is left alone, and no code of the program is called from there.
    pub calls_nothing: Flag,
    /// Its text has been made one mapping, or cannot be: see [`crate::patch::mappings`].
    pub joined: Flag,
    /// What a former agent has left is in the place of the execute view still.
    pub is_left: Flag,
    /// Fork children do not inherit what was mapped for it, for nothing leads there: see
    /// [`crate::plans::modules::share`].
    pub is_private: Flag,
    /// Bytes of the area that have been written.
    pub area_used: Word,
    /// Wirings of the area that this process knows of; a fork child compares them with the area's
    /// own count.
    pub wirings: Word,
}

/// [`Module::function`]: not reached yet.
pub const UNTOUCHED: u8 = 0;
/// [`Module::function`]: its sites are patched.
pub const INSTRUMENTED: u8 = 1;
/// [`Module::function`]: its tail jumps are, no more: it was too deep.
pub const TAILS: u8 = 2;
/// [`Module::function`]: some of its calls of roots, or where they return to, no more.
pub const ROOTS: u8 = 3;
/// A bit beside the state of a function: return points of it were left alone.
const POINTS_WAIT: u8 = 0x80;
/// The same: it is about to be instrumented with others.
const AHEAD: u8 = 0x40;
/// At most this many modules in a process.
pub const MODULES: usize = 512;

/// `None`: the module is left alone.
struct PlanCell(UnsafeCell<Option<PlanView<'static>>>);

// SAFETY: written while nobody else can read it: see Module::become_other.
unsafe impl Sync for PlanCell {}

/// What is mapped for a module that is planned.
#[derive(Clone, Copy)]
pub struct Mapped {
    /// Its plan.
    pub plan: PlanView<'static>,
    /// Execute view of its patch area.
    pub area: u64,
    /// Write view of the same bytes.
    pub area_rw: u64,
    /// Bytes of the area.
    pub area_bytes: u64,
    /// One byte a function of the plan.
    pub functions: u64,
    /// The same in the arena.
    pub met: u64,
}

impl Module {
    /// An entry that is not taken.
    pub const fn none() -> Self {
        Self {
            start: Word::new(0),
            end: Word::new(0),
            base: Word::new(0),
            print: Word::new(0),
            plan: PlanCell(UnsafeCell::new(None)),
            area: Bound::zero(),
            area_rw: Bound::zero(),
            area_bytes: Bound::zero(),
            functions: Bound::zero(),
            met: Bound::zero(),
            is_new: Flag::new(false),
            doubtful: Flag::new(false),
            gone: Flag::new(false),
            is_changed: Flag::new(false),
            has_off: Flag::new(false),
            is_written: Flag::new(false),
            wide: Flag::new(false),
            calls_nothing: Flag::new(false),
            joined: Flag::new(false),
            is_left: Flag::new(false),
            is_private: Flag::new(false),
            area_used: Word::new(0),
            wirings: Word::new(0),
        }
    }

    /// The plan. `None`: the module is left alone.
    #[inline]
    pub fn plan(&self) -> Option<PlanView<'static>> {
        self.plan_ref().copied()
    }

    /// The same, where it lies: it is long.
    #[inline]
    pub fn plan_ref(&self) -> Option<&PlanView<'static>> {
        // SAFETY: complete before the entry is known to others (see become_other and with).
        unsafe { (*self.plan.0.get()).as_ref() }
    }

    /// True if it has a plan.
    #[inline]
    pub fn has_plan(&self) -> bool {
        self.plan_ref().is_some()
    }

    /// True if it has a plan and is mapped, as far as is known.
    #[inline]
    pub fn is_planned(&self) -> bool {
        self.has_plan() && !self.gone.get()
    }

    /// Its patch area, which may be empty.
    #[inline]
    pub fn area(&self) -> Area {
        let (run, write) = (self.area.get(), self.area_rw.get());
        // SAFETY: mapped by who set them (see become_other and with), for life.
        unsafe { Area::new(run, write, self.area_bytes.get()) }
    }

    /// True if `address` lies in its patch area.
    #[inline]
    pub fn area_holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.area.get()) < self.area_bytes.get()
    }

    /// Where its patch area is executed; 0: it has none.
    #[inline]
    pub fn area_start(&self) -> u64 {
        self.area.get()
    }

    /// Where its patch area is written; 0: it has none.
    pub fn area_rw(&self) -> u64 {
        self.area_rw.get()
    }

    /// Bytes of its patch area.
    pub fn area_bytes(&self) -> u64 {
        self.area_bytes.get()
    }

    /// Where the states of its functions are.
    pub fn functions_at(&self) -> u64 {
        self.functions.get()
    }

    #[inline]
    fn state_of(&self, i: u32) -> Option<&'static AtomicU8> {
        let count = self.plan_ref()?.header().functions;
        // SAFETY: a byte for each function of the plan is mapped there for life (see with).
        (i < count).then(|| unsafe { &*((self.functions.get() + u64::from(i)) as *const AtomicU8) })
    }

    /// How far function number `i` is instrumented.
    #[inline]
    pub fn function(&self, i: u32) -> u8 {
        let state = self.state_of(i);
        let state = state.map_or(UNTOUCHED, |state| state.load(Ordering::Relaxed));
        state & !(POINTS_WAIT | AHEAD)
    }

    /// Says how far function number `i` is instrumented.
    pub fn set_function(&self, i: u32, to: u8) {
        if let Some(state) = self.state_of(i) {
            let waits = match to {
                UNTOUCHED => 0,
                _ => state.load(Ordering::Relaxed) & (POINTS_WAIT | AHEAD),
            };
            state.store(to | waits, Ordering::Relaxed);
        }
    }

    /// Says that function number `i`, which was not reached, is about to be instrumented with
    /// others.
    pub fn set_ahead(&self, i: u32) {
        if let Some(state) = self.state_of(i) {
            state.store(INSTRUMENTED | AHEAD, Ordering::Relaxed);
        }
    }

    /// Is function number `i` one of these? It is none from here on.
    pub fn take_ahead(&self, i: u32) -> bool {
        let state = self.state_of(i);
        state.is_some_and(|state| state.fetch_and(!AHEAD, Ordering::Relaxed) & AHEAD != 0)
    }

    fn met_of(&self, i: u32) -> Option<&'static AtomicU8> {
        let (count, met) = (self.plan_ref()?.header().functions, self.met.get());
        // SAFETY: a byte for each function of the plan is mapped there for life (see with).
        (i < count && met != 0).then(|| unsafe { &*((met + u64::from(i)) as *const AtomicU8) })
    }

    /// Was function number `i` met before, by this process or another?
    pub fn is_met(&self, i: u32) -> bool {
        let met = self.met_of(i);
        met.is_some_and(|met| met.load(Ordering::Relaxed) != 0)
    }

    /// It is met now.
    pub fn meet(&self, i: u32) {
        if let Some(met) = self
            .met_of(i)
            .filter(|met| met.load(Ordering::Relaxed) != MET)
        {
            met.store(MET, Ordering::Relaxed);
        }
    }

    /// Return points of function number `i` were left alone, or none is any more.
    pub fn set_points_wait(&self, i: u32, wait: bool) {
        if let Some(state) = self.state_of(i) {
            match wait {
                true => state.fetch_or(POINTS_WAIT, Ordering::Relaxed),
                false => state.fetch_and(!POINTS_WAIT, Ordering::Relaxed),
            };
        }
    }

    /// The functions that are instrumented, but for return points that were left alone.
    pub fn points_wait(&self) -> impl Iterator<Item = u32> + use<'_> {
        let count = self.plan_ref().map_or(0, |plan| plan.header().functions);
        let waits = |state: &AtomicU8| state.load(Ordering::Relaxed) == INSTRUMENTED | POINTS_WAIT;
        (0..count).filter(move |i| self.state_of(*i).is_some_and(waits))
    }

    fn text_holds(&self, at: u64, bytes: u64) -> bool {
        let end = at.checked_add(bytes);
        at >= self.start.get() && end.is_some_and(|end| end <= self.end.get())
    }

    /// True if these bytes stand at `at` in its text.
    pub fn stands(&self, at: u64, bytes: &[u8]) -> bool {
        // SAFETY: the text of a module is mapped until it is known to be gone, and was looked at
        // before if that was in doubt.
        self.text_holds(at, bytes.len() as u64) && unsafe { live::stands(at, bytes) }
    }

    /// The bytes at `at` in its text. `None`: that is elsewhere.
    pub fn text<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        // SAFETY: as in stands.
        self.text_holds(at, N as u64)
            .then(|| unsafe { live::bytes(at) })
    }

    /// Enters another module here, or none: what `other` says.
    ///
    /// # Safety
    /// Nobody else reads this entry: it lies behind the last one, or there is one thread.
    pub unsafe fn become_other(&self, other: &Self) {
        let words = [
            (&self.start, &other.start),
            (&self.end, &other.end),
            (&self.base, &other.base),
            (&self.print, &other.print),
            (&self.area_used, &other.area_used),
            (&self.wirings, &other.wirings),
        ];
        for (to, from) in words {
            to.set(from.get());
        }
        let flags = [
            (&self.doubtful, &other.doubtful),
            (&self.gone, &other.gone),
            (&self.wide, &other.wide),
            (&self.calls_nothing, &other.calls_nothing),
            (&self.joined, &other.joined),
            (&self.is_left, &other.is_left),
            (&self.is_private, &other.is_private),
            (&self.is_new, &other.is_new),
        ];
        for (to, from) in flags {
            to.set(from.get());
        }
        // SAFETY: the caller's, and what another entry has is mapped for life.
        unsafe {
            *self.plan.0.get() = other.plan();
            self.area.set(other.area.get());
            self.area_rw.set(other.area_rw.get());
            self.area_bytes.set(other.area_bytes.get());
            self.functions.set(other.functions.get());
            self.met.set(other.met.get());
        }
    }

    /// The same module with what was mapped for it.
    ///
    /// # Safety
    /// Both views are mapped for life with so many bytes, and two bytes for each of the plan's
    /// functions, one of them in the arena unless that is 0.
    pub unsafe fn with(self, mapped: &Mapped) -> Self {
        // SAFETY: the caller's; nobody else has it yet.
        unsafe {
            *self.plan.0.get() = Some(mapped.plan);
            self.area.set(mapped.area);
            self.area_rw.set(mapped.area_rw);
            self.area_bytes.set(mapped.area_bytes);
            self.functions.set(mapped.functions);
            self.met.set(mapped.met);
        }
        self
    }

    /// Another write view takes the place of the one that there was.
    ///
    /// # Safety
    /// It is mapped for life with as many bytes, and nobody writes to the other.
    pub unsafe fn set_area_rw(&self, area_rw: u64) {
        // SAFETY: the caller's.
        unsafe { self.area_rw.set(area_rw) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_without_a_plan_has_no_functions_and_no_area() {
        let module = Module::none();
        module.set_function(0, INSTRUMENTED);
        assert_eq!(module.function(0), UNTOUCHED);
        assert!(!module.is_planned() && !module.area().holds(0));
    }

    #[test]
    fn bytes_outside_of_the_text_do_not_stand_there() {
        let module = Module::none();
        let text = *b"0123456789";
        let at = text.as_ptr() as u64;
        module.start.set(at + 1);
        module.end.set(at + 9);
        assert!(module.stands(at + 1, b"12") && !module.stands(at + 1, b"13"));
        assert!(!module.stands(at, b"0") && !module.stands(at + 8, b"89"));
        assert!(!module.stands(u64::MAX, b"12"));
        assert_eq!(module.text(at + 7), Some(*b"78"));
        assert_eq!(module.text::<2>(at + 8), None);
    }

    #[test]
    fn an_entry_becomes_another_in_all_that_it_says() {
        let (one, other) = (Module::none(), Module::none());
        one.gone.set(true);
        other.start.set(5);
        other.wide.set(true);
        // SAFETY: both are this test's.
        unsafe { one.become_other(&other) };
        assert_eq!(
            (one.start.get(), one.gone.get(), one.wide.get()),
            (5, false, true)
        );
    }
}
