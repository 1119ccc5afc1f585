//! Commands of the host to the agent of a running process, carried out on the agent's own stack by
//! a thread that the host leads here ([`sptrace_wire::attach`]).
//!
//! *Prepare* maps what will be needed, beside the program. *Adopt* and *Activate* find all other
//! threads stopped, and outside of the agent. *Adopt* gives every thread its block, with a shadow
//! frame for each call that is open. These frames are entry-only, since their return addresses stay
//! what they are, unless their ends are seen where they return to. *Activate* patches the functions
//! that are on the stacks, as if those had been reached by a call, and intercepts the special
//! functions. The host sets the threads' gs bases between the two: should it be killed, the kernel
//! lets all threads run at once, beside the one that patches, and what they run into must serve
//! them. *Detach*: [`crate::life::detach`].
//!
//! Where a thread stands, or will return to, in the middle of bytes that a patch covers, there is
//! no patch.

use crate::frames::shadow;
use crate::life::{detach, gate};
use crate::memory::state::Arena;
use crate::memory::table::{INSTRUMENTED, Module};
use crate::memory::{counters, lock, state, stopped, sys};
use crate::patch::special;
use crate::plans::{modules, plan};
use crate::reach::{areas, handler, instrument, module, return_points, thread};
use crate::record::{chunk, deep};
use crate::routines::silent;
use core::sync::atomic::Ordering;
use sptrace_wire::attach::*;
use sptrace_wire::control::{IMAGE_BEFORE_BYTES, hole};
use sptrace_wire::record;
use sptrace_wire::record::{FRAME_FOUND, FRAME_OPEN};

/// Carries out the command in `block`.
///
/// # Safety
/// The arena is mapped as `sptrace-wire` says; signals are blocked; one command at a time.
pub unsafe fn command(arena: *mut u8, block: *mut AttachBlock) {
    // SAFETY: the host wrote the block and waits.
    let b = unsafe { &*block };
    let result = match b.command.load(Ordering::Relaxed) {
        // SAFETY: the caller's.
        COMMAND_PREPARE => prepare(unsafe { Arena::at(arena) }, b),
        COMMAND_ADOPT => with_all_stopped(b, adopt),
        COMMAND_ACTIVATE => with_all_stopped(b, activate),
        COMMAND_SILENCE => detach::silence(),
        COMMAND_GATE => gate::make(b),
        COMMAND_CLOSE => gate::close(b),
        COMMAND_POINTS => with_all_stopped(b, patch_points_left),
        COMMAND_DETACH | COMMAND_DETACH_ANYWAY => with_all_stopped(b, detach::detach),
        _ => RESULT_FAILED,
    };
    b.result.store(result, Ordering::Relaxed);
    b.done.store(1, Ordering::Release);
    sys::futex_wake(&b.done, 1);
}

fn prepare(arena: Option<Arena>, b: &AttachBlock) -> u32 {
    let Some(arena) = arena else {
        return RESULT_FAILED;
    };
    if !sys::may_write_text() {
        return RESULT_NOT_WRITABLE;
    }
    let p = state::process();
    if p.fork_page.get().is_none() {
        p.begin_with(&arena);
        p.pid.set(sys::pid());
        thread::number();
        counters::begin_process();
        p.stack_top.set(b.stack_top);
        if !p.make_tables() {
            return RESULT_FAILED;
        }
    }
    forget_gone(b);
    p.preparing.set(true);
    for address in stopped::addresses(b, b.modules_at, b.modules.into()) {
        module::find(*address);
    }
    p.preparing.set(false);
    // Looked at while the process stands still: it shall not wait for these pages then.
    for m in modules::modules().filter(|m| m.is_planned()) {
        specials_in_flight(m);
    }
    inherit(false);
    for m in modules::modules() {
        modules::keep_private(m);
    }
    RESULT_DONE
}

