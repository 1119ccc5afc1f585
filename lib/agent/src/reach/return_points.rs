//! Return points: which of them may be patched, and when ([`SITE_RETURN`]).
//!
//! Given a function whose call sites are patched; patches the places that its calls return to.
//! Given a return address that a root was called with, or a module with calls of roots; patches
//! those alone: what is around a root is not instrumented. Where several instructions are
//! overwritten, nobody may stand between them, nor in those that are moved away to make room, which
//! may be another function's. Must not know what roots are for.

use crate::frames::handlers;
use crate::memory::table::{Module, ROOTS, UNTOUCHED};
use crate::memory::thread::Hot;
use crate::memory::{lock, state, stopped, sys};
use crate::patch::{site, text};
use crate::plans::patched::{Patch, Springboard};
use crate::plans::{modules, plan};
use crate::reach::thread;
use crate::signals::sigframe;
use core::cell::OnceCell;
use core::ops::Range;
use core::sync::atomic::Ordering;
use sptrace_wire::plan::*;

/// A module with more call sites has its return points patched when its functions are reached.
const MOST_AHEAD: u32 = 1 << 19;
/// The same while there is one thread: that mostly stays alone, where return points may be patched
/// at any time, and a start of perl would take 18 ms longer.
const MOST_AHEAD_ALONE: u32 = 1 << 12;

/// Can nobody stand between two instructions in these bytes of a function that has not been reached
/// yet? Who executes it was called by code that is not seen, and goes on in another thread, or when
/// a handler has ended.
fn nobody_stands_in(bytes: Range<u64>) -> bool {
    !may_run_unseen() || nobody_runs_in(bytes)
}

/// The same of any function.
fn nobody_runs_in(bytes: Range<u64>) -> bool {
    // Looked at for each patch by itself. But where goroutines take turns, one that was taken off
    // its thread may stand anywhere, on a stack that no thread is on.
    if stopped::is_standing() && !state::process().small_stacks.get() {
        return true;
    }
    let may_stand = |hot: &Hot| {
        handlers::surely_handled_in(hot.mask.get()) != 0
            && sigframe::may_be_interrupted_in(bytes, hot.came_from.get())
    };
    let is_nobody = || thread::of_gs().is_some_and(|hot| !may_stand(hot));
    sys::alone() && is_nobody()
}

/// What is moved away to make room for a return point.
fn room_of(m: &Module, point: &PlanSite) -> Option<Range<u64>> {
    let room = Springboard::of_site(m, point)?.room?;
    Some(room.start..room.start + room.original.len() as u64)
}

/// Can nobody stand in what is moved away to make room for this return point of the function `f`?
fn is_room_empty(m: &Module, f: &PlanFunction, point: &PlanSite) -> bool {
    let Some(bytes) = room_of(m, point) else {
        return true;
    };
    match plan::function_around(m, bytes.start) {
        None => false,
        Some((number, owner)) if owner.entry == f.entry || m.function(number) == UNTOUCHED => {
            nobody_stands_in(bytes)
        }
        // It has been reached, and may be executed in this moment.
        Some(_) => nobody_runs_in(bytes),
    }
}

/// Code may run that was called by code that is not seen.
fn may_run_unseen() -> bool {
    let p = state::process();
    p.runs_unseen.get() && !p.is_mapping.get()
}

/// Where the bytes of a row lie.
fn bytes_of(m: &Module, row: &PlanSite) -> Range<u64> {
    m.base.get() + u64::from(row.start)..m.base.get() + u64::from(end_of(row))
}

/// The return points of a function, as they are added to a batch.
pub struct Points<'m> {
    module: &'m Module,
    number: u32,
    function: PlanFunction,
    /// Whether nobody stands in any of them, once that was asked.
    is_safe: OnceCell<bool>,
    borrow: bool,
}

impl<'m> Points<'m> {
    /// Those of a function, given with its number.
    pub fn of(module: &'m Module, (number, function): (u32, PlanFunction)) -> Self {
        Self {
            module,
            number,
            function,
            is_safe: OnceCell::new(),
            borrow: false,
        }
    }

