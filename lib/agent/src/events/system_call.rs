//! Calls of the kernel: what is recorded before and after the instruction that makes one.
//!
//! Given the program's registers at such an instruction ([`crate::memory::frame::Frame`]); writes
//! the call's number, arguments and result, with the memory that shows them
//! ([`crate::record::capture`]), and keeps a shadow frame while it lasts, so that what a handler
//! does meanwhile is nested in it. Says by which way of the slot the instruction is executed: one
//! comes back here, one only if it is no child that does, one never does.
//!
//! Must not know how a record is stored, nor what a call means.

use crate::events::active::{Orders, Place};
use crate::events::acts;
use crate::events::exec::Exec;
use crate::events::hook;
use crate::events::system_returns;
use crate::frames::handlers;
use crate::frames::shadow::{self, FRAME_DONE};
use crate::memory::frame::{Frame, Vectors};
use crate::memory::thread::{FrameAt, Hot};
use crate::memory::{certain, reading, sandbox, state, sys};
use crate::reach::{handler, thread};
use crate::record::capture::{Captures, asked_descriptors, unwanted_results};
use crate::record::{chunk, deep, due, on_paths, settle};
use crate::routines::quick;
use core::sync::atomic::{AtomicU64, Ordering};
use sptrace_wire::plan::{
    SYSTEM_CALL_ALONE, SYSTEM_CALL_ALONE_ID, SYSTEM_CALL_EXIT, SYSTEM_CALL_UNSEEN,
};
use sptrace_wire::record::{self, FRAME_OPEN, FRAME_SYSTEM};
use sptrace_wire::values::{UNKNOWN_NUMBER, When};

/// Below the stack pointer of the instruction the routine's return address lies (System V ABI for
/// x86-64, section 3.2.2: the red zone).
pub(super) const RED_ZONE_BYTES: u64 = 128;

/// Of the `call` of a routine, behind which its id lies.
const ROUTINE_CALL_BYTES: u64 = 5;

const RT_SIGACTION: u32 = 13;
const RT_SIGRETURN: u32 = 15;
const CLONE: u32 = 56;
const VFORK: u32 = 58;
const EXIT: u32 = 60;
const SET_TID_ADDRESS: u32 = 218;
const EXIT_GROUP: u32 = 231;
const CLONE3: u32 = 435;
/// Flags of clone(2).
const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;

/// By which way of the slot the instruction is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// It comes back to the routine.
    Nested,
    /// A child may come out of it, on another stack or on ours.
    Alone,
    /// It does not come back.
    Never,
}

/// What a call does to the thread; `flags`: of those that make one.
pub(super) fn way(number: u32, flags: u64) -> Way {
    match number {
        RT_SIGRETURN | EXIT | EXIT_GROUP => Way::Never,
        VFORK => Way::Alone,
        CLONE | CLONE3 if flags & CLONE_VM != 0 => Way::Alone,
        _ => Way::Nested,
    }
}

/// An instruction that calls the kernel is about to be executed; `above`: behind the routine's
/// return address.
pub fn enter(hot: &Hot, f: &mut Frame, vectors: &Vectors, above: u64) {
    let (number, args) = (f.rax as u32, arguments(f));
    let exit = f.id + SYSTEM_CALL_EXIT;
    reading::over(hot, above + RED_ZONE_BYTES);
    learn(hot, above + RED_ZONE_BYTES);
    // Also where the call is not recorded.
    prepare(hot, above + RED_ZONE_BYTES, number, args);
    let captures = Captures::of(number).filter(|_| hot.muted.get() == 0);
    let Some(captures) = captures.filter(|captures| is_asked(captures, &args)) else {
        // One that takes memory away comes back, so that it is known to be over.
        if hot.takes.get() != above + RED_ZONE_BYTES {
            f.id = exit + SYSTEM_CALL_UNSEEN;
        }
        return;
    };
    let flags = match number {
        CLONE3 => reading::word(hot, args[0]).unwrap_or(CLONE_VM),
        _ => args[0],
    };
    let way = way(number, flags);
    let rsp = above + RED_ZONE_BYTES;
    let call = (number, &args);
    let orders = match captures.has_payload() {
        true => acts::act_of_system(hot, f.id, call, (vectors, rsp)),
        false => Orders::default(),
    };
    // What is not made does not come back twice.
    let way = match way {
        Way::Alone if orders.skips() => Way::Nested,
        way => way,
    };
    let taken = record(hot, f.id, rsp, call, (way, &captures));
    match taken {
        Way::Nested if captures.has_payload() => system_returns::begun(hot, f.id, number, rsp),
        Way::Alone if captures.has_payload() => system_returns::missed(hot, f.id, number),
        _ => {}
    }
    if orders.is_any() && is_left_out(hot, f, &orders, taken) {
        return;
    }
    match taken {
        Way::Nested => {}
        Way::Alone => f.id = exit + SYSTEM_CALL_ALONE,
        Way::Never => f.id = exit + SYSTEM_CALL_UNSEEN,
    }
    if way == Way::Alone && (number == VFORK || flags & CLONE_VFORK != 0) {
        hot.lends.set(true);
    } else if way == Way::Alone {
        on_paths::memory_is_shared(flags);
        let sharing = &state::process().sharing;
        sharing.store(state::SHARED, Ordering::Relaxed);
        if thread::shares_block(flags) {
            thread::let_go();
        }
    }
}

