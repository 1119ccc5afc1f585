//! Whose calls are recorded with values, and what of them is read.
//!
//! A section of the plan that a recording adds to its copy of it:
//!
//! ```text
//! section  = ValuesHead, FunctionValues * functions (by entry), then what their captures point to
//!            (Arm, u64, Load: see crate::values), in any order; all offsets count from the
//!            section's first byte
//! ```
//!
//! The *words* of a call are what its `sources` name, in their order, and after
//! the return the words [`RESULT_WORDS`] more: rax, rdx, xmm0. Captures name arguments by their
//! number among them. Words of the entry that the return needs are kept meanwhile; others are 0.
//!
//! Functions may have *code*, which the agent copies to a place of the patch area that the plan
//! names, and which the common routines call (`lib/payload` says what it is given and gives). Its
//! first part decides whether a call is wanted, its second writes the call's words, its third adds
//! to tables when the call returns. What has no code, or no part of it, is done by the slow path.

use crate::layout::{byte_enum, layout};
use crate::values::CallCaptures;

/// The most words of a call, without its result.
pub const MOST_WORDS: usize = 16;
/// Words of the result: rax, rdx, and the lower half of xmm0.
pub const RESULT_WORDS: usize = 3;

/// A source: integer registers in the order of arguments, from this number on (6 of them).
pub const SOURCE_REGISTER: u8 = 0;
/// A source: lower halves of vector registers, from this number on (8 of them).
pub const SOURCE_VECTOR: u8 = 0x10;
/// A source: words of the stack behind the return address, from this number on.
pub const SOURCE_STACK: u8 = 0x20;
/// In place of a description's number: there is none.
pub const NO_DESCRIPTION: u32 = u32::MAX;
/// Entries from here on are no functions: what runs at calls of the kernel, by their numbers.
pub const SYSTEM_ENTRIES: u32 = 0xf000_0000;
/// Texts of a call that are made words of ([`FunctionValues::texts`]).
pub const TEXTS: usize = 4;
/// In a text of [`FunctionValues::texts`]: there is none.
pub const NO_TEXT: u16 = 0;
/// In a text of [`FunctionValues::exit_texts`], in place of the number of a word that is kept: at
/// the result.
pub const RESULT_TEXT: u8 = 7;
/// Words of a call that its return may need.
pub const MOST_KEPT: usize = 6;
/// In place of a text of [`FunctionValues::texts`]: how many recorded calls are open around the
/// call.
pub const DEPTH: (u8, u16) = (6, 1);
/// In place of a text's length: all of it, with the zero at its end.
pub const WHOLE_TEXT: u16 = 0x1fff;
/// The same, of a text that is a key: so many bytes of it are kept for the code.
pub const TOLD_TEXT: u16 = 0x1ffe;
/// In place of a text's length from here up to [`TOLD_TEXT`]: no text, but the eight bytes of so
/// many words behind what the argument points to.
pub const FIELDS: u16 = 0x1100;
/// Of [`TOLD_TEXT`].
pub const TOLD_BYTES: usize = 256;
/// Bytes of a text that are looked at, at most.
pub const TEXT_BYTES: usize = 4096;
/// A source: the lower half of the id of the place that makes the call; of what is kept alone.
pub const SOURCE_CALLER: u8 = 0xfe;
/// A source: the word of the thread's set of tables at [`INSIDE_AT`]; of what is kept alone.
pub const SOURCE_INSIDE: u8 = 0xfd;
/// In a set of tables: what calls have taken whose own time is asked for.
pub const INSIDE_AT: u64 = 72;
/// In place of a source: there is none.
pub const NO_SOURCE: u8 = 0xff;

byte_enum! {
    /// Where the C library keeps errno.
    pub enum ErrnoPlace {
        /// It is not known, or the module has no such function.
        Unknown = 0,
        /// At a distance from the fs base that a word of the module holds.
        Behind = 1,
        /// At a distance from the fs base that is known.
        At = 2,
    }
}

byte_enum! {
    /// Which result says that a call has failed and set errno.
    pub enum Failure {
        /// None.
        Never = 0,
        /// -1.
        MinusOne = 1,
        /// 0.
        Null = 2,
    }
}

