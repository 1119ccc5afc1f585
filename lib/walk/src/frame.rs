//! What a walk gives: frames, by what each was found, and how it ended.

use sptrace_addr::Avma;

/// By what a frame was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundBy {
    /// The thread's registers: the innermost frame, with an exact address.
    Registers,
    /// The unwind table of the frame inside it.
    Table,
    /// A signal frame: the code that a signal interrupted, with an exact address.
    SignalFrame,
    /// No table: what the code of the frame inside it does before its return, or since its entry.
    Code,
}

/// One open function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The next instruction of this frame: exact, or the address that the frame inside it returns
    /// to.
    pub address: Avma,
    /// Where `address` lies on the stack; `None` for the innermost and for interrupted frames.
    pub return_word: Option<Avma>,
    /// Stack pointer with which this frame goes on.
    pub stack_pointer: Avma,
    /// Canonical frame address, which is the outer frame's stack pointer; `None` where the walk
    /// ended, and of a restorer.
    pub cfa: Option<Avma>,
    /// Index of the module that the code belongs to, in the order given.
    pub module: Option<usize>,
    /// By what it was found.
    pub found_by: FoundBy,
    /// The restorer of a signal: what is outside of it was interrupted, not called.
    pub is_restorer: bool,
}

impl Frame {
    /// Whether `address` is that of the next instruction, not of the one after a call.
    pub fn is_exact(&self) -> bool {
        matches!(self.found_by, FoundBy::Registers | FoundBy::SignalFrame)
    }
}

/// How a walk ended, in its outermost frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Reached the frame that has no caller: its return address is undefined by its table, or it is
    /// the start of the program or of a thread.
    Outermost,
    /// Its return address is 0, as on stacks that were made by hand.
    NullReturn,
    /// No table for the code at its address.
    NoTable,
    /// What the table says cannot be followed.
    BadTable,
    /// The word cannot be read.
    Unreadable(Avma),
    /// Its caller's stack pointer is not above its own.
    NoProgress,
    /// The restorer of a signal, but without the registers of user code.
    BadSignalFrame,
    /// As many frames as were asked for.
    TooManyFrames,
}

/// The frames of one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// From the innermost outwards, never empty unless no frame was asked for.
    pub frames: Vec<Frame>,
    /// Why there are no more.
    pub end: End,
}
