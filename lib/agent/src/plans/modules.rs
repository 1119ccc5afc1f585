//! The modules that the process has, as far as they are known: by address, by patch area, by slot.
//!
//! Given an address; gives the [`Module`] it belongs to. Keeps the table of instrumented entries
//! that calls through pointers consult. Asks nobody: a module that is not known is found by
//! [`crate::reach::module`].

use crate::memory::area::Area;
use crate::memory::state::TABLE_BITS;
use crate::memory::table::Module;
use crate::memory::word::{Link, Word};
use crate::memory::{state, sys};
use core::mem::offset_of;
use sptrace_wire::plan::*;

/// The modules that are known, gone ones included.
pub(crate) fn modules() -> impl Iterator<Item = &'static Module> {
    state::process().known_modules().iter()
}

/// The module that holds `address`, if it is known already.
pub fn known(address: u64) -> Option<&'static Module> {
    modules().find(|m| address >= m.start.get() && address < m.end.get() && !m.gone.get())
}

/// Bytes of the table that says which functions of a plan are instrumented.
pub fn function_bytes(plan: &PlanView<'_>) -> u64 {
    (plan.header().functions as u64 + 4096) & !4095
}

/// Fork children shall not inherit what was mapped for a module, until something leads there.
pub fn keep_private(m: &Module) {
    if m.has_plan() && !m.gone.get() && !m.is_private.get() {
        m.is_private.set(true);
        inherit(m, false);
    }
}

/// Before the first patch of a module: what it leads to must be there in fork children, too. One
/// system call a mapping, of which a large program has a thousand: so not for all modules at once,
/// while it stands still.
pub fn share(m: &Module) {
    if m.is_private.get() {
        inherit(m, true);
        m.is_private.set(false);
    }
}

fn inherit(m: &Module, shall: bool) {
    let bytes = m.area_bytes() as usize;
    sys::inherit(m.area_rw() as usize, bytes, shall);
    if let Some(plan) = m.plan() {
        let bytes = function_bytes(&plan) as usize;
        sys::inherit(m.functions_at() as usize, bytes, shall);
    }
    // What a former agent has left is the children's, too.
    if !m.is_left.get() {
        sys::inherit(m.area_start() as usize, bytes, shall);
    }
}

/// Return addresses on a stack come in runs of one module's.
static LAST_FOUND: Link<Module> = Link::none();

/// The module whose patch area holds `address`.
#[inline]
pub fn of_area(address: u64) -> Option<&'static Module> {
    match LAST_FOUND.get() {
        Some(m) if m.area_holds(address) => Some(m),
        _ => look_for_area(address),
    }
}

#[inline(never)]
fn look_for_area(address: u64) -> Option<&'static Module> {
    let found = modules().find(|m| m.area_holds(address));
    if found.is_some() {
        LAST_FOUND.set(found);
    }
    found
}

/// The address in a patch area with this low half, as records have it. `None`: there is none.
pub fn in_area(low: u32) -> Option<u64> {
    let mut all = modules().filter(|m| m.area_start() != 0);
    all.find_map(|m| {
        let offset = u64::from(low.wrapping_sub(m.area_start() as u32));
        (offset < m.area_bytes()).then_some(m.area_start() + offset)
    })
}

/// The patch area that holds `address`.
#[inline]
pub fn area(address: u64) -> Option<Area> {
    of_area(address).map(Module::area)
}

/// True if `address` lies in a patch area.
pub fn is_in_area(address: u64) -> bool {
    of_area(address).is_some()
}

/// True if the slot of `id` belongs to ld.so's lazy resolver and the loader's work is not wanted.
pub fn is_resolver_site(id: u64) -> bool {
    let loader = state::process().loader.get();
    let is_loaders = || of_area(id).is_some_and(|m| m.base.get() == loader);
    state::control().loader == 0 && loader != 0 && is_loaders()
}

fn hash(address: u64) -> usize {
    (((address >> 4) as u32).wrapping_mul(0x9E37_79B1) >> (32 - TABLE_BITS)) as usize
}

/// True if the host knows from the low half of `address` which one it is.
pub fn is_narrow(address: u64) -> bool {
    known(address).is_some_and(|m| !m.wide.get())
}

/// Enters `address` into the table that calls through pointers consult, if its low half is enough.
/// Lock-free: one word.
pub fn remember(address: u64) {
    let Some(table) = state::process().table.get() else {
        return;
    };
    let places = table.get(hash(address)..).and_then(<[Word]>::first_chunk);
    let Some(places @ [_, second]) = places.filter(|_| is_narrow(address)) else {
        return;
    };
    let free = |entry: &&Word| entry.get() == address || entry.get() == 0;
    // Both taken: replace the second, so that of two hot callees one stays.
    places.iter().find(free).unwrap_or(second).set(address);
}

/// Drops all entries in `[start, end)`.
pub fn forget(start: u64, end: u64) {
    for entry in state::process().table.get().into_iter().flatten() {
        if (start..end).contains(&entry.get()) {
            entry.set(0);
        }
    }
}

/// True if this is one of the linker's stubs.
pub fn is_stub(m: &Module, target: u64) -> bool {
    let offset = target.wrapping_sub(m.base.get());
    m.plan().is_some_and(|plan| {
        let h = plan.header();
        (u64::from(h.plt_start)..u64::from(h.plt_end)).contains(&offset)
    })
}

/// A slot of the module is about to be made another: a fork child must look at its own again.
pub fn note_wiring(m: &Module) {
    m.wirings.add(1);
    let count = offset_of!(AreaHeader, wirings) as u64;
    let word = m.area().word(count);
    word.into_iter().for_each(|count| count.add(1));
}

/// A special function or hook in the process.
#[derive(Clone, Copy)]
pub struct Special {
    /// Why it is intercepted.
    pub kind: SpecialKind,
    /// Of a hook: the rules that have to do with it.
    pub rules: HookRules,
    /// Where it begins.
    pub entry: u64,
}

/// The special function whose slot holds `id`.
pub fn special_of(id: u64) -> Option<Special> {
    let m = of_area(id)?;
    let plan = m.plan()?;
    let offset = (id - m.area_start()) as u32;
    // In the order of their slots.
    let (mut low, mut high) = (0, plan.header().specials);
    while low < high {
        let middle = (low + high) / 2;
        if plan.special(middle)?.slot < offset {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let s = plan.special(low.checked_sub(1)?)?;
    Some(Special {
        kind: s.kind,
        rules: s.hook_rules(),
        entry: m.base.get() + s.entry as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_has_an_entry_and_a_spare_one_behind_it() {
        let addresses = (0..64).flat_map(|bit| [1u64 << bit, u64::MAX << bit, (1 << bit) - 1]);
        for address in addresses {
            assert!(hash(address) + 1 < (1 << TABLE_BITS) + 1);
        }
        // Functions are aligned: neighbours must not share an entry.
        assert_ne!(hash(0x40_1000), hash(0x40_1010));
    }
}
