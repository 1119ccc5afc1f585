//! The process as it was before it was attached to: text, stacks, contexts.
//!
//! Given a process whose threads are all stopped outside of the agent, unless the host is killed meanwhile:
//! then they run, and what could be done only while they stand is left undone. A place is put back
//! if what stands there is ours; so are kept calls, springboards and the room made for them, unless somebody
//! stands between their bytes: then the host lets it run on and asks again.
//!
//! The patch areas stay for the life of the process, with routines that need no agent
//! ([`silent::retire`]): a return address, a jmp_buf, a context or a coroutine's stack that leads into one,
//! and was not found here, leads back to the program from there. A later attach takes them back
//! ([`module`]). Everything else is listed for the host to unmap.

use crate::attach::{is_in_flight, table};
use crate::patched::{Patch, Springboard, Stands, standing};
use crate::state::*;
use crate::{
    attach, context, dormant, handlers, hook, module, plan, sigframe, silent, sys, text, unblocked,
    unpatch,
};
use core::sync::atomic::Ordering;
use sptrace_wire::attach::*;
use sptrace_wire::plan::*;

const PAGE: u64 = 4096;
/// Springboards in padding: one call site in a thousand.
const PADDINGS: usize = 1 << 16;

/// What stood where a springboard was put.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Padding {
    at: u64,
    bytes: [u8; 8],
}

/// Keeps the five bytes at `at`, under the propagation lock. False: no room.
pub unsafe fn keep_padding(at: u64) -> bool {
    // SAFETY: text of a module; the table is changed under the lock only.
    unsafe {
        let p = process();
        if (*p).padding.is_null() {
            (*p).padding = sys::map_private(PADDINGS * size_of::<Padding>()) as *mut Padding;
        }
        let count = (*p).padding_count as usize;
        if (*p).padding.is_null() || count >= PADDINGS {
            return false;
        }
        let mut bytes = [0; 8];
        core::ptr::copy_nonoverlapping(at as *const u8, bytes.as_mut_ptr(), 5);
        (*p).padding.add(count).write(Padding { at, bytes });
        (*p).padding_count += 1;
        true
    }
}

/// Written at once.
const WINDOW_BYTES: u64 = 64 * PAGE;

/// Text being written: a copy of contiguous pages that all hold something to write.
struct Writer {
    start: u64,
    end: u64,
    copy: *mut u8,
    failed: bool,
}