byte_enum! {
    /// How a word is compared.
    pub enum Comparison {
        /// It is not: every call is wanted.
        Always = 0,
        /// It is equal.
        Equal = 1,
        /// It is not.
        NotEqual = 2,
        /// Less, with sign.
        Less = 3,
        /// Less or equal.
        LessOrEqual = 4,
        /// Greater.
        Greater = 5,
        /// Greater or equal.
        GreaterOrEqual = 6,
    }
}

impl Comparison {
    /// What it says of two numbers.
    pub const fn holds(self, word: i64, with: i64) -> bool {
        match self {
            Self::Always => true,
            Self::Equal => word == with,
            Self::NotEqual => word != with,
            Self::Less => word < with,
            Self::LessOrEqual => word <= with,
            Self::Greater => word > with,
            Self::GreaterOrEqual => word >= with,
        }
    }
}

layout! {
    /// Head of the section.
    pub struct ValuesHead {
        /// Number of [`FunctionValues`].
        pub functions: u32,
        /// The word of [`ErrnoPlace::Behind`], as an offset in the module.
        pub errno_slot: u32,
        /// The distance of [`ErrnoPlace::At`].
        pub errno_distance: i32,
        /// Which.
        pub errno: ErrnoPlace,
        /// Where the code of all functions begins in the patch area; 0: there is none.
        pub code_start: u32,
    }
}

layout! {
    /// Code of acts for slots, behind a function's other code: what it changes and keeps of the
    /// registers says `contract::slot` of `lib/payload`. All but the first are offsets in it.
    pub struct SlotActs {
        /// Its bytes; 0: there is none.
        pub bytes: u16,
        /// Before this nothing has been changed in tables.
        pub changes_from: u16,
        /// From here on all has, up to the next.
        pub changes_to: u16,
        /// From here on rows are taken, in the middle of the acts.
        pub takes_from: u16,
        /// From here on nothing has been changed.
        pub asks_from: u16,
    }
}

impl SlotActs {
    /// From its bytes.
    pub fn from_le_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self::read(&bytes).unwrap_or_default()
    }

    /// Its bytes.
    pub fn to_le_bytes(self) -> [u8; Self::BYTES] {
        self.to_bytes()
    }

    /// Where a call is that is interrupted at this offset: what a jump to the callee would lose.
    pub const fn done_at(&self, offset: u16) -> Done {
        let is_one = self.changes_from == self.changes_to;
        match offset {
            _ if offset < self.changes_from || offset >= self.asks_from => Done::Nothing,
            _ if offset >= self.changes_to && offset < self.takes_from => Done::All,
            _ if is_one => Done::Nothing,
            _ => Done::Part,
        }
    }
}

/// How much of the acts of a call has been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The call may be begun again.
    Nothing,
    /// It may not, nor is it certain that all has.
    Part,
    /// It may go on.
    All,
}

/// Up to here code for slots has not moved the stack pointer.
pub const SLOT_ACTS_BELOW_FROM: u16 = 5;
/// Up to here it has changed no register.
pub const SLOT_ACTS_KEPT_FROM: u16 = 20;
/// Up to here it has changed no flag.
pub const SLOT_ACTS_FLAGS_KEPT_FROM: u16 = 28;
/// From its stack pointer up to the way back: the flags, rax, rdx and rcx.
pub const SLOT_ACTS_SAVED_BYTES: u64 = 32;
/// Its last instruction, with the stack pointer at the way back: a jump to ACTS_FIRST
/// ([`crate::plan::common`]).
pub const SLOT_ACTS_JUMP_BYTES: u16 = 5;

