//! The arena's layout and the words by which host and agent talk to each other.
//!
//! Each field says who writes it. Both sides treat what the other wrote as untrusted numbers:
//! an index out of range is counted and ignored, never followed.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of the whole arena: address space only, pages appear when touched. Where address space is
/// limited it has less ([`Control::arena_bytes`]).
pub const ARENA_BYTES: u64 = 1 << 30;
/// Arena offset of the [`Control`] block.
pub const CONTROL_OFFSET: u64 = 0;
/// Arena offset of the [`Question`] slots.
pub const QUESTIONS_OFFSET: u64 = 0x2000;
/// Number of [`Question`] slots: more askers than this wait their turn.
pub const QUESTIONS: usize = 64;
/// Arena offset of the [`Stream`] table.
pub const STREAMS_OFFSET: u64 = 0x1_0000;
/// Number of [`Stream`] entries; dead ones are used again.
pub const STREAMS: usize = 4096;
/// Arena offset of the [`Chunk`] table.
pub const CHUNKS_OFFSET: u64 = 0x6_0000;
/// Number of chunks that the arena has room for.
pub const CHUNKS_MAX: usize = 4096;
/// Arena offset of the agent's image as it is mapped into the tracee.
pub const IMAGE_OFFSET: u64 = 0x10_0000;
/// In every tracee the agent's image lies so far before the arena, with nothing else between the
/// two.
pub const IMAGE_BEFORE_BYTES: u64 = 0x100_0000;
/// Bytes set apart for the agent's image.
pub const IMAGE_BYTES: u64 = 0x10_0000;
/// Arena offset of the first chunk of records. The plans come behind the last that there may be;
/// each starts at a multiple of 4096.
pub const CHUNK_DATA_OFFSET: u64 = 0x20_0000;
/// Bytes of one chunk.
pub const CHUNK_BYTES: u64 = 64 << 10;

/// Where the words of a thread's block are that payloads use, from gs on.
pub mod block {
    /// The fs base of the thread whose block it is; a fork wipes it.
    pub const KEY: i32 = 0;
    /// The page of its stack at which that was last found to be so, or an address in it; 0: none. A
    /// fork wipes it.
    pub const STACK_PAGE: i32 = 8;
    /// Where the next record goes.
    pub const CURSOR: i32 = 0x1000;
    /// Records must begin below this address.
    pub const LIMIT: i32 = 0x1008;
    /// The same from the start of its page.
    pub const LIMIT_IN_PAGE: u64 = LIMIT as u64 % 4096;
    /// The innermost frame of the shadow stack.
    pub const TOP_FRAME: i32 = 0x1018;
    /// Not 0: nothing is recorded now.
    pub const MUTED: i32 = 0x1038;
    /// The thread's number, of 32 bits.
    pub const TID: i32 = 0x1060;
    /// The address of its tables; 0: it has none.
    pub const TABLES: i32 = 0x11f0;
    /// errno of the thread, while a payload runs at a return that asks for it.
    pub const ERRNO: i32 = 0x11f8;
    /// What is to be done to a call: bits, then a word for each ([`crate::record::ACTED`]).
    pub const ACTIVE: i32 = 0x1228;
    /// Words of the texts that a payload compares.
    pub const TEXTS: i32 = 0x1250;
    /// The address of the process's counters, to which payloads add.
    pub const COUNTERS: i32 = 0x1270;
    /// The address of what is kept of texts that are keys; 0: there is none.
    pub const TOLD: i32 = 0x12b8;
    /// What the host is bidden do: bits by the numbers of [`crate::bids`].
    pub const BIDS: i32 = 0x1320;
    /// The innermost frame of the call whose return has bidden something in a common routine.
    pub const HAS_BIDDEN: i32 = 0x1328;
    /// The address of the switches of values ([`crate::levels::SWITCHES`]).
    pub const SWITCHES: i32 = 0x1330;
}

/// Counters of a process that payloads add to.
pub const PAYLOAD_COUNTERS: usize = 64;

