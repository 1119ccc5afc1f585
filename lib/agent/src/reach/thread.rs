//! Thread blocks: which thread an event comes from, and the first event of new threads and forked
//! processes.
//!
//! gs points at the block of the running thread. A new thread has inherited its creator's gs, and a
//! forked child has its parent's block with a wiped key. Both fail the hot path's comparison of the
//! key with the fs base and come here. Gives the thread a block and a stream of its own.

use crate::frames::shadow;
use crate::memory::state::{BLOCK_BYTES, FRAME_BYTES, HOT, Hot, ShadowFrame};
use crate::memory::{host, lock, state, sys};
use crate::reach::module;
use crate::record::{chunk, deep, question, settle};
use core::sync::atomic::Ordering;
use sptrace_wire::control::*;
use sptrace_wire::record;

/// This thread's hot page, made if need be; null if that is impossible.
pub unsafe fn ensure() -> *mut Hot {
    // SAFETY: gs holds zero or one of our blocks (programs that use gs are not entered).
    unsafe {
        let gs = sys::gs_base();
        let fs = sys::fs_base();
        if gs != 0 && (gs as *const u64).read() == fs && (*shadow::hot_of(gs)).tid != 0 {
            return shadow::hot_of(gs);
        }
        let (pid, tid) = (sys::pid(), sys::tid());
        let p = state::process();
        if gs != 0 && (*(*p).fork_page).mark == 0 {
            return fork_child(gs, fs, pid, tid);
        }
        if gs != 0 && (*shadow::hot_of(gs)).tid == tid && (*shadow::hot_of(gs)).pid == pid {
            // The same thread with another fs base: ld.so has set up thread-local storage.
            (gs as *mut u64).write(fs);
            return shadow::hot_of(gs);
        }
        if gs != 0 && gs == (*p).nobody {
            let own = find_own(fs, pid, tid);
            if !own.is_null() {
                return own;
            }
        }
        new_thread(fs, pid, tid)
    }
}

/// Gives the process a number that no other process of the recording has: the host finds it by
/// that.
pub fn number() {
    // SAFETY: nobody else changes it.
    unsafe {
        let c = state::control();
        let p = state::process();
        (*p).number = c
            .last_number
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1);
        let at = &raw const (*p).number as u64;
        c.number_avma.store(at, Ordering::Release);
    }
}

