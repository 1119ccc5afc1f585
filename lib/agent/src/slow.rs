//! The slow path: whatever a common routine could not do in a few instructions.
//!
//! Given what the door saved ([`Frame`]); gives back how to return. It decides what the event means
//! for the shadow stack (frames left by longjmp or throw, entry-only frames that have ended, second
//! returns), reaches callees before they run, and writes the record.
//!
//! Shadow stack: frames ordered by stack pointer, the innermost lowest. A frame whose stack pointer
//! is not above the present one has ended; if its exit was not seen it is reported so.

use crate::state::{FRAME_BYTES, Hot, ShadowFrame, control, count_hole, process};
use crate::{
    chunk, deep, dormant, hook, module, process as proc_events, propagate, stacks, text, thread,
    unwind,
};
use core::sync::atomic::Ordering;
use propagate::Reach;
use sptrace_wire::control::hole;
use sptrace_wire::plan::common;
use sptrace_wire::record::{self, FRAME_OPEN};

/// What the slow path's door pushed, lowest address first.
#[repr(C)]
pub struct Frame {
    /// Saved registers.
    pub rbp: u64,
    /// rflags as they were.
    pub rflags: u64,
    /// Saved registers.
    pub r11_r10_r9: [u64; 3],
    /// Fifth argument register.
    pub r8: u64,
    /// First argument register.
    pub rdi: u64,
    /// Second argument register.
    pub rsi: u64,
    /// Which routine.
    pub routine: u64,
    /// Third argument register.
    pub rdx: u64,
    /// Fourth argument register.
    pub rcx: u64,
    /// lahf/seto image.
    pub flags: u64,
    /// rax.
    pub rax: u64,
    /// Return address into the slot.
    pub id: u64,
    /// What stands above it: see `common`.
    pub above: [u64; 3],
}

/// Return to the id, taking it off the stack.
pub const RET: u64 = 0;
const RET_8: u64 = 1;

/// In a shadow frame, with FRAME_OPEN: the call has returned past its exit (see `context`); the next
/// event tells its end.
pub const FRAME_DONE: u64 = 1 << 62;

/// Frames further away than this from the stack pointer lie on another stack.
pub const SAME_STACK_BYTES: u64 = 64 << 20;

/// Called by the door, on the agent's stack. `mask`: the program's signal mask; signals are blocked
/// unless `blocked` is zero: nothing is recorded any more then.
///
/// # Safety
/// `frame` is what the door pushed.
pub unsafe extern "C" fn slow(frame: *mut Frame, mask: u64, blocked: u64) -> u64 {
    // SAFETY: the frame is ours until we return.
    unsafe {
        if blocked == 0 || (*process()).dormant.load(Ordering::Relaxed) != 0 {
            return when_dormant(&mut *frame, mask);
        }
        let id = (*frame).id;
        let mut how = dispatch(&mut *frame, mask);
        if (*process()).dormant.load(Ordering::Relaxed) != 0 {
            dormant::put_text_back();
            if (*frame).id == id {
                how = dormant::begin_again(&mut *frame).unwrap_or(how);
            }
        }
        if (*frame).routine as i32 == common::HOOK_EXIT {
            hook::fill_return(&raw mut (*frame).above as u64);
        }
        how
    }
}

fn normal_return(routine: u64) -> u64 {
    match routine as i32 {
        common::INDIRECT | common::TAIL_INDIRECT => RET_8,
        _ => RET,
    }
}

/// Nothing is recorded any more; only a walker of the stack must still be served. No system call
/// but for that, with signals blocked: the process may be in a sandbox.
unsafe fn when_dormant(f: &mut Frame, mask: u64) -> u64 {
    if f.routine as i32 == common::SPECIAL {
        // SAFETY: as in slow.
        unsafe { dormant::special(f, &raw const f.above as u64, mask) };
    }
    if f.routine as i32 == common::HOOK_EXIT {
        // SAFETY: the word was made by the hook's return.
        unsafe { hook::fill_return(&raw const f.above as u64) };
    }
    // SAFETY: as in slow.
    unsafe { dormant::begin_again(f) }.unwrap_or(normal_return(f.routine))
}

