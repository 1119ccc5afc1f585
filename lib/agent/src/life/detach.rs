//! Detaching: the process becomes what it was before it was attached to, in its text, stacks and
//! contexts.
//!
//! Given a process whose threads are all stopped outside of the agent. (If the host is killed
//! meanwhile the threads run, and whatever could be done only while they stand is left undone.)
//! Puts back each place where bytes of ours stand. Kept calls, springboards and made room are put
//! back too, unless a thread stands between their bytes: then the host lets that thread run on and
//! asks again.
//!
//! Where return addresses are the program's own, a patch area goes too, unless somebody goes on in
//! it. Else the patch areas stay for the life of the process, with routines that need no agent
//! ([`crate::routines::silent::retire`]). A jmp_buf, a saved context or a coroutine's stack may
//! still hold an address in an area that was not found here, and it leads back to the program from
//! there. A later attach takes the areas up again ([`crate::reach::module`]). Everything else is
//! listed for the host, which unmaps it.

use crate::frames::handlers;
use crate::memory::pointers::Pointers;
use crate::memory::rows::Rows;
use crate::memory::state::{DORMANT, Edges, Paddings, TEXT_BACK, Table};
use crate::memory::table::Module;
use crate::memory::thread::Hot;
use crate::memory::word::Words;
use crate::memory::{counters, frame, state, stopped};
use crate::patch::pages::PAGE;
use crate::patch::undo::{Contexts, Undo};
use crate::patch::unpatch;
use crate::plans::{counted, modules};
use crate::reach::areas;
use crate::record::{originals, restore};
use crate::routines::{image, silent};
use crate::signals::{context, sigframe};
use core::mem::offset_of;
use core::sync::atomic::Ordering;
use sptrace_wire::attach::*;
use sptrace_wire::plan::*;

/// Nothing is recorded from here on; text and stacks stay as they are.
pub fn silence() -> u32 {
    let p = state::process();
    p.may_propagate.set(false);
    p.dormant.fetch_or(DORMANT | TEXT_BACK, Ordering::AcqRel);
    for m in p.known_modules() {
        silent::silence(m.area());
    }
    RESULT_DONE
}

/// Puts all back that can be put back now.
pub fn detach(b: &AttachBlock) -> u32 {
    let p = state::process();
    // A child that was made while its parent was being prepared may have less than that.
    if p.is_fresh_child() && !areas::own() {
        // What the parent goes on with must not change.
        return RESULT_FAILED;
    }
    silence();
    let mut undo = Undo::begin();
    let inside = give_back(b, &mut undo.contexts);
    let has_area = |m: &&Module| m.has_plan() && m.area_rw() != 0 && !m.is_private.get();
    let areas = p.known_modules().iter().filter(has_area);
    let mapped = || areas.clone().filter(|m| !m.gone.get());
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
        p.forget_pcs();
        unpatch::all();
        return RESULT_FAILED;
    }
    if undo.writer.failed {
        return RESULT_NOT_WRITABLE;
    }
    if inside || undo.busy > 0 {
        return RESULT_AGAIN;
    }
    areas.for_each(retire);
    // Where return addresses are the program's own, nothing leads to an area but the text, and what
    // others have written over a patch of ours.
    let is_free = counters::keeps_returns() && undo.foreign == 0;
    list_ranges(b, |m| is_free && !stands_in(b, m, &undo.contexts));
    RESULT_DONE
}

/// Leaves an area behind in which nothing needs the agent.
fn retire(m: &Module) {
    let p = state::process();
    let header = [
        (offset_of!(AreaHeader, used), m.area_used.get()),
        (offset_of!(AreaHeader, originals), p.originals.address()),
        (offset_of!(AreaHeader, table), p.table.address()),
    ];
    for (offset, value) in header {
        image::set(m.area(), offset, value);
    }
    silent::retire(m.area());
    if counters::has_cells() || p.has_values.get() {
        counted::retire(m);
    }
}

/// True if code that goes on at `rip` must do so before the agent goes: in the agent, and in the
/// routines, which use a thread block. A slot is left in whatever way it likes, except that the
/// callee of one would have a return address of ours, which is avoided unless it is `anyway`.
fn must_leave(rip: u64, anyway: bool) -> bool {
    match modules::area(rip) {
        Some(area) => !anyway || rip - area.start() < SLOTS_START as u64,
        None => frame::is_agent(rip),
    }
}

