//! Thread blocks: which thread an event comes from, and the first event of new threads and forked
//! processes.
//!
//! gs points at the block of the running thread. A new thread has inherited its creator's gs, and a
//! forked child has its parent's block with a wiped key. Both fail the hot path's comparison of the
//! key with the fs base and come here. Gives the thread a block and a stream of its own.

use crate::frames::shadow;
use crate::memory;
use crate::memory::mapped::Fresh;
use crate::memory::thread::{BLOCK_BYTES, FRAME_BYTES, FRAME_ROOT, HOT, Hot, STACK_BYTES};
use crate::memory::{counters, host, lock, reading, running, state, sys};
use crate::reach::areas;
use crate::record::{chunk, deep, question, settle};
use core::sync::atomic::{AtomicU32, Ordering};
use sptrace_wire::control::*;
use sptrace_wire::levels::SWITCHES_OFFSET;
use sptrace_wire::record;

/// Streams that are not given to lanes.
const FOR_THREADS: usize = 512;

/// The block that gs points at, if it does.
pub(super) fn of_gs() -> Option<&'static Hot> {
    // SAFETY: gs holds zero or one of our blocks (programs that use gs are not entered).
    unsafe { memory::thread::of_gs() }
}

/// This thread's hot page, made if need be. `None`: that is impossible.
pub fn ensure() -> Option<&'static Hot> {
    let fs = sys::fs_base();
    let found = of_gs();
    if let Some(hot) = found.filter(|hot| hot.key().get() == fs && hot.tid.get() != 0) {
        return Some(hot);
    }
    let (pid, tid) = (sys::pid(), sys::tid());
    let p = state::process();
    if let Some(hot) = found {
        if p.is_fresh_child() {
            return fork_child(hot, fs, pid, tid);
        }
        if hot.tid.get() == tid && hot.pid.get() == pid {
            // The same thread with another fs base: ld.so has set up thread-local storage.
            hot.set_key(fs);
            return Some(hot);
        }
        if is_nobodys(hot)
            && let Some(own) = find_own(fs, pid, tid)
        {
            return Some(own);
        }
    }
    new_thread(fs, pid, tid)
}

/// True if this is the block of [`let_go`].
fn is_nobodys(hot: &Hot) -> bool {
    let nobody = state::process().nobody.get();
    nobody.is_some_and(|nobody| core::ptr::eq(nobody, hot))
}

/// Gives the process a number that no other process of the recording has: the host finds it by
/// that.
pub fn number() {
    let c = state::control();
    let p = state::process();
    p.number.set(
        c.last_number
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1),
    );
    c.number_avma.store(p.number.address(), Ordering::Release);
}

/// Called by the door where gs points at no block of this thread: whether it does now, so that all
/// else may happen on the block's stack.
///
/// # Safety
/// Signals are blocked, unless the process is dormant.
pub unsafe extern "C" fn has_block() -> bool {
    if state::process().dormant.load(Ordering::Relaxed) != 0 || ensure().is_none() {
        return false;
    }
    of_gs().is_some_and(|hot| hot.key().get() == sys::fs_base())
}

/// clone(2) flags by which the new task has our memory, and the gs and fs of its creator, at the
/// same time.
pub fn shares_block(flags: u64) -> bool {
    const VM: u64 = 0x100;
    const VFORK: u64 = 0x4000;
    const SETTLS: u64 = 0x8_0000;
    flags & (VM | VFORK | SETTLS) == VM
}

/// A child that a vfork(2) has lent our memory and this block to, or 0: it is its owner who runs.
pub fn borrower(hot: &Hot) -> u32 {
    if !hot.lends.get() {
        return 0;
    }
    let tid = sys::tid();
    if tid != hot.tid.get() {
        return tid;
    }
    hot.lends.set(false);
    0
}

/// This task may be replaced by a program before it comes back from the slow path, and a vfork(2)
/// parent goes on with its block: what it finds of the agent's own stack is the half that is not in
/// use here. False: it stands on another stack, and leaves all. Until [`stays`].
pub fn may_leave(hot: &Hot) -> bool {
    let here = 0u8;
    let top = hot.home.get().unwrap_or(hot).block() + BLOCK_BYTES as u64;
    let depth = top.wrapping_sub(&raw const here as u64);
    const HALF: u64 = STACK_BYTES as u64 / 2;
    let other = match depth {
        0..HALF => top - HALF,
        depth if depth < 2 * HALF => top,
        _ => return false,
    };
    hot.agent_stack.set(other);
    true
}

/// The task is still there, on the agent's own stack.
pub fn stays(hot: &Hot) {
    hot.agent_stack.set(0);
}