unsafe fn dispatch(f: &mut Frame, mask: u64) -> u64 {
    let routine = f.routine as i32;
    let normal = normal_return(f.routine);
    let above = &raw const f.above as u64;
    // SAFETY: signals are blocked, the frame is valid, all table entries are checked.
    unsafe {
        let hot = thread::ensure();
        if hot.is_null() {
            count_hole(hole::TABLE_FULL);
            if routine == common::SPECIAL {
                dormant::special(f, above, mask);
            }
            return normal;
        }
        (*hot).stack_top = (*hot).stack_top.max(above + 16);
        (*hot).mask = mask;
        match routine {
            common::ENTRY => enter(hot, above, f.id, None, false),
            common::FIRST => {
                first(hot, f.id, common::ENTRY);
                enter(hot, above, f.id, None, false);
            }
            common::ENTRY_ONLY => enter(hot, above + 8, f.id, None, true),
            common::ENTRY_ONLY_FIRST => {
                first(hot, f.id, common::ENTRY_ONLY);
                enter(hot, above + 8, f.id, None, true);
            }
            common::EXIT => leave(hot, above, f.id),
            common::INDIRECT => return indirect(hot, f, above),
            common::TAIL => tail(hot, above + 8, f.id, None),
            common::TAIL_FIRST => {
                if first(hot, f.id, common::TAIL) == Reach::ReturnAddress {
                    unwind::give_back_one(hot, above);
                }
                tail(hot, above + 8, f.id, None);
            }
            common::TAIL_INDIRECT => {
                let target = f.above[0];
                if module::is_resolver_site(f.id) && (*top(hot)).rsp != above + 16 {
                    // The lazy resolver working for code that is not traced.
                    propagate::know(hot, target);
                    return normal;
                }
                match propagate::reach(hot, target) {
                    Reach::Ready => module::remember(target),
                    Reach::ReturnAddress => unwind::give_back_one(hot, above + 8),
                    Reach::Later => {}
                }
                tail(hot, above + 16, f.id, Some(target));
            }
            common::SPECIAL => proc_events::special(hot, f, above, mask),
            common::HOOK => hook::enter(hot, above, f.id),
            common::HOOK_EXIT => leave(hot, above + 8, f.id),
            _ => {}
        }
        normal
    }
}

/// A call or jump whose callee may not be instrumented yet: reach it, then wire the slot so that
/// it does not come here again. `id` points at the `call`/`jmp` to the callee.
unsafe fn first(hot: *mut Hot, id: u64, then: i32) -> Reach {
    // SAFETY: `id` is a return address in a slot, followed by E8 or E9 rel32.
    unsafe {
        let rel = (id as *const u8).add(1).cast::<i32>().read_unaligned();
        let callee = (id + 5).wrapping_add(rel as i64 as u64);
        let reach = propagate::reach(hot, callee);
        if reach == Reach::Ready {
            text::wire(id, then);
        }
        reach
    }
}

unsafe fn indirect(hot: *mut Hot, f: &mut Frame, above: u64) -> u64 {
    let target = f.above[0];
    // SAFETY: as in dispatch; the slot's layout is that of an indirect call.
    unsafe {
        match propagate::reach(hot, target) {
            Reach::Ready => module::remember(target),
            Reach::Later => {}
            Reach::ReturnAddress => {
                // Entry-only: the callee gets the original return address and is jumped to.
                enter(hot, above + 8, f.id, Some(target), true);
                let back = unwind::original_return(f.id + 4);
                if back != 0 {
                    f.above[0] = back;
                    f.id = target;
                    return RET;
                }
                return RET_8;
            }
        }
        enter(hot, above + 8, f.id, Some(target), false);
        RET_8
    }
}

/// The innermost shadow frame.
#[inline]
pub unsafe fn top(hot: *mut Hot) -> *mut ShadowFrame {
    // SAFETY: the thread's own block.
    unsafe { (*hot).ssp as *mut ShadowFrame }
}

