//! Calls of functions whose values are recorded: what their plans ask for, read before the call and
//! after it.
//!
//! Given the program's registers at an event of the slow path, which has recorded the call and
//! pushed its frame; writes the words and the memory that show it. What the return needs of the
//! entry is kept in frames that lie one byte below the call's own ([`FRAME_VALUES`]): nothing else
//! has such a stack pointer, so the call's exit, and a tail jump out of it, come to the slow path,
//! while calls inside of it do not; and whatever ends the call ends them.
//!
//! After its first call the common routines do the same for functions of which no memory is read
//! (`crate::routines::values`).
//!
//! Must not know what a word means.

use crate::frames::shadow;
use crate::memory::frame::{Frame, Vectors};
use crate::memory::rows::Row;
use crate::memory::table::Module;
use crate::memory::thread::{FRAME_QUIET_HELD, FrameAt, Hot};
use crate::memory::{counters, lock, state, sys};
use crate::plans::{modules, payloads, plan, ready, slot};
use crate::record::capture::Captures;
use crate::record::{chunk, deep, settle};
use core::sync::atomic::{AtomicU8, Ordering};
use sptrace_wire::levels::{SWITCHES, SWITCHES_OFFSET, VALUES_SHOWN};
use sptrace_wire::plan::*;
use sptrace_wire::record::{self, FRAME_OPEN, FRAME_VALUES};
use sptrace_wire::values::{CaptureView, ERRORS};

/// In a frame with [`FRAME_VALUES`]: it keeps a word, whose number stands above the low half.
const KEPT: u64 = 1 << 40;
/// Where that number is.
const WORD_SHIFT: u32 = 32;
/// Words at both moments.
const ALL_WORDS: usize = MOST_WORDS + RESULT_WORDS;
/// Of `call EXIT`, in front of which a call returns and behind which the exit's id lies.
const EXIT_CALL_BYTES: u64 = 5;
/// errno lies at most this far below the fs base: more is no thread's.
const MOST_DISTANCE: i64 = 1 << 20;

/// What is recorded of a function, and how its module tells more.
struct Asked {
    view: ValuesView<'static>,
    values: FunctionValues,
    module: &'static Module,
}

impl Asked {
    /// Of the function at this address. `None`: nothing.
    fn of(callee: u64) -> Option<Self> {
        if !state::process().has_values.get() {
            return None;
        }
        let m = modules::known(callee)?;
        let plan = m.plan()?;
        let function = plan.function(plan::function_at(m, callee)?)?;
        if !function.is_any(FN_VALUES) {
            return None;
        }
        let view = ValuesView::new(plan.values())?;
        Some(Self {
            view,
            values: view.of(function.entry)?,
            module: m,
        })
    }

    /// Of a call of the kernel at a place of the slot `id`.
    fn of_system(id: u64, number: u32) -> Option<Self> {
        let module = modules::of_area(id)?;
        let view = ValuesView::new(module.plan()?.values())?;
        Some(Self {
            view,
            values: view.of(SYSTEM_ENTRIES | number)?,
            module,
        })
    }

    fn captures(&self) -> Captures {
        let view = CaptureView::new(self.view.bytes());
        Captures::planned(view, self.values.captures())
    }

    fn words(&self) -> usize {
        usize::from(self.values.words).min(MOST_WORDS)
    }

    fn is_wanted(&self, words: &[u64]) -> bool {
        let v = &self.values;
        let word = words.get(usize::from(v.compared)).copied().unwrap_or(0);
        v.comparison
            .holds(with_sign(word, v.compared_bytes), v.with)
    }

    /// False while the host has switched its values off.
    fn is_shown(&self) -> bool {
        let number = u64::from(self.values.switch);
        if number == 0 || number >= SWITCHES {
            return true;
        }
        let at = state::process().arena() + SWITCHES_OFFSET + number;
        // SAFETY: inside the arena, which is mapped for life; shared by atomics.
        let switch = unsafe { &*(at as *const AtomicU8) };
        switch.load(Ordering::Relaxed) == VALUES_SHOWN
    }

    /// errno of this thread, as the module keeps it; 0: not known.
    fn errno(&self) -> u64 {
        let at = self.errno_at().unwrap_or(0);
        sys::read_word(at).unwrap_or(0) & 0xffff_ffff
    }