/// Does what a payload says before a call that goes this way. True: it is not made, and goes on at
/// the call of the routine behind the instruction.
fn is_left_out(hot: &Hot, f: &mut Frame, orders: &Orders, way: Way) -> bool {
    let place = match way {
        Way::Never => Place::UnavoidableSystem,
        Way::Nested | Way::Alone => Place::System,
    };
    let Some(result) = orders.carry_out(hot, place) else {
        return false;
    };
    let exit = f.id + SYSTEM_CALL_EXIT;
    f.rax = result;
    f.id = match way {
        Way::Nested => exit - ROUTINE_CALL_BYTES,
        _ => exit + SYSTEM_CALL_ALONE_ID - ROUTINE_CALL_BYTES,
    };
    true
}

/// True if the call is on a descriptor that is asked for; else it is counted.
fn is_asked(captures: &Captures, args: &[u64]) -> bool {
    let is_asked = captures.is_asked(args);
    if !is_asked {
        let count = &state::control().calls_on_others;
        count.fetch_add(1, Ordering::Relaxed);
    }
    is_asked
}

/// Finds out what the thread must know of calls and of itself, once.
fn learn(hot: &Hot, rsp: u64) {
    if hot.quick.get() == 0 {
        fill(hot);
        hot.quick.set(quick::address());
        let count = &raw const state::control().calls_on_others;
        hot.asked.set([asked_descriptors(), count as u64]);
        hot.unwanted.set(unwanted_results());
        let process = state::process();
        let sharing = &raw const process.sharing as u64;
        let sandboxed = &raw const process.sandboxed as u64;
        hot.watched.set([certain::watched_at(), sharing, sandboxed]);
        hot.structures.set(due::structures());
    }
    learn_sharing();
    learn_self(hot, rsp);
}

/// Fills the tables from the host's, once in a process: that takes as long as a thousand calls.
fn fill(hot: &Hot) {
    static FILLED: AtomicU64 = AtomicU64::new(0);
    let host = state::control().captures_offset << 32 | u64::from(hot.pid.get());
    if FILLED.load(Ordering::Acquire) != host {
        due::fill();
        quick::fill(rule, asked_descriptors() == 0);
        if let Some(captures) = Captures::of(quick::COMMANDED) {
            captures.each_command(quick::set_command);
        }
        FILLED.store(host, Ordering::Release);
    }
}

/// Finds out whether others may change what is mapped. A sandbox is asked for nothing.
fn learn_sharing() {
    let sharing = &state::process().sharing;
    if sharing.load(Ordering::Relaxed) == state::SHARING_UNKNOWN {
        let is_alone = !sandbox::is_sandboxed() && sys::alone();
        let found = if is_alone {
            state::SHARING_NONE
        } else {
            state::SHARED
        };
        sharing.store(found, Ordering::Relaxed);
    }
}

