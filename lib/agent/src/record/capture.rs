//! The memory that shows a system call's arguments, read without a fault.
//!
//! Given a call's number, arguments and result, and the host's table of what to read
//! ([`sptrace_wire::values`]); gives the pieces, as they follow a record's head, in a buffer of the
//! thread's. What cannot be read is a shorter piece; what there is no room for is cut.
//!
//! Must not know what is captured, nor where it is written.

use crate::memory::thread::Hot;
use crate::memory::{descriptors, reading, state, sys};
use sptrace_wire::values::{
    Arm, Begin, CallCaptures, CaptureTable, CaptureView, Count, ERRORS, Load, Piece, Until, When,
};

/// A load brings no more than this many elements' pointers.
const MOST_ELEMENTS: usize = 4096;
/// Strings are read in steps of so many bytes: most are shorter.
const STEP_BYTES: usize = 256;
const PAGE_BYTES: u64 = 4096;

/// What is to be read for a call.
pub struct Captures {
    view: CaptureView<'static>,
    call: CallCaptures,
}

impl Captures {
    /// For the call of this number. `None`: it is not to be recorded.
    #[inline]
    pub fn of(number: u32) -> Option<Self> {
        let view = table()?;
        let call = view.call(number)?;
        (call.is_wanted != 0).then_some(Self { view, call })
    }

    /// True if a payload runs at the call.
    pub const fn has_payload(&self) -> bool {
        self.call.has_payload != 0
    }

    /// Which of the call's arguments are descriptors, by bits, if it is recorded on some alone.
    pub fn bound(&self) -> Option<u8> {
        let head = self.view.head()?;
        let is_bound = head.asked_at != 0 || head.paths != 0 && self.call.descriptors != 0;
        is_bound.then_some(self.call.descriptors)
    }

    /// True if a call with these arguments is on a descriptor that is asked for, or may be on a
    /// path that is.
    pub fn is_asked(&self, args: &[u64]) -> bool {
        let may_be_on_path = |head: CaptureTable| {
            let all = self.call.descriptors;
            let is_bound = head.paths != 0 && all != 0 && !self.has_payload();
            let mut each = (0..u8::BITS).zip(args);
            !is_bound || each.any(|(i, fd)| all & 1 << i != 0 && descriptors::may_lead(*fd as u32))
        };
        self.view.is_asked(&self.call, args) && self.view.head().is_none_or(may_be_on_path)
    }

    /// As a plan says it of a function: `call` with offsets in `view`.
    pub const fn planned(view: CaptureView<'static>, call: CallCaptures) -> Self {
        Self { view, call }
    }

    /// True if something is to be read at one of these moments, whatever the arguments are.
    pub fn reads(&self, moments: &[When]) -> bool {
        let reads = |arm: Arm| {
            let mut loads = (0..arm.loads).filter_map(|i| self.view.load(&arm, i));
            loads.any(|load| load.most > 0 && moments.contains(&load.when))
        };
        self.view.arms(&self.call).any(reads)
    }

    /// Shows the call's commands, if its second argument's low half alone says what is read: first
    /// all (`None`), then those that are not as the others; and whether nothing is read.
    pub fn each_command(&self, show: impl Fn(Option<u64>, bool)) {
        let call = &self.call;
        if call.selector != 1 || call.second != u8::MAX || call.mask != 0xffff_ffff {
            return;
        }
        let reads_nothing = |arm: Arm| {
            let mut loads = (0..arm.loads).filter_map(|i| self.view.load(&arm, i));
            loads.all(|load| load.most == 0)
        };
        let mut arms = self.view.arms(call);
        show(None, arms.next().is_some_and(reads_nothing));
        for value in arms.flat_map(|arm| self.view.values(arm)) {
            let arm = self.view.arm(call, &[0, value]);
            show(Some(value), arm.is_some_and(reads_nothing));
        }
    }