/// Called by the door where gs points at no block of this thread: whether it does now, so that all
/// else may happen on the block's stack.
///
/// # Safety
/// Signals are blocked, unless the process is dormant.
pub unsafe extern "C" fn has_block() -> bool {
    // SAFETY: as in ensure; a block has its key at its beginning.
    unsafe {
        if (*state::process()).dormant.load(Ordering::Relaxed) != 0 || ensure().is_null() {
            return false;
        }
        let gs = sys::gs_base();
        gs != 0 && (gs as *const u64).read() == sys::fs_base()
    }
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
pub unsafe fn borrower(hot: *mut Hot) -> u32 {
    // SAFETY: the thread's own block, or lent to this one, while its owner waits.
    unsafe {
        if (*hot).lends == 0 {
            return 0;
        }
        let tid = sys::tid();
        if tid != (*hot).tid {
            return tid;
        }
        (*hot).lends = 0;
        0
    }
}

/// A task is about to begin that shares memory, gs and fs with this thread: both would take the
/// block for theirs. Until the next event gs points at a block whose key nobody has.
pub unsafe fn let_go() {
    // SAFETY: the block is changed under the lock only, and by no thread while it is nobody's.
    unsafe {
        if !lock::lock(sys::tid()) {
            state::count_hole(hole::LOCK_BUSY);
            return;
        }
        if (*state::process()).nobody == 0 {
            let hot = make_block();
            if !hot.is_null() {
                let block = hot as u64 - HOT as u64;
                (block as *mut u64).write(u64::MAX);
                (*state::process()).nobody = block;
            }
        }
        let nobody = (*state::process()).nobody;
        lock::unlock();
        if nobody != 0 {
            sys::set_gs_base(nobody);
        }
    }
}

/// The block that the thread had before [`let_go`].
unsafe fn find_own(fs: u64, pid: u32, tid: u32) -> *mut Hot {
    // SAFETY: blocks stay mapped; the list only grows at its head.
    unsafe {
        let mut hot = (*state::process()).blocks;
        while !hot.is_null() {
            let block = hot as u64 - HOT as u64;
            if (*hot).tid == tid && (*hot).pid == pid && (block as *const u64).read() == fs {
                // The door left it in use, and ran on the program's stack this time.
                (*hot).agent_stack = block + BLOCK_BYTES as u64;
                sys::set_gs_base(block);
                return hot;
            }
            hot = (*hot).next as *mut Hot;
        }
        hot
    }
}

unsafe fn new_thread(fs: u64, pid: u32, tid: u32) -> *mut Hot {
    // SAFETY: the block list is changed under the lock only.
    unsafe {
        let other = match (*state::process()).pid {
            first if first != pid => first,
            _ => 0,
        };
        if !(*state::process()).blocks.is_null() {
            let sharing = &(*state::process()).sharing;
            sharing.store(state::SHARED, Ordering::Relaxed);
        }
        let locked = lock::lock(tid);
        let mut hot = if locked {
            reuse()
        } else {
            core::ptr::null_mut()
        };
        // The last of the list has no next one either: entered twice, it would make the list a
        // ring.
        let fresh = hot.is_null();
        if fresh {
            hot = make_block();
        }
        // Under the lock: a block without its stream would look like one whose thread is gone.
        if !hot.is_null() && !begin(hot, fs, pid, tid, Parent::pid(other)) {
            (*hot).tid = 0;
            hot = core::ptr::null_mut();
        }
        if fresh && !hot.is_null() && locked {
            (*hot).next = (*state::process()).blocks as u64;
            (*state::process()).blocks = hot;
        }
        if locked {
            lock::unlock();
        }
        hot
    }
}

/// A block with a stream for another thread, which is stopped and has none; null if that is
/// impossible.
pub unsafe fn adopt(fs: u64, pid: u32, tid: u32) -> *mut Hot {
    // SAFETY: all other threads are stopped outside of the agent.
    unsafe {
        let hot = make_block();
        if hot.is_null() {
            return hot;
        }
        (*hot).next = (*state::process()).blocks as u64;
        (*state::process()).blocks = hot;
        if !begin_stream(hot, fs, pid, tid, Parent::pid(0)) {
            (*hot).tid = 0;
            return core::ptr::null_mut();
        }
        hot
    }
}

/// What a stream begins with: that of the thread that forked it, or nothing but a process.
struct Parent {
    stream: u32,
    epoch: u32,
    pid: u32,
}

impl Parent {
    /// No stream. `pid`: the process whose modules it has; 0: its own.
    fn pid(pid: u32) -> Self {
        Self {
            stream: NONE,
            epoch: 0,
            pid,
        }
    }
}

/// Gives the block a stream and makes it this thread's.
unsafe fn begin(hot: *mut Hot, fs: u64, pid: u32, tid: u32, parent: Parent) -> bool {
    // SAFETY: the block is this thread's alone.
    unsafe {
        let begun = begin_stream(hot, fs, pid, tid, parent);
        if begun {
            sys::set_gs_base(hot as u64 - HOT as u64);
        }
        begun
    }
}

/// Gives the block a stream, and the thread's key.
unsafe fn begin_stream(hot: *mut Hot, fs: u64, pid: u32, tid: u32, parent: Parent) -> bool {
    // SAFETY: the block is nobody else's.
    unsafe {
        let Some(stream) = take_stream() else {
            return false;
        };
        let s = stream_entry(stream);
        (*s).pid = pid;
        (*s).tid = tid;
        (*s).parent = parent.stream;
        (*s).parent_epoch = parent.epoch;
        (*s).parent_pid = parent.pid;
        (*s).process = (*state::process()).number;
        (*s).parent_process = match (*state::process()).pid == parent.pid {
            // A task that shares its memory.
            true => (*state::process()).number,
            false => (*state::process()).parent_number,
        };
        (*s).other_pids = (*state::process()).other_pids;
        (*s).start_tsc = sys::tsc();
        (*s).chunk.store(NONE, Ordering::Relaxed);
        (*hot).epoch = (*s).epoch.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        (*hot).stream = stream;
        (*hot).pid = pid;
        (*hot).tid = tid;
        (*hot).chunk = NONE;
        (*hot).sequence = 0;
        (*hot).cur = 0;
        (*hot).end = 0;
        (*hot).real_end = 0;
        (*hot).kept = [0; 3];
        (*hot).muted = 0;
        (*hot).lost = 0;
        (*hot).table = (*state::process()).table as u64;
        if state::control().roots_only != 0 && (*hot).root == 0 {
            chunk::mute(hot);
        }
        (*s).state.store(STREAM_LIVE, Ordering::Release);
        let block = hot as u64 - HOT as u64;
        (block as *mut u64).write(fs);
        true
    }
}

unsafe fn stream_entry(index: u32) -> *mut Stream {
    // SAFETY: callers check the index.
    unsafe {
        ((*state::process()).arena.add(STREAMS_OFFSET as usize) as *mut Stream).add(index as usize)
    }
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
        // SAFETY: within the table.
        let state = unsafe { &(*stream_entry(i)).state };
        state.load(Ordering::Relaxed) == STREAM_DEAD
            && state
                .compare_exchange(
                    STREAM_DEAD,
                    STREAM_TAKEN,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                )
                .is_ok()
    })
}