    fn all(&self) -> impl Iterator<Item = (PlanSite, PlanSite)> + use<'m> {
        plan::twins_of(self.module, self.function).filter(|(_, twin)| twin.is_return())
    }

    fn is_safe(&self) -> bool {
        *self.is_safe.get_or_init(|| {
            let bytes = self.all().map(|(_, point)| bytes_of(self.module, &point));
            let all =
                |all: Range<u64>, one: Range<u64>| all.start.min(one.start)..all.end.max(one.end);
            !may_run_unseen() || bytes.reduce(all).is_some_and(nobody_stands_in)
        })
    }

    fn is_safe_at(&self, point: &PlanSite) -> bool {
        self.is_safe() && is_room_empty(self.module, &self.function, point)
    }

    /// Adds the return point of this call, if it has one, unless it borrows room: that comes after
    /// those that lend it.
    pub fn add(&mut self, call: &PlanSite, point: &PlanSite, batch: &mut text::Batch) {
        if !point.is_return() {
            return;
        }
        if point.borrows() {
            self.borrow = true;
        } else if !point.is_of_several() || self.is_safe_at(point) || stands(self.module, point) {
            self.patch(point, batch);
        } else {
            self.leave_alone(call);
        }
    }

    /// Adds those that borrow room.
    pub fn add_others(&self, batch: &mut text::Batch) {
        if !self.borrow {
            return;
        }
        for (call, point) in self.all().filter(|(_, point)| point.borrows()) {
            let lenders = self.all().map(|(_, point)| point);
            let is_lent = || site::is_lent(self.module, &point, lenders);
            match stands(self.module, &point) || self.is_safe() && is_lent() {
                true => self.patch(&point, batch),
                false => self.leave_alone(&call),
            }
        }
    }

    fn patch(&self, point: &PlanSite, batch: &mut text::Batch) {
        let room = room_of(self.module, point);
        let mut changed = [Some(bytes_of(self.module, point)), room].into_iter();
        let is_busy = |bytes: Range<u64>| stopped::is_in_flight(bytes.start, bytes.end);
        if changed.any(|bytes| bytes.is_some_and(is_busy)) {
            self.module.set_points_wait(self.number, true);
        }
        site::patch(self.module, point, batch);
    }

    /// The return point of a call stays as it is for now.
    fn leave_alone(&self, call: &PlanSite) {
        site::set_end(self.module, call, false);
        self.module.set_points_wait(self.number, true);
        // The first tells that there are such in any process; the second, in this one.
        state::control().points_left.fetch_add(1, Ordering::Relaxed);
        state::process().points_left.add(1);
    }
}

/// Adds the return points of a function, given with its number, to the batch.
fn patch_all(m: &Module, f: (u32, PlanFunction), batch: &mut text::Batch) {
    patch_those(m, f, batch, |_| true);
}

/// The same of those of which `is_one` says so.
fn patch_those(
    m: &Module,
    f: (u32, PlanFunction),
    batch: &mut text::Batch,
    is_one: impl Fn(&PlanSite) -> bool,
) {
    let mut points = Points::of(m, f);
    for (call, point) in plan::twins_of(m, f.1).filter(|(_, point)| is_one(point)) {
        points.add(&call, &point, batch);
    }
    points.add_others(batch);
}

/// See [`patch_ahead`].
pub fn most_ahead(is_alone: bool) -> u32 {
    if is_alone {
        MOST_AHEAD_ALONE
    } else {
        MOST_AHEAD
    }
}