    /// Shows the loads that there are whatever the arguments are, with their numbers, until `show`
    /// gives `None`, which is given then, or if the arguments say which there are.
    pub fn each_always(&self, mut show: impl FnMut(u32, &Load) -> Option<()>) -> Option<()> {
        if self.call.arms > 1 {
            return None;
        }
        let arm = self.view.arm(&self.call, &[]).unwrap_or_default();
        let loads = (0..arm.loads).filter_map(|i| Some((i, self.view.load(&arm, i)?)));
        let mut read = loads.filter(|(_, load)| load.most > 0);
        read.try_for_each(|(i, load)| show(i, &load))
    }

    /// Shows the loads that are due before the call without a result, or after it, with their
    /// numbers, until `show` gives `None`, which is given then.
    #[inline]
    pub fn each_due(
        &self,
        args: &[u64],
        result: Option<i64>,
        mut show: impl FnMut(u32, &Load) -> Option<()>,
    ) -> Option<()> {
        let arm = self.view.arm(&self.call, args).unwrap_or_default();
        for i in 0..arm.loads {
            // By reference: an iterator of them would copy each three times.
            match self.view.load(&arm, i) {
                Some(load) if is_due(&load, args, result) => show(i, &load)?,
                _ => {}
            }
        }
        Some(())
    }

    /// The pieces: before the call without a result, or after it. `hot` is the thread's own block,
    /// and the pieces are gone when it reads others.
    pub fn read<'a>(&self, hot: &'a Hot, args: &[u64], result: Option<i64>) -> &'a [u8] {
        let Some(arm) = self.view.arm(&self.call, args) else {
            return &[];
        };
        if self.each_due(args, result, |_, _| None).is_some() {
            return &[];
        }
        // SAFETY: a record takes the pieces that were read before any others are.
        let Some(buffer) = (unsafe { hot.pieces() }) else {
            return &[];
        };
        let used = Reading {
            view: self.view,
            arm,
            args,
            result,
            hot: Some(hot),
            buffer: &mut *buffer,
            used: 0,
        }
        .all();
        buffer.get(..used).unwrap_or(&[])
    }
}

/// The host's table.
fn table() -> Option<CaptureView<'static>> {
    let control = state::control();
    let (at, end) = (control.captures_offset, control.arena_bytes);
    if at == 0 || at >= end {
        return None;
    }
    let first = (state::process().arena() + at) as *const u8;
    // SAFETY: the arena is mapped to its end; nobody writes to a table that was announced.
    let bytes = unsafe { core::slice::from_raw_parts(first, (end - at) as usize) };
    Some(CaptureView::new(bytes))
}

/// Where the bits of the descriptors are that are asked for; 0: calls are not bound to any.
pub fn asked_descriptors() -> u64 {
    let head = table().and_then(|view| view.head()).unwrap_or_default();
    match head.asked_at {
        0 if head.paths != 0 => descriptors::address(),
        0 => 0,
        at => state::process().arena() + state::control().captures_offset + u64::from(at),
    }
}

/// The paths that calls must be on. `None`: they need not.
pub fn paths() -> Option<impl Iterator<Item = &'static [u8]>> {
    let view = table()?;
    let head = view.head().filter(|head| head.paths != 0)?;
    Some(view.paths(&head))
}

/// Which calls are left out when they have ended: see [`Hot::unwanted`].
pub fn unwanted_results() -> [u64; 2] {
    let head = table().and_then(|view| view.head());
    head.map_or([0; 2], |head| [head.unwanted.into(), head.least_ticks])
}

fn is_due(load: &Load, args: &[u64], result: Option<i64>) -> bool {
    let is_time = match (load.when, result) {
        (When::Before, result) => result.is_none(),
        (When::After, result) => result.is_some_and(|result| !ERRORS.contains(&result)),
        (When::AfterAll, result) => result.is_some(),
    };
    let has = argument(args, load.condition_of) & load.bits != 0;
    is_time
        && load.most > 0
        && match load.condition {
            0 => true,
            1 => has,
            _ => !has,
        }
}