    /// Where it lies. `None`: that is not known.
    fn errno_at(&self) -> Option<u64> {
        let head = &self.view.head;
        let distance = match head.errno {
            ErrnoPlace::Unknown => return None,
            ErrnoPlace::At => head.errno_distance.into(),
            ErrnoPlace::Behind => {
                let slot = self.module.base.get().wrapping_add(head.errno_slot.into());
                sys::read_word(slot).unwrap_or(0) as i64
            }
        };
        if !(-MOST_DISTANCE..MOST_DISTANCE).contains(&distance) {
            return None;
        }
        Some(sys::fs_base().wrapping_add_signed(distance))
    }
}

/// A payload that adds to tables at calls of a function.
pub struct ActsAt {
    /// Where its code is; 0: it cannot be put anywhere.
    pub code: u64,
    /// There is one for the return of such a call.
    pub has_exit: bool,
    /// What the slow path has to know, where it alone runs the code.
    pub slowly: Option<FunctionValues>,
}

/// The payload of the function at `callee`. `None`: there is none.
pub fn acts_at(hot: &Hot, callee: u64) -> Option<ActsAt> {
    let asked = Asked::of(callee).filter(|asked| asked.values.acts != 0)?;
    make_quick(hot, &asked, callee);
    Some(ActsAt {
        code: code_at(hot, &asked, callee, |row| row.decides.get(), 0),
        has_exit: asked.values.exit_bytes != 0,
        slowly: (asked.values.acts_slowly != 0).then_some(asked.values),
    })
}

/// The payload of a call of the kernel at a place of the slot `id`. `None`: there is none.
pub fn acts_of_system(hot: &Hot, id: u64, number: u32) -> Option<ActsAt> {
    let asked = Asked::of_system(id, number)?;
    Some(ActsAt {
        code: placed(hot, &asked),
        has_exit: false,
        slowly: Some(asked.values),
    })
}

/// The payload of the return of a call of the kernel.
pub struct SystemExit {
    /// Where its code is; 0: it cannot be put anywhere.
    pub code: u64,
    /// What it needs of the call.
    pub of: FunctionValues,
    /// Which texts it asks for.
    pub texts: u64,
}

/// That of a call at a place of the slot `id`. `None`: there is none.
pub fn exit_of_system(hot: &Hot, id: u64, number: u32) -> Option<SystemExit> {
    let asked = Asked::of_system(id, number).filter(|asked| asked.values.exit_bytes != 0)?;
    let at = placed(hot, &asked);
    Some(SystemExit {
        code: match at {
            0 => 0,
            at => at + payloads::exit_from(&asked.values),
        },
        of: asked.values,
        texts: asked.values.exit_texts,
    })
}

/// Where errno of this thread lies, as the module of the function at `callee` keeps it.
pub fn errno_at(callee: u64) -> Option<u64> {
    Asked::of(callee)?.errno_at()
}

/// The payload of the return of a call of `callee`: where its code is, errno of the thread, if it
/// asks for that, and which texts it does. `None`: it cannot be put anywhere.
pub fn exit_at(hot: &Hot, callee: u64) -> Option<(u64, u64, u64)> {
    let asked = Asked::of(callee).filter(|asked| asked.values.exit_bytes != 0)?;
    let errno = match asked.values.exit_needs_errno {
        0 => 0,
        _ => asked.errno(),
    };
    let from = payloads::exit_from(&asked.values);
    let code = code_at(hot, &asked, callee, |row| row.writes.get(), from);
    (code != 0).then_some((code, errno, asked.values.exit_texts))
}

/// The words of a call of `callee` that its return needs, and how many they are.
pub fn kept_for_exit(
    hot: &Hot,
    f: &Frame,
    vectors: &Vectors,
    callee: u64,
    rsp: u64,
) -> ([u64; MOST_KEPT], usize) {
    let mut words = [0; MOST_KEPT];
    let Some(Asked { values, .. }) = Asked::of(callee) else {
        return (words, 0);
    };
    let kept = values.kept_sources().map(|source| match source {
        NO_SOURCE => 0,
        SOURCE_CALLER => resolved(hot, f.id, rsp).map_or(f.id, FrameAt::id) & 0xffff_ffff,
        SOURCE_INSIDE => match hot.tables.get() {
            0 => 0,
            tables => sys::read_word(tables + INSIDE_AT).unwrap_or(0),
        },
        source => word(f, vectors, source, rsp),
    });
    let count = fill(&mut words, kept);
    (words, count)
}

/// Puts words into their places; gives how many.
pub fn fill(places: &mut [u64], words: impl Iterator<Item = u64>) -> usize {
    let mut count = 0;
    for (place, word) in places.iter_mut().zip(words) {
        *place = word;
        count += 1;
    }
    count
}