/// A task is about to begin that shares memory, gs and fs with this thread: both would take the
/// block for theirs. Until the next event gs points at a block whose key nobody has.
pub fn let_go() {
    if !lock::lock(sys::tid()) {
        state::count_hole(hole::LOCK_BUSY);
        return;
    }
    let nobody = &state::process().nobody;
    if nobody.get().is_none()
        && let Some(hot) = make_block()
    {
        hot.set_key(u64::MAX);
        nobody.set(Some(hot));
    }
    let nobody = nobody.get();
    lock::unlock();
    if let Some(nobody) = nobody {
        nobody.make_current();
    }
}

/// The block that the thread had before [`let_go`].
fn find_own(fs: u64, pid: u32, tid: u32) -> Option<&'static Hot> {
    let is_its = |hot: &&Hot| hot.tid.get() == tid && hot.pid.get() == pid && hot.key().get() == fs;
    let hot = state::process().threads().find(is_its)?;
    // The door left it in use, and ran on the program's stack this time.
    hot.agent_stack.set(hot.block() + BLOCK_BYTES as u64);
    hot.make_current();
    Some(hot)
}

fn new_thread(fs: u64, pid: u32, tid: u32) -> Option<&'static Hot> {
    let p = state::process();
    let other = match p.pid.get() {
        first if first != pid => first,
        _ => 0,
    };
    if p.blocks.get().is_some() {
        p.sharing.store(state::SHARED, Ordering::Relaxed);
    }
    let locked = lock::lock(tid);
    let reused = if locked { reuse() } else { None };
    let hot = reused.or_else(make_block);
    // Under the lock: a block without its stream would look like one whose thread is gone.
    let begun = hot.filter(|hot| begin(hot, fs, pid, tid, Parent::pid(other)));
    match (begun, hot) {
        // The last of the list has no next one either: entered twice, it would make the list a
        // ring.
        (Some(hot), _) if reused.is_none() && locked => p.add_thread(hot),
        (None, Some(hot)) => hot.tid.set(0),
        _ => {}
    }
    if locked {
        lock::unlock();
    }
    if begun.is_some_and(|hot| hot.stream.get().is_power_of_two()) {
        // The host makes chunks ready for so many threads as there are, before it is too late.
        host::ring();
    }
    begun
}

/// A block with a stream for another thread, which is stopped and has none. `None`: that is
/// impossible.
pub fn adopt(fs: u64, pid: u32, tid: u32) -> Option<&'static Hot> {
    let hot = make_block()?;
    state::process().add_thread(hot);
    if !begin_stream(hot, fs, pid, tid, Parent::pid(0)) {
        hot.tid.set(0);
        return None;
    }
    Some(hot)
}

/// What a stream begins with: that of the thread that forked it, or nothing but a process.
struct Parent {
    stream: u32,
    epoch: u32,
    pid: u32,
    /// It is of lanes, and this is the number of the first.
    lane: Option<u64>,
}

impl Parent {
    /// The thread that forked, of which this block is a copy.
    fn of(hot: &Hot) -> Self {
        Self {
            stream: hot.stream.get(),
            epoch: hot.epoch.get(),
            pid: hot.pid.get(),
            lane: None,
        }
    }

    /// No stream. `pid`: the process whose modules it has; 0: its own.
    fn pid(pid: u32) -> Self {
        Self {
            stream: NONE,
            epoch: 0,
            pid,
            lane: None,
        }
    }
}

/// Gives the block a stream and makes it this thread's.
fn begin(hot: &Hot, fs: u64, pid: u32, tid: u32, parent: Parent) -> bool {
    let begun = begin_stream(hot, fs, pid, tid, parent);
    if begun {
        hot.make_current();
    }
    begun
}