/// No chunk, no stream, end of list.
pub const NONE: u32 = u32::MAX;

/// The host is alive and draining.
pub const HOST_RECORDING: u32 = 1;
/// The host asked for an end: record nothing more, patch nothing more, and count nothing as lost.
pub const HOST_STOPPED: u32 = 2;

/// The host takes the agents out of their processes: nobody waits for a chunk any more, and nothing
/// that finds no room counts as lost.
pub const HOST_DETACHING: u32 = 3;

/// The kernel's mark on a robust futex whose owner died (futex(2)).
pub const FUTEX_OWNER_DIED: u32 = 0x4000_0000;

/// The first page of the arena.
#[repr(C)]
pub struct Control {
    /// Host, before injection: [`crate::MAGIC`].
    pub magic: u64,
    /// Host, before injection: [`crate::VERSION`].
    pub version: u32,
    /// Host: [`HOST_RECORDING`], [`HOST_DETACHING`] or [`HOST_STOPPED`].
    pub host_state: AtomicU32,
    /// Host: a robust futex held by the drain thread. The kernel sets `FUTEX_OWNER_DIED`
    /// (futex(2)) when that thread ends in whatever way: death is visible without a system call.
    pub host_alive: AtomicU32,
    /// Host: the same of the thread that traces. The kernel says so before it lets stopped threads
    /// run.
    pub tracer_alive: AtomicU32,
    /// Host: counted up every 100 ms; a host that is stopped stands still.
    pub heartbeat: AtomicU32,
    /// Agent rings (adds one and wakes), the host's draining thread waits: a chunk is full.
    pub doorbell: AtomicU32,
    /// Host rings (adds one and wakes) when chunks became free; blocked threads wait here.
    pub chunks_freed: AtomicU32,
    /// Head of the free chunks: index in the low half, a tag against ABA in the high half.
    pub free_chunks: AtomicU64,
    /// Head of the full chunks, agents push, the host takes all at once: an index or [`NONE`].
    pub full_chunks: AtomicU32,
    /// The same for the thread that answers: a question is asked. A chunk does not wake that, which
    /// would cost who fills it twice as much.
    pub question_bell: AtomicU32,
    /// Host: the pages of chunks up to this one are there, and need only be mapped.
    pub chunks_ready: AtomicU32,
    /// Agent: next stream entry that was never used.
    pub streams_used: AtomicU32,
    /// Host: what to do when no chunk is free: 0 block, 1 drop.
    pub on_full: u32,
    /// Host: at most this many frames deep are functions instrumented (0: no limit).
    pub depth_limit: u32,
    /// Host: 1 = recording begins at hooked functions only ([`crate::plan::SpecialKind::Root`]).
    pub roots_only: u32,
    /// Host: the pid of the process that this arena was made for, as the host sees it.
    pub pid: u32,
    /// Host: 1 = record ld.so's start-up work too.
    pub loader: u32,
    /// Host: bytes of this arena.
    pub arena_bytes: u64,
    /// Agent: call sites patched, by tactic number of the plan.
    pub patched: [AtomicU64; 16],
    /// Agent: call sites left alone, by refusal number of the plan.
    pub refused: [AtomicU64; 32],
    /// Agent: what could not be seen otherwise, by [`hole`] number.
    pub holes: [AtomicU64; 32],
    /// Agent: call sites patched that keep their return addresses: those whose ends are seen where
    /// they return to, and the others.
    pub kept: [AtomicU64; 2],
    /// Agent: functions instrumented when they were called.
    pub functions: AtomicU64,
    /// Agent: the same before that, since they were met before.
    pub functions_ahead: AtomicU64,
    /// Agent: events lost, because no chunk was free or a signal's handler has met a call before
    /// its record.
    pub lost: AtomicU64,
    /// Agents: the last number that a process of the recording was given. Host: where they begin.
    pub last_number: AtomicU32,
    /// Host: 1: some processes live in another pid namespace.
    pub other_pids: AtomicU32,
    /// Agent: where in each process its number lies.
    pub number_avma: AtomicU64,
    /// Agent: programs in which it has begun after an exec, recording or not.
    pub begun: AtomicU64,
    /// Host: offset in the arena of what to capture of system calls ([`crate::values`]); 0: none is
    /// recorded.
    pub captures_offset: u64,
    /// Host: offset in the arena of the sets of tables that payloads add to, one a stream; 0: there
    /// are none.
    pub tables_offset: u64,
    /// Host: bytes of a set.
    pub tables_set_bytes: u32,
    /// Host: how many sets there are; a stream above has none.
    pub tables_sets: u32,
    /// Host: where the regions of [`crate::counts`] begin in the arena.
    pub regions_offset: u64,
    /// Host: how many there are; 0: calls are recorded, not counted.
    pub regions: u32,
    /// Host: 1: calls are recorded, and those of some functions counted ([`crate::levels`]); 0: all
    /// are counted, or recorded.
    pub has_levels: u32,
    /// Host: 1: calls are recorded in order, without stamps and ends.
    pub in_order: u32,
    /// Host: [`MIXED_PLACED`] or [`MIXED_COUNTED`]: calls are recorded, and those of some functions
    /// in order ([`crate::levels`]).
    pub mixed: u32,
    /// Host: how many [`crate::bids`] there are.
    pub bids: u32,
    /// Host: calls keep their return addresses, and their ends are seen where they return to
    /// ([`crate::plan::SITE_RETURN`]): no return address of ours is on any stack.
    pub keeps_returns: u32,
    /// Host: 1: functions that were met before ([`crate::plan::PlanHeader::met_at`]) are
    /// instrumented as soon as their module is known.
    pub ahead: u32,
    /// Host: entries of [`crate::levels`] that were written yet.
    pub levels_written: AtomicU64,
    /// Agents: calls of the kernel on descriptors that were not asked for
    /// ([`crate::values::CaptureTable::asked_at`]), or lead to no path that was, which are not
    /// recorded.
    pub calls_on_others: AtomicU64,
    /// Agents: calls of the kernel whose result or length was not asked for
    /// ([`crate::values::CaptureTable::unwanted`]), whose record is followed by
    /// [`crate::record::LEFT_OUT`].
    pub calls_not_chosen: AtomicU64,
    /// Agents: return points that were left alone since another thread might have stood there, in
    /// all processes. In one of them: see [`POINTS_LEFT`].
    pub points_left: AtomicU64,
    /// Functions that are recorded at times only.
    pub rules: [Rule; RULES],
}

