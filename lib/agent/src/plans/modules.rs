//! The modules that the process has, as far as they are known: by address, by patch area, by slot.
//!
//! Given an address; gives the [`Module`] it belongs to. Keeps the table of instrumented entries
//! that calls through pointers consult. Asks nobody: a module that is not known is found by
//! [`crate::reach::module`].

use crate::memory::state::{Module, TABLE_BITS};
use crate::memory::{state, sys};
use core::sync::atomic::{AtomicU32, Ordering};
use sptrace_wire::plan::*;

/// The modules that are known, gone ones included.
pub(crate) fn modules() -> impl Iterator<Item = *mut Module> {
    // SAFETY: the module table is complete up to its count.
    unsafe {
        let count = (*state::process()).module_count as usize;
        let first = (&raw mut (*state::process()).modules).cast::<Module>();
        (0..count).map(move |i| first.add(i))
    }
}

pub(crate) unsafe fn is_planned(m: *const Module) -> bool {
    // SAFETY: of the table.
    unsafe { (*m).plan.is_some() && (*m).gone == 0 }
}

/// The module that holds `address`, if it is known already.
pub fn known(address: u64) -> *mut Module {
    // SAFETY: entries below module_count are complete.
    unsafe {
        let p = state::process();
        for i in 0..(*p).module_count as usize {
            let m = &raw mut (*p).modules[i];
            if address >= (*m).start && address < (*m).end && (*m).gone == 0 {
                return m;
            }
        }
        core::ptr::null_mut()
    }
}

/// Bytes of the table that says which functions of a plan are instrumented.
pub fn function_bytes(plan: &PlanView<'_>) -> u64 {
    (plan.header().functions as u64 + 4096) & !4095
}

/// Fork children shall not inherit what was mapped for a module, until something leads there.
pub unsafe fn keep_private(m: *mut Module) {
    // SAFETY: of the module table.
    unsafe {
        if (*m).plan.is_some() && (*m).gone == 0 && (*m).is_private == 0 {
            (*m).is_private = 1;
            inherit(m, false);
        }
    }
}

/// Before the first patch of a module: what it leads to must be there in fork children, too. One
/// system call a mapping, of which a large program has a thousand: so not for all modules at once,
/// while it stands still.
pub unsafe fn share(m: *mut Module) {
    // SAFETY: of the module table.
    unsafe {
        if (*m).is_private != 0 {
            inherit(m, true);
            (*m).is_private = 0;
        }
    }
}

unsafe fn inherit(m: *const Module, shall: bool) {
    // SAFETY: mapped for the module.
    unsafe {
        let bytes = (*m).area_bytes as usize;
        sys::inherit((*m).area_rw as usize, bytes, shall);
        if let Some(plan) = &(*m).plan {
            let bytes = function_bytes(plan) as usize;
            sys::inherit((*m).functions as usize, bytes, shall);
        }
        // What a former agent has left is the children's, too.
        if (*m).is_left == 0 {
            sys::inherit((*m).area as usize, bytes, shall);
        }
    }
}

/// Where `address` in an execute view can be written, or 0.
pub fn write_view(address: u64) -> u64 {
    // SAFETY: reads the module table.
    unsafe {
        let p = state::process();
        for i in 0..(*p).module_count as usize {
            let m = &raw const (*p).modules[i];
            if address.wrapping_sub((*m).area) < (*m).area_bytes {
                return address - (*m).area + (*m).area_rw;
            }
        }
        0
    }
}

/// The module whose patch area holds `address`.
pub fn of_area(address: u64) -> *mut Module {
    // Return addresses on a stack come in runs of one module's.
    static LAST: AtomicU32 = AtomicU32::new(0);
    // SAFETY: reads the module table.
    unsafe {
        let p = state::process();
        let last = LAST.load(Ordering::Relaxed);
        for i in core::iter::once(last).chain(0..(*p).module_count) {
            let m = &raw mut (*p).modules[i as usize];
            if address.wrapping_sub((*m).area) < (*m).area_bytes {
                if i != last {
                    LAST.store(i, Ordering::Relaxed);
                }
                return m;
            }
        }
        core::ptr::null_mut()
    }
}

/// True if the slot of `id` belongs to ld.so's lazy resolver and the loader's work is not wanted.
pub fn is_resolver_site(id: u64) -> bool {
    // SAFETY: reads the module table.
    unsafe {
        state::control().loader == 0 && (*state::process()).loader != 0 && {
            let m = of_area(id);
            !m.is_null() && (*m).base == (*state::process()).loader
        }
    }
}

fn hash(address: u64) -> usize {
    (((address >> 4) as u32).wrapping_mul(0x9E37_79B1) >> (32 - TABLE_BITS)) as usize
}

/// True if the host knows from the low half of `address` which one it is.
pub fn is_narrow(address: u64) -> bool {
    // SAFETY: entries of the module table are complete.
    unsafe {
        let m = known(address);
        !m.is_null() && (*m).wide == 0
    }
}

/// Enters `address` into the table that calls through pointers consult, if its low half is enough.
/// Lock-free: one word.
pub fn remember(address: u64) {
    // SAFETY: the table has a spare entry at its end.
    unsafe {
        if !is_narrow(address) {
            return;
        }
        let at = (*state::process()).table.add(hash(address));
        for k in 0..2 {
            let entry = at.add(k);
            let now = entry.read_volatile();
            if now == address {
                return;
            }
            if now == 0 {
                entry.write_volatile(address);
                return;
            }
        }
        // Both taken: replace the second, so that of two hot callees one stays.
        at.add(1).write_volatile(address);
    }
}

/// Drops all entries in `[start, end)`.
pub fn forget(start: u64, end: u64) {
    // SAFETY: within the table.
    unsafe {
        for i in 0..(1usize << TABLE_BITS) + 1 {
            let entry = (*state::process()).table.add(i);
            let now = entry.read_volatile();
            if now >= start && now < end {
                entry.write_volatile(0);
            }
        }
    }
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
    // SAFETY: reads plans.
    unsafe {
        let m = of_area(id);
        if m.is_null() {
            return None;
        }
        let plan = (*m).plan?;
        let offset = (id - (*m).area) as u32;
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
            entry: (*m).base + s.entry as u64,
        })
    }
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