/// Modules that the host has found unmapped are not touched any more.
fn forget_gone(b: &AttachBlock) {
    for address in stopped::addresses(b, b.gone_at, b.gone) {
        if let Some(m) = modules::known(*address) {
            m.gone.set(true);
        }
    }
}

/// Says whether children inherit arena, image, and what was mapped for the agent, but for what
/// belongs to a module. Without it they run as children of an untraced process: there is nothing of
/// ours in what they execute.
fn inherit(shall: bool) {
    let arena = state::process().arena();
    let arena_bytes = state::control().arena_bytes;
    sys::inherit(
        arena as usize - IMAGE_BEFORE_BYTES as usize,
        (IMAGE_BEFORE_BYTES + arena_bytes) as usize,
        shall,
    );
    detach::process_memory(&mut |start, bytes| sys::inherit(start as usize, bytes as usize, shall));
}

/// Runs a command that must know where the threads stand.
fn with_all_stopped(b: &AttachBlock, run: fn(&AttachBlock) -> u32) -> u32 {
    forget_gone(b);
    let pcs = stopped::addresses(b, b.pcs_at, b.pcs.into());
    state::process().with_pcs(pcs, || run(b))
}

fn adopt(b: &AttachBlock) -> u32 {
    if modules::modules().any(|m| m.is_planned() && specials_in_flight(m)) {
        return RESULT_AGAIN;
    }
    if !sys::may_write_text() {
        return RESULT_NOT_WRITABLE;
    }
    for i in 0..b.threads {
        let Some(mut t) = stopped::thread(b, i) else {
            break;
        };
        let begun = begin_thread(b, &mut t);
        stopped::set_thread(b, i, t);
        if !begun {
            return RESULT_FAILED;
        }
    }
    RESULT_DONE
}

fn activate(b: &AttachBlock) -> u32 {
    let p = state::process();
    // The host may end at any moment, and then the other threads run: none may put the process
    // to rest before this is done. Nobody holds the lock where all are outside of the agent,
    // but one that died.
    if !lock::lock(sys::tid()) {
        return RESULT_FAILED;
    }
    // Before anything leads into an area: should the host end, a child needs it, too.
    inherit(true);
    let all = || modules::modules().filter(|m| m.has_plan());
    // A view of what children do not inherit would not be inherited either.
    all().filter(|m| m.is_left.get()).for_each(modules::share);
    if !all().all(areas::move_in) {
        lock::unlock();
        return RESULT_FAILED;
    }
    for area in all().map(Module::area) {
        if silent::is_silent(area) {
            silent::wake(area);
        }
    }
    for m in modules::modules().filter(|m| m.is_planned()) {
        special::install_specials(m);
        if m.base.get() == b.loader {
            p.loader.set(b.loader);
            instrument::instrument_resolvers(m);
        }
    }
    handler::watch_all();
    // All that runs from here on began before anybody saw it; and goroutines may stand where no
    // thread is.
    p.runs_unseen.set(p.small_stacks.get());
    if state::control().roots_only == 0 {
        for pc in p.pcs().unwrap_or(&[]) {
            instrument_around(*pc);
        }
        for i in 0..b.threads {
            open_unseen(b, i);
        }
    } else {
        all().for_each(return_points::patch_calls_of_roots);
    }
    // All that runs from here on began before anybody saw it.
    p.runs_unseen.set(true);
    if stopped::is_deserted() {
        lock::unlock();
        return RESULT_FAILED;
    }
    p.may_propagate.set(true);
    p.was_active.set(true);
    lock::unlock();
    RESULT_DONE
}

fn patch_points_left(_: &AttachBlock) -> u32 {
    let p = state::process();
    // What a fork child has is its parent's until its first event.
    if p.is_fresh_child() || !p.may_propagate.get() {
        return RESULT_DONE;
    }
    // Nobody holds the lock, as in activate.
    if stopped::is_deserted() || !lock::lock(sys::tid()) {
        return RESULT_FAILED;
    }
    let is_there = |m: &&Module| m.has_plan() && !m.gone.get() && !m.doubtful.get();
    let all = modules::modules().filter(is_there);
    all.for_each(return_points::patch_left);
    lock::unlock();
    RESULT_DONE
}

