//! A thread's block: its hot page, and the places of its shadow stack.
//!
//! Given where a block is mapped; gives a reference to its hot page, and frames by their addresses.
//! Blocks, and whatever a shadow stack has ever lain in, stay mapped for the life of the process.
//! So a [`FrameAt`] may be stale, but always is memory for frames. Must not know what frames mean.

use crate::memory::sys;
use crate::memory::word::{Bound, Flag, Half, Link, Word, Words};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use sptrace_wire::control::block;
use sptrace_wire::record::{FRAME_OPEN, FRAME_VALUES};
use sptrace_wire::values::PIECES_BYTES;

/// Offset of the thread block's hot page: the first page holds only the key and is wiped on fork.
pub const HOT: usize = 0x1000;
/// Offset of the shadow stack in a thread block.
pub const SHADOW: usize = 0x2000;
/// Where a muted thread writes, in the rest of the hot page: these words are never read.
pub const TRASH: usize = 0x400;
/// Where that ends.
pub const TRASH_END: usize = 0x1000;
/// Bytes of a shadow frame: call-site rsp, id address, callee.
pub const FRAME_BYTES: usize = 24;
/// The id of the frame of a call that goes on without a record: it lies a byte below the place that
/// the call's own would have, and goes without a word, as all of [`FRAME_VALUES`] do.
pub const FRAME_QUIET: u64 = FRAME_OPEN | FRAME_VALUES | 1 << 41;
/// The same of a call whose return has a payload: its callee is the id of the call's site, by which
/// it returns to its exit again after a walk of the stack.
pub const FRAME_QUIET_HELD: u64 = FRAME_OPEN | FRAME_VALUES | 1 << 45;
/// In a frame of what the payload of a return has kept: a word, or nothing.
pub const FRAME_KEPT: u64 = FRAME_OPEN | FRAME_VALUES | 1 << 42;
/// The innermost frame of a call without a record whose return has a payload. Below it are its time
/// stamp and two words, each in a [`FRAME_KEPT`], more such words where the slow path has kept
/// them, and the call's own [`FRAME_QUIET_HELD`].
pub const FRAME_HELD: u64 = FRAME_OPEN | FRAME_VALUES | 1 << 43;
/// The same of a call that has a record, or of what a call has jumped to, without the lowest.
pub const FRAME_HELD_RECORDED: u64 = FRAME_OPEN | FRAME_VALUES | 1 << 44;
/// The frame below that of a root's call that says so where calls keep their return addresses: see
/// [`crate::frames::shadow::mark_root`].
pub const FRAME_ROOT: u64 = FRAME_OPEN | FRAME_VALUES | 1 << 46;
/// Frames of what a call keeps for the payload of its return, at least.
pub const KEPT_FRAMES: usize = 4;
/// Bytes of the shadow stack in a thread block: address space for half a million frames (8 MB of
/// stack hold no more: a frame is at least 16 bytes). A deeper one moves: see
/// [`crate::record::deep`].
pub const SHADOW_BYTES: usize = 524_288 * FRAME_BYTES;
/// Offset of the buffer of [`Hot::pieces`].
const PIECES: usize = SHADOW + SHADOW_BYTES;
/// Bytes of a whole thread block.
pub const BLOCK_BYTES: usize = PIECES + PIECES_BYTES + STACK_BYTES;
/// Calls of the kernel with payloads of their returns that may be open in a thread: the others are
/// those of what handlers have interrupted.
pub const SYSTEM_BEGUN: usize = 6;
/// A shadow stack moves at most so often, each time to a place of twice the size: 50 GB in the end.
pub const GROWTHS: usize = 12;
/// Bytes of the agent's own stack at the end of a thread block.
pub const STACK_BYTES: usize = 64 << 10;