/// The frame of the call that the lazy resolver brings to its function by a jump at `id`: the
/// resolver stands between for the first call alone, and is nobody's caller. None: there is no such
/// jump, or it is not known which place has made the call.
pub fn resolved(hot: &Hot, id: u64, rsp: u64) -> Option<FrameAt> {
    let frame = modules::is_resolver_site(id).then(|| shadow::call(hot))?;
    let has_place = frame.id() & FRAME_OPEN == 0 && frame.id() != 0;
    (has_place && frame.rsp() == rsp).then_some(frame)
}

/// Where a part of a function's code is, by its row, or so far behind its start; 0: nowhere.
fn code_at(hot: &Hot, asked: &Asked, callee: u64, of: fn(&Row) -> u64, from: u64) -> u64 {
    if let Some(row) = payloads::row(callee) {
        return of(row);
    }
    // Without a row each of its calls comes here.
    match placed(hot, asked) {
        0 => 0,
        at => at + from,
    }
}

/// Where a function's code is, which is put there if it is not yet; 0: nowhere.
fn placed(hot: &Hot, asked: &Asked) -> u64 {
    let known = payloads::placed(asked.module, &asked.view, &asked.values);
    if known != 0 || !lock::lock(hot.tid.get()) {
        return known;
    }
    let at = payloads::place(asked.module, &asked.view, &asked.values);
    lock::unlock();
    at
}

/// The next calls of a function are left to the common routines, as far as they can be: these do
/// not say where the stack pointer stood.
fn make_quick(hot: &Hot, asked: &Asked, callee: u64) {
    if counters::says_places() {
        return;
    }
    if hot.rows.get() == 0 {
        hot.rows.set(state::process().rows.address());
    }
    if payloads::lacks(callee, &asked.values)
        && ready::may_bring_values(asked.module, callee)
        && lock::lock(hot.tid.get())
    {
        payloads::enter(asked.module, callee, &asked.view, &asked.values);
        lock::unlock();
    }
}

/// A word of the call.
fn word(f: &Frame, vectors: &Vectors, source: u8, rsp: u64) -> u64 {
    let [_, _, r9] = f.r11_r10_r9;
    let registers = [f.rdi, f.rsi, f.rdx, f.rcx, f.r8, r9];
    match source {
        SOURCE_REGISTER..SOURCE_VECTOR => {
            let i = usize::from(source - SOURCE_REGISTER);
            registers.get(i).copied().unwrap_or(0)
        }
        SOURCE_VECTOR..SOURCE_STACK => {
            let i = usize::from(source - SOURCE_VECTOR);
            vectors.0.get(i).map_or(0, |vector| vector[0])
        }
        _ => {
            let at = rsp.wrapping_add(8 * u64::from(source - SOURCE_STACK));
            sys::read_word(at).unwrap_or(0)
        }
    }
}

/// The call of `callee` from the stack pointer `rsp` has been recorded, if anything was.
pub fn enter(hot: &Hot, f: &Frame, vectors: &Vectors, callee: u64, rsp: u64) {
    let Some(asked) = Asked::of(callee) else {
        return;
    };
    make_quick(hot, &asked, callee);
    if shadow::call(hot).rsp() == rsp {
        record(hot, (f, vectors), &asked, callee, rsp);
    }
}

/// A function brings values: each of its calls must come to the slow path.
pub fn are_of(callee: u64) -> bool {
    Asked::of(callee).is_some()
}

/// The same of one that was recorded in order: a jump that goes on with a call, or a call without
/// an end. What it returns is recorded if it goes on with a call that has an exit.
pub fn enter_in_order(hot: &Hot, f: &Frame, vectors: &Vectors, callee: u64, rsp: u64) {
    if let Some(asked) = Asked::of(callee) {
        record(hot, (f, vectors), &asked, callee, rsp);
    }
}

fn record(hot: &Hot, (f, vectors): (&Frame, &Vectors), asked: &Asked, callee: u64, rsp: u64) {
    let is_told = asked.values.number != NO_DESCRIPTION && asked.is_shown() && hot.muted.get() == 0;
    if !is_told || hot.overflow.get() != 0 {
        return;
    }
    let mut words = [0; MOST_WORDS];
    let count = asked.words();
    for (i, place) in words.iter_mut().enumerate().take(count) {
        *place = word(f, vectors, asked.values.source(i), rsp);
    }
    let words = words.get(..count).unwrap_or(&[]);
    if !asked.is_wanted(words) {
        return;
    }
    let pieces = asked.captures().read(hot, words, None);
    let number = asked.values.number;
    chunk::put_values(hot, record::CALL_VALUES, number, words, pieces);
    let frame = shadow::call(hot).get();
    if asked.values.returns != 0 && frame.rsp == rsp && frame.id & FRAME_OPEN == 0 {
        keep(hot, asked, words, callee, rsp);
    }
}