/// Patches the return points of a module's functions that were not reached yet, as far as that is
/// not possible at any time: nobody stands in them, for the last time. In a module of more than
/// `most` calls that would take long, and most of it is never reached.
pub fn patch_ahead(m: &Module, most: u32) {
    let is_there = m.has_plan() && !m.gone.get() && !m.doubtful.get();
    // Calls that are bound when they are made are so by functions of its that nobody sees run.
    let is_loader = m.base.get() == state::process().loader.get();
    let header = m.plan().map(|plan| *plan.header());
    let calls = header.map_or(0, |h| h.sites.wrapping_sub(h.twins));
    if !is_there || is_loader || calls > most {
        return;
    }
    let untouched = || plan::functions(m).filter(|(i, f)| is_ahead(m, *i, f));
    let mut batch = text::Batch::of(m);
    for f in untouched() {
        patch_those(m, f, &mut batch, |point| {
            point.is_of_several() || point.borrows()
        });
    }
    batch.flush();
    for (i, _) in untouched() {
        m.set_function(i, ROOTS);
    }
}

/// A function that was not reached, and makes calls that are seen once it is.
fn is_ahead(m: &Module, i: u32, f: &PlanFunction) -> bool {
    m.function(i) == UNTOUCHED && f.site_count > 0 && !f.is_any(FN_MUTED | FN_RESOLVER)
}

/// Patches the return points of a module that were left alone, now that all threads stand. Of a
/// large program's functions they are few, and all threads wait.
pub fn patch_left(m: &Module) {
    let waiting = || {
        let plan = m.plan();
        let rows = m
            .points_wait()
            .map_while(move |i| Some((i, plan?.function(i)?)));
        rows.filter(|(_, f)| !f.is_any(FN_MUTED | FN_RESOLVER))
    };
    let mut batch = text::Batch::of(m);
    for f in waiting() {
        patch_all(m, f, &mut batch);
        if stopped::is_deserted() {
            // The host is about to let the threads go, as the kernel ends it.
            batch.forget();
        }
    }
    batch.flush();
    for (i, f) in waiting() {
        let mut wait = false;
        for (call, point) in plan::twins_of(m, f).filter(|(_, point)| point.is_return()) {
            match stands(m, &point) {
                true => site::set_end(m, &call, true),
                false => wait = true,
            }
        }
        m.set_points_wait(i, wait);
    }
}

/// A call of the program's text.
struct Call<'m> {
    module: &'m Module,
    /// The function that it lies in, and its number.
    function: (u32, PlanFunction),
    /// Its number among the sites of the plan, and its row.
    number: u32,
    row: PlanSite,
    /// What its frame on the shadow stack has for its id.
    id: u64,
}

impl<'m> Call<'m> {
    /// Number `number` of the sites, which lies in the function `function`.
    fn of(module: &'m Module, function: (u32, PlanFunction), number: u32) -> Option<Self> {
        let plan = module.plan()?;
        let row = plan.site(number)?;
        let (entry, _) = plan.ids(&row)?;
        Some(Self {
            module,
            function,
            number,
            row,
            id: module.area_start() + u64::from(row.slot) + u64::from(entry),
        })
    }

    /// The call in a module that returns to `address`.
    fn before(module: &'m Module, address: u64) -> Option<Self> {
        let plan = module.plan()?;
        let function = plan::function_around(module, address.wrapping_sub(1))?;
        let offset = address.wrapping_sub(module.base.get()) as u32;
        let numbers = function.1.first_site..;
        let mut all = numbers.zip(plan.sites_with_twins(&function.1));
        let (number, _) = all.find(|(_, (row, point))| match point {
            Some(point) => point.start == offset,
            // The jump that leads into a slot may stand elsewhere.
            None => !row.is_any(SITE_TAIL | SITE_KEEP_OPCODE) && end_of(row) == offset,
        })?;
        Self::of(module, function, number)
    }

    /// Where its return can be seen: its return point, or the site behind it.
    fn point(&self) -> Option<PlanSite> {
        let plan = self.module.plan()?;
        let next = || plan.site(self.number + 1);
        let is_seen = |next: &PlanSite| next.returns_first() && !self.row.is_any(SITE_ENTRY_ONLY);
        plan.twin(self.number).or_else(|| next().filter(is_seen))
    }

    /// True if its return is seen.
    fn is_seen(&self) -> bool {
        self.point()
            .is_some_and(|point| stands(self.module, &point))
    }