/// Finds out once what lies where fs points: it may be anything. Threads have it from the C library
/// above their stacks, as a call at `rsp` is on one.
fn learn_self(hot: &Hot, rsp: u64) {
    if hot.has_self.get() == 0 {
        let fs = sys::fs_base();
        let has_self = fs != 0 && reading::word(hot, fs) == Some(fs);
        hot.has_self.set(if has_self { 1 } else { 2 });
        hot.stack_end.set(match certain::end_of_first_stack(rsp) {
            0 if has_self => fs,
            end => end,
        });
    }
}

/// What of a call the common routines may do.
fn rule(number: u32) -> u8 {
    if is_prepared(number) || on_paths::learns_by(number) || way(number, CLONE_VM) != Way::Nested {
        return 0;
    }
    let Some(captures) = Captures::of(number) else {
        return quick::UNWANTED;
    };
    // Who watches the heap must not be interrupted.
    if captures.has_payload() || number == certain::BRK {
        return 0;
    }
    let bound = match captures.bound() {
        None => 0,
        Some(1) => quick::BOUND,
        // It is looked at, and counted, in the slow path.
        Some(_) => return 0,
    };
    let is_told = certain::is_mapping(number);
    let one = |bit, moments| match is_told || captures.reads(moments) {
        true => 0,
        false => bit,
    };
    let commands = match number {
        quick::COMMANDED if !is_told => quick::COMMANDS,
        _ => 0,
    };
    let fills = match due::is_structure(number) {
        true => quick::FILLS,
        false => 0,
    };
    quick::PLAIN
        | bound
        | fills
        | commands
        | one(quick::ENTERS, &[When::Before])
        | one(quick::LEAVES, &[When::After, When::AfterAll])
        | one(quick::LEAVES_FAILED, &[When::AfterAll])
}

/// True if the agent has something to do before the call.
fn is_prepared(number: u32) -> bool {
    let is_exec = || Exec::by_number(number.into(), [0; 6]).is_some();
    matches!(number, SET_TID_ADDRESS | RT_SIGACTION) || is_exec()
}

/// What the agent must do before some calls, whoever makes them.
fn prepare(hot: &Hot, rsp: u64, number: u32, args: [u64; 6]) {
    reading::before(hot, rsp, number, &args);
    on_paths::before(number, &args);
    if number == SET_TID_ADDRESS {
        // ld.so has mapped the program's libraries, and nothing of them has run.
        hook::look_for_modules(hot);
    }
    if number == RT_SIGACTION {
        let handler = match args[1] {
            0 => None,
            action => reading::word(hot, action),
        };
        handler::watch(hot, handler.unwrap_or(0), rsp);
        // Last: that has asked the kernel which handlers there are.
        handlers::registered();
    }
    if let Some(exec) = Exec::by_number(number.into(), args)
        && !hot.asked_exec.take()
    {
        // As its function would do: the program that comes is followed.
        exec.run(hot, hot.mask.get());
    }
}

/// Records that a call begins, at `id` in its slot; gives the way that it goes: `way`, unless the
/// shadow stack has no room.
fn record(
    hot: &Hot,
    id: u64,
    rsp: u64,
    (number, args): (u32, &[u64; 6]),
    (way, captures): (Way, &Captures),
) -> Way {
    settle::settle(hot, rsp, false);
    leave_same(hot, rsp);
    let way = match way {
        Way::Nested if !deep::has_room(hot, rsp) => Way::Alone,
        way => way,
    };
    let alone = match way {
        Way::Nested => 0,
        _ => record::CALL_ALONE,
    };
    let [a, b, c, d, e, f] = *args;
    let head = [first_word(thread::borrower(hot), rsp), a, b, c, d, e, f];
    let pieces = captures.read(hot, args, None);
    chunk::put_values(hot, record::SYSTEM_CALL, number | alone, &head, pieces);
    if way == Way::Alone {
        hot.alone.set(number);
    }
    if way == Way::Nested {
        chunk::may_be_left_out(hot);
        shadow::push(hot, rsp, id | FRAME_OPEN | FRAME_SYSTEM, number.into());
    }
    way
}

/// What a record begins with behind its payload: the thread, if it is another one than the
/// stream's, and where the call is made, at the stack pointer `rsp`.
pub(super) fn first_word(thread: u32, rsp: u64) -> u64 {
    u64::from(thread) | (rsp - record::PLACE_BELOW_BYTES) << 32
}