/// Removes frames that have ended before the stack pointer came to `rsp`. With `inclusive`, a frame
/// at `rsp` itself has ended too.
pub unsafe fn settle(hot: *mut Hot, rsp: u64, inclusive: bool) {
    let mut unwound = 0u64;
    let mut closed = 0u64;
    let mut is_one_stack = false;
    // SAFETY: the sentinel at the bottom has the highest stack pointer and stops every loop.
    unsafe {
        loop {
            if stacks::left(hot, rsp) {
                continue;
            }
            let frame = top(hot);
            let at = (*frame).rsp;
            if !stacks::jumped_out(hot, rsp) {
                let ended = at < rsp || inclusive && at == rsp;
                if !ended || at < rsp && stacks::switched(hot, rsp) {
                    break;
                }
                let is_far = rsp - at > SAME_STACK_BYTES && !is_one_stack;
                if is_far && !stacks::handler_ended(hot, at, rsp) {
                    is_one_stack = stacks::reaches(hot, rsp);
                    if !is_one_stack {
                        count_hole(hole::OTHER_STACK);
                        break;
                    }
                }
            }
            let given_back = unwind::was_given_back(hot, at);
            if (*frame).id & FRAME_DONE != 0 {
                tell_ended(hot, &mut unwound, &mut closed);
                chunk::put_event(hot, unwind::exit_id((*frame).id), None);
            } else if (*frame).id & FRAME_OPEN != 0 || given_back && (*hot).looked != 0 {
                if unwound > 0 {
                    chunk::put(hot, record::UNWOUND, unwound);
                    unwound = 0;
                }
                closed += 1;
            } else {
                if closed > 0 {
                    chunk::put(hot, record::CLOSED, closed);
                    closed = 0;
                }
                unwound += 1;
            }
            if !given_back {
                drop_range(hot, at);
            }
            (*hot).ssp -= FRAME_BYTES as u64;
            if (*hot).root > (*hot).ssp {
                tell_ended(hot, &mut unwound, &mut closed);
                hook::frames_ended(hot);
            }
        }
        tell_ended(hot, &mut unwound, &mut closed);
        if (*hot).rearm_above != 0 && rsp > (*hot).rearm_above {
            unwind::arm_again(hot, rsp);
        }
        if (*hot).root != 0 && hook::root_is_gone(hot) {
            let frames = ((*hot).ssp - (*hot).root) / FRAME_BYTES as u64 + 1;
            drop_frames(hot, frames);
        }
    }
}

/// Records the frames counted; one of the numbers is zero.
unsafe fn tell_ended(hot: *mut Hot, unwound: &mut u64, closed: &mut u64) {
    for (kind, count) in [(record::UNWOUND, unwound), (record::CLOSED, closed)] {
        let count = core::mem::take(count);
        if count > 0 {
            // SAFETY: the thread's own block.
            unsafe { chunk::put(hot, kind, count) };
        }
    }
}

/// Remembers where a frame without an exit was.
unsafe fn drop_range(hot: *mut Hot, at: u64) {
    // SAFETY: the thread's own block.
    unsafe {
        let d = &mut (*hot).dropped;
        *d = if d[1] == 0 {
            [at - 8, at]
        } else {
            [d[0].min(at - 8), d[1].max(at)]
        };
    }
}

/// A call begins. `callee`: of a call through a pointer, which may be null.
unsafe fn enter(hot: *mut Hot, rsp: u64, id: u64, callee: Option<u64>, open: bool) {
    // SAFETY: the thread's own block.
    unsafe {
        settle(hot, rsp, true);
        if !deep::has_room(hot, rsp) {
            deep::cut_off(hot);
            return;
        }
        chunk::put_event(hot, id as u32, callee);
        let id = if open { id | FRAME_OPEN } else { id };
        push(hot, rsp, id, callee.unwrap_or(0));
    }
}

/// Pushes a shadow frame. There must be room.
pub unsafe fn push(hot: *mut Hot, rsp: u64, id: u64, callee: u64) {
    let frame = ShadowFrame { rsp, id, callee };
    // SAFETY: below `ssp_end` there is room for two more.
    unsafe {
        (*hot).ssp += FRAME_BYTES as u64;
        *top(hot) = frame;
        if id & FRAME_OPEN != 0 {
            // A handler may end without an event behind this one. If it has interrupted a push, that one takes
            // this place and moves the top above it, where a frame of the handler then stands.
            *top(hot).add(1) = frame;
        }
    }
}