/// So many bytes behind [`Control::number_avma`] each process has how many return points were left
/// alone in it, and in those that it was forked in.
pub const POINTS_LEFT: u64 = 8;

/// [`Control::mixed`]: entries of recorded calls say where the stack pointer stood, by which it is
/// known what lies inside of what.
pub const MIXED_PLACED: u32 = 1;
/// [`Control::mixed`]: calls in order are counted by the host, and nothing else becomes of them.
pub const MIXED_COUNTED: u32 = 2;

/// Number of [`Rule`]s.
pub const RULES: usize = 7;
/// Of each of them it is kept when it was turned so many times.
pub const TURNS_KEPT: usize = 64;

/// When the calls of some functions are recorded ([`crate::plan::HookRules`]).
#[repr(C)]
pub struct Rule {
    /// Host and agents: counts up when the rule is opened, and when it is closed: it is open while
    /// this is odd.
    pub turns: AtomicU64,
    /// Host and agents: TSC of the last turns, by their number; written after the turn.
    pub turned_tsc: [AtomicU64; TURNS_KEPT],
    /// Agents: calls, since the last turn, of functions that bring the next.
    pub calls: AtomicU64,
    /// Host: so many of them open it; 0: none do.
    pub opening_calls: AtomicU64,
    /// Host: so many of them close it; 0: none do.
    pub closing_calls: AtomicU64,
    /// Host: no turn but closing is made from here on.
    pub last_turn: AtomicU64,
}

