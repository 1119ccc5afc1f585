//! Detaching: the process becomes what it was before it was attached to, in its text, stacks and
//! contexts.
//!
//! Given a process whose threads are all stopped outside of the agent. (If the host is killed
//! meanwhile the threads run, and whatever could be done only while they stand is left undone.)
//! Puts back each place where bytes of ours stand. Kept calls, springboards and made room are put
//! back too, unless a thread stands between their bytes: then the host lets that thread run on and
//! asks again.
//!
//! The patch areas stay for the life of the process, with routines that need no agent
//! ([`crate::routines::silent::retire`]). A jmp_buf, a saved context or a coroutine's stack may
//! still hold an address in an area that was not found here, and it leads back to the program from
//! there. A later attach takes the areas up again ([`crate::reach::module`]). Everything else is
//! listed for the host, which unmaps it.

use crate::frames::handlers;
use crate::memory::state::{
    BLOCK_BYTES, DORMANT, HOT, Hot, Module, Padding, TABLE_BITS, TEXT_BACK,
};
use crate::memory::{frame, state, stopped};
use crate::patch::undo::{CONTEXTS, Contexts, PAGE, Undo, Writer};
use crate::patch::unpatch;
use crate::plans::modules;
use crate::plans::padding::PADDINGS;
use crate::reach::module;
use crate::record::{originals, restore};
use crate::routines::silent;
use crate::signals::{context, sigframe};
use core::sync::atomic::Ordering;
use sptrace_wire::attach::*;
use sptrace_wire::plan::*;
use sptrace_wire::values::PIECES_BYTES;

/// Nothing is recorded from here on; text and stacks stay as they are.
pub unsafe fn silence() -> u32 {
    // SAFETY: the areas are mapped; one store for each routine.
    unsafe {
        let p = state::process();
        (*p).may_propagate = 0;
        (*p).dormant.fetch_or(DORMANT | TEXT_BACK, Ordering::AcqRel);
        for i in 0..(*p).module_count as usize {
            let m: *const Module = &raw const (*p).modules[i];
            if (*m).area_rw != 0 {
                silent::silence((*m).area_rw as *mut u8);
            }
        }
        RESULT_DONE
    }
}

/// Puts all back that can be put back now.
pub unsafe fn detach(b: &AttachBlock) -> u32 {
    // SAFETY: all other threads are stopped outside of the agent.
    unsafe {
        let p = state::process();
        // A child that was made while its parent was being prepared may have less than that.
        let is_child = !(*p).fork_page.is_null() && (*(*p).fork_page).mark == 0;
        if is_child && !module::own_areas() {
            // What the parent goes on with must not change.
            return RESULT_FAILED;
        }
        silence();
        let mut undo = Undo {
            writer: Writer {
                start: 0,
                end: 0,
                copy: core::ptr::null_mut(),
                failed: false,
            },
            contexts: Contexts {
                rips: [0; CONTEXTS],
                count: 0,
            },
            foreign: 0,
            busy: 0,
        };
        let inside = give_back(b, &mut undo.contexts);
        let first = (&raw const (*p).modules).cast::<Module>();
        let areas = (0..(*p).module_count as usize)
            .map(|i| first.add(i))
            .filter(|m| (**m).plan.is_some() && (**m).area_rw != 0 && (**m).is_private == 0);
        let mapped = || areas.clone().filter(|m| (**m).gone == 0);
        mapped().for_each(|m| undo.sites(m));
        if !inside {
            // While somebody is, he may leave a return address of ours behind, and walkers must be
            // served.
            mapped().for_each(|m| undo.specials(m));
        }
        undo.writer.close();
        b.foreign.store(undo.foreign, Ordering::Relaxed);
        if stopped::is_deserted() {
            // Only what is safe beside running threads, with no regard to where they stood.
            (*p).pc_count = 0;
            unpatch::all();
            return RESULT_FAILED;
        }
        if undo.writer.failed {
            return RESULT_NOT_WRITABLE;
        }
        if inside || undo.busy > 0 {
            return RESULT_AGAIN;
        }
        for m in areas {
            let rw = (*m).area_rw as *mut u8;
            let h = &mut *(rw as *mut AreaHeader);
            (h.used, h.originals) = ((*m).area_used, (*p).originals as u64);
            h.table = (*p).table as u64;
            silent::retire(rw, (*m).area);
        }
        list_ranges(b);
        RESULT_DONE
    }
}

/// True if code that goes on at `rip` must do so before the agent goes: in the agent, and in the
/// routines, which use a thread block. A slot is left in whatever way it likes, except that the
/// callee of one would have a return address of ours, which is avoided unless it is `anyway`.
unsafe fn must_leave(rip: u64, anyway: bool) -> bool {
    // SAFETY: reads the module table.
    unsafe {
        let m = modules::of_area(rip);
        if m.is_null() {
            return frame::is_agent(rip);
        }
        !anyway || rip - (*m).area < SLOTS_START as u64
    }
}