/// The hot page of a thread block; the assembler uses these offsets through gs.
#[repr(C)]
pub struct Hot {
    /// gs:0x1000 next free byte of the chunk, a multiple of 4.
    pub cur: Word,
    /// gs:0x1008 reservations must begin below this; 0 forces the slow path.
    pub end: Word,
    /// gs:0x1010 high half of the TSC of the last record.
    pub hi: Word,
    /// gs:0x1018 top shadow frame: nothing but addresses of places is ever put here.
    pub ssp: Word,
    /// gs:0x1020 no frame may be pushed at or above this.
    pub ssp_end: Word,
    /// gs:0x1028 the table of instrumented entries.
    pub table: Word,
    /// gs:0x1030 top of the agent's own stack; 0 while it is in use.
    pub agent_stack: Word,
    /// gs:0x1038 1: recording is muted, see [`crate::record::chunk::mute`].
    pub muted: Word,
    /// While muted: `cur`, `real_end` and `hi` of the chunk.
    pub kept: Words<3>,
    /// Shadow frame of the outermost hooked function in which this thread is (`run -F`); 0: none.
    pub root: Word,
    /// Thread id of the owner; 0: nobody's.
    pub tid: Half,
    /// Process id of the owner.
    pub pid: Half,
    /// Its stream.
    pub stream: Half,
    /// Epoch of that stream.
    pub epoch: Half,
    /// Chunk being written, or NONE.
    pub chunk: Half,
    /// Sequence number of the next chunk.
    pub sequence: Half,
    /// Events lost since the last record.
    pub lost: Word,
    /// gs:0x1080 return addresses above this stack address were given back to an unwinder: arm them
    /// again when control is back above it. 0: none.
    pub rearm_above: Word,
    /// True end of the current chunk's reservations, while `end` is forced to 0.
    pub real_end: Word,
    /// Next block of the process.
    pub next: Link<Hot>,
    /// Highest stack pointer seen: an end for scans.
    pub stack_top: Word,
    /// Stack range of frames that were dropped without an exit: they may be alive after all
    /// (another stack), so a walker's scan includes it. 0: none.
    pub dropped: Words<2>,
    /// Frames not pushed because the shadow stack is full and cannot grow.
    pub overflow: Word,
    /// Barriers on the shadow stack: see `stacks`.
    pub barriers: Half,
    /// 1: frames of several stacks lie one above the other, as after a switch of coroutines, so the
    /// innermost one does not say which calls are open. Compared together with `barriers`.
    pub has_other_stacks: Half,
    /// The program's signal mask as of this event of the slow path.
    pub mask: Word,
    /// gs:0x10c8 what the door pushed, while signals may interrupt the agent: see `unblocked`. 0:
    /// none.
    pub unblocked: Word,
    /// 1: the last walker only looked, the frames that it was given back return.
    pub looked: Word,
    /// Where the shadow stack begins; 0: it is being moved.
    shadow: Bound,
    /// How large it is.
    shadow_bytes: Bound,
    /// Places that it has moved to, start and bytes: see [`crate::record::deep`].
    pub grown: [Words<2>; GROWTHS],
    /// The most of it, in bytes, that was in use when a chunk ended, since its memory was last
    /// given back.
    pub deepest: Word,
    /// When it was last in use by half.
    pub deep_tsc: Word,
    /// Room for what [`crate::record::capture`] reads, in the block; 0: there is none.
    pieces: Bound,
    /// A vfork(2) child may have this block while its owner waits.
    pub lends: Flag,
    /// The host was asked about an exec(2) whose system call is about to come.
    pub asked_exec: Flag,
    /// Number of the last call of the kernel that was told without its end; 0: none.
    pub alone: Half,
    /// One byte for each call of the kernel, see [`crate::routines::quick`]; 0: not known yet.
    pub quick: Word,
    /// A record with values that is being written with signals let in: where the door keeps rbp,
    /// and where the mark at its end will be. See [`crate::events::system_call_unblocked`].
    pub writing: Words<2>,
    /// The table of functions whose values are recorded: see [`crate::memory::rows`]; 0: not known
    /// yet, or there are none.
    pub rows: Word,
    /// Where this thread's tables are, to which payloads add; 0: it has none.
    pub tables: Word,
    /// errno of the thread, while the payload of a return runs.
    pub errno: Word,
    /// 1: the routine that leads to the slow path has run the payload of the call. 2: and the call
    /// has no record, but a return that is waited for.
    pub acted: Word,
    /// The table of calls through pointers that are counted ([`crate::memory::counters`]); 0: none.
    pub pointers: Word,
    /// Where the bits of the descriptors are to which recorded calls of the kernel are bound; 0: to
    /// none. And where calls on others are counted. Known when `quick` is.
    pub asked: Words<2>,
    /// Region of its counts, or [`sptrace_wire::control::NONE`].
    pub region: Half,
    /// What a payload wants to be done to the call at which it has just run: see
    /// [`crate::events::active`].
    pub active: Words<5>,
    /// Words of the texts that it compares.
    pub texts: Words<4>,
    /// Where the process's counters are.
    pub counters: Word,
    /// Which calls of the kernel are left out when they have ended, and the ticks that others must
    /// take, as [`sptrace_wire::values::CaptureTable`] says it. Known when `quick` is.
    pub unwanted: Words<2>,
    /// Where the record ends of the call of the kernel that has begun last, and the low half of its
    /// stamp. 0: it may not be left out.
    pub begun: Words<2>,
    /// Memory that the kernel has filled at the last record, from and to, and where that ended: its
    /// place, and the number of its chunk.
    pub filled: Words<4>,
    /// Where the beginnings of texts are that are keys of the payload that runs; 0: nowhere.
    pub told: Word,
    /// Calls of the kernel that have begun and whose return has a payload: the stack pointer, which
    /// is 0 where there is none, and the time stamp.
    pub system_begun: [Words<2>; SYSTEM_BEGUN],
    /// What the host is bidden do by the payload that has run: bits by numbers.
    pub bids: Word,
    /// The innermost frame of the call whose payload of the return has run in a common routine, and
    /// has bidden something; 0: there is none.
    pub has_bidden: Word,
    /// Where the switches of values are ([`sptrace_wire::levels::SWITCHES`]).
    pub switches: Word,
    /// The thread reads the program's memory where it lies: where the door keeps rbp. 0: it does
    /// not. See [`crate::memory::reading`].
    pub reading: Word,
    /// It makes a call that may take memory away, from this place on its stack. 0: it does not.
    pub takes: Word,
    /// As [`crate::memory::reading::moment`] said when the call of the kernel began that did so
    /// last, and of that which has filled `filled`.
    pub taken: Words<2>,
    /// Changes of mappings that had begun before the mapping that the thread makes, or has made
    /// last: see [`crate::memory::anonymous`].
    pub changes: Word,
    /// How often [`Hot::pieces`] was given.
    pub pieces_given: Word,
    /// 1: what fs points at holds its own address, as the C library's threads have it. 2: it does
    /// not. 0: nobody has looked.
    pub has_self: Word,
    /// Where the thread's stack ends, on which calls of the kernel were made first; 0: not known.
    pub stack_end: Word,
    /// Where it stands whether all calls are seen that change what is mapped
    /// ([`crate::memory::certain::watched_at`]), who may make some, and whether results may be
    /// another's than the kernel's ([`crate::memory::sandbox`]). Known when `quick` is.
    pub watched: Words<3>,
    /// The second words of pieces that are a struct stat: of calls below number 256, and of others.
    /// Known when `quick` is.
    pub structures: Words<2>,
    /// Where calls keep their return addresses: that of the root.
    pub root_back: Word,
    /// Frames without an end that were popped, and of which the slow path is to tell.
    pub untold: Word,
    /// The program's stack pointer, about, when it came to the slow path last.
    pub came_from: Word,
    /// Where threads run lanes: the lowest address of the stack that this block is known to be of.
    pub lane_low: Word,
    /// And how many bytes behind it are: at all other places, another block may be meant.
    pub lane_bytes: Word,
    /// Where the runtime keeps the lane of this block; 0: it is a thread's.
    pub lane: Word,
    /// The lane's number.
    pub lane_id: Word,
    /// Where the lane's stack ended at its last event.
    pub lane_high: Word,
    /// The thread that has it; 0: none.
    pub lane_owner: AtomicU32,
    /// The block of that thread.
    pub home: Link<Hot>,
    /// Of a thread's block: the lane that it has run last.
    pub last_lane: Link<Hot>,
}