/// Gives all stacks their return addresses back; true if somebody is still on the way through an
/// area.
fn give_back(b: &AttachBlock, contexts: &mut Contexts) -> bool {
    let anyway = b.command.load(Ordering::Relaxed) == COMMAND_DETACH_ANYWAY;
    restore::give_back_all();
    originals::give_back_all();
    give_back_dropped();
    let mut inside = false;
    for i in 0..b.threads {
        let Some(mut t) = stopped::thread(b, i) else {
            break;
        };
        if modules::is_in_area(t.rip) {
            // Not left to run on: the callee's return address would be ours.
            if context::move_thread(block_of(t.tid), &mut t.registers) {
                t.moved = 1;
                (t.rsp, t.rip) = (t.registers[15], t.registers[16]);
                stopped::set_thread(b, i, t);
            } else {
                inside |= must_leave(t.rip, anyway);
            }
        }
        restore::scan(t.rsp & !7, t.stack_end);
        // Also those of handlers that do not block their signal.
        let interrupted = context::move_contexts(None, t.rsp, u64::MAX);
        for start in interrupted.into_iter().filter(|s| *s != 0) {
            restore::scan(start & !7, start + INTERRUPTED_BYTES);
        }
        inside |= look_at_contexts(t.rsp, t.mask, anyway, contexts);
    }
    inside
}

/// The block of a thread.
fn block_of(tid: u32) -> Option<&'static Hot> {
    state::process().threads().find(|hot| hot.tid.get() == tid)
}

/// Further apart than this they were not dropped from one stack.
const DROPPED_BYTES: u64 = 16 << 20;

/// The same for frames that were given up: they may be alive, on a stack that no thread is on now.
fn give_back_dropped() {
    for [low, high] in state::process().threads().map(|hot| hot.dropped.get()) {
        if high != 0 && high - low < DROPPED_BYTES {
            restore::scan(low & !7, high);
        }
    }
}

/// Of the stack that a handler interrupted, looked through at most.
const INTERRUPTED_BYTES: u64 = 1 << 20;

/// Notes where the contexts of signal frames above `above` go on; true if that is where they must
/// leave.
fn look_at_contexts(above: u64, mask: u64, anyway: bool, contexts: &mut Contexts) -> bool {
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

/// True if a thread goes on in a module's area, or one that a handler has interrupted may.
fn stands_in(b: &AttachBlock, m: &Module, contexts: &Contexts) -> bool {
    let (start, end) = (m.area_start(), m.area_start() + m.area_bytes());
    let is_there = |t: AttachThread| (start..end).contains(&t.rip);
    let mut threads = (0..b.threads).map_while(|i| stopped::thread(b, i));
    threads.any(is_there) || contexts.any_within(start - 1, end)
}

/// Writes down what may be unmapped now: all but what hooks have replaced, and the areas that are
/// not free.
fn list_ranges(b: &AttachBlock, is_free: impl Fn(&Module) -> bool) {
    let mut count = 0;
    // The last pair is kept for the end.
    let mut add = |start: u64, bytes: u64| {
        if start != 0 && bytes != 0 && count + 1 < b.ranges {
            stopped::set_range(b, count, [start, (bytes + PAGE - 1) & !(PAGE - 1)]);
            count += 1;
        }
    };
    process_memory(&mut add);
    let p = state::process();
    for m in p.known_modules() {
        let Some(plan) = m.plan() else {
            continue;
        };
        add(m.area_rw(), m.area_bytes());
        add(m.functions_at(), modules::function_bytes(&plan));
        // There is nothing that its slots could lead back to, or nothing has led there.
        let is_empty = m.area_used.get() <= SLOTS_START as u64;
        let is_unused = is_empty && (m.is_private.get() || !p.was_active.get());
        if m.gone.get() || is_unused || is_free(m) {
            add(m.area_start(), m.area_bytes());
        }
    }
    stopped::set_range(b, count, [0; 2]);
}

/// Gives all ranges that were mapped for the agent, but for what belongs to a module and what hooks
/// have replaced.
pub fn process_memory(add: &mut dyn FnMut(u64, u64)) {
    let p = state::process();
    // What was not mapped yet is at zero.
    let mut add = |start: u64, bytes: u64| {
        if start != 0 {
            add(start, bytes);
        }
    };
    add(p.fork_page.address(), PAGE);
    add(p.table.address(), size_of::<Table>() as u64);
    add(p.padding.address(), size_of::<Paddings>() as u64);
    add(p.rows.address(), size_of::<Rows>() as u64);
    add(p.pointers.address(), size_of::<Pointers>() as u64);
    add(p.edges_known.address(), size_of::<Edges>() as u64);
    for hot in p.threads() {
        add(hot.block(), counters::block_bytes() as u64);
        for [start, bytes] in hot.grown.iter().map(Words::get) {
            add(start, bytes);
        }
    }
    let nobody = p.nobody.get().map_or(0, Hot::block);
    add(nobody, counters::block_bytes() as u64);
}
