//! The agent's memory: one block for the process, one for each thread.
//!
//! The process block lies in the image's private data, so a fork child inherits it by copy, as it
//! inherits the patched text. What must *not* survive a fork (the lock, the key of a thread
//! block) lies in pages marked MADV_WIPEONFORK.

use core::sync::atomic::{AtomicU32, AtomicU64};
use sptrace_wire::control::Control;
use sptrace_wire::plan::PlanView;

/// Offset of the thread block's hot page: the first page holds only the key and is wiped on fork.
pub const HOT: usize = 0x1000;
/// Offset of the shadow stack in a thread block.
pub const SHADOW: usize = 0x2000;
/// Where a muted thread writes, in the rest of the hot page: these words are never read.
pub const TRASH: usize = 0x200;
/// End of it.
pub const TRASH_END: usize = 0x1000;
/// Bytes of a shadow frame: call-site rsp, id address, callee.
pub const FRAME_BYTES: usize = 24;
/// Bytes of the shadow stack in a thread block: address space for half a million frames (8 MB of
/// stack hold no more: a frame is at least 16 bytes). A deeper one moves: see
/// [`crate::record::deep`].
pub const SHADOW_BYTES: usize = 524_288 * FRAME_BYTES;
/// Bytes of a whole thread block.
pub const BLOCK_BYTES: usize = SHADOW + SHADOW_BYTES + STACK_BYTES;
/// A shadow stack moves at most so often, each time to a place of twice the size: 50 GB in the end.
pub const GROWTHS: usize = 12;
/// Bytes of the agent's own stack at the end of a thread block.
pub const STACK_BYTES: usize = 64 << 10;

/// The hot page of a thread block; the assembler uses these offsets through gs.
#[repr(C)]
pub struct Hot {
    /// gs:0x1000 next free byte of the chunk, a multiple of 4.
    pub cur: u64,
    /// gs:0x1008 reservations must begin below this; 0 forces the slow path.
    pub end: u64,
    /// gs:0x1010 high half of the TSC of the last record.
    pub hi: u64,
    /// gs:0x1018 top shadow frame.
    pub ssp: u64,
    /// gs:0x1020 no frame may be pushed at or above this.
    pub ssp_end: u64,
    /// gs:0x1028 the table of instrumented entries.
    pub table: u64,
    /// gs:0x1030 top of the agent's own stack; 0 while it is in use.
    pub agent_stack: u64,
    /// gs:0x1038 1: recording is muted, see [`crate::record::chunk::mute`].
    pub muted: u64,
    /// While muted: `cur`, `real_end` and `hi` of the chunk.
    pub kept: [u64; 3],
    /// Shadow frame of the outermost hooked function in which this thread is (`run -F`); 0: none.
    pub root: u64,
    /// Thread id of the owner; 0: nobody's.
    pub tid: u32,
    /// Process id of the owner.
    pub pid: u32,
    /// Its stream.
    pub stream: u32,
    /// Epoch of that stream.
    pub epoch: u32,
    /// Chunk being written, or NONE.
    pub chunk: u32,
    /// Sequence number of the next chunk.
    pub sequence: u32,
    /// Events lost since the last record.
    pub lost: u64,
    /// gs:0x1080 return addresses above this stack address were given back to an unwinder: arm them
    /// again when control is back above it. 0: none.
    pub rearm_above: u64,
    /// True end of the current chunk's reservations, while `end` is forced to 0.
    pub real_end: u64,
    /// Next block of the process.
    pub next: u64,
    /// Highest stack pointer seen: an end for scans.
    pub stack_top: u64,
    /// Stack range of frames that were dropped without an exit: they may be alive after all
    /// (another stack), so a walker's scan includes it. 0: none.
    pub dropped: [u64; 2],
    /// Frames not pushed because the shadow stack is full and cannot grow.
    pub overflow: u64,
    /// Barriers on the shadow stack: see `stacks`.
    pub barriers: u32,
    /// The program's signal mask as of this event of the slow path.
    pub mask: u64,
    /// gs:0x10c8 what the door pushed, while signals may interrupt the agent: see `unblocked`. 0:
    /// none.
    pub unblocked: u64,
    /// 1: the last walker only looked, the frames that it was given back return.
    pub looked: u64,
    /// Where the shadow stack begins; 0: it is being moved.
    pub shadow: u64,
    /// Bytes of it.
    pub shadow_bytes: u64,
    /// Places that it has moved to, start and bytes: see [`crate::record::deep`].
    pub grown: [[u64; 2]; GROWTHS],
    /// The most of it, in bytes, that was in use when a chunk ended, since its memory was last
    /// given back.
    pub deepest: u64,
    /// When it was last in use by half.
    pub deep_tsc: u64,
    /// Room for what [`crate::record::capture`] reads; 0: not made yet.
    pub pieces: u64,
    /// 1: a vfork(2) child may have this block while its owner waits.
    pub lends: u32,
    /// 1: the host was asked about an exec(2) whose system call is about to come.
    pub asked_exec: u32,
    /// Number of the last call of the kernel that was told without its end; 0: none.
    pub alone: u32,
    /// One byte for each call of the kernel, see [`crate::routines::quick`]; 0: not known yet.
    pub quick: u64,
    /// A record with values that is being written with signals let in: where the door keeps rbp,
    /// and where the mark at its end will be. See [`crate::events::system_call_unblocked`].
    pub writing: [u64; 2],
}

