//! Commands to the agent of a running process: what the host writes into the arena before it leads
//! one thread, the *carrier*, to the agent, and what the agent leaves there.
//!
//! A block lies at a multiple of 4096 among the plans. Its tables follow at offsets from its start,
//! which the host chooses. One command at a time: the host owns the block unless the carrier runs,
//! so nothing in it but [`AttachBlock::done`] is shared at one moment.
//!
//! `PREPARE` runs beside the program, and again when it has other modules; `SILENCE` beside stopped
//! threads wherever they are. `ADOPT`, `ACTIVATE`, `POINTS` and `DETACH` run while every other
//! thread is stopped by ptrace, and outside of the agent, at least as long as the host lives.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Maps the patch areas of the modules named. Changes nothing that the program sees; its children
/// inherit nothing of it before `ACTIVATE`. May be given again.
pub const COMMAND_PREPARE: u32 = 1;
/// Patches the functions on the stacks and the special ones. After `ADOPT`, in the same block, when
/// every thread has its gs base: should the host end from here on, the threads run into the patches
/// by themselves.
pub const COMMAND_ACTIVATE: u32 = 2;
/// Puts text and stacks back as they were. May be given again.
pub const COMMAND_DETACH: u32 = 3;
/// Nothing is recorded any more, so that threads get out of the agent. Runs while some are inside.
pub const COMMAND_SILENCE: u32 = 4;

/// As `DETACH`, and threads may stay in slots, before or after the call there.
pub const COMMAND_DETACH_ANYWAY: u32 = 5;

/// Maps what threads need to wait at a gate: pages for the code that leads there, at the addresses
/// named, and pages to fault on, which a userfaultfd(2) of the process watches, with one for counts
/// behind them. Runs while every other thread is stopped, before `ACTIVATE`. Children inherit the
/// pages, but nobody waits there.
pub const COMMAND_GATE: u32 = 6;
/// Closes the descriptor that `GATE` has opened. Likewise.
pub const COMMAND_CLOSE: u32 = 7;

/// Gives every thread its block; nothing that is executed changes.
pub const COMMAND_ADOPT: u32 = 8;

/// Patches the return points that were left alone since a thread might have stood there. While
/// every other thread is stopped, and outside of the agent.
pub const COMMAND_POINTS: u32 = 9;

/// [`AttachBlock::result`]: done.
pub const RESULT_DONE: u32 = 1;
/// [`AttachBlock::result`]: no memory, or the arena is of another version: nothing was changed.
pub const RESULT_FAILED: u32 = 2;
/// [`AttachBlock::result`]: the text cannot be written; of `DETACH`: not all was put back.
pub const RESULT_NOT_WRITABLE: u32 = 3;
/// [`AttachBlock::result`]: a thread stands where it must not: let it run on, and try again.
pub const RESULT_AGAIN: u32 = 4;

/// Start of a block.
#[repr(C)]
pub struct AttachBlock {
    /// Agent: 1 when the command is finished; a futex.
    pub done: AtomicU32,
    /// Host: `COMMAND_*`.
    pub command: AtomicU32,
    /// Agent: `RESULT_*`.
    pub result: AtomicU32,
    /// Host: number of [`AttachThread`]s.
    pub threads: u32,
    /// Host: where they are.
    pub threads_at: u64,
    /// Host: number of [`AttachFrame`]s.
    pub frames: u32,
    /// Host: number of program counters, sorted.
    pub pcs: u32,
    /// Host: where the frames are.
    pub frames_at: u64,
    /// Host: where the program counters are: avmas at which threads go on, in the text of modules.
    pub pcs_at: u64,
    /// Host: `PREPARE`: an address in each new module.
    pub modules_at: u64,
    /// Host: number of them.
    pub modules: u32,
    /// Host: room for so many ranges.
    pub ranges: u32,
    /// Host: where `DETACH` leaves what may be unmapped: pairs of start and bytes, ended by a zero.
    pub ranges_at: u64,
    /// Host: end of the first thread's stack.
    pub stack_top: u64,
    /// Host: base of ld.so, 0 without.
    pub loader: u64,
    /// Agent, `DETACH`: places where the original bytes could not be put back, since others stand
    /// there.
    pub foreign: AtomicU64,
    /// Host: an address in each module that is gone again.
    pub gone_at: u64,
    /// Host: number of them.
    pub gone: u64,
    /// Host, `GATE`: number of pages to fault on; the pages for code are at the addresses in
    /// `modules_at`.
    pub gate_pages: u64,
    /// Agent, `GATE`: where they are.
    pub gates_at: AtomicU64,
    /// Agent, `GATE`: the descriptor. Host, `CLOSE`: likewise.
    pub descriptor: AtomicU64,
}

/// A stopped thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AttachThread {
    /// Thread id.
    pub tid: u32,
    /// Number of its frames.
    pub frames: u32,
    /// Index of its outermost one; the others follow, inwards.
    pub first_frame: u32,
    /// Agent, `DETACH`: 1: it must go on with `registers`, which the agent has changed.
    pub moved: u32,
    /// fs base.
    pub fs_base: u64,
    /// Stack pointer.
    pub rsp: u64,
    /// End of the stack, at the most.
    pub stack_end: u64,
    /// Signal mask.
    pub mask: u64,
    /// Agent, `ADOPT`: what its gs base must become; 0: it stays.
    pub gs_base: u64,
    /// Where it goes on.
    pub rip: u64,
    /// r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, flags: in the order of struct
    /// sigcontext.
    pub registers: [u64; 18],
}

/// A call that is open on a thread's stack.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AttachFrame {
    /// Stack pointer at the call instruction: above the return address.
    pub rsp: u64,
    /// The return address.
    pub return_address: u64,
    /// An address in the function that was called.
    pub pc: u64,
}

const _: () = assert!(size_of::<AttachBlock>() == 136);
const _: () = assert!(size_of::<AttachThread>() == 208);
const _: () = assert!(size_of::<AttachFrame>() == 24);