/// It has been executed.
pub fn leave(hot: &Hot, f: &Frame, vectors: &Vectors, above: u64) {
    let rsp = above + RED_ZONE_BYTES;
    let result = f.rax as i64;
    settle::settle(hot, rsp, false);
    let thread = thread::borrower(hot);
    let mut below = hot.top();
    let mut frames = 0u64;
    let is_other = |frame: FrameAt| {
        frame.rsp() != rsp || frame.id() & (FRAME_SYSTEM | FRAME_DONE) != FRAME_SYSTEM
    };
    while !shadow::is_barrier(below) && is_other(below) && frames < 4096 {
        below = below.below();
        frames += 1;
    }
    let is_known = !shadow::is_barrier(below) && !is_other(below);
    let (number, how) = match is_known {
        true => (below.callee() as u32, record::RETURNED),
        false => (told_alone(hot), record::RETURNED_LATE),
    };
    if is_known {
        settle::drop_frames(hot, frames);
        hot.pop();
    } else if hot.muted.get() != 0 {
        return reading::over(hot, rsp);
    }
    if number == RT_SIGACTION {
        // Whoever has asked the kernel meanwhile was told of the handlers before.
        handlers::registered();
    }
    let args = arguments(f);
    let captures = Captures::of(number);
    let has_payload = captures.as_ref().is_some_and(Captures::has_payload);
    if is_known {
        // A script may have given another result.
        certain::after(hot, number, &args, result, !has_payload);
    }
    reading::over(hot, rsp);
    if has_payload {
        system_returns::run(hot, f, vectors, (number, &args), rsp);
    }
    on_paths::learn(hot, number, &args, result, thread == 0);
    let pieces = match captures {
        Some(captures) => captures.read(hot, &args, Some(result)),
        None => &[],
    };
    let head = [u64::from(number) | u64::from(thread) << 32, result as u64];
    chunk::put_values(hot, record::SYSTEM_RETURN, how, &head, pieces);
    settle::frames_ended(hot);
}

/// Calls that were made from the same place on the stack and have not been seen to return.
fn leave_same(hot: &Hot, rsp: u64) {
    while hot.top().rsp() == rsp && hot.top().id() & FRAME_SYSTEM != 0 {
        settle::drop_frames(hot, 1);
    }
}

/// The last call that was told without its end.
fn told_alone(hot: &Hot) -> u32 {
    match hot.alone.take() {
        0 => UNKNOWN_NUMBER,
        number => number,
    }
}

/// The six arguments (System V ABI for x86-64, section A.2.1).
pub(super) fn arguments(f: &Frame) -> [u64; 6] {
    let [_, r10, r9] = f.r11_r10_r9;
    [f.rdi, f.rsi, f.rdx, r10, f.r8, r9]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::called_with;

    #[test]
    fn what_makes_a_task_on_our_stack_or_its_own_may_come_back_twice() {
        assert_eq!(way(VFORK, 0), Way::Alone);
        assert_eq!(way(CLONE, CLONE_VM | CLONE_VFORK), Way::Alone);
        assert_eq!(way(CLONE3, CLONE_VM), Way::Alone);
        // A fork's child has a stack and a block of its own.
        assert_eq!(way(CLONE, 0x11), Way::Nested);
        assert_eq!(way(0, CLONE_VM), Way::Nested);
    }

    #[test]
    fn what_ends_the_thread_or_its_handler_does_not_come_back() {
        for number in [RT_SIGRETURN, EXIT, EXIT_GROUP] {
            assert_eq!(way(number, 0), Way::Never);
        }
    }

    #[test]
    fn what_the_agent_must_see_is_left_to_the_slow_path() {
        for number in [RT_SIGACTION, SET_TID_ADDRESS, VFORK, CLONE, CLONE3, EXIT] {
            assert_eq!(rule(number), 0);
        }
        // execve and execveat.
        assert!(is_prepared(59) && is_prepared(322) && !is_prepared(0));
    }

    #[test]
    fn the_fourth_argument_is_in_r10() {
        let mut f = called_with([1, 2, 3, 4, 5, 6]);
        f.r11_r10_r9 = [0x11, 0x10, 9];
        assert_eq!(arguments(&f), [1, 2, 3, 0x10, 5, 9]);
    }
}
