//! Answers the agent's questions: which module lies at an address, and may a program be followed
//! through an exec.
//!
//! A question is accepted at once, so that the asker goes on waiting while a module is analysed.

use std::ops::Range;
use std::sync::atomic::Ordering;

use sptrace_tracee::futex::futex_wake;
use sptrace_tracee::kill_point;
use sptrace_tracee::maps::{self, LiveMaps, Mapping};
use sptrace_tracee::memory;
use sptrace_tracee::seccomp;
use sptrace_wire::control::*;
use sptrace_wire::module_answer::{ModuleAnswer, PlannedModule};

use crate::decode::process::Process;
use crate::modules::load::openable;
use crate::modules::mappings;
use crate::modules::placement;
use crate::numbers;
use crate::shared::Shared;

/// Serves all questions asked; true if there was one.
pub fn serve(shared: &Shared) -> bool {
    let arena = &shared.arena;
    let mut any = false;
    for i in 0..QUESTIONS {
        let q = arena.question(i);
        match q.state.load(Ordering::Acquire) {
            QUESTION_ASKED => {
                let accepted = q.state.compare_exchange(
                    QUESTION_ASKED,
                    QUESTION_ACCEPTED,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                if accepted.is_ok() {
                    any = true;
                    kill_point::around("answer", || answer(shared, q));
                }
            }
            QUESTION_ABANDONED => q.state.store(QUESTION_FREE, Ordering::Release),
            _ => {}
        }
    }
    any
}

fn answer(shared: &Shared, q: &Question) {
    let numbers = &shared.numbers;
    let may_bring_modules = matches!(q.kind, ASK_MODULE | ASK_MAPPED);
    let pid = numbers.asking(&shared.arena, q).unwrap_or(0);
    let live = LiveMaps::open(pid).ok();
    let answer = match live.filter(LiveMaps::is_traced) {
        Some(live) => answer_of(shared, q, pid, &live),
        None if q.kind == ASK_MODULE => left_alone(0..0, false).to_words(),
        None => [0; 6],
    };
    for (slot, value) in q.answer.iter().zip(answer) {
        slot.store(value, Ordering::Relaxed);
    }
    let answered = q.state.compare_exchange(
        QUESTION_ACCEPTED,
        QUESTION_ANSWERED,
        Ordering::AcqRel,
        Ordering::Relaxed,
    );
    if answered.is_err() {
        q.state.store(QUESTION_FREE, Ordering::Release);
    }
    futex_wake(&q.state, i32::MAX);
    if may_bring_modules {
        // While the process goes on: this reads their plans.
        drop(shared.lock());
    }
}

/// What a process of ours asks.
fn answer_of(shared: &Shared, q: &Question, pid: u32, live: &LiveMaps) -> [u64; 6] {
    let word = |word: u64| [word, 0, 0, 0, 0, 0];
    match q.kind {
        ASK_MODULE => {
            let maps = shared.snapshots.of(pid, live, q.argument);
            asked_module(shared, &maps, pid, q.argument).to_words()
        }
        ASK_EXEC => {
            let tid = numbers::task(pid, q.tid);
            let is_held = tid.is_some_and(|tid| shared.may_seize(pid, tid, q.argument));
            word(is_held.into())
        }
        ASK_EXEC_FAILED => {
            if let Some(tid) = numbers::task(pid, q.tid) {
                shared.release(tid);
            }
            word(1)
        }
        ASK_NOTED => {
            let mut c = shared.lock();
            c.adopt_streams(&shared.arena);
            word(1)
        }
        ASK_MAPPED => word(mapped(shared, pid)),
        ASK_TEXT => {
            let code_around = |at| live.code_around(at);
            let (start, end) = mappings::text(&code_around, pid, q.argument).unwrap_or_default();
            [start, end, 0, 0, 0, 0]
        }
        ASK_FILTER => {
            let memory = memory::open(pid);
            let is_permitted = memory.is_ok_and(|m| seccomp::permits(&m, q.argument));
            word(is_permitted.into())
        }
        ASK_UNFILTERED => word(seccomp::is_free(pid).into()),
        _ => [0; 6],
    }
}

/// The module at an address; of code that is left alone it is found out whether the low halves of
/// addresses tell it from others.
fn asked_module(shared: &Shared, maps: &[Mapping], pid: u32, address: u64) -> ModuleAnswer {
    let mut answer = module(shared, maps, pid, address);
    if let ModuleAnswer::LeftAlone {
        start,
        end,
        is_wide,
        ..
    } = &mut answer
        && start < end
    {
        let mut c = shared.lock();
        c.asks(&shared.arena);
        *is_wide = c.process(pid).leave_alone(*start, *end);
    }
    answer
}

/// Whether the low halves of addresses tell it from other modules is known later.
fn left_alone(range: Range<u64>, is_without_file: bool) -> ModuleAnswer {
    ModuleAnswer::LeftAlone {
        is_without_file,
        start: range.start,
        end: range.end,
        is_wide: false,
        calls_nothing: false,
    }
}

fn module(shared: &Shared, maps: &[Mapping], pid: u32, address: u64) -> ModuleAnswer {
    let Some(m) = maps.iter().find(|m| address >= m.start && address < m.end) else {
        return ModuleAnswer::NOTHING;
    };
    let refused = || left_alone(m.start..m.end, false);
    let leave_out = |why: &'static str| {
        shared.leave_out(&m.path, why);
        refused()
    };
    if m.path == "[vdso]" {
        shared.leave_out(&m.path, "no file");
        return ModuleAnswer::LeftAlone {
            is_without_file: false,
            start: m.start,
            end: m.end,
            is_wide: false,
            calls_nothing: true,
        };
    }
    if m.file.1 == 0 || m.is_shared || m.access[1] || !m.access[2] {
        return left_alone(m.start..m.end, true);
    }
    if shared.options.leaves_out(&m.path) {
        if !shared.options.records_no_functions() {
            shared.leave_out(&m.path, "not among the modules asked for");
        }
        if !shared.is_needed(pid, m) {
            return refused();
        }
    }
    let index = match shared.module(pid, m) {
        Ok(index) => index,
        Err(why) => return leave_out(why),
    };
    match planned(shared, (maps, m), pid, address, index) {
        Ok(Some(planned)) => ModuleAnswer::Planned(planned),
        Ok(None) => refused(),
        Err(why) => leave_out(why),
    }
}

