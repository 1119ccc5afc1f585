//! Lanes: goroutines, each of which has a thread's block of its own.
//!
//! A lane's block has its shadow stack, its chunk and its stream, as that of a thread; gs points at
//! it while a thread runs the lane. So the calls that are open when a lane waits stay open, and end
//! when it goes on, in whatever thread; and nothing in the hot path knows of it but the routines
//! whose names end in `_IN_LANE`, which look whether the stack is that of the block. If not, the
//! event comes to the slow path, which asks here first of all.
//!
//! A thread has one block more, for its own stack: the runtime's scheduler, C, and signal handlers,
//! which stay in the block that they have interrupted, since a routine may have been in the middle
//! of using it. Must not know what the event is.

use crate::memory::running::{self, Lane};
use crate::memory::state::LANES;
use crate::memory::thread::Hot;
use crate::memory::{lock, state, sys};
use crate::reach::thread;
use crate::record::{chunk, settle};
use core::sync::atomic::{AtomicU32, Ordering};
use sptrace_wire::control::{NONE, hole};
use sptrace_wire::record;

/// So many lanes that wait may keep their chunks, which are 64 KiB each; others hand them over.
const KEEPING: u32 = 256;
/// Where nothing is known of a stack, this much around the stack pointer is one.
const PAGE: u64 = 4096;
/// Places of the table that are looked at.
const PROBES: usize = 64;

/// Lanes that wait and have a chunk.
static KEEP: AtomicU32 = AtomicU32::new(0);

