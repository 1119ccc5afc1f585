//! Commands of the host to the agent of a running process, carried out on the agent's own stack by
//! a thread that the host leads here ([`sptrace_wire::attach`]).
//!
//! *Prepare* maps what will be needed, beside the program. *Adopt* and *Activate* find all other
//! threads stopped, and outside of the agent. *Adopt* gives every thread its block, with a shadow
//! frame for each call that is open; these frames are entry-only, since their return addresses stay
//! what they are. *Activate* patches the functions that are on the stacks, as if those had been
//! reached by a call, and intercepts the special functions. The host sets the threads' gs bases
//! between the two: should it be killed, the kernel lets all threads run at once, beside the one
//! that patches, and what they run into must serve them. *Detach*: [`crate::life::detach`].
//!
//! Where a thread stands, or will return to, in the middle of bytes that a patch covers, there is
//! no patch.

use crate::frames::shadow;
use crate::life::{detach, gate};
use crate::memory::state::{ForkPage, HOT, INSTRUMENTED, Module, TABLE_BITS};
use crate::memory::{lock, state, stopped, sys};
use crate::patch::special;
use crate::plans::{modules, plan};
use crate::reach::{module, propagate, thread};
use crate::record::{chunk, deep};
use crate::routines::silent;
use core::sync::atomic::Ordering;
use sptrace_wire::attach::*;
use sptrace_wire::control::{Control, IMAGE_BEFORE_BYTES, hole};
use sptrace_wire::record;
use sptrace_wire::record::FRAME_OPEN;

/// Carries out the command in `block`.
///
/// # Safety
/// The arena is mapped as `sptrace-wire` says; signals are blocked; one command at a time.
pub unsafe fn command(arena: *mut u8, block: *mut AttachBlock) {
    // SAFETY: the host wrote the block and waits.
    unsafe {
        let b = &*block;
        let result = match b.command.load(Ordering::Relaxed) {
            COMMAND_PREPARE => prepare(arena, b),
            COMMAND_ADOPT => with_all_stopped(b, adopt),
            COMMAND_ACTIVATE => with_all_stopped(b, activate),
            COMMAND_SILENCE => detach::silence(),
            COMMAND_GATE => gate::make(b),
            COMMAND_CLOSE => gate::close(b),
            COMMAND_DETACH | COMMAND_DETACH_ANYWAY => with_all_stopped(b, detach::detach),
            _ => RESULT_FAILED,
        };
        b.result.store(result, Ordering::Relaxed);
        b.done.store(1, Ordering::Release);
        sys::futex_wake(b.done.as_ptr(), 1);
    }
}

unsafe fn prepare(arena: *mut u8, b: &AttachBlock) -> u32 {
    // SAFETY: nobody else uses the agent yet.
    unsafe {
        let c = &*(arena as *const Control);
        if c.magic != sptrace_wire::MAGIC || c.version != sptrace_wire::VERSION {
            return RESULT_FAILED;
        }
        if !sys::may_write_text() {
            return RESULT_NOT_WRITABLE;
        }
        let p = state::process();
        if (*p).fork_page.is_null() && !make_tables(arena, b) {
            return RESULT_FAILED;
        }
        forget_gone(b);
        (*p).preparing = 1;
        let addresses: *const u64 = stopped::table(b, b.modules_at);
        for i in 0..b.modules as usize {
            module::find(addresses.add(i).read());
        }
        (*p).preparing = 0;
        // Looked at while the process stands still: it shall not wait for these pages then.
        for m in modules::modules().filter(|m| modules::is_planned(*m)) {
            specials_in_flight(m);
        }
        inherit(false);
        for m in modules::modules() {
            modules::keep_private(m);
        }
        RESULT_DONE
    }
}

/// What is made once in a process. False: no memory.
unsafe fn make_tables(arena: *mut u8, b: &AttachBlock) -> bool {
    // SAFETY: nobody else uses the agent yet.
    unsafe {
        let p = state::process();
        (*p).arena = arena;
        (*p).pid = sys::pid();
        thread::number();
        (*p).stack_top = b.stack_top;
        let fork_page = sys::map_private(4096) as *mut ForkPage;
        let entries = sys::map_private(((1usize << TABLE_BITS) + 512) * 8) as *mut u64;
        if fork_page.is_null() || entries.is_null() || !sys::wipe_on_fork(fork_page.cast(), 4096) {
            return false;
        }
        (*fork_page).mark = 1;
        (*p).fork_page = fork_page;
        (*p).table = entries;
        true
    }
}

/// Modules that the host has found unmapped are not touched any more.
unsafe fn forget_gone(b: &AttachBlock) {
    // SAFETY: the host wrote so many.
    unsafe {
        let gone: *const u64 = stopped::table(b, b.gone_at);
        for i in 0..b.gone as usize {
            let m = modules::known(gone.add(i).read());
            if !m.is_null() {
                (*m).gone = 1;
            }
        }
    }
}

/// Says whether children inherit arena, image, and what was mapped for the agent, but for what
/// belongs to a module. Without it they run as children of an untraced process: there is nothing of
/// ours in what they execute.
unsafe fn inherit(shall: bool) {
    // SAFETY: memory of ours; where nothing is mapped the kernel passes over.
    unsafe {
        let arena = (*state::process()).arena;
        let arena_bytes = (*(arena as *const Control)).arena_bytes;
        sys::inherit(
            arena as usize - IMAGE_BEFORE_BYTES as usize,
            (IMAGE_BEFORE_BYTES + arena_bytes) as usize,
            shall,
        );
        detach::process_memory(&mut |start, bytes| {
            sys::inherit(start as usize, bytes as usize, shall)
        });
    }
}

