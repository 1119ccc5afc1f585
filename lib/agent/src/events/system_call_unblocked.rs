//! The two events around a call of the kernel whose memory must be read, with signals let in.
//!
//! As [`crate::events::system_call`], at a third of its price. Memory is read where it lies
//! ([`crate::record::in_place`]) if one thread has it for itself, or as long as no other takes any
//! away ([`crate::memory::reading`]); else the kernel copies it, as in the slow path, but without
//! the four calls that block signals. A handler may interrupt this at any point. Until the mark at
//! the record's end is written nothing has happened: [`crate::signals::context`] may move the
//! interrupted code back to before the event, and the record, which says how long it is, is passed
//! over. From then on it has happened, and the shadow frame is put right there. Every case that is
//! not plain is left to the slow path; then the answer is false.

use crate::events::system_call::{RED_ZONE_BYTES, arguments, first_word};
use crate::frames::shadow;
use crate::memory::frame::Frame;
use crate::memory::reading::{self, Reader};
use crate::memory::state::{SHARING_NONE, SHARING_UNKNOWN};
use crate::memory::thread::{FRAME_BYTES, Hot, ShadowFrame};
use crate::memory::{certain, sandbox, state, sys};
use crate::record::capture::Captures;
use crate::record::chunk::Reserved;
use crate::record::due::{self, Due};
use crate::record::in_place;
use crate::routines::quick;
use core::sync::atomic::{Ordering, compiler_fence};
use sptrace_wire::record::{self, FRAME_OPEN, FRAME_SYSTEM};
use sptrace_wire::values;

/// Before a record's values.
const HEAD_BYTES: u64 = 16;
/// Of struct stat and struct statx (asm/stat.h, linux/stat.h).
const STAT_BYTES: u64 = 144;
const STATX_BYTES: u64 = 256;

/// An instruction that calls the kernel is about to be executed. `door`: where the door keeps rbp.
/// False: it is not plain.
pub fn enter(hot: &'static Hot, f: &Frame, door: u64) -> bool {
    let number = f.rax as u32;
    let rsp = f.above_at() + RED_ZONE_BYTES;
    let top = hot.top();
    let is_plain = is_plain(hot)
        && quick::is_recorded(number)
        && rsp < top.rsp()
        && hot.ssp.get() < hot.ssp_end.get();
    if !is_plain {
        return false;
    }
    let call = (number, &arguments(f));
    let place = Place { hot, door, rsp };
    hot.taken.set([reading::moment(), hot.taken.get()[1]]);
    let begun = due::text(number).and_then(|due| begin_text(place, call, due));
    let Some(begun) = begun.or_else(|| begin_any(place, call)) else {
        return false;
    };
    hot.begun.set(begun);
    let new = ShadowFrame {
        rsp,
        id: f.id | FRAME_OPEN | FRAME_SYSTEM,
        callee: number.into(),
    };
    // As the common routines do it: a handler in between has used the same place.
    top.above().set(new);
    hot.ssp.add_in_one(FRAME_BYTES as u64);
    compiler_fence(Ordering::SeqCst);
    top.above().set(new);
    true
}

/// The call is shown by what is due for it.
#[inline(never)]
fn begin_any(place: Place, call: (u32, &[u64; 6])) -> Option<[u64; 2]> {
    let Place { hot, .. } = place;
    if let Some(ready) = ready_alone(call.0, false) {
        let mut pieces = in_place::Pieces::NONE;
        // SAFETY: nobody else can change what is mapped.
        unsafe { pieces.measure(ready, call.1, (None, filled_before(hot)), true)? };
        certain::before(hot, call.0, call.1);
        return begin(place, call, &pieces);
    }
    let (mut in_place, mut how) = (in_place::Pieces::NONE, How::NONE);
    let to = (&mut in_place, &mut how);
    measure(place, call, None, filled_before(hot), to)?;
    certain::before(hot, call.0, call.1);
    begin(place, call, &Pieces(&in_place, &how))
}

/// The call is shown by a text alone, as most are that have one. `None`: it is not read so.
#[inline]
fn begin_text(place: Place, call: (u32, &[u64; 6]), due: Due) -> Option<[u64; 2]> {
    let Place { hot, door, rsp } = place;
    let (mut reader, mut is_calm) = (None, true);
    if !is_alone() {
        let above = hot.stack_end.get().wrapping_sub(rsp);
        if above >= certain::STACK_BYTES || sandbox::is_sandboxed() {
            return None;
        }
        let begun = reading::begin(hot, door)?;
        is_calm = begun.is_calm;
        reader = Some(begun);
    }
    // SAFETY: nobody else can change what is mapped, now that nobody else may.
    let text = unsafe { in_place::Text::measure(due, call.1, is_calm)? };
    begin(place, call, &Text { text, reader })
}