/// The same at the entry of a hooked function whose call was not seen at its site: its frame was
/// pushed just now, as `is_new` says, or its being that of the hook.
pub fn enter_hooked(hot: &Hot, f: &Frame, vectors: &Vectors, (rsp, is_new): (u64, bool)) {
    let frame = shadow::call(hot).get();
    let is_its = is_new || frame.id & !FRAME_OPEN == f.id;
    if frame.rsp == rsp
        && is_its
        && let Some(hooked) = modules::special_of(f.id)
    {
        enter(hot, f, vectors, hooked.entry, rsp);
    }
}

/// Keeps what the return needs. Where there is no room, the result is not recorded.
fn keep(hot: &Hot, asked: &Asked, words: &[u64], callee: u64, rsp: u64) {
    const KIND: u64 = FRAME_OPEN | FRAME_VALUES;
    for (i, word) in (0u32..).zip(words) {
        if asked.values.keep & 1 << i == 0 {
            continue;
        }
        if !deep::has_room(hot, rsp) {
            return;
        }
        let id = KIND | KEPT | u64::from(i) << WORD_SHIFT;
        shadow::push(hot, rsp - 1, id, *word);
    }
    if deep::has_room(hot, rsp) {
        shadow::push(hot, rsp - 1, KIND, callee);
    }
}

/// A call at `rsp` is about to be recorded as returned: what was kept for it, and for what it has
/// jumped to, is used.
pub fn leave(hot: &Hot, f: &Frame, vectors: &Vectors, rsp: u64) {
    if !state::process().has_values.get() || hot.overflow.get() != 0 {
        return;
    }
    settle::settle(hot, rsp - 1, false);
    let is_own = is_its_return(hot, f.id, rsp);
    while hot.top().rsp() == rsp - 1 && !shadow::is_held(hot.top().id()) {
        let head = hot.top().get();
        hot.pop();
        let mut words = [0; ALL_WORDS];
        while hot.top().rsp() == rsp - 1 && hot.top().id() & KEPT != 0 {
            let kept = hot.top().get();
            let i = (kept.id >> WORD_SHIFT) as u8;
            if let Some(place) = words.get_mut(usize::from(i)) {
                *place = kept.callee;
            }
            hot.pop();
        }
        // A word that was kept without its head: there was no room.
        if is_own
            && head.id & KEPT == 0
            && let Some(asked) = Asked::of(head.callee)
        {
            returned(hot, &asked, &mut words, f, vectors);
        }
    }
}

/// False if the exit `id` belongs to another site than the call at `rsp` does: setjmp(3) returns
/// once more, from where it was called, and the call was jumped out of.
pub fn is_its_return(hot: &Hot, id: u64, rsp: u64) -> bool {
    let mut frame = hot.top();
    while frame.rsp() == rsp || frame.rsp() == rsp - 1 {
        let call = match frame.id() {
            FRAME_QUIET_HELD => frame.callee(),
            id => id,
        };
        let exit = slot::exit_of(call);
        if exit != 0 {
            return exit + EXIT_CALL_BYTES == id;
        }
        if counters::keeps_returns() && modules::area(call).is_some() {
            return slot::call_of_return(id) as u32 == call as u32;
        }
        frame = frame.below();
    }
    true
}

/// Records a result.
fn returned(hot: &Hot, asked: &Asked, words: &mut [u64; ALL_WORDS], f: &Frame, vectors: &Vectors) {
    let values = &asked.values;
    let vector = vectors.0.first().map_or(0, |vector| vector[0]);
    let count = asked.words();
    let results = [f.rax, f.rdx, vector];
    for (place, word) in words.iter_mut().skip(count).zip(results) {
        *place = word;
    }
    let result = with_sign(f.rax, values.result_bytes);
    let has_failed = match values.failure {
        Failure::Never => false,
        Failure::MinusOne => result == -1,
        Failure::Null => result == 0,
    };
    let errno = if has_failed { asked.errno() } else { 0 };
    // What is said of a call that has failed says so of this one; what is no error is none.
    let told = match has_failed {
        true => -(errno.clamp(1, 4095) as i64),
        false if ERRORS.contains(&result) => 0,
        false => result,
    };
    let all = words.get(..count + RESULT_WORDS).unwrap_or(&[]);
    let pieces = asked.captures().read(hot, all, Some(told));
    let head = [f.rax, f.rdx, vector, errno];
    chunk::put_values(hot, record::RETURN_VALUES, values.number, &head, pieces);
}
