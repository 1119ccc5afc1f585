//! The process block: what the agent knows of the process as a whole.
//!
//! It lies in the image's private data, so a fork child inherits it by copy, as it
//! inherits the patched text. What must *not* survive a fork (the lock, the key of a thread
//! block) lies in pages marked MADV_WIPEONFORK.

use crate::memory::mapped::{self, Zeroed};
use crate::memory::pointers::Pointers;
use crate::memory::rows::Rows;
use crate::memory::sys;
use crate::memory::table::{MODULES, Module};
use crate::memory::thread::Hot;
use crate::memory::word::{Flag, Half, Link, Word, Words};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use sptrace_wire::control::Control;

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
/// log2 of the entries of the table of instrumented functions.
pub const TABLE_BITS: u32 = 17;

/// The process block.
#[repr(C)]
pub struct Process {
    /// The arena.
    arena: Word,
    /// Where the first thread's stack begins.
    pub stack_top: Word,
    /// Pid as of injection or of the last fork.
    pub pid: Half,
    /// `PIDS_*` of [`sptrace_wire::control::Stream::other_pids`], as seen from the first traced
    /// process.
    pub other_pids: Half,
    /// [`sptrace_wire::control::Stream::process`]: a fork child has its parent's until its first
    /// event.
    pub number: Half,
    /// The same of the process that it was forked in.
    pub parent_number: Half,
    /// Return points that were left alone, here and in those that it was forked in: the host reads
    /// it ([`sptrace_wire::control::POINTS_LEFT`]).
    pub points_left: Half,
    /// Nothing is recorded any more: [`DORMANT`], [`TEXT_BACK`], [`GS_TAKEN`].
    pub dormant: AtomicU32,
    /// No system call may be made any more.
    pub sandboxed: AtomicU32,
    /// Page that a fork wipes: see [`ForkPage`].
    pub fork_page: Link<ForkPage>,
    /// Whether others may change what is mapped: [`SHARING_UNKNOWN`] and so on.
    pub sharing: AtomicU32,
    /// The first of all thread blocks: see [`Process::threads`].
    pub blocks: Link<Hot>,
    /// Block of no thread: see [`crate::reach::thread::let_go`]; none: not made yet.
    pub nobody: Link<Hot>,
    /// A function that uses gs itself was reached: see [`crate::record::end::gs_is_taken`].
    pub gs_wanted: Flag,
    /// Functions may be running whose callers are not patched, as nobody saw them begin.
    pub runs_unseen: Flag,
    /// The same from the next call on.
    pub will_run_unseen: Flag,
    /// The program is about to begin: threads that are there by then nobody saw begin.
    pub may_have_threads: Flag,
    /// The modules that are asked for now were mapped just now: nobody runs their code yet.
    pub is_mapping: Flag,
    /// Modules known.
    pub modules: [Module; MODULES],
    /// How many there are.
    pub module_count: Half,
    /// Base of ld.so, 0 without.
    pub loader: Word,
    /// A library's prctl is intercepted, so a sandbox that is entered is noticed.
    pub sees_sandbox: Flag,
    /// A library's syscall(2) is intercepted.
    pub sees_syscall: Flag,
    /// Return addresses that hooks have replaced; none: there are no hooks.
    pub originals: Link<Originals>,
    /// May this process propagate?
    pub may_propagate: Flag,
    /// Something has been patched since it was attached to.
    pub was_active: Flag,
    /// Table of instrumented entries: `1 << TABLE_BITS` addresses and a few spare.
    pub table: Link<Table>,
    /// Last seen heartbeat of the host, and when (TSC).
    pub heartbeat: AtomicU32,
    /// TSC of the last change of the heartbeat.
    pub heartbeat_tsc: AtomicU64,
    /// Modules are made known, and nothing is patched yet.
    pub preparing: Flag,
    /// Values of some calls are recorded.
    pub has_values: Flag,
    /// Functions whose calls bring values without the slow path; none: there are none.
    pub rows: Link<Rows>,
    /// Region in which stands what this process counts, or [`sptrace_wire::control::NONE`].
    pub edges: Half,
    /// The same words, for fork children: the region is given back when the process ends.
    pub edges_known: Link<Edges>,
    /// How many cells of it are somebody's.
    pub cells_used: Half,
    /// Entries of [`sptrace_wire::levels`] that were taken.
    pub levels_taken: Word,
    /// Calls through pointers that are counted; none: nothing is counted.
    pub pointers: Link<Pointers>,
    /// Where stopped threads go on, sorted: no patch may cover what lies there.
    pcs: Word,
    /// How many these are.
    pc_count: Half,
    /// Bytes of padding under springboards: see [`crate::life::detach`]; none: not kept.
    pub padding: Link<Paddings>,
    /// How many bytes are kept there.
    pub padding_count: Half,
    /// The program's code runs on stacks that have some hundred bytes left at times: nothing of the
    /// agent may run there.
    pub small_stacks: Flag,
    /// Where the runtime keeps which lane a thread runs, from the fs base on, and where in that its
    /// number is; 0: threads have no lanes. See [`crate::memory::running`].
    pub lane_at: Word,
    /// See there.
    pub lane_number: Word,
    /// The blocks of lanes; none: there are none yet.
    pub lanes: Link<Lanes>,
    /// To which payloads add, for all threads: a fork child goes on with its parent's.
    pub counters: Words<{ sptrace_wire::control::PAYLOAD_COUNTERS }>,
}

