//! Which function a call is made from: the one that the call's site lies in.
//!
//! Given a module's plan; tells for a site which function has it. Asked where the end of an open
//! call is not recorded, and of calls in order at first, or again in threads with very many sites.

use sptrace_wire::plan::{FN_RUNTIME, PlanFunction, PlanView};

/// With a function's offset: its return addresses stay what they are.
const KEEPS_RETURNS: u64 = 1 << 32;

/// The functions with call sites.
#[derive(Debug, Default)]
pub struct Callers {
    base_svma: u64,
    /// The first site of each, how many there are, and where the function begins, from the base;
    /// sorted.
    functions: Box<[(u32, u32, u64)]>,
}

/// A function that calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Where it begins.
    pub svma: u64,
    /// Its return addresses stay, because a runtime looks them up: its direct calls have no
    /// recorded ends, and its calls through pointers are not recorded.
    pub keeps_returns: bool,
}

impl Callers {
    /// Those of a plan.
    pub fn of(plan: PlanView<'_>) -> Self {
        let with_sites = plan.functions().filter(|f| f.site_count > 0);
        let function = |f: &PlanFunction| match f.is_any(FN_RUNTIME) {
            true => u64::from(f.entry) | KEEPS_RETURNS,
            false => u64::from(f.entry),
        };
        let mut functions: Vec<_> = with_sites
            .map(|f| (f.first_site, f.site_count, function(&f)))
            .collect();
        // They come in long runs that are sorted.
        functions.sort();
        Self {
            base_svma: plan.header().base_svma,
            functions: functions.into(),
        }
    }

    /// Who calls from site number `site`.
    pub fn at(&self, site: u32) -> Option<Caller> {
        let after = self.functions.partition_point(|(first, ..)| *first <= site);
        let (first, count, function) = self.functions.get(after.checked_sub(1)?)?;
        (site - first < *count).then_some(Caller {
            svma: self.base_svma + (function & (KEEPS_RETURNS - 1)),
            keeps_returns: function & KEEPS_RETURNS != 0,
        })
    }
}