/// One frame of the shadow stack.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ShadowFrame {
    /// Stack pointer at the call instruction.
    pub rsp: u64,
    /// Return address of the common routine in its slot, maybe with FRAME_OPEN.
    pub id: u64,
    /// Callee of a call through a pointer.
    pub callee: u64,
}

/// Where a module's code lies and what is known of it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Module {
    /// First executable avma.
    pub start: u64,
    /// End of the executable part.
    pub end: u64,
    /// avma of the plan's `base_svma`.
    pub base: u64,
    /// The plan; `None`: the module is left alone.
    pub plan: Option<PlanView<'static>>,
    /// Execute view of the patch area; 0: the module is left alone.
    pub area: u64,
    /// Write view of the same bytes.
    pub area_rw: u64,
    /// Bytes of the area.
    pub area_bytes: u64,
    /// One byte a function: [`UNTOUCHED`], [`TAILS`], [`INSTRUMENTED`].
    pub functions: *mut u8,
    /// 1 once it must be checked before use (dlclose happened).
    pub doubtful: u32,
    /// 1 if unmapped.
    pub gone: u32,
    /// 1: calls through pointers into it are recorded with the callee's full address, by the slow
    /// path.
    pub wide: u32,
    /// 1: its text has been made one mapping, or cannot be: see [`crate::patch::mappings`].
    pub joined: u32,
    /// 1: what a former agent has left is in the place of the execute view still.
    pub is_left: u32,
    /// 1: fork children do not inherit what was mapped for it, for nothing leads there: see
    /// [`crate::plans::modules::share`].
    pub is_private: u32,
    /// Bytes of the area that have been written.
    pub area_used: u64,
    /// Wirings of the area that this process knows of; a fork child compares them with the area's
    /// own count.
    pub wirings: u64,
}

/// [`Module::functions`]: not reached yet.
pub const UNTOUCHED: u8 = 0;
/// [`Module::functions`]: its sites are patched.
pub const INSTRUMENTED: u8 = 1;
/// [`Module::functions`]: its tail jumps are, no more: it was too deep.
pub const TAILS: u8 = 2;
/// [`Process::dormant`]: nothing is recorded any more.
pub const DORMANT: u32 = 1;
/// [`Process::dormant`]: and the text has been put back.
pub const TEXT_BACK: u32 = 2;
/// [`Process::dormant`]: nor does gs point at a block of ours.
pub const GS_TAKEN: u32 = 4;
/// [`Process::sharing`]: nobody has asked.
pub const SHARING_UNKNOWN: u32 = 0;
/// [`Process::sharing`]: there is one thread, and no other process has its memory.
pub const SHARING_NONE: u32 = 1;
/// [`Process::sharing`]: there may be others.
pub const SHARED: u32 = 2;
/// At most this many modules in a process.
pub const MODULES: usize = 512;
/// log2 of the entries of the table of instrumented functions.
pub const TABLE_BITS: u32 = 17;

