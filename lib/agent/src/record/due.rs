//! Memory that is due for a call of the kernel, each piece of it in one word.
//!
//! Given the host's table of what is read ([`crate::record::capture`]); gives a table of its own,
//! by number and moment, of the calls for which the same is read whatever their arguments are: so
//! most calls read nothing of the host's table. Must not know how memory is read.

use crate::memory::certain;
use crate::record::capture::{Captures, argument, wanted_by_arguments};
use crate::routines::filled::{NEWFSTATAT, STAT_BYTES};
use core::sync::atomic::{AtomicU64, Ordering};
use sptrace_wire::values::{Begin, Count, ERRORS, Load, Until, When};

/// Numbers that have a place (asm/unistd_64.h has fewer).
const CALLS: usize = 512;
/// Loads of one moment: a call for which more are due has no place.
const MOST: usize = 2;
/// In place of the first: the call has no place.
const UNKNOWN: u64 = u64::MAX;
/// Added to the first, a text before the call: nothing else is due then, and the call changes
/// nothing of what is mapped.
const ALONE: u64 = 1 << 60;

/// Calls that fill a struct stat (arch/x86/entry/syscalls/syscall_64.tbl).
const STAT: u32 = 4;
const LSTAT: u32 = 6;
/// The bits of a [`Due`] that say which load it is, and where a count comes from that is none.
const NOT_WHAT: u64 = 0xff << 48 | 0xf << 44;

/// Before a call and after it.
static READY: [[[AtomicU64; MOST]; 2]; CALLS] =
    [const { [const { [const { AtomicU64::new(UNKNOWN) }; MOST] }; 2] }; CALLS];

/// How many bytes are due. None is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Kind {
    /// To a byte 0, or `bytes`.
    String = 1,
    /// `bytes`.
    Bytes = 2,
    /// At most `bytes`: an argument's low half says how many.
    Argument = 3,
    /// The result does.
    Result = 4,
    /// The lesser of the two.
    Lesser = 5,
}

/// One load, at an argument: from the lowest bits on its most bytes (32), its kind (8), its
/// argument (4), that of its count (4), its number (8) and its moment (4). 0: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Due(u64);

impl Due {
    const NONE: Self = Self(0);

    /// A load whose length is known. `None`: it does not fit, or begins elsewhere.
    fn new(i: u32, load: &Load, kind: Kind, bytes: u64) -> Option<Self> {
        let fits = i < 1 << 8 && load.from < 1 << 4 && load.count_from < 1 << 4;
        let [i, kind] = [i.into(), kind as u64];
        let [from, count_from, when] = [load.from, load.count_from, load.when as u8].map(u64::from);
        let word = bytes | kind << 32 | from << 40 | count_from << 44 | i << 48 | when << 56;
        let is_due = fits && load.begin == Begin::Argument && bytes <= u32::MAX.into();
        is_due.then_some(Self(word))
    }

    /// One of so many bytes, but for its number.
    const fn head_of(kind: Kind, bytes: usize, from: u64, when: When) -> u64 {
        bytes as u64 | (kind as u64) << 32 | from << 40 | (when as u64) << 56
    }

    /// Whatever the arguments are. `None`: they say more than how many bytes there are.
    fn always(i: u32, load: &Load) -> Option<Self> {
        let most = u64::from(load.most);
        let (kind, bytes) = match (load.until, load.count_kind) {
            (Until::Null, _) => return None,
            (Until::String, _) => (Kind::String, most),
            (_, Count::Constant) => (Kind::Bytes, wanted_by_arguments(load, &[], None)?),
            _ if load.each != 1 => return None,
            (_, Count::Argument) => (Kind::Argument, most),
            (_, Count::Result) => (Kind::Result, most),
            (_, Count::Lesser) => (Kind::Lesser, most),
            _ => return None,
        };
        Self::new(i, load, kind, bytes).filter(|_| load.condition == 0)
    }