/// Lanes that a process may have at a time, a power of two; half of these places stay empty.
pub const LANES: usize = 1 << 14;
/// Of each lane its block, and where the runtime keeps it.
pub type Lanes = [Words<2>; LANES];

/// What is counted in the cells of a process.
pub type Edges = [Word; sptrace_wire::counts::CELLS as usize];

/// What a fork child must not inherit.
#[repr(C)]
pub struct ForkPage {
    /// Set in the process that made the page, not in a fork child.
    pub mark: Flag,
    /// Propagation lock: tid of the owner or 0.
    pub lock: AtomicU32,
    /// How many wait for it; more, if some of them were killed.
    pub waiting: AtomicU32,
}

// SAFETY: numbers.
unsafe impl Zeroed for ForkPage {}

impl ForkPage {
    fn wipe_on_fork(&self) -> bool {
        // SAFETY: a page that was mapped for this, and zero is good for it.
        unsafe { sys::wipe_on_fork(&raw const *self as usize, 4096) }
    }
}

pub(crate) static PROCESS: Process = Process {
    arena: Word::new(0),
    stack_top: Word::new(0),
    pid: Half::new(0),
    other_pids: Half::new(0),
    number: Half::new(0),
    parent_number: Half::new(0),
    points_left: Half::new(0),
    dormant: AtomicU32::new(0),
    sandboxed: AtomicU32::new(0),
    fork_page: Link::none(),
    sharing: AtomicU32::new(SHARING_UNKNOWN),
    blocks: Link::none(),
    nobody: Link::none(),
    gs_wanted: Flag::new(false),
    runs_unseen: Flag::new(false),
    will_run_unseen: Flag::new(false),
    may_have_threads: Flag::new(false),
    is_mapping: Flag::new(false),
    modules: [const { Module::none() }; MODULES],
    module_count: Half::new(0),
    loader: Word::new(0),
    sees_sandbox: Flag::new(false),
    sees_syscall: Flag::new(false),
    originals: Link::none(),
    may_propagate: Flag::new(false),
    was_active: Flag::new(false),
    table: Link::none(),
    heartbeat: AtomicU32::new(0),
    heartbeat_tsc: AtomicU64::new(0),
    preparing: Flag::new(false),
    has_values: Flag::new(false),
    rows: Link::none(),
    edges: Half::new(sptrace_wire::control::NONE),
    edges_known: Link::none(),
    levels_taken: Word::new(0),
    cells_used: Half::new(sptrace_wire::counts::FIRST_CELL),
    pointers: Link::none(),
    pcs: Word::new(0),
    pc_count: Half::new(0),
    padding: Link::none(),
    padding_count: Half::new(0),
    small_stacks: Flag::new(false),
    lane_at: Word::new(0),
    lane_number: Word::new(0),
    lanes: Link::none(),
    counters: Words::zero(),
};

const _: () = {
    let apart = offset_of!(Process, points_left) - offset_of!(Process, number);
    assert!(apart as u64 == sptrace_wire::control::POINTS_LEFT);
};

/// The process block. Changed only under the propagation lock, but for its atomics.
#[inline]
pub fn process() -> &'static Process {
    &PROCESS
}

impl Process {
    /// Where the arena is mapped; 0: nowhere yet.
    #[inline]
    pub fn arena(&self) -> u64 {
        self.arena.get()
    }

    /// Nothing is recorded any more, and the stacks have the program's own return addresses.
    #[inline]
    pub fn is_silent(&self) -> bool {
        self.dormant.load(Ordering::Acquire) & DORMANT != 0
    }

    /// Begins work with an arena.
    pub fn begin_with(&self, arena: &Arena) {
        self.arena.set(&raw const *arena.0 as u64);
    }

