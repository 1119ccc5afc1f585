//! What the analysis of one image gives: functions, sites, links, a summary.
//!
//! Everything is stated in [`Svma`]s of the analysed file. Functions are disjoint ranges sorted by
//! entry; each owns a contiguous run of `Analysis::sites` and of `Analysis::links`. A site is an
//! instruction that hands control to another function; whether it can be patched is for others to
//! decide. Knows nothing of ELF, decoding or processes.

use sptrace_addr::Svma;

use crate::packed::Sites;
use crate::site::Site;

/// Result of [`crate::analyze`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Analysis {
    /// Sorted by entry, no overlap.
    pub functions: Vec<Function>,
    /// Grouped by function in the order of `functions`, sorted by address within one.
    pub sites: Sites,
    /// Instructions that call the kernel, sorted by address. They belong to no function's run.
    pub system_calls: Sites,
    /// Indexes into `functions`, grouped by the function that links.
    pub links: Vec<u32>,
    /// Runs of plain instructions in one block, each from its start to its end, sorted: room could
    /// be made there for jumps. None in functions of which not all jumps are known, nor in what a
    /// site's jump may cover; and only those near a call behind which there is too little room.
    pub plain_runs: Vec<(Svma, Svma)>,
    /// Counts over the whole image.
    pub summary: Summary,
}

impl Analysis {
    /// The sites of a function.
    pub fn sites_of(&self, function: &Function) -> impl Iterator<Item = Site> + Clone + '_ {
        self.sites
            .run(function.first_site as usize, function.site_count as usize)
    }

    /// Indexes of the functions whose code `function` reaches by plain jumps.
    pub fn links_of(&self, function: &Function) -> &[u32] {
        let first = function.first_link as usize;
        self.links
            .get(first..first + usize::from(function.link_count))
            .unwrap_or(&[])
    }

    /// Index of the function whose range holds `svma`.
    pub fn function_at(&self, svma: Svma) -> Option<usize> {
        let after = self.functions.partition_point(|f| f.entry <= svma);
        let index = after.checked_sub(1)?;
        (svma < self.functions[index].end).then_some(index)
    }
}

/// One contiguous range of code with one start: a function, or a part of one kept elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// First instruction.
    pub entry: Svma,
    /// End of the range, exclusive.
    pub end: Svma,
    /// Index of the first of its sites in `Analysis::sites`.
    pub first_site: u32,
    /// How many sites it has.
    pub site_count: u32,
    /// Index of the first of its links in `Analysis::links`.
    pub first_link: u32,
    /// How many links it has.
    pub link_count: u16,
    /// What is known of it.
    pub flags: FunctionFlags,
}

/// Bit set over a [`Function`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FunctionFlags(pub u16);

impl FunctionFlags {
    /// An FDE covers its entry.
    pub const HAS_UNWIND: Self = Self(1);
    /// It touches memory below the stack pointer.
    pub const RED_ZONE: Self = Self(1 << 1);
    /// It is only reached as a part of other functions.
    pub const COLD_PART: Self = Self(1 << 2);
    /// It never returns.
    pub const NO_RETURN: Self = Self(1 << 3);
    /// It has an indirect jump that is neither a resolved table nor a tail call, or its code could
    /// not be followed everywhere: leaders may be missing.
    pub const UNRESOLVED_JUMPS: Self = Self(1 << 4);

    /// It sets the gs base or uses memory relative to it.
    pub const USES_GS: Self = Self(1 << 5);
    /// It loads its return address, as `__builtin_return_address` does.
    pub const READS_RETURN: Self = Self(1 << 6);
    /// It takes arguments off the stack when it returns (`ret imm16`).
    pub const POPS: Self = Self(1 << 7);

    /// It sets the gs base by an instruction.
    pub const SETS_GS: Self = Self(1 << 8);

    /// All bits of `other` are set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    /// Sets the bits of `other`.
    pub fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// Counts over one image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of executable sections, PLT left out.
    pub text_bytes: u64,
    /// Instructions reached.
    pub instructions: u64,
    /// Basic blocks reached.
    pub blocks: u64,
    /// Indirect jumps resolved to a table.
    pub jump_tables: u64,
    /// Indirect jumps that are neither a resolved table nor a tail call.
    pub unresolved_jumps: u64,
    /// Sites left out because a leader lies inside the instruction.
    pub overlapped_sites: u64,
    /// Paths given up at bytes that are no instruction, or at the end of the code.
    pub broken_paths: u64,
}