/// A thread has come here with the block `hot`, and an event at about the stack pointer `rsp`: the
/// block of what it runs, which is the current one from here on.
#[inline]
pub fn come(hot: &'static Hot, rsp: u64) -> &'static Hot {
    match state::process().lane_number.get() {
        0 => hot,
        _ => come_to(hot, rsp),
    }
}

#[inline(never)]
fn come_to(hot: &'static Hot, rsp: u64) -> &'static Hot {
    let Some(lane) = running::running() else {
        return own_stack(hot, around(rsp));
    };
    if lane.id != 0 && lane.holds(rsp) {
        return in_lane(hot, lane);
    }
    let Some(own) = lane.own_of_thread() else {
        return hot;
    };
    match own.holds(rsp) {
        // As where the runtime asks the kernel's code for the time, the lane is still said to run.
        true => own_stack(hot, (own.low, own.high)),
        false if own.at == lane.at && !is_of_signals(hot, rsp) => own_stack(hot, around(rsp)),
        false => hot,
    }
}

/// The block must not be changed on a signal's stack.
fn is_of_signals(hot: &Hot, rsp: u64) -> bool {
    let alternate = || sys::alternate_stack();
    hot.lane.get() != 0 && alternate().is_some_and(|(low, high)| rsp > low && rsp <= high)
}

fn around(rsp: u64) -> (u64, u64) {
    let low = rsp & !(PAGE - 1);
    (low, low + PAGE - 1)
}

/// The thread runs on its own stack.
fn own_stack(hot: &'static Hot, (low, high): (u64, u64)) -> &'static Hot {
    let home = match hot.lane.get() {
        0 => hot,
        _ => match hot.home.get() {
            Some(home) => change(hot, home),
            None => return hot,
        },
    };
    home.lane_low.set(low);
    home.lane_bytes.set(high.saturating_sub(low));
    home
}

fn in_lane(hot: &'static Hot, lane: Lane) -> &'static Hot {
    if hot.lane.get() == lane.at {
        begin_if_other(hot, lane);
        fit(hot, lane);
        return hot;
    }
    let tid = sys::tid();
    let found = block_of(lane);
    let is_free = |block: &&Hot| {
        let owner = &block.lane_owner;
        let taken = owner.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    };
    let home = match hot.lane.get() {
        0 => Some(hot),
        _ => hot.home.get(),
    };
    let (Some(home), Some(block)) = (home, found.filter(is_free)) else {
        state::count_hole(hole::LANES);
        return own_stack(hot, (lane.low, lane.high));
    };
    if let Some(last) = home.last_lane.get().filter(|last| !is_same(last, block)) {
        end_if_over(last, tid);
    }
    home.last_lane.set(Some(block));
    block.home.set(Some(home));
    change(hot, block);
    begin_if_other(block, lane);
    fit(block, lane);
    block
}

fn is_same(one: &Hot, other: &Hot) -> bool {
    core::ptr::eq(one, other)
}

/// The thread has another block from here on. Its agent's stack goes with it.
fn change(from: &'static Hot, to: &'static Hot) -> &'static Hot {
    let (fs, tid) = (from.key().get(), from.tid.get());
    from.set_key(u64::MAX);
    from.tid.set(u32::MAX);
    to.set_key(fs);
    to.tid.set(tid);
    to.pid.set(from.pid.get());
    to.has_self.set(from.has_self.get());
    to.mask.set(from.mask.get());
    to.make_current();
    if from.lane.get() != 0 {
        leave(from);
    }
    if to.lane.get() != 0 && to.chunk.get() != NONE {
        KEEP.fetch_sub(1, Ordering::Relaxed);
    }
    to
}

/// Nobody runs the lane any more: whoever comes first may have its block.
fn leave(lane: &Hot) {
    if lane.chunk.get() != NONE && KEEP.fetch_add(1, Ordering::Relaxed) >= KEEPING {
        KEEP.fetch_sub(1, Ordering::Relaxed);
        chunk::hand_over(lane);
    }
    lane.lane_owner.store(0, Ordering::Release);
}

/// Where the runtime keeps a lane, it may have another by now.
fn begin_if_other(block: &Hot, lane: Lane) {
    if block.lane_id.get() == lane.id {
        return;
    }
    end_all(block);
    block.lane_id.set(lane.id);
    chunk::unmute(block);
    chunk::put(block, record::LANE, lane.id);
    if state::control().roots_only != 0 {
        chunk::mute(block);
    }
}

/// A lane that a thread has left may have ended since.
fn end_if_over(block: &'static Hot, tid: u32) {
    let owner = &block.lane_owner;
    if !Lane::is_over(block.lane.get(), block.lane_id.get())
        || (owner.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed)).is_err()
    {
        return;
    }
    if Lane::is_over(block.lane.get(), block.lane_id.get()) {
        let had_chunk = block.chunk.get() != NONE;
        end_all(block);
        if !had_chunk {
            chunk::hand_over(block);
        } else if block.chunk.get() == NONE {
            KEEP.fetch_sub(1, Ordering::Relaxed);
        }
    }
    owner.store(0, Ordering::Release);
}

/// What is open in a lane has ended with it.
fn end_all(block: &Hot) {
    let frames = (block.ssp.get() - block.shadow()) / crate::memory::thread::FRAME_BYTES as u64;
    settle::drop_frames(block, frames);
}

/// The lane's stack may have been moved to another place, with all that is on it.
fn fit(block: &Hot, lane: Lane) {
    let (old_low, old_high) = (block.lane_low.get(), block.lane_high.get());
    if old_high != lane.high {
        if old_high != 0 {
            move_frames(block, (old_low, old_high), lane.high);
        }
        block.stack_top.set(lane.high);
        block.dropped.set([0; 2]);
        block.lane_high.set(lane.high);
    }
    block.lane_low.set(lane.low);
    block.lane_bytes.set(lane.high - lane.low);
}

/// Distances from the end of the stack stay what they are.
fn move_frames(block: &Hot, (low, high): (u64, u64), new_high: u64) {
    let bottom = block.bottom();
    let mut at = block.top();
    while at > bottom {
        let mut frame = at.get();
        if (low..=high).contains(&frame.rsp) {
            frame.rsp = frame.rsp.wrapping_sub(high).wrapping_add(new_high);
            at.set(frame);
        }
        at = at.below();
    }
}

/// The block of a lane, made if need be.
fn block_of(lane: Lane) -> Option<&'static Hot> {
    let table = state::process().lanes.get()?;
    let places = (0..PROBES).map(|i| (hash(lane.at) + i) % LANES);
    for place in places {
        let [block, at] = table.get(place)?.get();
        if at == lane.at && block != 0 {
            // SAFETY: what stands beside a lane is the block that was made for it, for life.
            return Some(unsafe { crate::memory::thread::hot_of(block) });
        }
        if at == 0 {
            break;
        }
    }
    let block = thread::block_of_lanes(lane.id)?;
    block.lane_id.set(lane.id);
    block.lane.set(lane.at);
    block.lane_high.set(0);
    enter(lane.at, block)?;
    Some(block)
}

/// Enters a block into the table. `None`: there is no room near its place.
fn enter(at: u64, block: &'static Hot) -> Option<()> {
    let table = state::process().lanes.get()?;
    if !lock::lock(sys::tid()) {
        return None;
    }
    let places = (0..PROBES).map(|i| (hash(at) + i) % LANES);
    let free = places
        .filter_map(|place| table.get(place))
        .find(|place| place.get()[1] == 0);
    if let Some(place) = free {
        place.set([block.block(), at]);
    }
    lock::unlock();
    free.map(|_| ())
}

fn hash(at: u64) -> usize {
    ((at >> 5).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
}