/// An argument by its place.
pub fn argument(args: &[u64], i: u8) -> u64 {
    args.get(i as usize).copied().unwrap_or(0)
}

/// How many bytes a load wants. `None`: memory says that.
pub fn wanted_by_arguments(load: &Load, args: &[u64], result: Option<i64>) -> Option<u64> {
    let arg = |i: u8| argument(args, i);
    let returned = u64::try_from(result.unwrap_or(0)).unwrap_or(0);
    let count = match load.count_kind {
        _ if load.until != Until::Count => return Some(load.most.into()),
        Count::Constant => load.count.into(),
        Count::Argument => arg(load.count_from) & 0xffff_ffff,
        Count::Product => arg(load.count_from).saturating_mul(arg(load.count as u8)),
        Count::Result => returned,
        Count::Lesser => returned.min(arg(load.count_from)),
        Count::Field | Count::Behind => return None,
    };
    Some(bytes_of(load, count))
}

fn bytes_of(load: &Load, count: u64) -> u64 {
    let bytes = count.saturating_mul(load.each.into());
    bytes.min(u64::from(load.most))
}

/// A little-endian number of `width` bytes.
fn number(bytes: &[u8], offset: usize, width: usize) -> u64 {
    let part = bytes.get(offset..offset + width).unwrap_or(&[]);
    part.iter().rev().fold(0, |sum, b| sum << 8 | u64::from(*b))
}

struct Reading<'a> {
    view: CaptureView<'static>,
    arm: Arm,
    args: &'a [u64],
    result: Option<i64>,
    /// `None`: the kernel copies what is read.
    hot: Option<&'a Hot>,
    buffer: &'a mut [u8],
    used: usize,
}