/// Runs a command that must know where the threads stand.
unsafe fn with_all_stopped(b: &AttachBlock, run: unsafe fn(&AttachBlock) -> u32) -> u32 {
    // SAFETY: all other threads are stopped, outside of the agent.
    unsafe {
        let p = state::process();
        forget_gone(b);
        (*p).pcs = stopped::table(b, b.pcs_at);
        (*p).pc_count = b.pcs;
        let result = run(b);
        (*p).pcs = core::ptr::null();
        (*p).pc_count = 0;
        result
    }
}

unsafe fn adopt(b: &AttachBlock) -> u32 {
    // SAFETY: as in with_all_stopped.
    unsafe {
        if modules::modules().any(|m| modules::is_planned(m) && specials_in_flight(m)) {
            return RESULT_AGAIN;
        }
        if !sys::may_write_text() {
            return RESULT_NOT_WRITABLE;
        }
        let threads: *mut AttachThread = stopped::table(b, b.threads_at);
        for i in 0..b.threads as usize {
            if !begin_thread(b, &mut *threads.add(i)) {
                return RESULT_FAILED;
            }
        }
        RESULT_DONE
    }
}

unsafe fn activate(b: &AttachBlock) -> u32 {
    // SAFETY: as in with_all_stopped.
    unsafe {
        let p = state::process();
        // The host may end at any moment, and then the other threads run: none may put the process
        // to rest before this is done. Nobody holds the lock where all are outside of the agent,
        // but one that died.
        if !lock::lock(sys::tid()) {
            return RESULT_FAILED;
        }
        // Before anything leads into an area: should the host end, a child needs it, too.
        inherit(true);
        let all = || modules::modules().filter(|m| (**m).plan.is_some());
        // A view of what children do not inherit would not be inherited either.
        all()
            .filter(|m| (**m).is_left != 0)
            .for_each(|m| modules::share(m));
        if !all().all(|m| module::move_in(m)) {
            lock::unlock();
            return RESULT_FAILED;
        }
        for m in all() {
            let rw = (*m).area_rw as *mut u8;
            if silent::is_silent(rw) {
                silent::wake(rw);
            }
        }
        for m in modules::modules().filter(|m| modules::is_planned(*m)) {
            special::install_specials(m);
            if (*m).base == b.loader {
                (*p).loader = b.loader;
                propagate::instrument_resolvers(m);
            }
        }
        if state::control().roots_only == 0 {
            let pcs: *const u64 = stopped::table(b, b.pcs_at);
            for i in 0..b.pcs as usize {
                instrument_around(pcs.add(i).read());
            }
        }
        if stopped::is_deserted() {
            lock::unlock();
            return RESULT_FAILED;
        }
        (*p).may_propagate = 1;
        (*p).was_active = 1;
        lock::unlock();
        RESULT_DONE
    }
}

/// A walker or another special function must not go unseen because somebody stands at its very
/// entry.
unsafe fn specials_in_flight(m: *const Module) -> bool {
    // SAFETY: reads the plan.
    unsafe {
        let mut specials =
            plan::specials(m).filter(|s| !s.kind.is_hook() && !s.kind.is_system_call());
        specials.any(|s| {
            let at = (*m).base + s.start as u64;
            stopped::is_in_flight(at, at + s.span as u64)
        })
    }
}

/// A stopped thread gets its block, with the calls that are open on its stack. False: that is
/// impossible.
unsafe fn begin_thread(b: &AttachBlock, t: &mut AttachThread) -> bool {
    // SAFETY: as in with_all_stopped.
    unsafe {
        t.gs_base = 0;
        let hot = thread::adopt(t.fs_base, (*state::process()).pid, t.tid);
        if hot.is_null() {
            state::count_hole(hole::TABLE_FULL);
            return false;
        }
        t.gs_base = hot as u64 - HOT as u64;
        if t.tid == sys::tid() {
            // The carrier; the host sets the others'.
            sys::set_gs_base(t.gs_base);
        }
        (*hot).stack_top = t.rsp;
        if state::control().roots_only != 0 {
            return true;
        }
        let frames: *const AttachFrame = stopped::table(b, b.frames_at);
        let first = t.first_frame.min(b.frames);
        let end = t.first_frame.saturating_add(t.frames).min(b.frames);
        for i in first..end {
            let frame = frames.add(i as usize).read();
            // Those of a handler on a stack above: its next event raises a barrier.
            if frame.rsp >= (*shadow::top(hot)).rsp || !deep::has_room_stopped(hot) {
                break;
            }
            let callee = match entry_around(frame.pc) {
                0 => frame.pc,
                entry => entry,
            };
            (*hot).stack_top = (*hot).stack_top.max(frame.rsp);
            chunk::put(hot, record::INHERITED, FRAME_OPEN);
            chunk::put(hot, record::INHERITED, callee);
            shadow::push(hot, frame.rsp, FRAME_OPEN, callee);
        }
        true
    }
}

/// The entry of the function around `address`, 0 if that is unknown.
unsafe fn entry_around(address: u64) -> u64 {
    // SAFETY: the module table is complete up to its count.
    unsafe {
        let m = modules::known(address);
        if m.is_null() {
            return 0;
        }
        let found = plan::function_around(m, address);
        found.map_or(0, |(_, f)| (*m).base + f.entry as u64)
    }
}

/// Patches the function around `address`, in which a stopped thread is.
unsafe fn instrument_around(address: u64) {
    // SAFETY: all other threads are stopped.
    unsafe {
        let m = modules::known(address);
        if m.is_null() {
            return;
        }
        if let Some((i, _)) = plan::function_around(m, address)
            && *(*m).functions.add(i as usize) != INSTRUMENTED
        {
            propagate::instrument(m, i, INSTRUMENTED);
        }
    }
}