/// Gives the block a stream, and the thread's key.
fn begin_stream(hot: &Hot, fs: u64, pid: u32, tid: u32, parent: Parent) -> bool {
    let Some(stream) = take_stream() else {
        return false;
    };
    let p = state::process();
    let number = p.number.get();
    let parent_number = match p.pid.get() == parent.pid {
        // A task that shares its memory.
        true => number,
        false => p.parent_number.get(),
    };
    let (now, other_pids) = (sys::tsc(), p.other_pids.get());
    let s = stream_entry(stream);
    // SAFETY: in the table, and this thread's since it was taken.
    unsafe {
        (*s).pid = pid;
        (*s).tid = tid;
        (*s).parent = parent.stream;
        (*s).parent_epoch = parent.epoch;
        (*s).parent_pid = parent.pid;
        (*s).process = number;
        (*s).parent_process = parent_number;
        (*s).other_pids = other_pids;
        (*s).start_tsc = now;
    }
    let (state, epoch, chunk) = shared_of(stream);
    chunk.store(NONE, Ordering::Relaxed);
    say_lane(stream, parent.lane);
    let last = epoch.fetch_add(1, Ordering::Relaxed);
    hot.epoch.set(last.wrapping_add(1));
    hot.stream.set(stream);
    hot.pid.set(pid);
    hot.tid.set(tid);
    hot.chunk.set(NONE);
    hot.sequence.set(0);
    hot.cur.set(0);
    hot.end.set(0);
    hot.real_end.set(0);
    hot.kept.set([0; 3]);
    hot.muted.set(0);
    hot.lost.set(0);
    hot.tables.set(tables_of(stream));
    hot.counters.set(&raw const p.counters as u64);
    hot.switches.set(p.arena() + SWITCHES_OFFSET);
    hot.acted.set(0);
    // The thread before may have ended in a call.
    reading::ended(hot);
    hot.reading.set(0);
    hot.has_self.set(0);
    hot.stack_end.set(0);
    hot.system_begun.iter().for_each(|begun| begun.set([0; 2]));
    hot.table.set(p.table.address());
    if state::control().roots_only != 0 && hot.root.get() == 0 {
        chunk::mute(hot);
    }
    counters::begin(hot);
    state.store(STREAM_LIVE, Ordering::Release);
    hot.set_key(fs);
    true
}

/// The stream is one of lanes, or of a thread.
fn say_lane(stream: u32, first: Option<u64>) {
    let s = stream_entry(stream);
    // SAFETY: in the table, which is mapped for life.
    let (page, looked) = unsafe { (&(*s).hot_page, &(*s).looked) };
    looked.store(first.unwrap_or(0), Ordering::Relaxed);
    let page_of_lanes = first.map_or(0, |_| LANE_PAGE);
    page.store(page_of_lanes, Ordering::Release);
}

/// A block with a stream for lanes, of which the first has this number. `None`: that is impossible.
pub(super) fn block_of_lanes(first: u64) -> Option<&'static Hot> {
    let p = state::process();
    let pid = p.pid.get();
    let streams = state::control().streams_used.load(Ordering::Relaxed) as usize;
    if streams + FOR_THREADS > STREAMS || !lock::lock(sys::tid()) {
        return None;
    }
    let parent = Parent {
        lane: Some(first),
        ..Parent::pid(0)
    };
    let hot = make_block().filter(|hot| begin_stream(hot, u64::MAX, pid, pid, parent));
    hot.into_iter().for_each(|hot| {
        // Who has it brings a stack.
        hot.agent_stack.set(0);
        hot.tid.set(u32::MAX);
        p.add_thread(hot);
    });
    lock::unlock();
    hot
}

/// Where the tables of a stream's thread are: nobody else adds to them while it runs, and the next
/// thread of the stream goes on with them. 0: it has none.
fn tables_of(stream: u32) -> u64 {
    let c = state::control();
    let (first, bytes) = (c.tables_offset, u64::from(c.tables_set_bytes));
    let (at, end) = (first + u64::from(stream) * bytes, c.arena_bytes);
    match first != 0 && stream < c.tables_sets && at + bytes <= end {
        true => state::process().arena() + at,
        false => 0,
    }
}

/// Of a stream the entry in the arena's table, which has [`STREAMS`].
fn stream_entry(index: u32) -> *mut Stream {
    let first = (state::process().arena() + STREAMS_OFFSET) as *mut Stream;
    first.wrapping_add(index as usize % STREAMS)
}

/// What of an entry others may change: state, epoch, chunk.
fn shared_of(index: u32) -> (&'static AtomicU32, &'static AtomicU32, &'static AtomicU32) {
    let s = stream_entry(index);
    // SAFETY: in the table, which is mapped for life.
    unsafe { (&(*s).state, &(*s).epoch, &(*s).chunk) }
}

fn take_stream() -> Option<u32> {
    let fresh = state::control().streams_used.load(Ordering::Relaxed);
    if (fresh as usize) < STREAMS {
        let index = state::control()
            .streams_used
            .fetch_add(1, Ordering::Relaxed);
        if (index as usize) < STREAMS {
            return Some(index);
        }
    }
    (0..STREAMS as u32).find(|&i| {
        let (state, ..) = shared_of(i);
        let (dead, taken) = (STREAM_DEAD, STREAM_TAKEN);
        let (here, not) = (Ordering::Acquire, Ordering::Relaxed);
        state.load(not) == dead && state.compare_exchange(dead, taken, here, not).is_ok()
    })
}