layout! {
    /// What is recorded of the calls of a function.
    pub struct FunctionValues {
        /// Its entry, as offset.
        pub entry: u32,
        /// Number of its description, which the host gives and knows; [`NO_DESCRIPTION`]: its calls
        /// bring no values.
        pub number: u32,
        /// The first eight sources, one a byte from the lowest on.
        pub sources_low: u64,
        /// The others.
        pub sources_high: u64,
        /// How many there are.
        pub words: u8,
        /// Bytes of a result that is a number with sign; 8: all of them.
        pub result_bytes: u8,
        /// Which result means that errno is set.
        pub failure: Failure,
        /// How the word of the condition is compared.
        pub comparison: Comparison,
        /// Number of that word.
        pub compared: u8,
        /// How many of its bytes count, with sign.
        pub compared_bytes: u8,
        /// 1: the result is recorded.
        pub returns: u8,
        /// Bits by number of word: those that the return needs.
        pub keep: u32,
        /// What it is compared with.
        pub with: i64,
        /// As [`CallCaptures`] has it.
        pub arms_at: u32,
        /// The same.
        pub arms: u16,
        /// The same.
        pub selector: u8,
        /// The same.
        pub second: u8,
        /// The same.
        pub mask: u64,
        /// Where its code is.
        pub code_at: u32,
        /// Where that goes in the patch area.
        pub code_to: u32,
        /// Bytes of the part that decides; 0: every call is wanted.
        pub decides_bytes: u16,
        /// Bytes of the part that writes, which follows the other; 0: the slow path does it.
        pub writes_bytes: u16,
        /// 1: the common routine can record the result, unless the call has failed.
        pub returns_by_routine: u8,
        /// 1: all of the result is in rax.
        pub result_is_integer: u8,
        /// 1: the part that decides adds to tables ([`crate::control::Control::tables_offset`]),
        /// and runs once at every call, whichever way that takes.
        pub acts: u8,
        /// Bytes of the part that adds to tables when a call returns, behind the others; 0: there
        /// is none.
        pub exit_bytes: u16,
        /// The sources of the words that this part needs of the call, one a byte from the lowest
        /// on; [`NO_SOURCE`]: none.
        pub kept: u64,
        /// How many there are: two at least, which the common routines keep.
        pub kept_words: u8,
        /// 1: this part asks for errno, which the slow path alone looks for.
        pub exit_needs_errno: u8,
        /// 1: it asks how long the call took.
        pub exit_needs_clock: u8,
        /// 1: the slow path runs the part that decides, at every call: it compares texts, or says
        /// what is to be done to the call ([`crate::control::block::ACTIVE`]), or its return needs
        /// more than two words of it.
        pub acts_slowly: u8,
        /// Where its acts are for the slots of calls that have no frame.
        pub slot_acts: SlotActs,
        /// The texts, 16 bits each: above bit 13 the argument in a register, below it how many
        /// bytes, or [`WHOLE_TEXT`], or one of [`FIELDS`]; or [`DEPTH`].
        pub texts: u64,
        /// The same of those that the part for the return asks for, which the slow path runs then:
        /// in place of the argument the number of a word that is kept, or [`RESULT_TEXT`].
        pub exit_texts: u64,
        /// Number of the switch of its values ([`crate::levels::SWITCHES`]); 0: they are always
        /// recorded.
        pub switch: u16,
    }
}

impl FunctionValues {
    /// Bytes of its code.
    pub const fn code_bytes(&self) -> usize {
        let parts = self.decides_bytes as usize + self.writes_bytes as usize;
        parts + self.exit_bytes as usize + self.slot_acts.bytes as usize
    }

    /// Source number `i`.
    pub const fn source(&self, i: usize) -> u8 {
        match i {
            0..8 => (self.sources_low >> (8 * i)) as u8,
            _ => (self.sources_high >> (8 * (i & 7))) as u8,
        }
    }

    /// Sets source number `i`.
    pub const fn set_source(&mut self, i: usize, source: u8) {
        let bits = (source as u64) << (8 * (i & 7));
        match i {
            0..8 => self.sources_low |= bits,
            _ => self.sources_high |= bits,
        }
    }

    /// The sources of what is kept of a call for its return, as many as there are.
    pub fn kept_sources(&self) -> impl Iterator<Item = u8> {
        let kept = self.kept.to_le_bytes();
        kept.into_iter()
            .take(usize::from(self.kept_words).min(MOST_KEPT))
    }

    /// What its memory is read by.
    pub const fn captures(&self) -> CallCaptures {
        CallCaptures {
            arms_at: self.arms_at,
            arms: self.arms,
            is_wanted: 1,
            selector: self.selector,
            second: self.second,
            has_payload: 0,
            mask: self.mask,
            descriptors: 0,
        }
    }
}

/// Of [`FunctionValues::texts`] number `i`: its argument, and its length. `None`: there is none.
pub const fn text(texts: u64, i: usize) -> Option<(u8, u16)> {
    let text = (texts >> (16 * (i & 3))) as u16;
    match text {
        NO_TEXT => None,
        text => Some(((text >> 13) as u8, text & WHOLE_TEXT)),
    }
}