#[inline(always)]
fn begin(
    Place { hot, door, rsp }: Place,
    (number, args): (u32, &[u64; 6]),
    pieces: &impl Body,
) -> Option<[u64; 2]> {
    let [a, b, c, d, e, g] = *args;
    let head = [first_word(0, rsp), a, b, c, d, e, g];
    write(hot, door, (record::SYSTEM_CALL, number), &head, pieces)
}

/// It has been executed; as `enter`.
pub fn leave(hot: &'static Hot, f: &Frame, door: u64) -> bool {
    let rsp = f.above_at() + RED_ZONE_BYTES;
    let top = hot.top().get();
    let flags = FRAME_OPEN | FRAME_SYSTEM | shadow::FRAME_DONE;
    let is_ours = top.rsp == rsp && top.id & flags == FRAME_OPEN | FRAME_SYSTEM;
    let number = top.callee as u32;
    if !is_ours || !is_plain(hot) || !quick::is_recorded(number) {
        return false;
    }
    let (result, args) = (f.rax as i64, arguments(f));
    certain::after(hot, number, &args, result, true);
    // Who might have unmapped what the kernel has filled is a handler, whose calls are recorded.
    let is_last = hot.cur.get() == hot.begun.get()[0];
    let place = Place { hot, door, rsp };
    // A filter may have said that the call is done.
    let is_moment = !sandbox::is_sandboxed() && is_moment(hot.taken.get()[0]);
    let is_there = |filled: &[u64; 2]| is_moment || is_on_stack(place, *filled);
    let filled = Some(filled(number, &args, result));
    let filled = filled.filter(|filled| is_last && is_there(filled));
    let filled = filled.unwrap_or_default();
    let end = match ready_alone(number, true) {
        Some(ready) => {
            let mut pieces = in_place::Pieces::NONE;
            // SAFETY: nobody else can change what is mapped.
            let found = unsafe { pieces.measure(ready, &args, (Some(result), filled), true) };
            found.and_then(|()| end(place, number, result, &pieces))
        }
        None => {
            let (mut in_place, mut how) = (in_place::Pieces::NONE, How::NONE);
            let (call, to) = ((number, &args), (&mut in_place, &mut how));
            let found = measure(place, call, Some(result), filled, to);
            found.and_then(|()| end(place, number, result, &Pieces(&in_place, &how)))
        }
    };
    let Some([end, _]) = end else {
        return false;
    };
    hot.filled
        .set([filled[0], filled[1], end, hot.sequence.get().into()]);
    hot.taken.set([hot.taken.get()[0]; 2]);
    hot.ssp.add_in_one((FRAME_BYTES as u64).wrapping_neg());
    true
}

#[inline(always)]
fn end(
    Place { hot, door, .. }: Place,
    number: u32,
    result: i64,
    pieces: &impl Body,
) -> Option<[u64; 2]> {
    let record = (record::SYSTEM_RETURN, record::RETURNED);
    write(hot, door, record, &[number.into(), result as u64], pieces)
}

/// What is due, if nobody else can change what is mapped, and the arguments do not say it: that is
/// most calls of programs with one thread, which read nothing of the host's table.
#[inline]
fn ready_alone(number: u32, is_after: bool) -> Option<impl Iterator<Item = Option<Due>>> {
    let ready = match is_alone() {
        true => due::ready(number, is_after),
        false => None,
    };
    Some(ready?.map(Some))
}

/// Where the memory begins and ends that the kernel has just written for a call with this result
/// (man pages of section 2): it is there. Numbers of arch/x86/entry/syscalls/syscall_64.tbl.
fn filled(number: u32, args: &[u64; 6], result: i64) -> [u64; 2] {
    let (start, bytes) = match (number, result) {
        // read, pread64, getdents64, readlink; readlinkat; getrandom, getcwd
        (0 | 17 | 217 | 89, 1..) => (args[1], result as u64),
        (267, 1..) => (args[2], result as u64),
        (318 | 79, 1..) => (args[0], result as u64),
        // stat, fstat, lstat; newfstatat; statx
        (4..=6, 0) => (args[1], STAT_BYTES),
        (262, 0) => (args[2], STAT_BYTES),
        (332, 0) => (args[4], STATX_BYTES),
        _ => (0, 0),
    };
    [start, start.saturating_add(bytes)]
}

/// What was filled at the last record, if that is still the last one: a program that copies writes
/// what it has just read.
fn filled_before(hot: &Hot) -> [u64; 2] {
    let [start, end, cur, sequence] = hot.filled.get();
    let is_last = cur == hot.cur.get() && sequence == u64::from(hot.sequence.get());
    match is_last && is_moment(hot.taken.get()[1]) {
        true => [start, end],
        false => [0; 2],
    }
}