    /// The modules that are known, gone ones included.
    #[inline]
    pub fn known_modules(&self) -> &'static [Module] {
        let count = process().module_count.get() as usize;
        // What an entry says was written before it was counted.
        fence(Ordering::Acquire);
        process().modules.get(..count).unwrap_or(&[])
    }

    /// The blocks of all threads, and of those that have ended.
    pub fn threads(&self) -> impl Iterator<Item = &'static Hot> {
        core::iter::successors(self.blocks.get(), |hot| hot.next.get())
    }

    /// Puts a block at the head of the list. Under the propagation lock.
    pub fn add_thread(&self, hot: &'static Hot) {
        hot.next.set(self.blocks.get());
        self.blocks.set(Some(hot));
    }

    /// Makes the page that a fork wipes, and the table of entries. False: no memory.
    pub fn make_tables(&self) -> bool {
        let (page, table) = (mapped::make::<ForkPage>(), mapped::make::<Table>());
        let Some(page) = page.filter(|page| table.is_some() && page.wipe_on_fork()) else {
            return false;
        };
        page.mark.set(true);
        self.fork_page.set(Some(page));
        self.table.set(table);
        true
    }

    /// A fork child whose first event has not come.
    pub fn is_fresh_child(&self) -> bool {
        self.fork_page.get().is_some_and(|page| !page.mark.get())
    }

    /// Where stopped threads go on, sorted. `None`: this is no command that knows it.
    pub fn pcs(&self) -> Option<&[u64]> {
        let first = self.pcs.get() as *const u64;
        let count = self.pc_count.get() as usize;
        // SAFETY: inside of with_pcs, which has them.
        (!first.is_null()).then(|| unsafe { core::slice::from_raw_parts(first, count) })
    }

    /// Runs what must know where stopped threads go on.
    pub fn with_pcs<R>(&self, pcs: &[u64], run: impl FnOnce() -> R) -> R {
        self.pcs.set(pcs.as_ptr() as u64);
        self.pc_count.set(pcs.len() as u32);
        let result = run();
        self.pc_count.set(0);
        self.pcs.set(0);
        result
    }

    /// The threads run again: nobody knows where.
    pub fn forget_pcs(&self) {
        self.pc_count.set(0);
    }
}

/// An arena that this agent can work with, by its control block.
pub struct Arena(&'static Control);

impl Arena {
    /// The arena at `at`. `None`: it is of another version, so that nothing else in it may be
    /// believed, nor written.
    ///
    /// # Safety
    /// It is mapped for the life of the image, as `sptrace-wire` says.
    pub unsafe fn at(at: *mut u8) -> Option<Self> {
        // SAFETY: the caller's; Control is shared by atomics.
        let control = unsafe { &*(at as *const Control) };
        let is_ours =
            control.magic == sptrace_wire::MAGIC && control.version == sptrace_wire::VERSION;
        is_ours.then_some(Self(control))
    }
}

/// The arena's control block.
#[inline]
pub fn control() -> &'static Control {
    // SAFETY: an arena that work was begun with (see Arena::at).
    unsafe { &*(process().arena() as *const Control) }
}

/// Counts one hole.
pub fn count_hole(hole: usize) {
    if let Some(c) = control().holes.get(hole) {
        c.fetch_add(1, Ordering::Relaxed);
    }
}

/// A reservation begins below so many bytes before a chunk's end; the longest has 12.
pub const END_BYTES: u64 = 16;

/// Springboards in padding: one call site in a thousand.
pub(crate) const PADDINGS: usize = 1 << 16;

/// What stood where springboards were put: where, and the bytes.
pub type Paddings = [Words<2>; PADDINGS];

/// The table of instrumented entries, with a few spare.
pub type Table = [Word; (1 << TABLE_BITS) + 512];

/// Entries of the table, a power of two.
pub const ORIGINALS: usize = 1 << 13;
/// Entries looked at before a function is left without an exit.
pub const PROBES: usize = 16;
/// Of the hash, cut off.
pub const SHIFT: u32 = 13;
/// In an entry's place: somebody finds out whether it is in use. A fork may leave it so.
pub const ASKED: u64 = 1;

/// Return addresses that hooks have replaced.
pub type Originals = [Original; ORIGINALS];

/// A replaced return address.
#[repr(C)]
pub struct Original {
    /// Where on the stack it lay; 0: unused.
    pub(crate) place: AtomicU64,
    pub(crate) address: AtomicU64,
}

// SAFETY: numbers.
unsafe impl Zeroed for Original {}