/// A frame without a patched call site begins: a special function's caller was not patched.
pub unsafe fn enter_unseen(hot: *mut Hot, rsp: u64, function: u64) {
    // SAFETY: the thread's own block.
    unsafe {
        settle(hot, rsp, false);
        if (*top(hot)).rsp == rsp || !deep::has_room(hot, rsp) {
            return;
        }
        chunk::put(hot, record::ENTERED, function);
        push(hot, rsp, FRAME_OPEN, function);
    }
}

/// A call ends.
unsafe fn leave(hot: *mut Hot, rsp: u64, id: u64) {
    // SAFETY: the thread's own block; the search ends at the sentinel.
    unsafe {
        if (*hot).overflow > 0 && (*top(hot)).rsp > rsp {
            (*hot).overflow -= 1;
            chunk::lose(hot);
            return;
        }
        settle(hot, rsp, false);
        // An entry-only frame at the same place has ended: its function has returned before.
        while (*top(hot)).rsp == rsp && (*top(hot)).id & FRAME_OPEN != 0 {
            drop_frames(hot, 1);
        }
        if (*top(hot)).rsp == rsp {
            chunk::put_event(hot, id as u32, None);
            (*hot).ssp -= FRAME_BYTES as u64;
            hook::frames_ended(hot);
            return;
        }
        // Frames of another stack (or of one left by siglongjmp) may lie above ours.
        let mut below = top(hot);
        let mut frames = 0u64;
        while (*below).rsp != u64::MAX && (*below).rsp != rsp && frames < 4096 {
            below = below.sub(1);
            frames += 1;
        }
        if (*below).rsp == rsp && (*below).id & FRAME_OPEN == 0 {
            drop_frames(hot, frames);
            chunk::put_event(hot, id as u32, None);
            (*hot).ssp -= FRAME_BYTES as u64;
        } else {
            chunk::put(hot, record::RESUMED, id);
        }
    }
}

/// Drops the innermost `frames`, reporting each kind in order.
unsafe fn drop_frames(hot: *mut Hot, frames: u64) {
    for _ in 0..frames {
        // SAFETY: the caller counted them.
        unsafe {
            let id = (*top(hot)).id;
            let open = id & FRAME_OPEN != 0;
            drop_range(hot, (*top(hot)).rsp);
            if id & FRAME_DONE != 0 {
                chunk::put_event(hot, unwind::exit_id(id), None);
                (*hot).ssp -= FRAME_BYTES as u64;
                hook::frames_ended(hot);
                continue;
            }
            chunk::put(
                hot,
                if open {
                    record::CLOSED
                } else {
                    record::UNWOUND
                },
                1,
            );
            (*hot).ssp -= FRAME_BYTES as u64;
            hook::frames_ended(hot);
        }
    }
}

/// A tail jump: the frame whose call site had `rsp` goes on as another function.
unsafe fn tail(hot: *mut Hot, rsp: u64, id: u64, callee: Option<u64>) {
    // SAFETY: the thread's own block.
    unsafe {
        settle(hot, rsp, false);
        let entered_unseen = (*top(hot)).rsp != rsp;
        if entered_unseen && !deep::has_room(hot, rsp) {
            return;
        }
        if entered_unseen {
            // The frame that it replaces was never seen: what it becomes stands for itself.
            let called = callee.unwrap_or_else(|| unwind::direct_target(id));
            chunk::put(hot, record::ENTERED, called);
            push(hot, rsp, FRAME_OPEN, called);
        } else {
            chunk::put_event(hot, id as u32, callee);
        }
    }
}

/// Number of open frames of a thread.
pub unsafe fn depth(hot: *mut Hot) -> u32 {
    // SAFETY: the thread's own block.
    unsafe {
        let frames = ((*hot).ssp - thread::shadow_bottom(hot)) / FRAME_BYTES as u64;
        frames as u32 - (*hot).barriers
    }
}

/// True if recording has ended for good.
pub fn stopped() -> bool {
    control().host_state.load(Ordering::Relaxed) == sptrace_wire::control::HOST_STOPPED
}