/// A walker or another special function must not go unseen because somebody stands at its very
/// entry.
fn specials_in_flight(m: &Module) -> bool {
    let mut specials =
        plan::specials(m).filter(|s| !s.kind.is_hook() && !s.kind.is_for_system_calls());
    specials.any(|s| {
        let at = m.base.get() + s.start as u64;
        stopped::is_in_flight(at, at + s.span as u64)
    })
}

/// A stopped thread gets its block, with the calls that are open on its stack. False: that is
/// impossible.
fn begin_thread(b: &AttachBlock, t: &mut AttachThread) -> bool {
    t.gs_base = 0;
    let Some(hot) = thread::adopt(t.fs_base, state::process().pid.get(), t.tid) else {
        state::count_hole(hole::TABLE_FULL);
        return false;
    };
    t.gs_base = hot.block();
    if t.tid == sys::tid() {
        // The carrier; the host sets the others'.
        hot.make_current();
    }
    hot.stack_top.set(t.rsp);
    if state::control().roots_only != 0 {
        return true;
    }
    let first = t.first_frame.min(b.frames);
    let end = t.first_frame.saturating_add(t.frames).min(b.frames);
    for frame in (first..end).map_while(|i| stopped::frame(b, i)) {
        // Those of a handler on a stack above: its next event raises a barrier.
        if frame.rsp >= hot.top().rsp() || !deep::has_room_stopped(hot) {
            break;
        }
        let callee = match entry_around(frame.pc) {
            0 => frame.pc,
            entry => entry,
        };
        let seen = match counters::keeps_returns() {
            true => return_points::open_call(frame.return_address),
            false => None,
        };
        hot.stack_top.raise(frame.rsp);
        chunk::put_place(hot, frame.rsp);
        let told = seen.map_or(FRAME_OPEN, |id| id | FRAME_FOUND);
        chunk::put(hot, record::INHERITED, told);
        chunk::put(hot, record::INHERITED, callee);
        shadow::push(hot, frame.rsp, seen.unwrap_or(FRAME_OPEN), callee);
    }
    true
}

/// Of the calls that are open in thread `i`, those have no end whose return points could not be
/// patched.
fn open_unseen(b: &AttachBlock, i: u32) {
    let thread = stopped::thread(b, i).filter(|_| counters::keeps_returns());
    let hot = |t: &AttachThread| {
        state::process()
            .threads()
            .find(|hot| hot.tid.get() == t.tid)
    };
    let Some((t, hot)) = thread.and_then(|t| Some((t, hot(&t)?))) else {
        return;
    };
    let mut at = hot.bottom();
    for frame in (0..t.frames).map_while(|k| stopped::frame(b, t.first_frame + k)) {
        at = at.above();
        if at > hot.top() || at.rsp() != frame.rsp {
            break;
        }
        if at.id() & FRAME_OPEN == 0 && !return_points::sees_return(frame.return_address) {
            at.mark(FRAME_OPEN);
        }
    }
}

/// The entry of the function around `address`, 0 if that is unknown.
fn entry_around(address: u64) -> u64 {
    let entry = |m: &Module| {
        let (_, f) = plan::function_around(m, address)?;
        Some(m.base.get() + f.entry as u64)
    };
    modules::known(address).and_then(entry).unwrap_or(0)
}

/// Patches the function around `address`, in which a stopped thread is.
fn instrument_around(address: u64) {
    if let Some(m) = modules::known(address)
        && let Some((i, _)) = plan::function_around(m, address)
        && m.function(i) != INSTRUMENTED
    {
        instrument::instrument(m, i, INSTRUMENTED);
    }
}
