//! Which descriptors of this process may lead to a path that is asked for: a bit each.
//!
//! All may, until it is known of one that it does not. A fork child has its parent's bits, as it
//! has its descriptors; a program that is executed begins anew. The common routines read the bits,
//! too. Must not know how it is found out what a descriptor leads to.

use core::sync::atomic::{AtomicU32, Ordering};
use sptrace_wire::values::DESCRIPTORS;

const BITS: u32 = u32::BITS;

static MAY_LEAD: [AtomicU32; (DESCRIPTORS / BITS) as usize] =
    [const { AtomicU32::new(u32::MAX) }; (DESCRIPTORS / BITS) as usize];

/// Where the bits are, from that of descriptor 0 on.
pub fn address() -> u64 {
    MAY_LEAD.as_ptr() as u64
}

fn place(fd: u32) -> Option<(&'static AtomicU32, u32)> {
    Some((MAY_LEAD.get((fd / BITS) as usize)?, 1 << (fd % BITS)))
}

/// True if it may lead there: what is no descriptor leads nowhere, and of high ones nothing is
/// known.
pub fn may_lead(fd: u32) -> bool {
    match place(fd) {
        Some((word, bit)) => word.load(Ordering::Relaxed) & bit != 0,
        None => i32::try_from(fd).is_ok(),
    }
}

/// It may, or does not.
pub fn set(fd: u32, may_lead: bool) {
    if let Some((word, bit)) = place(fd) {
        match may_lead {
            true => word.fetch_or(bit, Ordering::Relaxed),
            false => word.fetch_and(!bit, Ordering::Relaxed),
        };
    }
}

/// Nothing is known of any more.
pub fn forget() {
    for word in &MAY_LEAD {
        word.store(u32::MAX, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_may_lead_there_until_it_is_known_that_they_do_not() {
        assert!(may_lead(0) && may_lead(DESCRIPTORS - 1) && may_lead(DESCRIPTORS));
        assert!(!may_lead(-1i32 as u32) && !may_lead(-100i32 as u32));
        set(33, false);
        set(DESCRIPTORS, false);
        assert!(!may_lead(33) && may_lead(32) && may_lead(34) && may_lead(DESCRIPTORS));
        // As the common routines look.
        // SAFETY: the second word of the bits.
        let word = unsafe { ((address() + 4) as *const u32).read() };
        assert_eq!(word, !2);
        set(33, true);
        set(5, false);
        forget();
        assert!(may_lead(33) && may_lead(5));
    }
}
