//! The language: expressions over the registers of a call and the program's memory, and statements
//! that keep values.
//!
//! All values are words of 64 bits. Arithmetic wraps; what is signed says so. A [`Program`] first
//! decides whether the call is wanted, then keeps its `words`, one after another without anything
//! between them, then runs its `parts`, each of which is told by a [`crate::captured`] header.

use crate::callers::words_of;
use crate::text::{DEPTH, RESULT, TOLD, TOLD_WORDS};

/// What runs at a call, or at its return.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The call is left out if this is zero. `None`: every call is wanted.
    pub wanted: Option<Expression>,
    /// Words that are always kept, in this order.
    pub words: Vec<Expression>,
    /// What is kept as it comes.
    pub parts: Vec<Statement>,
}

/// Where a word comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An integer or pointer argument by number, 0 to 5 (System V ABI for x86-64, section 3.2.3).
    Argument(u8),
    /// The lower 64 bits of a vector register by number, 0 to 7: a float or double argument, or a
    /// result of these types (register 0).
    Vector(u8),
    /// An argument on the stack by number, the first after the return address is 0. At a return it
    /// is what the callee has left there.
    Stack(u8),
    /// The result, rax; at an entry the number of vector registers in al.
    Result,
    /// The second word of a result, rdx.
    SecondResult,
    /// The stack pointer as it was before the call.
    StackPointer,
    /// What the call's entry has kept for its return: word by number, 0 to 3.
    Kept(u8),
    /// The thread's number.
    Thread,
    /// errno of the thread; at a return alone.
    Errno,
    /// Nanoseconds since the call began; at a return alone.
    Elapsed,
    /// The same without what calls inside of it have taken that ask for it, too; at a return alone.
    /// What [`Source::Inside`] was when the call began is kept as the word of this number.
    SelfTime(u8),
    /// Nanoseconds that calls of the thread have taken that asked for [`Source::SelfTime`], and are
    /// over: of nested ones the outermost's. It is kept by a call for its return, and nothing else.
    Inside,
    /// An argument by the number of its name; replaced by another source before it is compiled.
    Named(u8),
    /// The number that stands for the text at an argument ([`crate::text::word_of`]): the
    /// argument in a register by number, and how many bytes of the text, or [`crate::text::WHOLE`];
    /// or the bytes of a field ([`crate::text::field`]), as many as can be read, then zeros.
    Text(u8, u16),
    /// The same of an argument by the number of its name.
    NamedText(u8, u16),
    /// The same at a return, at the word of this number that the call's entry has kept.
    KeptText(u8, u16),
    /// The same at the result.
    ResultText(u16),
    /// How many recorded calls of the thread are open around this one; at a call alone.
    Depth,
    /// The number of the place that makes the call; at a call alone. Which function that place lies
    /// in is known to who has made it.
    Caller,
    /// The word of so many places that lead to the call, its own first ([`crate::callers`]): a key.
    Callers(u8),
    /// The same at a return, for which the call's own place is kept as the word of this number.
    KeptCallers(u8, u8),
    /// A variable of the thread, by number, below [`crate::tables::MOST_VARIABLES`].
    Variable(u8),
}

impl Source {
    /// Words that a row of a table has beside such a key, to tell what it stands for.
    pub const fn told_words(self) -> u8 {
        match self {
            Self::Callers(count) | Self::KeptCallers(count, _) => words_of(count),
            Self::Text(_, TOLD) | Self::NamedText(_, TOLD) => TOLD_WORDS,
            Self::KeptText(_, TOLD) | Self::ResultText(TOLD) => TOLD_WORDS,
            _ => 0,
        }
    }

    /// What the slow path has to find out for it ([`crate::acts::Acts::texts`]).
    pub const fn text(self) -> Option<(u8, u16)> {
        match self {
            Self::Text(word, length) | Self::KeptText(word, length) => Some((word, length)),
            Self::ResultText(length) => Some((RESULT, length)),
            Self::Depth => Some(DEPTH),
            _ => None,
        }
    }
}

/// How many bytes are loaded, and how they become a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// One byte, zero-extended.
    U8,
    /// Two bytes, zero-extended.
    U16,
    /// Four bytes, zero-extended.
    U32,
    /// Eight bytes.
    U64,
    /// One byte, sign-extended.
    I8,
    /// Two bytes, sign-extended.
    I16,
    /// Four bytes, sign-extended.
    I32,
}