    /// Adds the place where its return can be seen to the batch.
    fn add_point(&self, batch: &mut text::Batch) {
        let Some(point) = self.point() else {
            return;
        };
        let is_one = match point.is_return() {
            true => !point.is_of_several() && !point.borrows(),
            false => is_one_instruction(self.module, &point),
        };
        let is_safe = is_one
            || nobody_stands_in(bytes_of(self.module, &point))
                && is_room_empty(self.module, &self.function.1, &point);
        if is_safe && (point.borrows() || !point.is_return()) {
            // With those that lend room, and with the return of the call that the site may be.
            patch_all(self.module, self.function, batch);
        }
        if is_safe && !point.borrows() {
            site::patch(self.module, &point, batch);
        }
    }

    /// What was patched is put back when the recording ends.
    fn note_patched(&self) {
        let (number, _) = self.function;
        if self.module.function(number) == UNTOUCHED {
            self.module.set_function(number, ROOTS);
        }
    }
}

/// True if it is patched.
fn stands(m: &Module, s: &PlanSite) -> bool {
    Patch::of_site(m, s).is_some_and(|p| m.stands(p.at, p.ours.bytes()))
}

/// Where the bytes of a site end.
fn end_of(row: &PlanSite) -> u32 {
    row.start + u32::from(row.span)
}

/// True if a call is overwritten, and nothing else.
fn is_one_instruction(m: &Module, row: &PlanSite) -> bool {
    let template = m.plan().and_then(|plan| plan.template(row.argument));
    let moved = if row.returns_first() { RETURN_ID } else { 0 };
    let is_alone = || template.is_some_and(|t| t.head.moved == moved);
    row.form == SiteForm::Kept || row.is_any(SITE_KEEP_CALL) && is_alone()
}

/// The module that a call lies in which returns to `address`.
fn module_before(address: u64) -> Option<&'static Module> {
    modules::known(address.wrapping_sub(1)).filter(|m| !m.doubtful.get())
}

/// What the call that returns to `address` has for its id. `None`: it is none that a plan takes.
pub fn call_before(address: u64) -> Option<u64> {
    Call::before(module_before(address)?, address).map(|call| call.id)
}

/// The id of the call that returns to `address`, if it is one whose return a patch will show.
/// Before anything is patched.
pub fn open_call(address: u64) -> Option<u64> {
    let call = Call::before(module_before(address)?, address)?;
    call.point().is_some().then_some(call.id)
}

/// Is the return to `address` seen, of a call that is open?
pub fn sees_return(address: u64) -> bool {
    let call = module_before(address).and_then(|m| Call::before(m, address));
    call.is_some_and(|call| call.is_seen())
}

/// Has the return to `address` be seen, of a call that may not be patched; gives the call's id.
/// `None`: it cannot be.
pub fn see_return(hot: &Hot, address: u64) -> Option<u64> {
    let call = Call::before(module_before(address)?, address)?;
    if !call.is_seen() && lock::lock(hot.tid.get()) {
        let mut batch = text::Batch::of(call.module);
        call.add_point(&mut batch);
        batch.flush();
        call.note_patched();
        lock::unlock();
    }
    call.is_seen().then_some(call.id)
}

/// Patches the calls of roots in a new module, and where they return to. Under the lock.
pub fn patch_calls_of_roots(m: &Module) {
    let Some(plan) = m.plan() else {
        return;
    };
    let mut batch = text::Batch::of(m);
    for s in plan.specials().filter(|s| s.kind == SpecialKind::RootCall) {
        let at = m.base.get() + u64::from(s.start);
        let call = plan::function_around(m, at).and_then(|f| Call::of(m, f, s.entry));
        let Some(call) = call else { continue };
        if is_one_instruction(m, &call.row) || nobody_stands_in(bytes_of(m, &call.row)) {
            site::patch(m, &call.row, &mut batch);
            call.add_point(&mut batch);
            call.note_patched();
        }
    }
    batch.flush();
}