impl Rule {
    /// Are calls that begin now recorded?
    pub fn is_open(&self) -> bool {
        self.turns.load(Ordering::Acquire) & 1 != 0
    }

    /// Opens or closes it, if `turns` are all that were made yet. False: somebody else did, or it
    /// shall not be opened again.
    pub fn turn(&self, turns: u64, tsc: u64) -> bool {
        let is_opening = turns & 1 == 0;
        if is_opening && turns >= self.last_turn.load(Ordering::Relaxed) {
            return false;
        }
        let turned =
            self.turns
                .compare_exchange(turns, turns + 1, Ordering::AcqRel, Ordering::Relaxed);
        if turned.is_ok() {
            self.calls.store(0, Ordering::Relaxed);
            self.turned_tsc[turns as usize % TURNS_KEPT].store(tsc, Ordering::Release);
        }
        turned.is_ok()
    }
}

/// Numbers of [`Control::holes`]: what was not seen, and why. 9 and 11 are free.
pub mod hole {
    /// A callee in code that belongs to no file (JIT, anonymous memory).
    pub const JIT: usize = 0;
    /// A callee in a module for which the host gave no plan.
    pub const NO_PLAN: usize = 1;
    /// A callee that the analysis does not know as a function.
    pub const UNKNOWN_ENTRY: usize = 2;
    /// The host did not answer in time.
    pub const NO_ANSWER: usize = 3;
    /// No room for a patch area within reach.
    pub const NO_AREA: usize = 4;
    /// The bytes in memory are not those of the plan.
    pub const BYTES_DIFFER: usize = 5;
    /// The text could not be made writable.
    pub const NOT_WRITABLE: usize = 6;
    /// Another thread held the propagation lock too long.
    pub const LOCK_BUSY: usize = 7;
    /// No stream, thread block or table entry left.
    pub const TABLE_FULL: usize = 8;
    /// A program image started by exec that the agent could not enter.
    pub const EXEC_UNSEEN: usize = 10;
    /// The arena is of another version.
    pub const VERSION: usize = 12;
    /// A fork child could not make its patch areas private: it does not propagate.
    pub const FORK_SHARED: usize = 13;
    /// Frames nested too deep for the shadow stack.
    pub const TOO_DEEP: usize = 14;
    /// The program left a known stack (coroutine): nesting is a guess there.
    pub const OTHER_STACK: usize = 15;
    /// Processes whose recording ended when they entered a seccomp sandbox or forbade rdtsc.
    pub const SANDBOX: usize = 16;
    /// Functions that jump to places that the analysis could not find out.
    pub const UNRESOLVED: usize = 17;
    /// Processes whose recording ended when they came to use the gs register themselves.
    pub const GS: usize = 18;
    /// Functions put back and left alone, since the program was about to write to its own code.
    pub const TEXT_WRITTEN: usize = 19;
    /// Sites, or hooks, where a thread was at the moment of attaching.
    pub const IN_FLIGHT: usize = 20;
    /// Instructions that call the kernel and cannot be intercepted, in modules that are recorded.
    pub const SYSTEM_CALLS: usize = 21;
    /// Signal handlers whose entry cannot be intercepted.
    pub const HANDLERS: usize = 22;
    /// Calls of functions with a payload that could not be run.
    pub const PAYLOADS: usize = 23;
    /// Threads whose calls were not counted: there was no room for their counts.
    pub const NOT_COUNTED: usize = 24;
    /// Kinds of calls that were not counted: a process has too many.
    pub const NO_CELL: usize = 25;
    /// No hole: calls that a payload has left out.
    pub const NOT_CALLED: usize = 26;
    /// No hole: calls that a payload has delayed.
    pub const DELAYED: usize = 27;
    /// No hole: signals that a payload has raised.
    pub const RAISED: usize = 28;
    /// Calls to which not all was done that a payload wanted.
    pub const NOT_CHANGED: usize = 29;
    /// Changes to a lane that could not be followed: its calls are told as the thread's.
    pub const LANES: usize = 30;
}