// The assembler's numbers for these: see `common`.
const _: () = assert!(size_of::<Hot>() <= TRASH);
const _: () = assert!(offset_of!(Hot, cur) == 0 && offset_of!(Hot, end) == 8);
const _: () = assert!(offset_of!(Hot, hi) == 0x10 && offset_of!(Hot, ssp) == 0x18);
const _: () = assert!(offset_of!(Hot, ssp_end) == 0x20 && offset_of!(Hot, table) == 0x28);
const _: () = assert!(offset_of!(Hot, agent_stack) == 0x30 && offset_of!(Hot, muted) == 0x38);
const _: () = assert!(offset_of!(Hot, rearm_above) == 0x80);
const _: () = assert!(offset_of!(Hot, unblocked) == 0xc8);
// Those of payloads.
const _: () = assert!(HOT + offset_of!(Hot, muted) == block::MUTED as usize);
const _: () = assert!(HOT + offset_of!(Hot, cur) == block::CURSOR as usize);
const _: () = assert!(HOT + offset_of!(Hot, end) == block::LIMIT as usize);
const _: () = assert!(HOT + offset_of!(Hot, tid) == block::TID as usize);
const _: () = assert!(HOT + offset_of!(Hot, tables) == block::TABLES as usize);
const _: () = assert!(HOT + offset_of!(Hot, ssp) == block::TOP_FRAME as usize);
const _: () = assert!(HOT + offset_of!(Hot, errno) == block::ERRNO as usize);
const _: () = assert!(HOT + offset_of!(Hot, active) == block::ACTIVE as usize);
const _: () = assert!(HOT + offset_of!(Hot, texts) == block::TEXTS as usize);
const _: () = assert!(HOT + offset_of!(Hot, counters) == block::COUNTERS as usize);
const _: () = assert!(HOT + offset_of!(Hot, told) == block::TOLD as usize);
const _: () = assert!(HOT + offset_of!(Hot, bids) == block::BIDS as usize);
const _: () = assert!(HOT + offset_of!(Hot, has_bidden) == block::HAS_BIDDEN as usize);
const _: () = assert!(HOT + offset_of!(Hot, switches) == block::SWITCHES as usize);