impl Width {
    /// Bytes that are loaded.
    pub const fn bytes(self) -> u8 {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 => 4,
            Self::U64 => 8,
        }
    }

    /// The word that a value of this width means; bytes above it are ignored.
    pub const fn extend(self, word: u64) -> u64 {
        match self {
            Self::U8 => word as u8 as u64,
            Self::U16 => word as u16 as u64,
            Self::U32 => word as u32 as u64,
            Self::U64 => word,
            Self::I8 => word as i8 as u64,
            Self::I16 => word as i16 as u64,
            Self::I32 => word as i32 as u64,
        }
    }
}

/// What two words give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// Sum.
    Add,
    /// Difference.
    Subtract,
    /// Product.
    Multiply,
    /// Bits of both.
    And,
    /// Bits of either.
    Or,
    /// Bits of one.
    ExclusiveOr,
    /// To the left by the second, modulo 64.
    ShiftLeft,
    /// To the right by the second, modulo 64, zeros come in.
    ShiftRight,
    /// To the right by the second, modulo 64, the sign comes in.
    ShiftRightSigned,
    /// The smaller without sign.
    Minimum,
    /// 1 if equal, else 0.
    Equal,
    /// 1 if not equal, else 0.
    NotEqual,
    /// 1 if the first is smaller without sign, else 0.
    Below,
    /// 1 if the first is smaller without sign or equal, else 0.
    BelowOrEqual,
    /// 1 if the first is smaller with sign, else 0.
    Less,
    /// 1 if the first is smaller with sign or equal, else 0.
    LessOrEqual,
}

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// The word itself.
    Constant(u64),
    /// A word of the call.
    Source(Source),
    /// A local by number, below [`crate::contract::LOCALS`]; 0 until it is set.
    Local(u8),
    /// What memory holds at an address; 0, and the program marked, if it cannot be read.
    Load(Box<Expression>, Width),
    /// The lower bytes of a word.
    Narrow(Box<Expression>, Width),
    /// Of two words.
    Binary(Binary, Box<Expression>, Box<Expression>),
    /// 1 if both are not zero, else 0; the second is not looked at if the first is zero.
    Both(Box<Expression>, Box<Expression>),
    /// 1 if one is not zero, else 0; the second is not looked at if the first is not zero.
    Either(Box<Expression>, Box<Expression>),
}

impl Expression {
    /// An argument by number.
    pub fn argument(number: u8) -> Self {
        Self::Source(Source::Argument(number))
    }

    /// Of this word and another.
    pub fn with(self, operation: Binary, other: impl Into<Self>) -> Self {
        Self::Binary(operation, Box::new(self), Box::new(other.into()))
    }

    /// What memory holds at this address.
    pub fn load(self, width: Width) -> Self {
        Self::Load(Box::new(self), width)
    }

    /// The lower bytes of this word.
    pub fn narrow(self, width: Width) -> Self {
        Self::Narrow(Box::new(self), width)
    }
}

impl From<u64> for Expression {
    fn from(word: u64) -> Self {
        Self::Constant(word)
    }
}

impl From<Source> for Expression {
    fn from(source: Source) -> Self {
        Self::Source(source)
    }
}

/// What is done with words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// A local gets a value.
    Set(u8, Expression),
    /// Keeps a word under a tag.
    Word {
        /// By which it is found again.
        tag: u8,
        /// What is kept.
        value: Expression,
    },
    /// Keeps the bytes at an address.
    Bytes {
        /// By which they are found again.
        tag: u8,
        /// Where they begin.
        address: Expression,
        /// How many they are.
        length: Expression,
        /// How many are kept at most.
        limit: u16,
    },
    /// Keeps the bytes at an address up to the first zero, which is not kept.
    Text {
        /// By which it is found again.
        tag: u8,
        /// Where it begins.
        address: Expression,
        /// How many bytes are kept at most.
        limit: u16,
    },
    /// Keeps a word for the program that runs when the call returns ([`Source::Kept`]).
    Keep(u8, Expression),
    /// If the condition is not zero, the first statements, else the second.
    If(Expression, Vec<Statement>, Vec<Statement>),
    /// The statements as often as the count says, and at most `limit` times; the local counts from
    /// zero.
    Repeat {
        /// How often.
        count: Expression,
        /// And no more often than this.
        limit: u8,
        /// The local that counts.
        counter: u8,
        /// What is done.
        body: Vec<Statement>,
    },
}