/// One thread of one process: the owner of a sequence of chunks.
#[repr(C)]
pub struct Stream {
    /// Agent: [`STREAM_TAKEN`], [`STREAM_LIVE`]; host: [`STREAM_DEAD`]. 0: never used.
    pub state: AtomicU32,
    /// Agent: process id as the process sees it.
    pub pid: u32,
    /// Agent: thread id as the process sees it.
    pub tid: u32,
    /// Agent: stream that was forked from, or [`NONE`].
    pub parent: u32,
    /// Agent: counts up each time that the entry is taken.
    pub epoch: AtomicU32,
    /// Agent: chunk being written, or [`NONE`].
    pub chunk: AtomicU32,
    /// Agent: TSC when the stream began.
    pub start_tsc: u64,
    /// Agent: pid of the process that the stream was forked in, 0 if not forked.
    pub parent_pid: u32,
    /// Agent: `PIDS_*`.
    pub other_pids: u32,
    /// Agent: [`Self::epoch`] of the stream that was forked from, as it was then.
    pub parent_epoch: u32,
    /// Agent: number of the process in the recording.
    pub process: u32,
    /// Agent: number of the process that the stream was forked in.
    pub parent_process: u32,
    /// Agent, where [`Control::mixed`]: the page of the thread's block that has
    /// [`block::LIMIT_IN_PAGE`], counted from [`crate::OWN_AVMA`]; 0: none yet. [`LANE_PAGE`]: the
    /// stream is of lanes, one after the other, and not of a thread.
    pub hot_page: AtomicU32,
    /// Host: [`LOOK_BEGUN`] before it makes that word zero, the TSC afterwards; agent: 0 when it
    /// has given the word its value again. Of lanes: the number of the first one.
    pub looked: AtomicU64,
}

/// [`Stream::hot_page`] of a stream of lanes, which there are only where nobody is bidden to look.
pub const LANE_PAGE: u32 = u32::MAX;

impl Stream {
    /// The number of the first lane, if this is a stream of lanes: it ends with the process, and
    /// [`crate::record::LANE`] says where another begins. Its `tid` is the process's first.
    pub fn first_lane(&self) -> Option<u64> {
        let is_of_lanes = self.hot_page.load(Ordering::Acquire) == LANE_PAGE;
        is_of_lanes.then(|| self.looked.load(Ordering::Acquire))
    }
}

/// [`Stream::looked`]: it may be zero by now.
pub const LOOK_BEGUN: u64 = 1;

/// [`Stream::other_pids`]: the process numbers are the host's, too.
pub const PIDS_SAME: u32 = 0;
/// [`Stream::other_pids`]: they differ: another pid namespace.
pub const PIDS_OTHER: u32 = 1;
/// [`Stream::other_pids`]: they may differ: not all ancestors were seen.
pub const PIDS_UNSURE: u32 = 2;

/// [`Stream::state`]: being filled in. It is 0 until the entry is used for the first time.
pub const STREAM_TAKEN: u32 = 1;
/// [`Stream::state`]: its thread runs.
pub const STREAM_LIVE: u32 = 2;
/// [`Stream::state`]: its thread is gone and its chunks are drained: may be taken again.
pub const STREAM_DEAD: u32 = 3;

/// What the tables say of one chunk; the records themselves lie at [`chunk_offset`].
#[repr(C)]
pub struct Chunk {
    /// Link of the free or full list.
    pub next: AtomicU32,
    /// Agent: stream that writes it.
    pub stream: u32,
    /// Agent: epoch of that stream.
    pub epoch: u32,
    /// Agent: number of this chunk within its stream, from 0.
    pub sequence: u32,
    /// Agent: full TSC when it was begun; the records' high half starts from it.
    pub start_tsc: u64,
    /// Agent: TSC when it was handed over; 0: it was not.
    pub end_tsc: u64,
    /// Unused.
    pub reserved: [u64; 4],
}