/// The hot page of the block at `block`.
///
/// # Safety
/// A block was mapped there, of [`BLOCK_BYTES`] zero bytes at first, for life.
#[inline]
pub unsafe fn hot_of(block: u64) -> &'static Hot {
    // SAFETY: the caller's; a hot page consists of numbers.
    unsafe { &*((block + HOT as u64) as *const Hot) }
}

/// The hot page of the block that gs points at. `None`: there is none.
///
/// # Safety
/// gs holds zero or the address of one of our blocks: programs that use gs are not entered.
#[inline]
pub unsafe fn of_gs() -> Option<&'static Hot> {
    let gs = sys::gs_base();
    // SAFETY: the caller's.
    (gs != 0).then(|| unsafe { hot_of(gs) })
}

impl Hot {
    /// Where its block begins.
    #[inline]
    pub fn block(&self) -> u64 {
        &raw const *self as u64 - HOT as u64
    }

    /// The fs base of the thread that it belongs to: the block's first word, which a fork wipes.
    #[inline]
    pub fn key(&self) -> &'static Word {
        // SAFETY: a hot page that is asked for its key lies in a block.
        unsafe { &*(self.block() as *const Word) }
    }

    /// Where its thread's stack was last, as the slots of calls with acts have found out; 0: they
    /// must look whose thread runs. The block's second word, which a fork wipes.
    #[inline]
    pub fn stack_page(&self) -> &'static Word {
        // SAFETY: a hot page that is asked for it lies in a block.
        unsafe { &*((self.block() + block::STACK_PAGE as u64) as *const Word) }
    }

    /// The fs base of the thread that it belongs to from here on.
    pub fn set_key(&self, fs: u64) {
        self.stack_page().set(0);
        self.key().set(fs);
    }

    /// Makes it the block of the thread that runs: gs is ours, since programs that use it are not
    /// entered.
    pub fn make_current(&self) {
        // SAFETY: see above.
        unsafe { sys::set_gs_base(self.block()) };
    }

    /// Where the shadow stack begins, with its sentinel; 0: it is being moved, or there is none.
    #[inline]
    pub fn shadow(&self) -> u64 {
        self.shadow.get()
    }

    /// Bytes of it.
    pub fn shadow_bytes(&self) -> u64 {
        self.shadow_bytes.get()
    }

    /// The place of the shadow stack at `address`, or the nearest to it.
    #[inline]
    pub fn frame(&self, address: u64) -> FrameAt {
        let bottom = self.bottom();
        let at = (address & !7).max(bottom.low).min(bottom.high);
        FrameAt { at, ..bottom }
    }

    /// The innermost frame.
    #[inline]
    pub fn top(&self) -> FrameAt {
        let bottom = self.bottom();
        let at = self.ssp.get().max(bottom.low).min(bottom.high);
        FrameAt { at, ..bottom }
    }

    /// The sentinel.
    #[inline]
    pub fn bottom(&self) -> FrameAt {
        let low = match self.shadow() {
            0 => return FrameAt::none(),
            low => low,
        };
        let high = low + self.shadow_bytes() - FRAME_BYTES as u64;
        FrameAt { at: low, low, high }
    }

    /// Takes the innermost frame off.
    #[inline]
    pub fn pop(&self) {
        self.ssp.sub(FRAME_BYTES as u64);
    }

    /// Gives an empty shadow stack to a block that is nobody's: in the block itself, unless it has
    /// moved.
    pub fn empty_shadow(&self) {
        if self.shadow() == 0 {
            let own = self.block() + SHADOW as u64;
            // SAFETY: the block's own bytes.
            unsafe { self.set_shadow(own, SHADOW_BYTES as u64) };
        }
        self.bottom().set(SENTINEL);
        self.ssp.set(self.shadow());
        self.ssp_end.set(end_of(self.shadow(), self.shadow_bytes()));
        self.overflow.set(0);
    }

    /// Says where the shadow stack is.
    ///
    /// # Safety
    /// So many bytes are mapped there for life, for this alone; it begins at a multiple of 8.
    pub unsafe fn set_shadow(&self, at: u64, bytes: u64) {
        // SAFETY: the caller's.
        unsafe {
            self.shadow_bytes.set(bytes);
            self.shadow.set(at);
        }
    }

    /// Moves the shadow stack to a larger place. Other threads that look meanwhile wait
    /// ([`Hot::frames_meanwhile`]).
    ///
    /// # Safety
    /// As for `set_shadow`, with twice the bytes that there are.
    pub unsafe fn move_shadow(&self, new: u64) {
        let (old, old_bytes) = (self.shadow(), self.shadow_bytes());
        // With what stands above the top: an interrupted push has written there.
        let used = (self.ssp.get() + 2 * FRAME_BYTES as u64).min(old + old_bytes) - old;
        // SAFETY: the new place is larger than the old one, and nobody else's.
        unsafe {
            core::ptr::copy_nonoverlapping(old as *const u8, new as *mut u8, used as usize);
            self.shadow.set(0);
        }
        compiler_fence(Ordering::SeqCst);
        if self.root.get() != 0 {
            self.root.set(self.root.get() - old + new);
        }
        self.ssp.set(self.ssp.get() - old + new);
        self.ssp_end.set(end_of(new, 2 * old_bytes));
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the caller's.
        unsafe { self.set_shadow(new, 2 * old_bytes) };
    }

    /// The frames of any thread, lowest and highest, while it goes on: the first is its sentinel.
    /// `None`: they move all the time.
    pub fn frames_meanwhile(&self) -> Option<(FrameAt, FrameAt)> {
        for _ in 0..TURNS {
            let low = self.shadow();
            let (top, end) = (self.ssp.get(), self.ssp_end.get());
            compiler_fence(Ordering::SeqCst);
            if low != 0 && low == self.shadow() {
                // What lies above the end when it has moved since is memory of frames, too.
                let high = end + FRAME_BYTES as u64;
                let at = |at: u64| FrameAt {
                    at: at.max(low).min(high),
                    low,
                    high,
                };
                return (high > low).then(|| (at(low), at(top)));
            }
            core::hint::spin_loop();
        }
        None
    }

    /// Says that this lies in a block, so that there is room for pieces.
    ///
    /// # Safety
    /// It does.
    pub unsafe fn has_block(&self) {
        // SAFETY: the block's own bytes, which nothing else uses.
        unsafe { self.pieces.set(self.block() + PIECES as u64) };
    }

    /// A buffer for what [`crate::record::capture`] reads. `None`: there is none.
    ///
    /// # Safety
    /// This thread's own block; what was given before is not used any more.
    pub unsafe fn pieces(&self) -> Option<&'static mut [u8]> {
        self.pieces_given.add_in_one(1);
        let first = self.pieces.get() as *mut u8;
        // SAFETY: the caller's: nobody else uses it.
        (!first.is_null()).then(|| unsafe { core::slice::from_raw_parts_mut(first, PIECES_BYTES) })
    }
}