    /// For these arguments, at this moment.
    pub fn now(i: u32, load: &Load, args: &[u64], result: Option<i64>) -> Option<Self> {
        let kind = match load.until {
            Until::Null => return None,
            Until::String => Kind::String,
            Until::Count => Kind::Bytes,
        };
        Self::new(i, load, kind, wanted_by_arguments(load, args, result)?)
    }

    /// False: it is for calls that do not fail, and this one did.
    #[inline]
    pub fn is_for(self, result: Option<i64>) -> bool {
        self.when() != When::After as u64 || result.is_none_or(|result| !ERRORS.contains(&result))
    }

    /// Where it begins.
    #[inline]
    pub fn address(self, args: &[u64; 6]) -> u64 {
        argument(args, (self.0 >> 40 & 0xf) as u8)
    }

    /// At most how many bytes.
    #[inline]
    pub fn wanted(self, args: &[u64; 6], result: Option<i64>) -> u64 {
        let most = self.0 & 0xffff_ffff;
        let counted = || argument(args, (self.0 >> 44 & 0xf) as u8);
        let returned = || u64::try_from(result.unwrap_or(0)).unwrap_or(0);
        match self.kind() {
            kind if kind <= Kind::Bytes as u64 => most,
            kind if kind == Kind::Argument as u64 => most.min(counted() & 0xffff_ffff),
            kind if kind == Kind::Result as u64 => most.min(returned()),
            _ => most.min(returned()).min(counted()),
        }
    }

    /// It ends after a byte 0.
    #[inline]
    pub fn is_string(self) -> bool {
        self.kind() == Kind::String as u64
    }

    /// The second word of a piece of so many bytes ([`sptrace_wire::values::Piece`]).
    #[inline]
    pub fn head(self, bytes: usize) -> u64 {
        self.when() << 48 | (self.0 >> 48 & 0xff) << 32 | bytes as u64
    }

    #[inline]
    fn kind(self) -> u64 {
        self.0 >> 32 & 0xff
    }

    #[inline]
    fn when(self) -> u64 {
        self.0 >> 56 & 0xf
    }
}

/// What is due before a call, or after it, whatever its arguments are; the rest are none. `None`:
/// they say that, or the call has more to be done at it than to be recorded.
#[inline]
pub fn ready(number: u32, is_after: bool) -> Option<impl Iterator<Item = Due>> {
    let moments = READY.get(number as usize)?;
    let [before, after] = moments;
    let words = if is_after { after } else { before };
    let first = words[0].load(Ordering::Relaxed);
    let all = words
        .iter()
        .map(|word| Due(word.load(Ordering::Relaxed) & !ALONE));
    (first != UNKNOWN).then(|| all.take_while(|due| *due != Due::NONE))
}

/// The text that alone is due before a call that changes nothing of what is mapped.
#[inline]
pub fn text(number: u32) -> Option<Due> {
    let [before, _] = READY.get(number as usize)?;
    let first = before[0].load(Ordering::Relaxed);
    text_of(first)
}

fn text_of(word: u64) -> Option<Due> {
    (word >> ALONE.trailing_zeros() == 1).then_some(Due(word & !ALONE))
}

/// The second word of the piece ([`sptrace_wire::values::Piece`]) of a struct stat that the kernel
/// has filled, if that and nothing else is due after a success of the call.
fn structure(number: u32) -> Option<u64> {
    structure_of(number, ready(number, true)?)
}

fn structure_of(number: u32, mut all: impl Iterator<Item = Due>) -> Option<u64> {
    let argument = match number {
        STAT..=LSTAT => 1,
        NEWFSTATAT => 2,
        _ => return None,
    };
    let due = all.next().filter(|_| all.next().is_none())?;
    let expected = Due::head_of(Kind::Bytes, STAT_BYTES, argument, When::After);
    (due.0 & !NOT_WHAT == expected).then(|| due.head(STAT_BYTES))
}

/// That of calls below number 256, which all have the same, and of the one above.
pub fn structures() -> [u64; 2] {
    [STAT, NEWFSTATAT].map(|number| structure(number).unwrap_or(0))
}

