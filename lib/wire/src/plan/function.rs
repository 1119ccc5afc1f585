//! A function of a plan: which sites are its, and what must be known of it before it runs.

use core::ops::Range;

use crate::layout::layout;

layout! {
    /// One function.
    pub struct PlanFunction {
        /// Entry, as offset.
        pub entry: u32,
        /// Index of its first site.
        pub first_site: u32,
        /// Index of its first link: functions to instrument together with it.
        pub first_link: u32,
        /// Number of sites.
        pub site_count: u32,
        /// Number of links.
        pub link_count: u16,
        /// `FN_*`.
        pub flags: u16,
    }
}

impl PlanFunction {
    /// Numbers of its sites.
    pub const fn sites(&self) -> Range<u32> {
        self.first_site..self.first_site.saturating_add(self.site_count)
    }

    /// True if one of these flags is set.
    pub const fn is_any(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }
}

/// [`PlanFunction::flags`]: reads its own return address: never give it a foreign one.
pub const FN_RETURN_ADDRESS: u16 = 1;
/// [`PlanFunction::flags`]: excluded by a filter: its sites are not patched.
pub const FN_MUTED: u16 = 2;
/// [`PlanFunction::flags`]: it may end in a jump to a function that reads its return address, or to
/// one that is not known.
pub const FN_TAILS: u16 = 4;
/// [`PlanFunction::flags`]: ld.so's lazy resolver: its tail jump to the resolved function is
/// patched from the start; its other sites only when the loader's work is wanted.
pub const FN_RESOLVER: u16 = 8;
/// [`PlanFunction::flags`]: it jumps to places that the analysis could not find out: calls in them
/// are not seen.
pub const FN_UNRESOLVED: u16 = 16;
/// [`PlanFunction::flags`], beside the one before or [`FN_MUTED`]: but no byte of it is a part of a
/// call, as far as instructions follow each other from its entry.
pub const FN_CALLS_NOTHING: u16 = 256;
/// [`PlanFunction::flags`]: sets the gs base or uses memory relative to it: nothing may be recorded
/// once it runs.
pub const FN_USES_GS: u16 = 32;
/// [`PlanFunction::flags`], where calls may be recorded in order: it reads no flag that it is
/// entered with.
pub const FN_READS_NO_FLAGS: u16 = 512;
/// [`PlanFunction::flags`]: values of its calls are recorded: see [`crate::plan::FunctionValues`].
pub const FN_VALUES: u16 = 128;
/// [`PlanFunction::flags`]: a runtime may look up return addresses that lie in it: they must stay.
pub const FN_RUNTIME: u16 = 64;