/// Another thread waits so many turns for a stack that is being moved.
const TURNS: u32 = 1 << 24;

/// Two frames of room are kept above the limit: see [`crate::signals::interrupted`].
fn end_of(low: u64, bytes: u64) -> u64 {
    low + bytes - 2 * FRAME_BYTES as u64
}

/// One frame of the shadow stack.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowFrame {
    /// Stack pointer at the call instruction.
    pub rsp: u64,
    /// Return address of the common routine in its slot, maybe with FRAME_OPEN.
    pub id: u64,
    /// Callee of a call through a pointer.
    pub callee: u64,
}

/// Below all frames.
const SENTINEL: ShadowFrame = ShadowFrame {
    rsp: u64::MAX,
    id: 0,
    callee: 0,
};

/// What a block without a shadow stack has.
static NO_FRAMES: [Word; 3] = [Word::new(u64::MAX), Word::new(0), Word::new(0)];

/// A place for a frame on a shadow stack. They compare as the frames on one stack lie.
#[derive(Clone, Copy, Debug)]
pub struct FrameAt {
    at: u64,
    low: u64,
    high: u64,
}

impl PartialEq for FrameAt {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl PartialOrd for FrameAt {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        self.at.partial_cmp(&other.at)
    }
}

impl FrameAt {
    fn none() -> Self {
        let at = NO_FRAMES.as_ptr() as u64;
        let (low, high) = (at, at);
        Self { at, low, high }
    }