/// True if a struct stat is due after a success of the call, as [`structures`] says.
pub fn is_structure(number: u32) -> bool {
    let [below, above] = structures();
    structure(number).is_some_and(|word| word == if number < 256 { below } else { above })
}

/// Fills the table from the host's.
pub fn fill() {
    for (number, moments) in (0..).zip(&READY) {
        let captures = Captures::of(number);
        for (words, is_after) in moments.iter().zip([false, true]) {
            let found = captures.as_ref().and_then(|all| find(all, is_after));
            for (word, bits) in words.iter().zip(words_of(number, is_after, found)) {
                word.store(bits, Ordering::Relaxed);
            }
        }
    }
}

/// As they stand in the table.
fn words_of(number: u32, is_after: bool, found: Option<[Due; MOST]>) -> [u64; MOST] {
    let [first, second] = found.unwrap_or([Due(UNKNOWN); MOST]);
    let is_text = !is_after && first.is_string() && second == Due::NONE;
    let alone = match is_text && !certain::is_mapping(number) {
        true => ALONE,
        false => 0,
    };
    [first.0 | alone, second.0]
}

fn find(captures: &Captures, is_after: bool) -> Option<[Due; MOST]> {
    if captures.has_payload() || captures.bound().is_some() {
        return None;
    }
    let mut found = [Due::NONE; MOST];
    let mut places = found.iter_mut();
    captures.each_always(|i, load| {
        if (load.when != When::Before) == is_after {
            *places.next()? = Due::always(i, load)?;
        }
        Some(())
    })?;
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sptrace_wire::values::{Arm, CallCaptures, CaptureTable, CaptureView};
    use std::vec::Vec;

    const ARGS: [u64; 6] = [3, 0x1000, 0x2000, 100, 5, 6];

    fn string(from: u8) -> Load {
        Load {
            until: Until::String,
            most: 4096,
            each: 1,
            from,
            ..Load::default()
        }
    }

    fn counted(when: When, count_kind: Count, count: u32) -> Load {
        Load {
            when,
            from: 2,
            until: Until::Count,
            count_kind,
            count,
            count_from: 3,
            each: 1,
            most: 4096,
            ..Load::default()
        }
    }

    /// What is due of a call with these loads, whatever its arguments are.
    fn found(loads: &[Load], arms: u16) -> [Option<[Due; MOST]>; 2] {
        let at = CaptureTable::BYTES;
        let arm = Arm {
            loads_at: (at + Arm::BYTES) as u32,
            loads: loads.len() as u32,
            ..Arm::default()
        };
        let mut bytes: Vec<u8> = [0; CaptureTable::BYTES].into();
        bytes.extend(arm.to_bytes());
        bytes.extend(loads.iter().flat_map(|load| load.to_bytes()));
        let call = CallCaptures {
            arms_at: at as u32,
            arms,
            is_wanted: 1,
            second: u8::MAX,
            ..CallCaptures::default()
        };
        let captures = Captures::planned(CaptureView::new(bytes.leak()), call);
        [false, true].map(|is_after| find(&captures, is_after))
    }

    #[test]
    fn a_path_and_a_structure_are_due_at_their_moments() {
        let structure = counted(When::After, Count::Constant, 144);
        let [Some([path, none]), Some([after, _])] = found(&[string(1), structure], 1) else {
            panic!("both are plain");
        };
        assert_eq!(none, Due::NONE);
        assert_eq!(
            (path.address(&ARGS), path.wanted(&ARGS, None)),
            (0x1000, 4096)
        );
        assert!(path.is_string() && path.is_for(None) && !after.is_string());
        let wanted = after.wanted(&ARGS, Some(0));
        assert_eq!((after.address(&ARGS), wanted), (0x2000, 144));
        assert!(after.is_for(Some(0)) && !after.is_for(Some(-2)));
        assert_eq!(after.head(144), 1 << 48 | 1 << 32 | 144);
    }

    #[test]
    fn a_text_alone_is_told_from_others() {
        let text = |number, is_after, found| text_of(words_of(number, is_after, found)[0]);
        let [path, _] = found(&[string(1)], 1);
        let expected = path.map(|[path, _]| path);
        assert!(expected.is_some() && text(NEWFSTATAT, false, path) == expected);
        let [two, after] = found(
            &[string(0), string(1), counted(When::After, Count::Result, 0)],
            1,
        );
        for (number, is_after, found) in [
            // munmap(2), and what is due after a call.
            (11, false, path),
            (NEWFSTATAT, true, path),
            (NEWFSTATAT, false, two),
            (NEWFSTATAT, false, after),
            (NEWFSTATAT, false, None),
            (NEWFSTATAT, false, Some([Due::NONE; MOST])),
        ] {
            assert_eq!(text(number, is_after, found), None);
        }
        // The others are as they were.
        assert_eq!(words_of(NEWFSTATAT, false, None), [UNKNOWN; MOST]);
        assert_eq!(
            words_of(NEWFSTATAT, true, path),
            path.unwrap_or_default().map(|due| due.0)
        );
    }

    #[test]
    fn a_struct_stat_alone_is_told_from_others() {
        let structure = |number, loads: &[Load]| {
            let [_, after] = found(loads, 1);
            structure_of(
                number,
                after.into_iter().flatten().filter(|due| *due != Due::NONE),
            )
        };
        let stat = |from| Load {
            from,
            ..counted(When::After, Count::Constant, 144)
        };
        let head = 1 << 48 | 144;
        assert_eq!(structure(NEWFSTATAT, &[stat(2)]), Some(head));
        let second = structure(NEWFSTATAT, &[string(1), stat(2)]);
        assert_eq!(second, Some(1 << 32 | head));
        assert_eq!(structure(5, &[stat(1)]), Some(head));
        for (number, loads) in [
            (NEWFSTATAT, &[stat(1)][..]),
            (5, &[stat(2)]),
            (0, &[stat(1)]),
            (5, &[stat(1), stat(1)]),
            (5, &[counted(When::AfterAll, Count::Constant, 144)]),
            (NEWFSTATAT, &[counted(When::After, Count::Constant, 140)]),
            (NEWFSTATAT, &[string(2)]),
            (5, &[]),
        ] {
            assert_eq!(structure(number, loads), None, "{number}");
        }
    }

    #[test]
    fn what_a_count_says_is_bounded() {
        for (kind, result, expected) in [
            (Count::Argument, 7, 100),
            (Count::Result, 7, 7),
            (Count::Result, -2, 0),
            (Count::Result, 1 << 40, 4096),
            (Count::Lesser, 7, 7),
            (Count::Lesser, 1 << 40, 100),
        ] {
            let load = counted(When::AfterAll, kind, 0);
            let due = Due::always(0, &load).expect("plain");
            assert_eq!(
                due.wanted(&ARGS, Some(result)),
                expected,
                "{kind:?} {result}"
            );
            let now = Due::now(0, &load, &ARGS, Some(result)).expect("plain");
            assert_eq!(
                now.wanted(&ARGS, Some(result)),
                expected,
                "{kind:?} {result}"
            );
            assert!(due.is_for(Some(-2)));
        }
    }

    #[test]
    fn what_arguments_or_memory_decide_has_no_place() {
        let plain = string(1);
        let conditional = Load {
            condition: 1,
            ..plain
        };
        let wide = Load {
            each: 8,
            ..counted(When::Before, Count::Argument, 0)
        };
        let pointers = Load {
            begin: Begin::Pointers,
            ..plain
        };
        let behind = counted(When::Before, Count::Behind, 0);
        for load in [conditional, wide, pointers, behind] {
            assert_eq!(found(&[load], 1)[0], None, "{load:?}");
        }
        // Too many, or there are other arms.
        assert_eq!(found(&[plain; 3], 1)[0], None);
        assert_eq!(found(&[plain], 2), [None; 2]);
        // What is never read is nothing.
        let never = Load { most: 0, ..plain };
        assert_eq!(found(&[never], 1), [Some([Due::NONE; MOST]); 2]);
        assert_eq!(Due::now(0, &behind, &ARGS, None), None);
    }
}