/// The section, from its bytes.
#[derive(Clone, Copy, Debug)]
pub struct ValuesView<'a> {
    bytes: &'a [u8],
    /// Its head.
    pub head: ValuesHead,
}

impl<'a> ValuesView<'a> {
    /// `None`: there is none.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let head = ValuesHead::read(bytes)?;
        Some(Self { bytes, head })
    }

    /// All of its bytes, from which the offsets of captures count.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Number `i`.
    pub fn get(&self, i: u32) -> Option<FunctionValues> {
        let is_there = i < self.head.functions;
        let at = ValuesHead::BYTES + i as usize * FunctionValues::BYTES;
        is_there.then(|| FunctionValues::read(self.bytes.get(at..)?))?
    }

    /// The code of a function.
    pub fn code(&self, of: &FunctionValues) -> Option<&'a [u8]> {
        let at = of.code_at as usize;
        self.bytes.get(at..at.checked_add(of.code_bytes())?)
    }

    /// What is recorded of the function that begins at this offset.
    pub fn of(&self, entry: u32) -> Option<FunctionValues> {
        let (mut low, mut high) = (0, self.head.functions);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle)?.entry < entry {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.get(low).filter(|found| found.entry == entry)
    }
}

/// A number of `bytes` bytes, with its sign.
pub const fn with_sign(word: u64, bytes: u8) -> i64 {
    match bytes {
        1 => word as i8 as i64,
        2 => word as i16 as i64,
        4 => word as i32 as i64,
        _ => word as i64,
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    #[test]
    fn functions_are_found_by_their_entries_and_sources_by_their_numbers() {
        let mut one = FunctionValues {
            entry: 0x40,
            number: 7,
            words: 16,
            ..FunctionValues::default()
        };
        for i in 0..MOST_WORDS {
            one.set_source(i, i as u8 + 1);
        }
        let other = FunctionValues {
            entry: 0x80,
            ..FunctionValues::default()
        };
        let head = ValuesHead {
            functions: 2,
            ..ValuesHead::default()
        };
        let parts = [&head.to_bytes()[..], &one.to_bytes(), &other.to_bytes()];
        let bytes: Vec<u8> = parts.concat();
        let view = ValuesView::new(&bytes).unwrap();
        assert_eq!(view.of(0x40), Some(one));
        assert_eq!(view.of(0x80), Some(other));
        assert_eq!((view.of(0x41), view.of(0x100)), (None, None));
        for i in 0..MOST_WORDS {
            assert_eq!(one.source(i), i as u8 + 1);
        }
        // What ends too early has no functions.
        assert!(ValuesView::new(&bytes[..20]).unwrap().of(0x40).is_none());
        assert!(ValuesView::new(&bytes[..4]).is_none());
    }

    #[test]
    fn acts_in_a_slot_are_begun_again_where_nothing_has_been_changed() {
        let one = SlotActs {
            bytes: 200,
            changes_from: 80,
            changes_to: 80,
            takes_from: 100,
            asks_from: 150,
        };
        assert_eq!(SlotActs::from_le_bytes(one.to_le_bytes()), one);
        let places = [0, 79, 80, 99, 100, 149, 150, 199];
        use Done::*;
        let done = [
            Nothing, Nothing, All, All, Nothing, Nothing, Nothing, Nothing,
        ];
        assert_eq!(places.map(|at| one.done_at(at)), done);
        let two = SlotActs {
            changes_from: 60,
            ..one
        };
        let places = [59, 60, 79, 80, 100, 150];
        let done = [Nothing, Part, Part, All, Part, Nothing];
        assert_eq!(places.map(|at| two.done_at(at)), done);
    }

    #[test]
    fn numbers_are_compared_with_their_signs() {
        assert!(Comparison::Less.holds(with_sign(0xffff_ffff, 4), 0));
        assert!(!Comparison::Less.holds(with_sign(0xffff_ffff, 8), 0));
        assert!(Comparison::NotEqual.holds(with_sign(0x1_0000, 2), 1));
        assert!(Comparison::GreaterOrEqual.holds(5, 5) && !Comparison::Greater.holds(5, 5));
    }
}
