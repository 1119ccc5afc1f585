//! Patch areas come into being: fresh ones, those that a former agent has left, and a fork child's
//! own.
//!
//! Given where an area shall lie; maps it. A patch area is shared anonymous memory mapped twice:
//! readable and executable near the module, readable and writable elsewhere. No page of it is ever
//! both. Must not know what is written into slots.

use crate::memory::mapped::Fresh;
use crate::memory::table::Module;
use crate::memory::{counters, live, state, sys};
use crate::patch::site;
use crate::plans::slot;
use crate::routines::image;
use sptrace_wire::plan::{AREA_MAGIC, AreaHeader, SLOTS_START};

/// What an area is known by: its plan's key, and where the module lies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// [`AreaHeader::key`].
    pub key: u64,
    /// [`AreaHeader::base`].
    pub base: u64,
}

/// A patch area: write view anywhere, execute view at `at`. `None`: something is there.
pub fn make(bytes: usize, at: usize) -> Option<Fresh> {
    if bytes < SLOTS_START as usize {
        return None;
    }
    let place = Fresh::place(at, bytes)?;
    let made = Fresh::shared(bytes).and_then(|mut rw| {
        if image::install(rw.contents()) && place.show(&rw) {
            return Some(rw);
        }
        rw.give_back();
        None
    });
    match made {
        Some(_) => _ = place.keep(),
        None => place.give_back(),
    }
    made
}

/// Copies a patch area that an agent has left behind, silent: children share what there is, and go
/// on with it without an agent. In a process that is prepared only [`move_in`] puts the copy in its
/// place: until then its children have what there was. Gives the write view. `None`: it is another
/// area.
pub fn take_back(at: u64, bytes: usize, identity: Identity) -> Option<Fresh> {
    let old = Left::read(at)?;
    if old.identity != identity || old.used == 0 || old.used as usize > bytes {
        return None;
    }
    let mut new = Fresh::shared(bytes)?;
    if let Some(place) = new.contents().get_mut(..old.used as usize) {
        // SAFETY: the host has found it in the process's maps; nobody writes there.
        unsafe { live::copy_from(at, place) };
    }
    if !state::process().preparing.get() && !put_over(&new, at) {
        new.give_back();
        return None;
    }
    Some(new)
}

/// What the header of an area says that was left behind.
struct Left {
    identity: Identity,
    used: u64,
}

impl Left {
    fn read(at: u64) -> Option<Self> {
        let word = |offset: usize| sys::read_word(at + offset as u64);
        let magic = word(core::mem::offset_of!(AreaHeader, magic))?;
        let key = word(core::mem::offset_of!(AreaHeader, key))?;
        let base = word(core::mem::offset_of!(AreaHeader, base))?;
        let used = word(core::mem::offset_of!(AreaHeader, used))?;
        let identity = Identity { key, base };
        (magic == AREA_MAGIC).then_some(Self { identity, used })
    }
}

/// Puts the copy of an area that was left behind in its place; false if that is impossible.
pub fn move_in(m: &Module) -> bool {
    let is_left = m.is_left.get() && !m.gone.get();
    // SAFETY: the write view, which stays.
    let rw = unsafe { Fresh::again(m.area_rw(), m.area_bytes()) };
    if is_left && !put_over(&rw, m.area_start()) {
        return false;
    }
    m.is_left.set(false);
    true
}

/// An execute view of `rw` takes the place of another that holds the same bytes; false if that is
/// impossible.
fn put_over(rw: &Fresh, at: u64) -> bool {
    // SAFETY: areas are mapped for life; who executes there finds the same bytes before and after.
    rw.view()
        .is_some_and(|view| unsafe { view.move_all_over(at) })
}

/// In a fork child: modules that nothing leads to from there are as if they had never been met.
fn forget_private() {
    let modules = state::process().known_modules();
    // The first is the program's own, which none takes the place of.
    if let Some(first) = modules.first().filter(|m| m.is_private.get()) {
        become_other(first, &Module::none());
    }
    let mut kept = 0;
    for m in modules.iter().filter(|m| !m.is_private.get()) {
        if let Some(place) = modules.get(kept) {
            become_other(place, m);
            kept += 1;
        }
    }
    for m in modules.iter().skip(kept) {
        become_other(m, &Module::none());
    }
    state::process().module_count.set(kept as u32);
}

fn become_other(m: &Module, other: &Module) {
    // SAFETY: there is one thread, and nobody holds a place in the table.
    unsafe { m.become_other(other) };
}

/// In a fork child: replaces the areas, which are shared with the parent, by copies of what was
/// used, and puts back to "first" what the parent has wired since the fork. False: impossible.
pub fn own() -> bool {
    forget_private();
    let areas = || state::process().known_modules().iter();
    let is_own = areas().filter(|m| m.area_start() != 0).all(own_one);
    counters::unnamed().for_each(forget_callee);
    is_own
}

/// A callee that the parent has put since the fork into the slot with this id, which counts: what
/// is counted there would be nobody's.
fn forget_callee(id: u32) {
    let areas = state::process().known_modules().iter();
    let in_area = |m: &Module| {
        let offset = id.wrapping_sub(m.area_start() as u32);
        (u64::from(offset) < m.area_bytes()).then(|| m.area_start() + u64::from(offset))
    };
    for (m, id) in areas.filter_map(|m| Some((m, in_area(m)?))) {
        let kept = slot::kept(id).filter(|kept| counters::is_cell_of(kept.cell, id));
        if let Some(word) = kept.and_then(|kept| m.area().word(kept.callee_at)) {
            word.set(0);
        }
    }
}

/// There is one thread, signals are blocked, and this code does not lie in an area.
fn own_one(m: &Module) -> bool {
    let bytes = m.area_bytes() as usize;
    let Some(mut new) = Fresh::shared(bytes) else {
        return false;
    };
    let used = (m.area_used.get() as usize).min(bytes);
    if let Some(place) = new.contents().get_mut(..used) {
        // SAFETY: what there is, which only the parent writes to.
        unsafe { live::copy_from(m.area_rw(), place) };
    }
    // After the copy: what the parent has counted by now may be in it.
    let wirings = site::wirings(m.area());
    // SAFETY: the execute view is ours; of the write views the old one is not used any more.
    unsafe {
        let old = Fresh::again(m.area_rw(), m.area_bytes());
        if !Fresh::again(m.area_start(), m.area_bytes()).show(&new) {
            return false;
        }
        old.give_back();
        m.set_area_rw(new.keep());
    }
    if wirings != m.wirings.get() {
        site::unwire(m);
    }
    true
}
