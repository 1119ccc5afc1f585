//! The start of a plan: where its sections lie.

use crate::layout::layout;

/// First four bytes of a plan.
pub const PLAN_MAGIC: u32 = 0x4e4c_5053;
/// Version of the plan's bytes; part of the cache key.
pub const PLAN_VERSION: u32 = 110;

/// See [`PlanHeader::met_at`].
pub const MET_BEFORE: u8 = 1;
/// See [`PlanHeader::met_at`].
pub const MET: u8 = 2;

layout! {
    /// Start of a plan. Sections follow, each at its offset from the plan's start.
    pub struct PlanHeader {
        /// [`PLAN_MAGIC`].
        pub magic: u32,
        /// [`PLAN_VERSION`].
        pub version: u32,
        /// Bytes of the whole plan.
        pub total_bytes: u32,
        /// Bytes of the patch area that all slots need together, common routines included.
        pub area_bytes: u32,
        /// Svma that all offsets count from (page-aligned).
        pub base_svma: u64,
        /// Executable bytes: first svma offset.
        pub text_start: u32,
        /// Executable bytes: end svma offset.
        pub text_end: u32,
        /// Number of [`crate::plan::PlanFunction`]s, sorted by entry.
        pub functions: u32,
        /// Offset of the functions.
        pub functions_offset: u32,
        /// Number of [`crate::plan::PlanSite`]s.
        pub sites: u32,
        /// Offset of the sites.
        pub sites_offset: u32,
        /// Number of u32 links.
        pub links: u32,
        /// Offset of the links.
        pub links_offset: u32,
        /// Number of [`crate::plan::PlanSpecial`]s, sorted by slot.
        pub specials: u32,
        /// Offset of the specials.
        pub specials_offset: u32,
        /// Bytes of templates.
        pub blob_bytes: u32,
        /// Offset of the templates.
        pub blob_offset: u32,
        /// Offset from `base_svma` of the program's entry point, or 0.
        pub entry: u32,
        /// PLT stubs: first svma offset. A lazily bound slot points in here at first.
        pub plt_start: u32,
        /// PLT stubs: end svma offset.
        pub plt_end: u32,
        /// Bytes of what is said of values ([`crate::plan::ValuesHead`]).
        pub values_bytes: u32,
        /// Offset of that.
        pub values_offset: u32,
        /// Number of sites that have a twin, 0 or all that functions have: how the same site is
        /// patched while its calls are counted ([`crate::levels`]), or where it returns to
        /// ([`crate::plan::SITE_RETURN`]). The twin of site `i` is site
        /// `i` + this.
        pub twins: u32,
        /// Not 0: a function that is not in the plan sets the gs base by an instruction. Nothing
        /// may be recorded in a process that has the module, since nobody sees it run.
        pub uses_gs: u32,
        /// Constants behind the executable bytes: first svma offset.
        pub constants_start: u32,
        /// Their end svma offset; the same if there are none.
        pub constants_end: u32,
        /// Where the runtime of this program keeps which lane a thread runs, from the thread's fs
        /// base on; a negative number.
        pub lane_at: u32,
        /// Offset of the lane's number in what that leads to; 0: its threads have no lanes.
        pub lane_number: u32,
        /// Host: not 0: from one site to the next, slots never lie lower, nor from one twin to the
        /// next.
        pub in_slot_order: u32,
        /// Host: number of functions with [`crate::plan::FN_RUNTIME`].
        pub runtime_functions: u32,
        /// Host: of all the plan's bytes and the agent that will apply it; see
        /// [`PlanHeader::area_key`].
        pub hash: u32,
    }
}

impl PlanHeader {
    /// Where [`PlanHeader::hash`] lies: the last field, which is filled in when all else is
    /// written.
    pub const HASH_OFFSET: usize = Self::BYTES - size_of::<u32>();

    /// Where in the arena, from the plan's start on, the host has put a byte for each function. 0:
    /// it was not met. [`MET_BEFORE`]: in an earlier recording. [`MET`]: a process of this one has
    /// asked for it in the slow path; agents write that.
    pub const fn met_at(&self) -> u64 {
        (self.total_bytes as u64 + 7) & !7
    }

    /// What tells the areas of two plans apart.
    pub const fn area_key(&self) -> u64 {
        self.hash as u64 | (self.total_bytes as u64) << 32
    }
}
