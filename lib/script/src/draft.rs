//! What a script has asked for so far, while it is evaluated; and its handlers.
//!
//! Shared between the words of the language. Must not know what they are called.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rhai::FnPtr;
use sptrace_types::calls::Selection;

use crate::compiled::Asked;
use crate::event::Subject;
use crate::policy::{Functions, Policy};
use crate::sheets::{Form, Printable, Stored};

/// Which events a handler is told of.
#[derive(Clone)]
pub enum Wanted {
    /// Of every call of a function and every system call.
    All,
    /// Calls of functions.
    Calls(Functions),
    /// The beginnings of such calls.
    Begins(Functions),
    /// These system calls.
    SystemCalls(Selection),
    /// Processes that begin, execute a program, and end; threads; modules; signals.
    Happenings(Subject),
    /// Calls that were counted and not recorded.
    Counted,
    /// Every so many nanoseconds of the trace.
    Interval(u64),
    /// Once, after all.
    End,
}

/// What a script wants to be told of.
#[derive(Clone)]
pub struct Handler {
    /// When it is called.
    pub wanted: Wanted,
    /// What is called.
    pub function: FnPtr,
}

/// All that a script has said.
#[derive(Default)]
pub struct Draft {
    pub policy: Policy,
    pub handlers: Vec<Handler>,
    /// Closures that are to run inside of the program.
    pub payloads: Vec<Asked>,
    /// In the order of their making: they print themselves, if nothing else does.
    pub sheets: Vec<Printable>,
    /// Something has been printed by the script itself.
    pub has_printed: bool,
    /// Options on the command line that no word has taken yet.
    pub untaken: BTreeMap<String, String>,
    pub form: Form,
    pub out: Option<Box<dyn Write + Send>>,
    /// What was printed before there was anywhere to print to.
    pub early: String,
    pub out_error: Option<std::io::Error>,
    /// Nanoseconds of the trace that have passed.
    pub now_ns: u64,
    /// The top level is over: policy and handlers are fixed.
    pub is_settled: bool,
    /// Who is open around the event that is told, outermost first, by index into `names`.
    pub stack: Vec<usize>,
    /// Of the functions of the trace; none for those that stand for system calls.
    pub names: Vec<Option<rhai::ImmutableString>>,
    /// Which event is being told; what belongs to it alone can be asked only then.
    pub serial: u64,
    /// Texts of stacks: there are far fewer than events.
    pub texts: HashMap<Vec<usize>, rhai::ImmutableString>,
    /// What is kept by key.
    pub stores: Vec<Stored>,
    /// Names of variables of a thread.
    pub variables: Vec<String>,
}

/// Texts of stacks that are kept, at most.
const MOST_TEXTS: usize = 100_000;

/// Text that is printed before there is anywhere to print to, at most.
const MOST_EARLY_BYTES: usize = 1 << 20;

/// Shared.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<Draft>>);

impl Shared {
    /// It is never poisoned for good: what stands in it is only shown.
    pub fn lock(&self) -> MutexGuard<'_, Draft> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints a line where the script prints to.
    pub fn print(&self, text: &str) {
        let mut draft = self.lock();
        match draft.out.is_some() {
            true => {
                draft.has_printed = true;
                draft.write(text);
            }
            false if draft.early.len() < MOST_EARLY_BYTES => draft.early.push_str(text),
            false => {}
        }
    }
}

impl Draft {
    /// The innermost of who is open around the event, so many; 0: all.
    pub fn callers(&mut self, most: usize) -> rhai::ImmutableString {
        let names = &self.names;
        let is_named = |at: &&usize| names.get(**at).is_some_and(Option::is_some);
        let mut key: Vec<usize> = self.stack.iter().filter(is_named).copied().collect();
        if most > 0 {
            key.drain(..key.len().saturating_sub(most));
        }
        if let Some(text) = self.texts.get(&key) {
            return text.clone();
        }
        let parts = key.iter().filter_map(|at| names.get(*at)?.as_deref());
        let text = rhai::ImmutableString::from(parts.collect::<Vec<_>>().join(" > "));
        if self.texts.len() >= MOST_TEXTS {
            self.texts.clear();
        }
        self.texts.insert(key, text.clone());
        text
    }

    /// Writes lines; the first error is kept.
    pub fn write(&mut self, text: &str) {
        if self.out_error.is_some() {
            return;
        }
        if let Some(out) = &mut self.out {
            // Text from the traced program must not steer a terminal; data stay as they are.
            let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
            let text = match self.form {
                Form::Text => text.replace(steers, "\u{fffd}"),
                Form::Csv | Form::Json => text.to_owned(),
            };
            if let Err(e) = out.write_all(text.as_bytes()) {
                self.out_error = Some(e);
            }
        }
    }
}