    #[inline]
    fn words(self) -> &'static [Word; 3] {
        // SAFETY: between the ends of memory that a shadow stack has, or has had.
        unsafe { &*(self.at as *const [Word; 3]) }
    }

    /// Where it lies.
    #[inline]
    pub fn address(self) -> u64 {
        self.at
    }

    /// The frame there.
    #[inline]
    pub fn get(self) -> ShadowFrame {
        let [rsp, id, callee] = self.words().each_ref().map(Word::get);
        ShadowFrame { rsp, id, callee }
    }

    /// Its stack pointer.
    #[inline]
    pub fn rsp(self) -> u64 {
        self.words()[0].get()
    }

    /// Its id.
    #[inline]
    pub fn id(self) -> u64 {
        self.words()[1].get()
    }

    /// Its callee.
    #[inline]
    pub fn callee(self) -> u64 {
        self.words()[2].get()
    }

    /// Puts a frame there.
    #[inline]
    pub fn set(self, frame: ShadowFrame) {
        let [rsp, id, callee] = self.words();
        rsp.set(frame.rsp);
        id.set(frame.id);
        callee.set(frame.callee);
    }

    /// Adds bits to its id.
    pub fn mark(self, bits: u64) {
        let [_, id, _] = self.words();
        id.set(id.get() | bits);
    }

    /// The next frame outwards; below the sentinel there is none but itself.
    #[inline]
    pub fn below(self) -> Self {
        let at = (self.at - FRAME_BYTES as u64).max(self.low);
        Self { at, ..self }
    }

    /// The next place inwards; above the highest there is none but itself.
    #[inline]
    pub fn above(self) -> Self {
        let at = (self.at + FRAME_BYTES as u64).min(self.high);
        Self { at, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::{empty_thread, thread};

    fn frame(rsp: u64) -> ShadowFrame {
        ShadowFrame {
            rsp,
            id: 1,
            callee: 2,
        }
    }

    #[test]
    fn no_step_leaves_the_shadow_stack() {
        let hot = thread(4);
        let bottom = hot.bottom();
        assert_eq!(bottom.below(), bottom);
        assert_eq!(bottom.rsp(), u64::MAX);
        let highest = bottom.above().above().above();
        assert_eq!(highest.above(), highest);
        assert_eq!(hot.frame(u64::MAX), highest);
        assert_eq!(hot.frame(0), bottom);
    }

    #[test]
    fn a_frame_is_what_was_put_there() {
        let hot = thread(4);
        let place = hot.bottom().above();
        place.set(frame(7));
        place.mark(8);
        assert_eq!(place.get(), ShadowFrame { id: 9, ..frame(7) });
        assert!(place > hot.bottom() && place.below() == hot.bottom());
    }

    #[test]
    fn a_block_without_a_shadow_stack_has_a_sentinel_alone() {
        let hot = empty_thread();
        assert_eq!(hot.top(), hot.bottom());
        assert_eq!(
            (hot.top().rsp(), hot.top().below().rsp()),
            (u64::MAX, u64::MAX)
        );
        assert_eq!(hot.top().above(), hot.top());
    }

    #[test]
    fn frames_that_are_looked_at_meanwhile_end_below_the_limits_room() {
        let hot = thread(8);
        hot.ssp.set(u64::MAX);
        let (low, top) = hot.frames_meanwhile().unwrap_or((hot.top(), hot.top()));
        assert_eq!(low, hot.bottom());
        assert_eq!(top.address(), hot.shadow() + 7 * FRAME_BYTES as u64);
    }
}