/// A block whose thread is gone, as the host has found out.
fn reuse() -> Option<&'static Hot> {
    let is_gone = |hot: &&Hot| {
        let (state, epoch, _) = shared_of(hot.stream.get());
        hot.tid.get() == 0
            || state.load(Ordering::Acquire) != STREAM_LIVE
            || epoch.load(Ordering::Relaxed) != hot.epoch.get()
    };
    let hot = state::process().threads().find(is_gone)?;
    reset(hot);
    Some(hot)
}

fn make_block() -> Option<&'static Hot> {
    let block = Fresh::private(counters::block_bytes())?.keep();
    // SAFETY: fresh memory; the first page is the key's, for which zero is good.
    let hot = unsafe {
        sys::wipe_on_fork(block as usize, HOT);
        let hot = memory::thread::hot_of(block);
        hot.has_block();
        hot
    };
    hot.region.set(NONE);
    reset(hot);
    Some(hot)
}

/// An empty shadow stack: one sentinel above every stack pointer.
fn reset(hot: &Hot) {
    deep::reset(hot);
    hot.agent_stack.set(hot.block() + BLOCK_BYTES as u64);
    hot.stack_top.set(0);
    hot.dropped.set([0; 2]);
    hot.barriers.set(0);
    hot.rearm_above.set(0);
    hot.root.set(0);
    hot.untold.set(0);
    running::forget(hot);
}

/// First event after a fork, in the child: own patch areas, own stream, and the frames that were
/// open at the fork.
fn fork_child(hot: &'static Hot, fs: u64, pid: u32, tid: u32) -> Option<&'static Hot> {
    let p = state::process();
    // A block of nobody has no stream.
    let is_nobodys = is_nobodys(hot);
    let parent = match is_nobodys {
        true => Parent::pid(p.pid.get()),
        false => Parent::of(hot),
    };
    if is_nobodys {
        p.nobody.set(None);
    }
    begin_process(pid, &parent);
    for other in p.threads().filter(|other| !core::ptr::eq(*other, hot)) {
        other.tid.set(0);
    }
    if !areas::own() {
        p.may_propagate.set(false);
        state::count_hole(hole::FORK_SHARED);
    }
    hot.overflow.set(0);
    running::end(hot);
    if !begin(hot, fs, pid, tid, parent) {
        return None;
    }
    host::ring();
    let is_elsewhere = state::control().other_pids.load(Ordering::Relaxed) != 0;
    if is_elsewhere || p.other_pids.get() != PIDS_SAME {
        // Who has ended is not found by its numbers in another pid namespace.
        question::question(ASK_NOTED, 0);
    }
    tell_inherited(hot);
    Some(hot)
}

/// A fork child is a process of its own from here on.
fn begin_process(pid: u32, parent: &Parent) {
    let p = state::process();
    p.pid.set(pid);
    p.parent_number.set(p.number.get());
    number();
    counters::begin_process();
    match sys::parent_pid() {
        // The parent cannot be seen from here: this is the first process of a pid namespace.
        0 => p.other_pids.set(PIDS_OTHER),
        // One between us has shown no event, or has ended.
        now if now != parent.pid && p.other_pids.get() == PIDS_SAME => {
            p.other_pids.set(PIDS_UNSURE);
        }
        _ => {}
    }
    p.sharing.store(state::SHARING_UNKNOWN, Ordering::Relaxed);
    reading::begin_process();
    if let Some(page) = p.fork_page.get() {
        page.mark.set(true);
        page.lock.store(0, Ordering::Relaxed);
    }
}

/// Records the frames that were open at the fork, from the outermost on.
fn tell_inherited(hot: &Hot) {
    let outermost = match hot.root.get() {
        0 => hot.shadow() + FRAME_BYTES as u64,
        root => root,
    };
    settle::forget_system_calls(hot);
    let frames = (outermost..=hot.ssp.get()).step_by(FRAME_BYTES);
    for frame in frames.map(|at| hot.frame(at)) {
        if !shadow::is_barrier(frame) && frame.id() != FRAME_ROOT {
            chunk::put_place(hot, frame.rsp());
            chunk::put(hot, record::INHERITED, frame.id());
            chunk::put(hot, record::INHERITED, frame.callee());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_takes_our_block_for_its_own_only_if_it_runs_beside_us_with_our_fs() {
        const VM: u64 = 0x100;
        assert!(shares_block(VM) && shares_block(VM | 0x200));
        // Another fs base, a parent that waits, memory of its own.
        assert!(!shares_block(VM | 0x8_0000));
        assert!(!shares_block(VM | 0x4000));
        assert!(!shares_block(0x200));
    }
}