/// A module of which there is a plan gets an area; or why not. None: it is not known.
fn planned(
    shared: &Shared,
    (maps, m): (&[Mapping], &Mapping),
    pid: u32,
    address: u64,
    index: usize,
) -> Result<Option<PlannedModule>, &'static str> {
    let mut c = shared.lock();
    c.asks(&shared.arena);
    let Some(known) = c.book.modules.get(index) else {
        return Ok(None);
    };
    let (base_svma, text) = (known.base_svma, known.text);
    let (area_bytes, plan_offset) = (known.area_bytes, known.plan_offset);
    let key = known.area_key;
    let bias = bias(maps, m, base_svma).ok_or("its first page is not mapped")?;
    let (start, end) = (text.0.wrapping_add(bias), text.1.wrapping_add(bias));
    if address < start || address >= end {
        return Err("code outside of the sections for code");
    }
    let taken = c.process(pid).areas.ranges();
    let base = base_svma.wrapping_add(bias);
    let left = placement::left_area(pid, maps, &taken, (key, base), area_bytes);
    let area_at = left.or_else(|| placement::place(maps, &taken, start, end, area_bytes));
    let area_at = area_at.ok_or("no place for its patch area within reach")?;
    if c.process(pid).overlaps(start, end) {
        // What has been recorded by now was called where the other module was.
        c.catch_up(&shared.arena, pid);
    }
    let is_wide = c.loaded(pid, index, (start, end), bias, (area_at, area_bytes));
    if shared.options.leaves_out(&m.path) && !shared.options.records_no_functions() {
        // The agent counts those only that it does not get.
        shared.arena.control().holes[hole::NO_PLAN].fetch_add(1, Ordering::Relaxed);
    }
    Ok(Some(PlannedModule {
        plan_offset,
        bias,
        area_at,
        area_bytes,
        unwinder: unknown_unwinder(maps, c.process(pid)),
        is_wide,
        is_left: left.is_some(),
    }))
}

/// An address in the code of a module that the process has mapped and not asked for yet, or 0. Each
/// is named once.
fn mapped(shared: &Shared, pid: u32) -> u64 {
    let Ok(maps) = maps::read(pid) else {
        return 0;
    };
    let is_code = |m: &&Mapping| m.access[2] && !m.access[1] && m.file.1 != 0 && !m.is_shared;
    let code: Vec<_> = maps.iter().filter(is_code).collect();
    {
        let mut c = shared.lock();
        c.asks(&shared.arena);
        let looked_at = &mut c.process(pid).looked_at;
        looked_at.retain(|(start, file)| {
            code.iter()
                .any(|m| m.start <= *start && *start < m.end && m.file == *file)
        });
    }
    for m in code {
        {
            let mut c = shared.lock();
            // A patched page is a mapping of its own, without the file or with it.
            let looked_at = &mut c.process(pid).looked_at;
            let is_old = |l: &(u64, (String, u64))| l.1 == m.file && l.0 <= m.start;
            if looked_at.iter().any(is_old) {
                continue;
            }
            looked_at.push((m.start, m.file.clone()));
        }
        if let Some(start) = code_start(shared, pid, &maps, m) {
            return start;
        }
    }
    0
}

/// Where the code of the module at `m` begins, once it is analysed, if it must be known already.
fn code_start(shared: &Shared, pid: u32, maps: &[Mapping], m: &Mapping) -> Option<u64> {
    // Names decide first: a module without roots is not analysed before control comes there.
    if !shared.must_be_known(m, &openable(pid, m)?) {
        return None;
    }
    let index = shared.module(pid, m).ok()?;
    let c = shared.lock();
    let known = c.book.modules.get(index)?;
    let bias = bias(maps, m, known.base_svma)?;
    let start = known.text.0.wrapping_add(bias).max(m.start);
    (start < m.end).then_some(start)
}

/// An address in a mapped unwinder that the process has not asked for yet, or 0: it is prepared
/// before the first exception needs it, so that our death in between does no harm.
fn unknown_unwinder(maps: &[Mapping], process: &Process) -> u64 {
    let is_unwinder = |m: &&Mapping| {
        let name = m.path.rsplit('/').next().unwrap_or("");
        m.access[2] && (name.starts_with("libgcc_s") || name.starts_with("libunwind"))
    };
    let middle = |m: &Mapping| m.start + (m.end - m.start) / 2;
    let unknown = |m: &&Mapping| process.module_at(middle(m)).is_none();
    maps.iter()
        .filter(is_unwinder)
        .find(unknown)
        .map_or(0, middle)
}

/// Load bias: the file's first page lies at the plan's base.
pub fn bias(maps: &[Mapping], m: &Mapping, base_svma: u64) -> Option<u64> {
    let first = maps::first_of(maps, m)?;
    Some(first.start.wrapping_sub(base_svma))
}
