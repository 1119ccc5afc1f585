//! From text to a script.
//!
//! Given text, options, and how the host reads events and system calls; gives a [`Script`], or what
//! is wrong with it. Nothing is begun by it. Must not know where the text came from.

use std::collections::BTreeMap;
use std::sync::Mutex;

use rhai::{AST, Engine, FnPtr, Scope};

use crate::checks::{Checks, MOST_BYTES};
use crate::compiled::{self, Surroundings};
use crate::draft::{Handler, Shared, Wanted};
use crate::engine::{LEAF, RECORD, SKIP, engine};
use crate::error::{ScriptError, of_evaluation, of_syntax};
use crate::event::Subject;
use crate::listing::listing;
use crate::policy::{Decision, Deed, FunctionFacts, Policy};
use crate::word::Word;

/// A script that has been evaluated.
pub struct Script {
    /// What it is called.
    pub name: String,
    source: String,
    pub(crate) engine: Engine,
    pub(crate) ast: AST,
    pub(crate) shared: Shared,
    pub(crate) words: Vec<Word>,
    /// What it asks for.
    pub policy: Policy,
    pub(crate) handlers: Vec<Handler>,
    /// What went wrong while functions were decided about: only the first.
    undecided: Mutex<Option<(ScriptError, u64)>>,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Script({})", self.name)
    }
}

impl Script {
    /// Evaluates a script with the options given to it (`--NAME=VALUE`, `--NAME VALUE`).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn load(
        name: &str,
        source: &str,
        given: &[String],
        checks: Checks,
    ) -> Result<Self, ScriptError> {
        if source.len() > MOST_BYTES {
            let reason = format!("it has {} bytes, more than {MOST_BYTES}", source.len());
            return Err(ScriptError::of_whole(name, &reason, "split it"));
        }
        let shared = Shared::default();
        shared.lock().untaken = options(name, given)?;
        let (engine, words) = engine(&shared, checks);
        let ast = engine
            .compile(source)
            .map_err(|e| of_syntax(name, source, &e))?;
        let evaluated = engine.run_ast_with_scope(&mut Scope::new(), &ast);
        evaluated.map_err(|e| of_evaluation(name, source, &e, &words))?;
        let (policy, handlers) = {
            let mut draft = shared.lock();
            draft.is_settled = true;
            if let Some((option, _)) = draft.untaken.first_key_value() {
                return Err(unknown_option(name, option, &draft.policy));
            }
            let payloads = std::mem::take(&mut draft.payloads);
            let handlers = std::mem::take(&mut draft.handlers);
            let mut policy = std::mem::take(&mut draft.policy);
            let mut around = Surroundings {
                name,
                source,
                ast: &ast,
                sheets: &draft.sheets,
                tables: &mut policy.tables,
                counters: 0,
                bids: &mut policy.bids,
            };
            for asked in &payloads {
                let payload = compiled::payload(asked, &mut around)?;
                around.counters += u8::from(payload.counts());
                policy.payloads.push(payload);
            }
            (policy, handlers)
        };
        Ok(Self {
            name: name.to_owned(),
            source: source.to_owned(),
            engine,
            ast: ast.clone_functions_only(),
            shared,
            words,
            policy,
            handlers,
            undecided: Mutex::new(None),
        })
    }

    /// What cannot be done, at the first such word in the script, or in a line of it.
    pub fn error_at(
        &self,
        word: &str,
        line: Option<usize>,
        reason: &str,
        hint: &str,
    ) -> ScriptError {
        let mut lines = self.source.lines().enumerate();
        let found = lines.find_map(|(i, text)| {
            let is_line = line.is_none_or(|line| line == i + 1);
            let at = text.find(word).filter(|_| is_line)?;
            Some((i + 1, text.get(..at)?.chars().count() + 1))
        });
        let at = match (found, line) {
            (Some((line, column)), _) => place(line, column),
            (None, Some(line)) => place(line, 0),
            (None, None) => rhai::Position::NONE,
        };
        ScriptError::at(&self.name, &self.source, at, reason, hint)
    }

    /// Where it would change what the program does, which nobody has allowed.
    pub fn refuse_changes(&self, hint: &str) -> Option<ScriptError> {
        let mut all = self.policy.payloads.iter();
        let (line, column) = all.find_map(|payload| payload.changes_at)?;
        let reason = "this changes what the program does";
        let at = place(line, column);
        Some(ScriptError::at(&self.name, &self.source, at, reason, hint))
    }

    /// What is wrong at the first place where payloads ask something of the recording that `is_it`.
    pub fn error_at_bid(
        &self,
        is_it: &dyn Fn(&Deed) -> bool,
        reason: &str,
        hint: &str,
    ) -> Option<ScriptError> {
        let bid = self.policy.bids.iter().find(|bid| is_it(&bid.deed))?;
        let at = place(bid.line, bid.column);
        Some(ScriptError::at(&self.name, &self.source, at, reason, hint))
    }

    /// Has it something to do with a trace?
    pub fn has_handlers(&self) -> bool {
        !self.handlers.is_empty() || !self.policy.payloads.is_empty()
    }

    /// What its top level has printed; else the first run over a trace prints it.
    pub fn take_early(&self) -> String {
        std::mem::take(&mut self.shared.lock().early)
    }

    /// Does a handler want system calls and no functions?
    pub fn wants_system_calls(&self) -> bool {
        let mut wanted = self.handlers.iter().map(|handler| &handler.wanted);
        wanted.any(|wanted| matches!(wanted, Wanted::SystemCalls(_)))
    }

    /// Is something chosen by the file of the source in which it begins?
    pub fn asks_for_files(&self) -> bool {
        self.handlers.iter().any(|handler| match &handler.wanted {
            Wanted::Calls(functions) | Wanted::Begins(functions) => functions.file.is_some(),
            _ => false,
        })
    }

    /// Each handler in words.
    pub fn handlers(&self) -> Vec<String> {
        let text = |handler: &Handler| match &handler.wanted {
            Wanted::All => "every call and system call".to_owned(),
            Wanted::Calls(functions) => format!("calls of {functions}"),
            Wanted::Begins(functions) => format!("beginnings of calls of {functions}"),
            Wanted::SystemCalls(_) => "some system calls".to_owned(),
            Wanted::Happenings(Subject::Process) => "processes".to_owned(),
            Wanted::Happenings(Subject::Thread) => "threads".to_owned(),
            Wanted::Happenings(Subject::Module) => "modules".to_owned(),
            Wanted::Happenings(Subject::Signal) => "signals".to_owned(),
            Wanted::Counted => "counted calls".to_owned(),
            Wanted::Interval(ns) => format!("every {ns} ns"),
            Wanted::End => "the end".to_owned(),
        };
        self.handlers.iter().map(text).collect()
    }

    /// Each payload in words, with its instructions and their price.
    pub fn compiled(&self) -> Vec<String> {
        listing(&self.policy)
    }

    /// What is to be said of a function. One for which the script fails is recorded.
    pub fn decide(&self, facts: &FunctionFacts) -> Decision {
        match self.decide_by_closure(facts) {
            Decision::Record if facts.is_leaf_by(&self.policy.leaves) => Decision::Leaf,
            decision => decision,
        }
    }

    fn decide_by_closure(&self, facts: &FunctionFacts) -> Decision {
        let Some(decide) = &self.policy.propagate else {
            return Decision::Record;
        };
        let mut undecided = match self.undecided.lock() {
            Ok(undecided) => undecided,
            Err(poisoned) => poisoned.into_inner(),
        };
        if let Some((_, missed)) = undecided.as_mut() {
            *missed += 1;
            return Decision::Record;
        }
        let decided = decide.call::<rhai::Dynamic>(&self.engine, &self.ast, (facts.clone(),));
        let error = match decided {
            Ok(value) => match value.clone().into_string().as_deref() {
                Ok(RECORD) => return Decision::Record,
                Ok(SKIP) => return Decision::Skip,
                Ok(LEAF) => return Decision::Leaf,
                _ if value.is_unit() => return Decision::Record,
                _ => ScriptError::of_whole(
                    &self.name,
                    &format!("propagate gave '{value}'"),
                    "it gives record, skip or leaf",
                ),
            },
            Err(e) => self.explain(&e),
        };
        *undecided = Some((error, 1));
        Decision::Record
    }

    /// What went wrong in `propagate`, and how many functions it did not decide about.
    pub fn undecided(&self) -> Option<(ScriptError, u64)> {
        self.undecided.lock().ok()?.clone()
    }

    pub(crate) fn explain(&self, error: &rhai::EvalAltResult) -> ScriptError {
        of_evaluation(&self.name, &self.source, error, &self.words)
    }

    /// What went wrong in a closure. Loops that never end have no place of their own: it is the
    /// closure's then.
    pub(crate) fn explain_in(&self, closure: &FnPtr, error: &rhai::EvalAltResult) -> ScriptError {
        let error = self.explain(error);
        let body = compiled::body_of(&self.ast, closure.fn_name());
        match body.first().filter(|_| error.line == 0) {
            None => error,
            Some(first) => {
                let at = first.position();
                ScriptError::at(&self.name, &self.source, at, &error.reason, &error.hint)
            }
        }
    }

    /// The comment at its head, without the marks.
    pub fn header(&self) -> String {
        header(&self.source)
    }
}