impl Writer {
    unsafe fn write(&mut self, at: u64, bytes: &[u8]) {
        let first = at & !(PAGE - 1);
        let end = (at + bytes.len() as u64 + PAGE - 1) & !(PAGE - 1);
        // SAFETY: text pages that hold patches of ours, and a copy as large as a window.
        unsafe {
            if first < self.start || first > self.end || end - self.start > WINDOW_BYTES {
                self.close();
            }
            if self.copy.is_null() {
                (self.start, self.end) = (first, first);
                self.copy = sys::map_private(WINDOW_BYTES as usize);
                if self.copy.is_null() {
                    self.failed = true;
                    return;
                }
            }
            if end > self.end {
                let more = (end - self.end) as usize;
                let to = self.copy.add((self.end - self.start) as usize);
                core::ptr::copy_nonoverlapping(self.end as *const u8, to, more);
                self.end = end;
            }
            let to = self.copy.add((at - self.start) as usize);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Puts the copy in the place of the pages; where nobody else can execute, its bytes alone.
    unsafe fn close(&mut self) {
        // SAFETY: what write has made.
        unsafe {
            if self.copy.is_null() {
                return;
            }
            let bytes = (self.end - self.start) as usize;
            let (start, copy) = (self.start as usize, self.copy as usize);
            if sys::alone() {
                if sys::protect(start, bytes, sys::PROT_RW) {
                    core::ptr::copy_nonoverlapping(self.copy, start as *mut u8, bytes);
                } else {
                    self.failed = true;
                }
                // Joining the mapping again needs no memory; should it fail all the same, once more.
                self.failed |= !sys::protect(start, bytes, sys::PROT_RX)
                    && !sys::protect(start, bytes, sys::PROT_RX);
                sys::unmap(copy, WINDOW_BYTES as usize);
            } else if text::put_over(self.copy, bytes, self.start) {
                sys::unmap(copy + bytes, WINDOW_BYTES as usize - bytes);
            } else {
                self.failed = true;
                sys::unmap(copy, WINDOW_BYTES as usize);
            }
            (self.start, self.end, self.copy) = (0, 0, core::ptr::null_mut());
        }
    }
}

/// Nothing is recorded from here on; text and stacks stay as they are.
pub unsafe fn silence() -> u32 {
    // SAFETY: the areas are mapped; one store for each routine.
    unsafe {
        let p = process();
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
        let p = process();
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
            // While somebody is, he may leave a return address of ours behind, and walkers must be served.
            mapped().for_each(|m| undo.specials(m));
        }
        undo.writer.close();
        b.foreign.store(undo.foreign, Ordering::Relaxed);
        if attach::is_deserted() {
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

/// Contexts of interrupted code at most; with more of them nothing is certain.
const CONTEXTS: usize = 512;

/// Where interrupted code in the text goes on.
struct Contexts {
    rips: [u64; CONTEXTS],
    count: usize,
}

impl Contexts {
    fn add(&mut self, rip: u64) -> bool {
        if let Some(free) = self.rips.get_mut(self.count) {
            *free = rip;
            self.count += 1;
        }
        self.count < CONTEXTS
    }

    fn any_within(&self, start: u64, end: u64) -> bool {
        let rips = self.rips.get(..self.count).unwrap_or(&[]);
        rips.iter().any(|rip| *rip > start && *rip < end)
    }
}

/// True if code that goes on at `rip` must do so before the agent goes: in the agent, and in the routines,
/// which use a thread block. A slot is left in whatever way it likes, except that the callee of one would
/// have a return address of ours, which is avoided unless it is `anyway`.
unsafe fn must_leave(rip: u64, anyway: bool) -> bool {
    // SAFETY: reads the module table.
    unsafe {
        let m = module::of_area(rip);
        if m.is_null() {
            return unblocked::is_agent(rip);
        }
        !anyway || rip - (*m).area < SLOTS_START as u64
    }
}

/// Gives all stacks their return addresses back; true if somebody is still on the way through an area.
unsafe fn give_back(b: &AttachBlock, contexts: &mut Contexts) -> bool {
    // SAFETY: as in detach.
    unsafe {
        let anyway = b.command.load(Ordering::Relaxed) == COMMAND_DETACH_ANYWAY;
        dormant::give_back_all();
        hook::give_back_all();
        give_back_dropped();
        let threads: *mut AttachThread = table(b, b.threads_at);
        let mut inside = false;
        for i in 0..b.threads as usize {
            let t = &mut *threads.add(i);
            if !module::of_area(t.rip).is_null() {
                // Not left to run on: the callee's return address would be ours.
                if context::move_thread(&mut t.registers) {
                    t.moved = 1;
                    (t.rsp, t.rip) = (t.registers[15], t.registers[16]);
                } else {
                    inside |= must_leave(t.rip, anyway);
                }
            }
            dormant::scan(t.rsp & !7, t.stack_end);
            // Also those of handlers that do not block their signal.
            let interrupted = context::move_contexts(core::ptr::null_mut(), t.rsp, u64::MAX);
            for start in interrupted.into_iter().filter(|s| *s != 0) {
                dormant::scan(start & !7, start + INTERRUPTED_BYTES);
            }
            inside |= look_at_contexts(t.rsp, t.mask, anyway, contexts);
        }
        inside
    }
}

/// Further apart than this they were not dropped from one stack.
const DROPPED_BYTES: u64 = 16 << 20;

/// The same for frames that were given up: they may be alive, on a stack that no thread is on now.
unsafe fn give_back_dropped() {
    // SAFETY: blocks stay mapped; memory is read through the kernel.
    unsafe {
        let mut hot = (*process()).blocks;
        while !hot.is_null() {
            let [low, high] = (*hot).dropped;
            if high != 0 && high - low < DROPPED_BYTES {
                dormant::scan(low & !7, high);
            }
            hot = (*hot).next as *mut Hot;
        }
    }
}

/// Of the stack that a handler interrupted, looked through at most.
const INTERRUPTED_BYTES: u64 = 1 << 20;

/// Notes where the contexts of signal frames above `above` go on; true if that is where they must leave.
unsafe fn look_at_contexts(above: u64, mask: u64, anyway: bool, contexts: &mut Contexts) -> bool {
    // SAFETY: memory is read through the kernel.
    unsafe {
        if !handlers::learn() {
            return false;
        }
        let mut inside = false;
        // Handlers that do not block their signal cannot be told from what an earlier signal has left:
        // between bytes that change nobody may stand, but nobody is waited for.
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

struct Undo {
    writer: Writer,
    contexts: Contexts,
    foreign: u64,
    busy: u64,
}

impl Undo {
    unsafe fn specials(&mut self, m: *const Module) {
        // SAFETY: reads the plan; the text is mapped.
        unsafe {
            for p in plan::specials(m).filter_map(|s| Patch::of_special(m, &s)) {
                self.put_back(p.at, p.ours.bytes(), p.overwritten());
            }
        }
    }

    unsafe fn sites(&mut self, m: *const Module) {
        // SAFETY: reads the plan; the text is mapped.
        unsafe {
            for (i, f) in plan::functions(m) {
                if *(*m).functions.add(i as usize) == UNTOUCHED {
                    continue;
                }
                for s in plan::sites_of(m, f).filter(|s| !s.is_any(SITE_IN_HOOK)) {
                    let Some(p) = Patch::of_site(m, &s) else {
                        continue;
                    };
                    match Springboard::of_site(m, &s) {
                        Some(spring) => self.springboard(&p, &spring),
                        None => self.put_back(p.at, p.ours.bytes(), p.overwritten()),
                    }
                }
            }
        }
    }

    unsafe fn springboard(&mut self, p: &Patch, spring: &Springboard) {
        // SAFETY: the text is mapped.
        unsafe {
            if standing(p.at, p.ours.bytes(), p.overwritten()) != Stands::Ours {
                return;
            }
            // Somebody may stand at the long jump, which only we know of.
            if self.is_busy(spring.at.wrapping_sub(1), spring.at + 5) {
                return;
            }
            self.put_back(p.at, p.ours.bytes(), p.overwritten());
            let Some(room) = spring.room else {
                if let Some(padding) = padding(spring.at) {
                    self.put_back(spring.at, &spring.jump, &padding[..5]);
                }
                return;
            };
            let end = room.start + room.original.len() as u64;
            if self.is_busy(room.start, end)
                || standing(spring.at, &spring.jump, &[]) != Stands::Ours
            {
                return;
            }
            if standing(room.start, &room.jump, room.original) == Stands::Ours {
                self.writer.write(room.start, room.original);
            } else {
                self.foreign += 1;
            }
        }
    }

    unsafe fn put_back(&mut self, at: u64, ours: &[u8], original: &[u8]) {
        // SAFETY: text of a module that is mapped.
        unsafe {
            match standing(at, ours, original) {
                Stands::Ours if !self.is_busy(at, at + original.len() as u64) => {
                    self.writer.write(at, original);
                }
                Stands::Foreign => self.foreign += 1,
                _ => {}
            }
        }
    }

    unsafe fn is_busy(&mut self, start: u64, end: u64) -> bool {
        // SAFETY: reads the host's list.
        let busy = unsafe { is_in_flight(start, end) } || self.contexts.any_within(start, end);
        self.busy += u64::from(busy);
        busy
    }
}

unsafe fn padding(at: u64) -> Option<[u8; 8]> {
    // SAFETY: entries up to the count are complete.
    unsafe {
        let p = process();
        (0..(*p).padding_count as usize)
            .map(|i| (*p).padding.add(i).read())
            .find(|padding| padding.at == at)
            .map(|padding| padding.bytes)
    }
}

/// Writes down what may be unmapped now: all but the areas and what hooks have replaced.
unsafe fn list_ranges(b: &AttachBlock) {
    // SAFETY: as in detach; the last pair is kept for the end.
    unsafe {
        let list: *mut [u64; 2] = attach::table(b, b.ranges_at);
        let mut count = 0;
        let mut add = |start: u64, bytes: u64| {
            if start != 0 && bytes != 0 && count + 1 < b.ranges as usize {
                list.add(count)
                    .write([start, (bytes + PAGE - 1) & !(PAGE - 1)]);
                count += 1;
            }
        };
        process_memory(&mut add);
        let p = process();
        for i in 0..(*p).module_count as usize {
            let m = &(*p).modules[i];
            let Some(plan) = &m.plan else {
                continue;
            };
            add(m.area_rw, m.area_bytes);
            add(m.functions as u64, module::function_bytes(plan));
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

/// Gives all ranges that were mapped for the agent, but for what belongs to a module and what hooks have replaced.
pub unsafe fn process_memory(add: &mut dyn FnMut(u64, u64)) {
    // SAFETY: reads the process block.
    unsafe {
        let p = process();
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
            for [start, bytes] in (*hot).grown {
                add(start, bytes);
            }
            hot = (*hot).next as *mut Hot;
        }
        add((*p).nobody, BLOCK_BYTES as u64);
    }
}
