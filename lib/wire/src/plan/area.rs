//! Patch areas: what lies in them apart from slots.

/// First bytes of a patch area. One that an agent has left behind is known by it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AreaHeader {
    /// Agent: where the slow path begins.
    pub door: u64,
    /// Agent: wirings done in this area.
    pub wirings: u64,
    /// Agent: [`AREA_MAGIC`].
    pub magic: u64,
    /// Agent: [`crate::plan::PlanHeader::area_key`] of the plan whose slots it holds.
    pub key: u64,
    /// Agent: where the module lies: avma of the plan's `base_svma`.
    pub base: u64,
    /// Agent, when it goes: bytes that have been written; 0 before.
    pub used: u64,
    /// Agent, when it goes: the table of return addresses that hooks have replaced, or 0.
    pub originals: u64,
    /// Agent: where the slow path begins, also when `door` is another.
    pub agent_door: u64,
    /// Agent, when it goes: the table of instrumented entries, which thread blocks point at.
    pub table: u64,
}

/// [`AreaHeader::magic`].
pub const AREA_MAGIC: u64 = 0x6165_7261_7274_7073;

/// Where the agent puts the first slot: after the common routines of the area.
pub const SLOTS_START: u32 = 0x2800;

/// Common routine numbers.
pub mod common {
    /// Entry of a direct call whose callee is instrumented.
    pub const ENTRY: i32 = 0;
    /// Exit.
    pub const EXIT: i32 = 1;
    /// Entry of a call through a pointer; target above the return address; returns with `ret 8`.
    pub const INDIRECT: i32 = 2;
    /// Tail jump, direct.
    pub const TAIL: i32 = 3;
    /// Tail jump through a pointer; as INDIRECT.
    pub const TAIL_INDIRECT: i32 = 4;
    /// Entry of a direct call whose callee may not be instrumented yet.
    pub const FIRST: i32 = 5;
    /// The same for a direct tail jump.
    pub const TAIL_FIRST: i32 = 6;
    /// Entry of a special function.
    pub const SPECIAL: i32 = 7;
    /// Entry-only direct call: like TAIL, but the frame is the call's own.
    pub const ENTRY_ONLY: i32 = 8;
    /// The same when the callee may not be instrumented yet.
    pub const ENTRY_ONLY_FIRST: i32 = 9;
    /// Entry of a hooked function.
    pub const HOOK: i32 = 10;
    /// A hooked function returns: the original return address is filled in.
    pub const HOOK_EXIT: i32 = 11;
    /// Before an instruction that calls the kernel.
    pub const SYSTEM_CALL: i32 = 12;
    /// After it.
    pub const SYSTEM_RETURN: i32 = 13;
    /// Of a call or jump that is counted, whose callee may not be instrumented yet.
    pub const COUNT_FIRST: i32 = 14;
    /// Of a call or jump through a pointer that is counted; as INDIRECT.
    pub const COUNT_INDIRECT: i32 = 15;
    /// Of a direct call or jump that is recorded in order, whose callee may not be instrumented
    /// yet.
    pub const ORDER_FIRST: i32 = 16;
    /// Of a call or jump that is recorded in order with its callee; as INDIRECT.
    pub const ORDER_INDIRECT: i32 = 17;
    /// Of a direct call or jump that is recorded in order, where there was no room for its record.
    pub const ORDER_FULL: i32 = 18;
    /// Of a direct call with acts in its slot, whose callee may not be instrumented yet, or whose
    /// acts cannot run there.
    pub const ACTS_FIRST: i32 = 19;
    /// As ENTRY, where calls are recorded with the place of the stack pointer
    /// ([`crate::record::PLACED`]).
    pub const ENTRY_PLACED: i32 = 20;
    /// The same of INDIRECT.
    pub const INDIRECT_PLACED: i32 = 21;
    /// As HOOK, of a function whose calls turn rules: they come to the agent even if they were
    /// recorded where they are made.
    pub const HOOK_RULED: i32 = 22;
    /// Entry of a direct call that keeps its return address, and whose return is seen where it
    /// leads to: like ENTRY_ONLY, but the frame is one with an end.
    pub const KEPT: i32 = 23;
    /// The same when the callee may not be instrumented yet.
    pub const KEPT_FIRST: i32 = 24;
    /// The same of a call through a pointer; target above the return address; returns with `ret 8`.
    pub const KEPT_INDIRECT: i32 = 25;
    /// At a return point: what leads there is the return of the innermost call if that is of its
    /// site, else nothing of ours.
    pub const RETURN: i32 = 26;
    /// The same in the slot of a call, when its return address has been pushed.
    pub const RETURN_IN_CALL: i32 = 27;
    /// As [`KEPT`], where threads run lanes: it looks whether the stack is that of the block.
    pub const KEPT_IN_LANE: i32 = 28;
    /// The same of [`KEPT_INDIRECT`].
    pub const KEPT_INDIRECT_IN_LANE: i32 = 29;
    /// As [`RETURN`], where threads run lanes: a jump to there is none if the stack is another.
    pub const RETURN_IN_LANE: i32 = 30;
    /// The same of [`RETURN_IN_CALL`].
    pub const RETURN_IN_CALL_IN_LANE: i32 = 31;
    /// Number of routines that an area has.
    pub const COUNT: usize = 32;
}