/// A block whose thread is gone, as the host has found out.
unsafe fn reuse() -> *mut Hot {
    // SAFETY: under the lock.
    unsafe {
        let mut hot = (*state::process()).blocks;
        while !hot.is_null() {
            let s = stream_entry((*hot).stream);
            let gone = (*hot).tid == 0
                || (*s).state.load(Ordering::Acquire) != STREAM_LIVE
                || (*s).epoch.load(Ordering::Relaxed) != (*hot).epoch;
            if gone {
                reset(hot);
                return hot;
            }
            hot = (*hot).next as *mut Hot;
        }
        hot
    }
}

unsafe fn make_block() -> *mut Hot {
    // SAFETY: fresh memory.
    unsafe {
        let block = sys::map_private(BLOCK_BYTES);
        if block.is_null() {
            return core::ptr::null_mut();
        }
        sys::wipe_on_fork(block, HOT);
        let hot = shadow::hot_of(block as u64);
        reset(hot);
        hot
    }
}

/// An empty shadow stack: one sentinel above every stack pointer.
unsafe fn reset(hot: *mut Hot) {
    // SAFETY: the block is nobody's.
    unsafe {
        deep::reset(hot);
        let block = hot as u64 - HOT as u64;
        (*hot).agent_stack = block + BLOCK_BYTES as u64;
        (*hot).stack_top = 0;
        (*hot).dropped = [0; 2];
        (*hot).barriers = 0;
        (*hot).rearm_above = 0;
        (*hot).root = 0;
    }
}

/// First event after a fork, in the child: own patch areas, own stream, and the frames that were
/// open at the fork.
unsafe fn fork_child(gs: u64, fs: u64, pid: u32, tid: u32) -> *mut Hot {
    // SAFETY: a fork child has one thread; signals are blocked.
    unsafe {
        let p = state::process();
        let hot = shadow::hot_of(gs);
        // A block of nobody has no stream.
        let parent = if gs == (*p).nobody {
            Parent::pid((*p).pid)
        } else {
            Parent {
                stream: (*hot).stream,
                epoch: (*hot).epoch,
                pid: (*hot).pid,
            }
        };
        (*p).pid = pid;
        (*p).parent_number = (*p).number;
        number();
        match sys::parent_pid() {
            // The parent cannot be seen from here: this is the first process of a pid namespace.
            0 => (*p).other_pids = PIDS_OTHER,
            // One between us has shown no event, or has ended.
            now if now != parent.pid && (*p).other_pids == PIDS_SAME => {
                (*p).other_pids = PIDS_UNSURE;
            }
            _ => {}
        }
        if gs == (*p).nobody {
            (*p).nobody = 0;
        }
        (*p).sharing
            .store(state::SHARING_UNKNOWN, Ordering::Relaxed);
        (*(*p).fork_page).mark = 1;
        (*(*p).fork_page).lock.store(0, Ordering::Relaxed);
        let mut other = (*p).blocks;
        while !other.is_null() {
            if other != hot {
                (*other).tid = 0;
            }
            other = (*other).next as *mut Hot;
        }
        if !module::own_areas() {
            (*p).may_propagate = 0;
            state::count_hole(hole::FORK_SHARED);
        }
        (*hot).overflow = 0;
        if !begin(hot, fs, pid, tid, parent) {
            return core::ptr::null_mut();
        }
        host::ring();
        let is_elsewhere = state::control().other_pids.load(Ordering::Relaxed) != 0;
        if is_elsewhere || (*p).other_pids != PIDS_SAME {
            // Who has ended is not found by its numbers in another pid namespace.
            question::question(ASK_NOTED, 0);
        }
        let outermost = match (*hot).root {
            0 => shadow::shadow_bottom(hot) + FRAME_BYTES as u64,
            root => root,
        };
        settle::forget_system_calls(hot);
        let mut frame = outermost as *const ShadowFrame;
        while frame as u64 <= (*hot).ssp {
            let (id, callee) = ((*frame).id, (*frame).callee);
            if !shadow::is_barrier(frame) {
                chunk::put(hot, record::INHERITED, id);
                chunk::put(hot, record::INHERITED, callee);
            }
            frame = frame.add(1);
        }
        hot
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
