//! What calls brought with them, put together: a call's arguments, and what it gave.
//!
//! Given the values of a trace and its descriptions of functions; gives the call as a line. Calls
//! of the kernel need no description. Must not know where a line stands.

use sptrace_trace::values::{Values, What};
use sptrace_trace::{Dictionary, without_parameters};
pub use sptrace_types::decode::call::Line;
use sptrace_types::decode::call::{Made, Options};
use sptrace_types::decode::function_line::{Called, line};
use sptrace_types::decode::memory::Captured;
use sptrace_types::decode::print;
use sptrace_types::functions::parse::{Defined, prototype};
use sptrace_types::functions::prototype::Prototype;

use crate::system_calls::chunks;

/// The descriptions of a trace.
#[derive(Debug, Default)]
pub struct Descriptions {
    /// By number: what a call takes and gives, and how much of strings was recorded. None: it is
    /// not understood.
    all: Vec<Option<(Prototype, usize)>>,
}

/// A call that has brought values.
#[derive(Clone, Debug)]
pub struct Begun {
    number: u32,
    words: Vec<u64>,
    captured: Captured,
    result: Option<([u64; 3], u32)>,
    /// It is a call of the kernel: rax is its result, and `number` its own.
    is_of_kernel: bool,
}

/// Its end.
#[derive(Clone, Debug)]
pub struct Ended {
    number: u32,
    result: ([u64; 3], u32),
    captured: Captured,
    is_of_kernel: bool,
}

/// A call, taken apart: for who asks for single values.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// What it takes and gives.
    pub prototype: &'a Prototype,
    /// Its words at the entry, as the prototype's sources have them.
    pub words: &'a [u64],
    /// What it has returned, if it has: rax, rdx, xmm0; and errno if it failed.
    pub result: Option<([u64; 3], u32)>,
    /// What was captured of memory.
    pub memory: &'a Captured,
    /// Bytes of strings that are shown; one more is captured, to tell that there are more.
    pub string_limit: usize,
}

/// What the values of a function tell.
#[derive(Clone, Debug)]
pub enum Told {
    /// The frame that has just begun has these.
    Begun(Begun),
    /// A call ends.
    Ended(Ended),
}

impl Told {
    /// Of values; `None`: they are not a function's.
    pub fn of(values: &Values<'_>) -> Option<Self> {
        let number = values.number;
        let captured = Captured {
            chunks: chunks(values),
        };
        match &values.what {
            What::Called(words) => Some(Self::Begun(Begun {
                number,
                words: words.clone(),
                captured,
                result: None,
                is_of_kernel: false,
            })),
            What::Answered { words, errno } => Some(Self::Ended(Ended {
                number,
                result: (*words, *errno),
                captured,
                is_of_kernel: false,
            })),
            _ => None,
        }
    }

    /// The same, also of calls of the kernel, but for those that a vfork(2) child makes, which are
    /// in its parent's thread.
    pub fn of_any(values: &Values<'_>) -> Option<Self> {
        let captured = || Captured {
            chunks: chunks(values),
        };
        match &values.what {
            _ if values.thread != 0 => None,
            What::Begins(args) => Some(Self::Begun(Begun {
                number: values.number,
                words: args.to_vec(),
                captured: captured(),
                result: None,
                is_of_kernel: true,
            })),
            What::Returned(result) => Some(Self::Ended(Ended {
                number: values.number,
                result: ([*result as u64, 0, 0], 0),
                captured: captured(),
                is_of_kernel: true,
            })),
            _ => Self::of(values),
        }
    }

    /// Puts it where it belongs, given what is kept of the open frames, the innermost first.
    pub fn put<'a>(self, mut open: impl Iterator<Item = &'a mut Option<Begun>>) {
        match self {
            Self::Begun(begun) => {
                if let Some(kept) = open.next() {
                    *kept = Some(begun);
                }
            }
            Self::Ended(ended) => {
                if let Some(begun) = open.flatten().find(|begun| begun.awaits(&ended)) {
                    begun.end(ended);
                }
            }
        }
    }
}

impl Begun {
    /// True if that may be this call's end.
    pub fn awaits(&self, ended: &Ended) -> bool {
        let (this, that) = (
            (self.number, self.is_of_kernel),
            (ended.number, ended.is_of_kernel),
        );
        this == that && self.result.is_none()
    }

    /// It is.
    pub fn end(&mut self, ended: Ended) {
        self.captured.chunks.extend(ended.captured.chunks);
        self.result = Some(ended.result);
    }
}

impl Descriptions {
    /// Those of a trace.
    pub fn of(dictionary: &Dictionary) -> Self {
        let read = |text: &String| {
            let (text, limit) = text.split_once('\t')?;
            let prototype = prototype(text, &Defined::new()).ok()?;
            Some((prototype, limit.parse().ok()?))
        };
        Self {
            all: dictionary.descriptions.iter().map(read).collect(),
        }
    }

    /// Was anything recorded of functions' values?
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A function call's parts. `None`: its description is not understood.
    pub fn parts<'a>(&'a self, call: &'a Begun) -> Option<Parts<'a>> {
        if call.is_of_kernel {
            return None;
        }
        let (prototype, limit) = self.all.get(call.number as usize)?.as_ref()?;
        Some(Parts {
            prototype,
            string_limit: *limit,
            words: &call.words,
            result: call.result,
            memory: &call.captured,
        })
    }

    /// The same, if it has brought values.
    pub fn line_of(&self, call: Option<&Begun>, name: &str) -> Option<Line> {
        self.line(call?, name)
    }

    /// A call of the function that is shown by this name. `None`: its description is not
    /// understood.
    pub fn line(&self, call: &Begun, name: &str) -> Option<Line> {
        if call.is_of_kernel {
            let made = Made {
                number: call.number,
                args: &call.words,
                result: call.result.map(|([rax, ..], _)| rax as i64),
                memory: &call.captured,
            };
            return Some(print::line(&made, &Options::default()));
        }
        let (prototype, limit) = self.all.get(call.number as usize)?.as_ref()?;
        let called = Called {
            words: &call.words,
            result: call.result,
            memory: &call.captured,
        };
        let options = Options {
            string_limit: *limit,
            verbose: true,
            ..Options::default()
        };
        Some(line(prototype, without_parameters(name), &called, &options))
    }
}