/// What shows a call, as it follows a record's head.
trait Body {
    fn bytes(&self) -> usize;

    /// False: they cannot be read any more.
    fn may_be_read(&self) -> bool;

    /// Writes them into zeros.
    ///
    /// # Safety
    /// They were measured just now, and is_plain.
    unsafe fn write(&self, to: &mut [u8]);

    /// True if no others were written in their place: in a record from one place to another, of a
    /// chunk with that number, before `next` (see [`place_of_next`]).
    fn are_same(&self, first: [u64; 2], end: [u64; 2], next: [u64; 3]) -> bool;
}

/// Nobody else can change what is mapped.
impl Body for in_place::Pieces {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn may_be_read(&self) -> bool {
        true
    }

    #[inline]
    unsafe fn write(&self, to: &mut [u8]) {
        // SAFETY: the caller's.
        unsafe { self.write(to) };
    }

    fn are_same(&self, _: [u64; 2], _: [u64; 2], _: [u64; 3]) -> bool {
        true
    }
}

/// One of them, and who reads it, as in [`How`].
struct Text {
    text: in_place::Text,
    reader: Option<Reader<'static>>,
}

impl Body for Text {
    #[inline]
    fn bytes(&self) -> usize {
        self.text.bytes
    }

    #[inline]
    fn may_be_read(&self) -> bool {
        self.reader.as_ref().is_none_or(Reader::may_read)
    }

    #[inline]
    unsafe fn write(&self, to: &mut [u8]) {
        // SAFETY: the caller's.
        unsafe { self.text.write(to) };
    }

    #[inline]
    fn are_same(&self, _: [u64; 2], _: [u64; 2], _: [u64; 3]) -> bool {
        true
    }
}

/// The same wherever they are. Both are made where they stay: copying them costs as much as a
/// record.
struct Pieces<'a>(&'a in_place::Pieces, &'a How);

/// How they are read.
struct How {
    /// They stay where they lie while the reader lives, which is there unless there is but one
    /// thread.
    reader: Option<Reader<'static>>,
    /// In place of these: in a buffer of the thread's, with what [`place_of_next`] said before they
    /// were read: it tells of a handler that has filled the buffer with others.
    copied: Option<(&'static [u8], [u64; 3])>,
}

impl How {
    const NONE: Self = Self {
        reader: None,
        copied: None,
    };
}

impl Body for Pieces<'_> {
    fn bytes(&self) -> usize {
        let copied = self.1.copied.map(|(bytes, _)| bytes.len());
        copied.unwrap_or(self.0.bytes)
    }

    fn may_be_read(&self) -> bool {
        self.1.reader.as_ref().is_none_or(Reader::may_read)
    }

    unsafe fn write(&self, to: &mut [u8]) {
        let Some((bytes, _)) = self.1.copied else {
            // SAFETY: the caller's.
            return unsafe { self.0.write(to) };
        };
        for (to, byte) in to.iter_mut().zip(bytes) {
            *to = *byte;
        }
    }

    fn are_same(&self, first: [u64; 2], end: [u64; 2], next: [u64; 3]) -> bool {
        self.1.copied.is_none_or(|(copied, before)| {
            let is_ours = copied.is_empty() || next[2] == before[2] + 1;
            is_ours && before[..2] == first && next[..2] == end
        })
    }
}

/// Whose memory is to be read: the thread's, whose event came to this door, from this place on its
/// stack.
#[derive(Clone, Copy)]
struct Place {
    hot: &'static Hot,
    door: u64,
    rsp: u64,
}

/// Finds the memory that shows a call, where `is_plain` has said so; `filled`: see
/// [`in_place::Pieces::measure`]. `None`: this is none of the ways to read it.
fn measure(
    place: Place,
    (number, args): (u32, &[u64; 6]),
    result: Option<i64>,
    filled: [u64; 2],
    (to, how): (&mut in_place::Pieces, &mut How),
) -> Option<()> {
    let ready = due::ready(number, result.is_some());
    if ready.is_none() && !is_asked(number, args, result) {
        return None;
    }
    let is_alone = is_alone();
    // What changes mappings is told of with signals blocked; and the stacks of coroutines may be
    // small ones.
    let is_plain = is_alone
        || !certain::is_mapping(number)
            && !sandbox::is_sandboxed()
            && (certain::is_first_stack(place.rsp) || is_stack_of_thread(place));
    if !is_plain {
        return None;
    }
    let reader = match is_alone {
        true => None,
        false => reading::begin(place.hot, place.door),
    };
    if is_alone || reader.is_some() {
        let known = (result, filled);
        let is_calm = reader.as_ref().is_none_or(|reader| reader.is_calm);
        let found = match ready {
            // SAFETY: nobody else can change what is mapped, now that nobody else may.
            Some(all) => unsafe { to.measure(all.map(Some), args, known, is_calm) },
            None => Captures::of(number)?.each_due(args, result, |i, load| {
                let due = Due::now(i, load, args, result);
                // SAFETY: as above.
                unsafe { to.measure([due].into_iter(), args, known, is_calm) }
            }),
        };
        if is_alone || found.is_some() {
            how.reader = reader;
            return found;
        }
    }
    // The kernel needs no reader's word.
    drop(reader);
    let before = place_of_next(place.hot);
    let copied = Captures::of(number)?.read(place.hot, args, result);
    how.copied = Some((copied, before));
    (copied.len() <= in_place::MOST_BYTES).then_some(())
}