/// A question of the agent to the host. The asker owns the slot until it frees it.
#[repr(C)]
pub struct Question {
    /// See `QUESTION_*`; waited on as a futex.
    pub state: AtomicU32,
    /// Agent: one of `ASK_*`.
    pub kind: u32,
    /// Agent: asking process and thread.
    pub pid: u32,
    /// Agent: asking thread.
    pub tid: u32,
    /// Agent: number of the asking process in the recording; of a vfork child, its parent's.
    pub process: u32,
    /// Unused.
    pub reserved: u32,
    /// Agent: argument (an address).
    pub argument: u64,
    /// Host: the answer, meaning by kind.
    pub answer: [AtomicU64; 6],
}

/// [`Question::state`]: nobody's.
pub const QUESTION_FREE: u32 = 0;
/// [`Question::state`]: taken by an agent, not yet asked.
pub const QUESTION_TAKEN: u32 = 1;
/// [`Question::state`]: asked.
pub const QUESTION_ASKED: u32 = 2;
/// [`Question::state`]: the host is working on it: worth waiting for.
pub const QUESTION_ACCEPTED: u32 = 3;
/// [`Question::state`]: answered.
pub const QUESTION_ANSWERED: u32 = 4;
/// [`Question::state`]: the asker gave up; the host frees it.
pub const QUESTION_ABANDONED: u32 = 5;

/// Which module lies at `argument`? Answered by a [`crate::module_answer::ModuleAnswer`].
pub const ASK_MODULE: u32 = 1;
/// This process is about to exec: at `argument` (an address in it) lie two words, the descriptor of
/// the directory that the name is looked up in, as of execveat(2), and the name's address. Seize
/// it, if that does not change what the program may do. answer\[0\]: 1 seized, 0 not, which the
/// host counts.
pub const ASK_EXEC: u32 = 2;
/// The exec failed: let go.
pub const ASK_EXEC_FAILED: u32 = 3;
/// answer\[0\]: an address in a module that is mapped and was not asked for yet, or 0.
pub const ASK_MAPPED: u32 = 4;
/// Which mapping of a file's code, private and not writable, ends after `argument`? answer\[0\]:
/// its start, \[1\]: its end; 0 if there is none, or if making it writable for a moment costs the
/// program memory that is counted or locked.
pub const ASK_TEXT: u32 = 5;
/// This process is about to install the seccomp filter at `argument` (an address in it of a struct
/// sock_fprog). answer\[0\]: 1 if it permits what the agent does, so that recording can go on.
pub const ASK_FILTER: u32 = 6;

/// I am new: take note of who I am, before I am gone. answer\[0\]: 1.
pub const ASK_NOTED: u32 = 7;
/// Is no thread of this process under a seccomp filter? answer\[0\]: 1 if so.
pub const ASK_UNFILTERED: u32 = 8;

/// Arena offset of the first byte of chunk `index`.
pub const fn chunk_offset(index: u32) -> u64 {
    CHUNK_DATA_OFFSET + index as u64 * CHUNK_BYTES
}

const _: () = assert!(size_of::<Control>() <= 0x2000);
const _: () = assert!(size_of::<Question>() == 80);
const _: () = assert!(QUESTIONS_OFFSET as usize + QUESTIONS * 80 <= STREAMS_OFFSET as usize);
const _: () = assert!(size_of::<Stream>() == 64);
const _: () = assert!(STREAMS_OFFSET as usize + STREAMS * 64 <= CHUNKS_OFFSET as usize);
const _: () = assert!(size_of::<Chunk>() == 64);
const _: () = assert!(CHUNKS_OFFSET as usize + CHUNKS_MAX * 64 <= IMAGE_OFFSET as usize);
const _: () = assert!(CHUNK_DATA_OFFSET + CHUNKS_MAX as u64 * CHUNK_BYTES <= ARENA_BYTES);