/// Gives all stacks their return addresses back; true if somebody is still on the way through an
/// area.
unsafe fn give_back(b: &AttachBlock, contexts: &mut Contexts) -> bool {
    // SAFETY: as in detach.
    unsafe {
        let anyway = b.command.load(Ordering::Relaxed) == COMMAND_DETACH_ANYWAY;
        restore::give_back_all();
        originals::give_back_all();
        give_back_dropped();
        let threads: *mut AttachThread = stopped::table(b, b.threads_at);
        let mut inside = false;
        for i in 0..b.threads as usize {
            let t = &mut *threads.add(i);
            if !modules::of_area(t.rip).is_null() {
                // Not left to run on: the callee's return address would be ours.
                if context::move_thread(block_of(t.tid), &mut t.registers) {
                    t.moved = 1;
                    (t.rsp, t.rip) = (t.registers[15], t.registers[16]);
                } else {
                    inside |= must_leave(t.rip, anyway);
                }
            }
            restore::scan(t.rsp & !7, t.stack_end);
            // Also those of handlers that do not block their signal.
            let interrupted = context::move_contexts(core::ptr::null_mut(), t.rsp, u64::MAX);
            for start in interrupted.into_iter().filter(|s| *s != 0) {
                restore::scan(start & !7, start + INTERRUPTED_BYTES);
            }
            inside |= look_at_contexts(t.rsp, t.mask, anyway, contexts);
        }
        inside
    }
}

/// The block of a thread, or null.
unsafe fn block_of(tid: u32) -> *mut Hot {
    // SAFETY: blocks stay mapped.
    unsafe {
        let mut hot = (*state::process()).blocks;
        while !hot.is_null() && (*hot).tid != tid {
            hot = (*hot).next as *mut Hot;
        }
        hot
    }
}

/// Further apart than this they were not dropped from one stack.
const DROPPED_BYTES: u64 = 16 << 20;

/// The same for frames that were given up: they may be alive, on a stack that no thread is on now.
unsafe fn give_back_dropped() {
    // SAFETY: blocks stay mapped; memory is read through the kernel.
    unsafe {
        let mut hot = (*state::process()).blocks;
        while !hot.is_null() {
            let [low, high] = (*hot).dropped;
            if high != 0 && high - low < DROPPED_BYTES {
                restore::scan(low & !7, high);
            }
            hot = (*hot).next as *mut Hot;
        }
    }
}

/// Of the stack that a handler interrupted, looked through at most.
const INTERRUPTED_BYTES: u64 = 1 << 20;

/// Notes where the contexts of signal frames above `above` go on; true if that is where they must
/// leave.
unsafe fn look_at_contexts(above: u64, mask: u64, anyway: bool, contexts: &mut Contexts) -> bool {
    // SAFETY: memory is read through the kernel.
    unsafe {
        if !handlers::learn() {
            return false;
        }
        let mut inside = false;
        // Handlers that do not block their signal cannot be told from what an earlier signal has
        // left: between bytes that change nobody may stand, but nobody is waited for.
        for (mask, is_certain) in [(mask, true), (u64::MAX, false)] {
            let handled = handlers::handled_in(mask);
            let mut from = above & !7;
            for _ in 0..if handled == 0 { 0 } else { sigframe::NESTED } {
                let Some((_, context)) = sigframe::find(from, handled) else {
                    break;
                };
                let rip = context[sigframe::RIP];
                inside |= is_certain && must_leave(rip, anyway) || !contexts.add(rip);
                from = context[sigframe::RSP] & !7;
            }
        }
        inside
    }
}

/// Writes down what may be unmapped now: all but the areas and what hooks have replaced.
unsafe fn list_ranges(b: &AttachBlock) {
    // SAFETY: as in detach; the last pair is kept for the end.
    unsafe {
        let list: *mut [u64; 2] = stopped::table(b, b.ranges_at);
        let mut count = 0;
        let mut add = |start: u64, bytes: u64| {
            if start != 0 && bytes != 0 && count + 1 < b.ranges as usize {
                list.add(count)
                    .write([start, (bytes + PAGE - 1) & !(PAGE - 1)]);
                count += 1;
            }
        };
        process_memory(&mut add);
        let p = state::process();
        for i in 0..(*p).module_count as usize {
            let m = &(*p).modules[i];
            let Some(plan) = &m.plan else {
                continue;
            };
            add(m.area_rw, m.area_bytes);
            add(m.functions as u64, modules::function_bytes(plan));
            // There is nothing that its slots could lead back to, or nothing has led there.
            let is_empty = m.area_used <= SLOTS_START as u64;
            let is_unused = is_empty && (m.is_private != 0 || (*p).was_active == 0);
            if m.gone != 0 || is_unused {
                add(m.area, m.area_bytes);
            }
        }
        list.add(count).write([0; 2]);
    }
}

/// Gives all ranges that were mapped for the agent, but for what belongs to a module and what hooks
/// have replaced.
pub unsafe fn process_memory(add: &mut dyn FnMut(u64, u64)) {
    // SAFETY: reads the process block.
    unsafe {
        let p = state::process();
        // What was not mapped yet is at zero.
        let mut add = |start: u64, bytes: u64| {
            if start != 0 {
                add(start, bytes);
            }
        };
        add((*p).fork_page as u64, PAGE);
        add((*p).table as u64, ((1u64 << TABLE_BITS) + 512) * 8);
        add(
            (*p).padding as u64,
            (PADDINGS * size_of::<Padding>()) as u64,
        );
        let mut hot = (*p).blocks;
        while !hot.is_null() {
            add(hot as u64 - HOT as u64, BLOCK_BYTES as u64);
            if (*hot).pieces != 0 {
                add((*hot).pieces, PIECES_BYTES as u64);
            }
            for [start, bytes] in (*hot).grown {
                add(start, bytes);
            }
            hot = (*hot).next as *mut Hot;
        }
        add((*p).nobody, BLOCK_BYTES as u64);
    }
}