/// True if the call, which may be recorded on some descriptors alone, is recorded, and has no
/// payload: that runs in the slow path.
fn is_asked(number: u32, args: &[u64; 6], result: Option<i64>) -> bool {
    let captures = Captures::of(number).filter(|captures| !captures.has_payload());
    captures.is_some_and(|captures| result.is_some() || captures.is_asked(args))
}

/// Where the thread's next record will be, another place if a handler has made one; and how often
/// the buffer was given away.
fn place_of_next(hot: &Hot) -> [u64; 3] {
    [
        hot.cur.get(),
        hot.sequence.get().into(),
        hot.pieces_given.get(),
    ]
}

/// True if it is on the stack that a thread has from the C library, which keeps what fs points at
/// above it (glibc's nptl/allocatestack.c, musl's src/thread/pthread_create.c).
fn is_stack_of_thread(Place { hot, rsp, .. }: Place) -> bool {
    let below = sys::fs_base().checked_sub(rsp);
    hot.has_self.get() == 1 && below.is_some_and(|below| below < certain::STACK_BYTES)
}

/// True if memory from the first address up to the second is on that stack, where the thread is,
/// which nobody takes away from it.
fn is_on_stack(place: Place, [start, end]: [u64; 2]) -> bool {
    start >= place.rsp
        && end <= sys::fs_base()
        && certain::is_watched()
        && is_stack_of_thread(place)
}

/// Nothing was taken away since then, but by this thread.
fn is_moment(moment: u64) -> bool {
    certain::is_watched() && (is_alone() || reading::is_moment(moment))
}

/// Nobody else can change what is mapped.
fn is_alone() -> bool {
    state::process().sharing.load(Ordering::Relaxed) == SHARING_NONE
}

/// Nothing but this call is to be told.
fn is_plain(hot: &Hot) -> bool {
    state::process().sharing.load(Ordering::Relaxed) != SHARING_UNKNOWN
        && hot.quick.get() != 0
        && hot.muted.get() == 0
        && !hot.lends.get()
        && hot.rearm_above.get() == 0
        && hot.overflow.get() == 0
        && hot.lost.get() == 0
        && hot.end.get() != 0
}

/// Writes a record, all of it or none. `id` and `low`: see [`record`]. Gives where it ends, and the
/// low half of its stamp. `None`: it was not written.
#[inline(always)]
fn write<const N: usize>(
    hot: &Hot,
    door: u64,
    (id, low): (u32, u32),
    head: &[u64; N],
    pieces: &impl Body,
) -> Option<[u64; 2]> {
    let values_at = HEAD_BYTES + size_of_val(head) as u64;
    let piece_bytes = pieces.bytes();
    let mark = values_at + piece_bytes as u64;
    let bytes = mark + size_of_val(&values::END) as u64;
    // Checked against the chunk's end, as in the hot path.
    let sequence = u64::from(hot.sequence.get());
    let mut to = Reserved::take(hot, bytes, |hot| hot.end.get())?;
    let now = sys::tsc();
    let is_usual = now >> 32 == hot.hi.get();
    // With its length: what is not finished can be passed over.
    let stamp = if is_usual { now as u32 } else { 1 };
    let length = (bytes - HEAD_BYTES) << 32;
    to.fill_head(record::word(id, stamp), u64::from(low) | length);
    if !is_usual {
        return None;
    }
    to.fill_words(HEAD_BYTES, head);
    if !pieces.may_be_read() {
        return None;
    }
    // SAFETY: they were measured just now, and is_plain.
    unsafe { pieces.write(to.bytes(values_at, piece_bytes)) };
    let [first, end] = [0, bytes].map(|offset| [to.address(offset), sequence]);
    let is_same = pieces.are_same(first, end, place_of_next(hot));
    // Where a handler has handed the chunk over, nobody would see the mark.
    if !is_same || u64::from(hot.sequence.get()) != sequence {
        return None;
    }
    hot.writing.set([door, to.address(mark)]);
    compiler_fence(Ordering::SeqCst);
    to.fill_half(mark, values::END);
    compiler_fence(Ordering::SeqCst);
    Some([to.address(bytes), u64::from(stamp)])
}