impl Reading<'_> {
    fn all(mut self) -> usize {
        for i in 0..self.arm.loads {
            let Some(load) = self.view.load(&self.arm, i) else {
                break;
            };
            if !is_due(&load, self.args, self.result) {
                continue;
            }
            match load.begin {
                Begin::Argument => self.one(&load, i, argument(self.args, load.from), 0),
                Begin::Pointers => self.each(&load, i),
            }
        }
        self.used
    }

    /// A load that begins at each pointer of what another has brought.
    fn each(&mut self, load: &Load, i: u32) {
        let (end, mut at, mut elements) = (self.used, 0, 0);
        let stride = usize::from(load.stride).max(1);
        while at < end {
            let Some(piece) = self.buffer.get(at..).and_then(Piece::read) else {
                return;
            };
            let first = at + Piece::BYTES;
            let bytes = piece.bytes as usize;
            if u32::from(piece.load) == u32::from(load.from) {
                for element in 0..bytes / stride {
                    let element_at = first + element * stride;
                    let pointer = self.number(element_at + usize::from(load.offset), 8);
                    self.one(load, i, pointer, element_at);
                    elements += 1;
                    if elements == MOST_ELEMENTS {
                        return;
                    }
                }
            }
            at = first + bytes.next_multiple_of(4);
        }
    }

    fn number(&self, at: usize, width: usize) -> u64 {
        number(self.buffer, at, width)
    }

    /// How many bytes; `element_at`: where the element that holds the pointer is in the buffer.
    fn wanted(&self, load: &Load, element_at: usize) -> u64 {
        let known = wanted_by_arguments(load, self.args, self.result);
        known.unwrap_or_else(|| {
            let count = match load.count_kind {
                Count::Field => {
                    self.number(element_at + load.count as usize, load.count_from.into())
                }
                _ => {
                    let at = argument(self.args, load.count_from);
                    let word = match self.hot {
                        Some(hot) => reading::word(hot, at),
                        None => sys::read_word(at),
                    };
                    word.map_or(0, |word| word & 0xffff_ffff)
                }
            };
            bytes_of(load, count)
        })
    }

    /// One piece.
    fn one(&mut self, load: &Load, i: u32, address: u64, element_at: usize) {
        if address == 0 {
            return;
        }
        let wanted = self.wanted(load, element_at) as usize;
        let first = self.used + Piece::BYTES;
        let room = self.buffer.len().saturating_sub(first) & !3;
        if self.buffer.len() < first {
            return;
        }
        let bytes = self.copy(load, address, wanted.min(room), first);
        let piece = Piece {
            address,
            bytes: bytes as u32,
            load: i as u16,
            when: load.when,
            is_cut: u8::from(wanted > room && bytes == room),
        };
        if let Some(head) = self.buffer.get_mut(self.used..first) {
            head.copy_from_slice(&piece.to_bytes());
        }
        let end = (first + bytes).next_multiple_of(4);
        if let Some(filling) = self.buffer.get_mut(first + bytes..end) {
            filling.fill(0);
        }
        self.used = end;
    }

    /// Copies up to `wanted` bytes to `to` in the buffer, page by page, so that what follows the
    /// last mapped page is not missed for its sake; gives how many there were.
    fn copy(&mut self, load: &Load, address: u64, wanted: usize, to: usize) -> usize {
        let mut bytes = 0;
        while bytes < wanted {
            let at = address.wrapping_add(bytes as u64);
            let in_page = (PAGE_BYTES - at % PAGE_BYTES) as usize;
            let step = match load.until {
                Until::Count => wanted,
                Until::String | Until::Null => STEP_BYTES - bytes % STEP_BYTES,
            };
            let step = step.min(in_page).min(wanted - bytes);
            let Some(place) = self.buffer.get_mut(to + bytes..to + bytes + step) else {
                break;
            };
            let got = match self.hot {
                Some(hot) => reading::copy(hot, at, place),
                None => sys::read_into(at, place),
            };
            let Some(read) = self.buffer.get(to..to + bytes + got) else {
                break;
            };
            let end = match load.until {
                Until::Count => None,
                Until::String => {
                    let new = read.get(bytes..).unwrap_or(&[]);
                    new.iter().position(|b| *b == 0).map(|i| bytes + i + 1)
                }
                Until::Null => {
                    let mut words = read.chunks_exact(8);
                    words.position(|w| number(w, 0, 8) == 0).map(|i| i * 8 + 8)
                }
            };
            bytes += got;
            if let Some(end) = end {
                return end;
            }
            if got < step {
                break;
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::page_before_nothing;
    use sptrace_wire::values::pieces;
    use std::vec;
    use std::vec::Vec;

    /// What these loads bring, as (address, bytes).
    fn read(loads: &[Load], args: [u64; 6], result: Option<i64>) -> Vec<(u64, Vec<u8>)> {
        let mut bytes = CaptureTable::default().to_bytes().to_vec();
        let arm = Arm {
            loads_at: bytes.len() as u32,
            loads: loads.len() as u32,
            ..Arm::default()
        };
        bytes.extend(loads.iter().flat_map(|load| load.to_bytes()));
        let mut buffer = vec![0xaa; 4096];
        let used = Reading {
            view: CaptureView::new(bytes.leak()),
            arm,
            args: &args,
            result,
            hot: None,
            buffer: &mut buffer,
            used: 0,
        }
        .all();
        let found = pieces(&buffer[..used]).map(|(piece, bytes)| (piece.address, bytes.to_vec()));
        found.collect()
    }

    fn string(most: u32) -> Load {
        Load {
            most,
            ..Load::default()
        }
    }

    #[test]
    fn a_string_ends_with_its_zero_or_where_memory_does() {
        let text = c"a path".as_ptr() as u64;
        assert_eq!(
            read(&[string(4096)], [text, 0, 0, 0, 0, 0], None),
            [(text, b"a path\0".to_vec())]
        );
        let end = page_before_nothing(&[b'x'; 300]);
        let found = read(&[string(4096)], [end - 300, 0, 0, 0, 0, 0], None);
        assert_eq!(found, [(end - 300, vec![b'x'; 300])]);
        assert_eq!(
            read(&[string(10)], [end, 0, 0, 0, 0, 0], None),
            [(end, vec![])]
        );
        // A null pointer leads nowhere.
        assert_eq!(read(&[string(10)], [0; 6], None), []);
    }

    #[test]
    fn buffers_are_found_by_the_pointers_and_lengths_that_were_read() {
        let (one, two) = (*b"first", *b"second!");
        let vectors = [one.as_ptr() as u64, 5, two.as_ptr() as u64, 7];
        let list = Load {
            until: Until::Count,
            count_kind: Count::Argument,
            count_from: 1,
            each: 16,
            most: 1024,
            ..Load::default()
        };
        let each = Load {
            begin: Begin::Pointers,
            stride: 16,
            until: Until::Count,
            count_kind: Count::Field,
            count_from: 8,
            count: 8,
            each: 1,
            most: 6,
            ..Load::default()
        };
        let at = vectors.as_ptr() as u64;
        let found = read(&[list, each], [at, 2, 0, 0, 0, 0], None);
        assert_eq!(found.len(), 3);
        assert_eq!(found[1], (vectors[0], b"first".to_vec()));
        // No more than the most.
        assert_eq!(found[2], (vectors[2], b"second".to_vec()));
    }

    #[test]
    fn what_comes_out_is_read_after_a_call_that_did_not_fail() {
        let buffer = *b"12345678";
        let load = Load {
            when: When::After,
            until: Until::Count,
            count_kind: Count::Lesser,
            count_from: 1,
            each: 1,
            most: 32,
            ..Load::default()
        };
        let args = [buffer.as_ptr() as u64, 100, 0, 0, 0, 0];
        assert_eq!(read(&[load], args, None), []);
        assert_eq!(read(&[load], args, Some(-14)), []);
        assert_eq!(read(&[load], args, Some(3)), [(args[0], b"123".to_vec())]);
    }

    #[test]
    fn what_there_is_no_room_for_is_left_out() {
        let text = [b'x'; 3000];
        let args = [text.as_ptr() as u64; 6];
        let found = read(&[string(3000), string(3000)], args, None);
        assert_eq!(found.len(), 2);
        assert!(found[0].1.len() == 3000 && found[1].1.len() < 1100);
    }

    #[test]
    fn commands_that_read_nothing_are_told_from_those_that_do() {
        // Of 5 and 36 memory is read; of 6 and all others none, nor would be of 5 by the last.
        let mut bytes = CaptureTable::default().to_bytes().to_vec();
        let mut put = |more: &[u8]| {
            bytes.extend(more);
            (bytes.len() - more.len()) as u32
        };
        let loads_at = put(&string(10).to_bytes());
        let mut arm = |values: &[u64], loads| {
            let words: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            Arm {
                values_at: put(&words),
                values: values.len() as u32,
                loads_at,
                loads,
            }
        };
        let arms = [arm(&[], 0), arm(&[5, 36], 1), arm(&[5, 6], 0)];
        let rows: Vec<u8> = arms.iter().flat_map(|arm| arm.to_bytes()).collect();
        let call = CallCaptures {
            arms_at: put(&rows),
            arms: 3,
            selector: 1,
            second: u8::MAX,
            mask: 0xffff_ffff,
            ..CallCaptures::default()
        };
        let view = CaptureView::new(bytes.leak());
        let told = |call| {
            let told = core::cell::RefCell::new(Vec::new());
            Captures::planned(view, call)
                .each_command(|command, is| told.borrow_mut().push((command, is)));
            told.into_inner()
        };
        let expected = [
            (None, true),
            (Some(5), false),
            (Some(36), false),
            (Some(5), false),
            (Some(6), true),
        ];
        assert_eq!(told(call), expected);
        // Another argument selects, or not alone, or all its bits do.
        for other in [
            CallCaptures {
                selector: 0,
                ..call
            },
            CallCaptures { second: 2, ..call },
            CallCaptures {
                mask: u64::MAX,
                ..call
            },
        ] {
            assert_eq!(told(other), []);
        }
    }
}