fn unknown_option(name: &str, option: &str, policy: &Policy) -> ScriptError {
    let known = policy.options.iter().map(|o| format!("--{}", o.name));
    let known: Vec<_> = known.collect();
    let hint = match known.is_empty() {
        true => "it has none".to_owned(),
        false => format!("those are {}", known.join(", ")),
    };
    let reason = format!("it has no option --{option}");
    ScriptError::of_whole(name, &reason, &hint)
}

/// A place in a script; column 0: none.
fn place(line: usize, column: usize) -> rhai::Position {
    let small = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
    match small(line) {
        0 => rhai::Position::NONE,
        line => rhai::Position::new(line, small(column)),
    }
}

/// The comment at a script's head, without the marks.
pub fn header(source: &str) -> String {
    let lines = source.lines().skip_while(|line| line.starts_with("#!"));
    let comment = lines.map_while(|line| line.strip_prefix("//"));
    let lines: Vec<_> = comment.map(|l| l.strip_prefix(' ').unwrap_or(l)).collect();
    lines.join("\n")
}

/// Options as they stand after a script's name.
fn options(name: &str, given: &[String]) -> Result<BTreeMap<String, String>, ScriptError> {
    let mut options = BTreeMap::new();
    let mut words = given.iter().peekable();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--").filter(|o| !o.is_empty()) else {
            let reason = format!("'{word}' is no option of a script");
            return Err(ScriptError::of_whole(name, &reason, "write --NAME=VALUE"));
        };
        let (option, value) = match option.split_once('=') {
            Some((option, value)) => (option, value.to_owned()),
            None => match words.next_if(|next| !next.starts_with("--")) {
                Some(value) => (option, value.clone()),
                None => (option, String::new()),
            },
        };
        options.insert(option.to_owned(), value);
    }
    Ok(options)
}