/// The process block.
#[repr(C)]
pub struct Process {
    /// The arena.
    pub arena: *mut u8,
    /// Where the first thread's stack begins.
    pub stack_top: u64,
    /// Pid as of injection or of the last fork.
    pub pid: u32,
    /// `PIDS_*` of [`sptrace_wire::control::Stream::other_pids`], as seen from the first traced
    /// process.
    pub other_pids: u32,
    /// [`sptrace_wire::control::Stream::process`]: a fork child has its parent's until its first
    /// event.
    pub number: u32,
    /// The same of the process that it was forked in.
    pub parent_number: u32,
    /// Nothing is recorded any more: [`DORMANT`], [`TEXT_BACK`], [`GS_TAKEN`].
    pub dormant: AtomicU32,
    /// No system call may be made any more.
    pub sandboxed: AtomicU32,
    /// Page that a fork wipes: see [`ForkPage`].
    pub fork_page: *mut ForkPage,
    /// Whether others may change what is mapped: [`SHARING_UNKNOWN`] and so on.
    pub sharing: AtomicU32,
    /// All thread blocks.
    pub blocks: *mut Hot,
    /// Block of no thread: see [`crate::reach::thread::let_go`]; 0: not made yet.
    pub nobody: u64,
    /// A function that uses gs itself was reached: see [`crate::record::end::gs_is_taken`].
    pub gs_wanted: u32,
    /// Modules known.
    pub modules: [Module; MODULES],
    /// Number of them.
    pub module_count: u32,
    /// Base of ld.so, 0 without.
    pub loader: u64,
    /// A library's prctl is intercepted, so a sandbox that is entered is noticed.
    pub sees_sandbox: u32,
    /// A library's syscall(2) is intercepted.
    pub sees_syscall: u32,
    /// Return addresses that hooks have replaced; null: there are no hooks.
    pub originals: *mut Original,
    /// May this process propagate?
    pub may_propagate: u32,
    /// Something has been patched since it was attached to.
    pub was_active: u32,
    /// Table of instrumented entries: `1 << TABLE_BITS` addresses and a few spare.
    pub table: *mut u64,
    /// Entries in it.
    pub table_used: u32,
    /// Last seen heartbeat of the host, and when (TSC).
    pub heartbeat: AtomicU32,
    /// TSC of the last change of the heartbeat.
    pub heartbeat_tsc: AtomicU64,
    /// 1: values of some calls are recorded.
    pub has_values: u32,
    /// Modules are made known, and nothing is patched yet.
    pub preparing: u32,
    /// Where stopped threads go on, sorted: no patch may cover what lies there.
    pub pcs: *const u64,
    /// Number of them.
    pub pc_count: u32,
    /// Bytes of padding under springboards: see [`crate::life::detach`]; null: not kept.
    pub padding: *mut Padding,
    /// Number of them.
    pub padding_count: u32,
}

/// What a fork child must not inherit.
#[repr(C)]
pub struct ForkPage {
    /// 1 in the process that made the page, 0 in a fork child.
    pub mark: u32,
    /// Propagation lock: tid of the owner or 0.
    pub lock: AtomicU32,
}

/// A place in the table of modules that is not taken.
pub const NO_MODULE: Module = Module {
    start: 0,
    end: 0,
    base: 0,
    plan: None,
    area: 0,
    area_rw: 0,
    area_bytes: 0,
    functions: core::ptr::null_mut(),
    doubtful: 0,
    gone: 0,
    wide: 0,
    joined: 0,
    is_left: 0,
    is_private: 0,
    area_used: 0,
    wirings: 0,
};

pub(crate) static mut PROCESS: Process = Process {
    arena: core::ptr::null_mut(),
    stack_top: 0,
    pid: 0,
    other_pids: 0,
    number: 0,
    parent_number: 0,
    dormant: AtomicU32::new(0),
    sandboxed: AtomicU32::new(0),
    fork_page: core::ptr::null_mut(),
    sharing: AtomicU32::new(SHARING_UNKNOWN),
    blocks: core::ptr::null_mut(),
    nobody: 0,
    gs_wanted: 0,
    modules: [NO_MODULE; MODULES],
    module_count: 0,
    loader: 0,
    sees_sandbox: 0,
    sees_syscall: 0,
    originals: core::ptr::null_mut(),
    may_propagate: 0,
    was_active: 0,
    table: core::ptr::null_mut(),
    table_used: 0,
    heartbeat: AtomicU32::new(0),
    heartbeat_tsc: AtomicU64::new(0),
    has_values: 0,
    preparing: 0,
    pcs: core::ptr::null(),
    pc_count: 0,
    padding: core::ptr::null_mut(),
    padding_count: 0,
};

/// The process block. Changed only under the propagation lock, but for its atomics.
#[inline]
pub fn process() -> *mut Process {
    &raw mut PROCESS
}

/// The arena's control block.
#[inline]
pub fn control() -> &'static Control {
    // SAFETY: the arena is mapped for the life of the image; Control is shared by atomics.
    unsafe { &*((*process()).arena as *const Control) }
}

/// Counts one hole.
pub fn count_hole(hole: usize) {
    if let Some(c) = control().holes.get(hole) {
        c.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    }
}

const _: () = assert!(core::mem::size_of::<Hot>() <= TRASH);
const _: () = assert!(core::mem::offset_of!(Hot, rearm_above) == 0x80);
const _: () = assert!(core::mem::offset_of!(Hot, unblocked) == 0xc8);
/// A reservation begins below so many bytes before a chunk's end; the longest has 12.
pub const END_BYTES: u64 = 16;

/// What stood where a springboard was put.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Padding {
    pub(crate) at: u64,
    pub(crate) bytes: [u8; 8],
}

/// Entries of the table, a power of two.
pub const ORIGINALS: usize = 1 << 13;
/// Entries looked at before a function is left without an exit.
pub const PROBES: usize = 16;
/// Of the hash, cut off.
pub const SHIFT: u32 = 13;
/// In an entry's place: somebody finds out whether it is in use. A fork may leave it so.
pub const ASKED: u64 = 1;

/// A replaced return address.
#[repr(C)]
pub struct Original {
    /// Where on the stack it lay; 0: unused.
    pub(crate) place: AtomicU64,
    pub(crate) address: AtomicU64,
}
