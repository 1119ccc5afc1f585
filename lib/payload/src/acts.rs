//! What a payload does at a call beside or instead of its record: it adds to tables, and says
//! whether the call is recorded.
//!
//! [`Acts`] is the form; [`check()`] says whether one can be compiled, and [`mod@crate::acted`]
//! what it means. [`mod@crate::acts_code`] makes native code of it. There is no way back in it, so
//! it ends. Must not know where tables lie.

use thiserror::Error;

use crate::callers;
use crate::contract::in_place::MOST_KEPT;
use crate::program::{Expression, Source};
use crate::tables::{MOST_KEYS, MOST_VARIABLES, Tables};

/// What a payload does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acts {
    /// One after the other.
    pub steps: Vec<Step>,
    /// The call is recorded, whatever the steps say.
    pub records: bool,
}

/// When a payload runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moment {
    /// When a call begins.
    #[default]
    Call,
    /// When it returns.
    Return,
}

/// One of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A local gets a value.
    Set(u8, Expression),
    /// If the condition is not zero, the first, else the second.
    If(Expression, Vec<Step>, Vec<Step>),
    /// Adds to a table.
    Add {
        /// Its number.
        table: u8,
        /// As many as it has.
        keys: Vec<Expression>,
        /// What is added; of a count: how many.
        value: Expression,
    },
    /// The call is recorded.
    Record,
    /// A variable of the thread gets a value.
    Keep(u8, Expression),
    /// The value is added to a variable of the thread.
    Increase(u8, Expression),
    /// A counter goes up by one, and a local gets what it is then.
    Next(u8, u8),
    /// Something is done to the call, which is recorded then.
    Act(Act, Expression),
    /// The host is bidden do something, by its number; a call that begins is recorded then.
    Bid(u8),
}

/// What changes what the program does. What a later step says of the same counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The call is not made: this is its result.
    Result,
    /// The call is not made, and errno is this; of a system call it is the result, too.
    Errno,
    /// The thread waits before the call, so many nanoseconds.
    Delay,
    /// This signal is raised in the thread before the call.
    Raise,
}

impl Act {
    /// All of them, by their numbers.
    pub const ALL: [Self; 4] = [Self::Result, Self::Errno, Self::Delay, Self::Raise];

    /// Its bit in what the code says that is to be done, and its word's number behind that.
    pub const fn number(self) -> u8 {
        match self {
            Self::Result => 0,
            Self::Errno => 1,
            Self::Delay => 2,
            Self::Raise => 3,
        }
    }
}

/// The number of [`Source::Named`] that stands for what the function gives when it fails.
pub const FAILURE: u8 = u8::MAX - 1;
/// Counters of a process.
pub const MOST_COUNTERS: u8 = 64;
/// What the host may be bidden do: bits of a word.
pub const MOST_BIDS: u8 = 32;
/// Texts of a call that are compared.
pub const MOST_TEXTS: usize = 4;

/// Locals that there may be.
pub const MOST_LOCALS: u8 = 5;
/// The number of [`Source::Named`] that stands for the result of a call.
pub const RESULT: u8 = u8::MAX;
/// Steps and expressions, counted together.
pub const MOST_PARTS: usize = 2_000;
/// How deep steps may be nested.
pub const DEEPEST: usize = 24;

/// Why acts cannot be compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ActsError {
    /// There are too many steps.
    #[error("more than {MOST_PARTS} steps and values")]
    TooLong,
    /// Nested too deep.
    #[error("conditions are nested deeper than {DEEPEST}")]
    TooDeep,
    /// More locals.
    #[error("more than {MOST_LOCALS} variables")]
    Locals,
    /// A table gets other keys than it has, or there is no such table.
    #[error("a table with other keys")]
    Table,
    /// Too many words of the call.
    #[error(
        "more than {MOST_KEPT} arguments are used when the call returns, c.self_time counted as one, \
         and c.caller with c.stack"
    )]
    Kept,
    /// More texts.
    #[error("more than {MOST_TEXTS} texts and fields are asked for, c.depth counted as one")]
    Texts,
    /// More counters.
    #[error("calls are counted in more than {MOST_COUNTERS} payloads")]
    Counters,
    /// More of what the host is bidden do.
    #[error("the recording is started, stopped, dumped or changed in more than {MOST_BIDS} places")]
    Bids,
    /// More variables of a thread.
    #[error("more than {MOST_VARIABLES} variables of a thread")]
    Variables,
    /// Acts of a return that want a record, or change the call.
    #[error("a call that has returned cannot be recorded any more")]
    Late,
}

impl Acts {
    /// True if a call may be recorded, and need not be.
    pub fn may_record(&self) -> bool {
        !self.records && (self.bids() || self.asks_for_record())
    }

    /// True if a step asks for a record, which comes too late when a call returns.
    pub fn asks_for_record(&self) -> bool {
        self.any_step(&|step| matches!(step, Step::Record | Step::Act(..)))
    }

    /// True if a step bids the host do something.
    pub fn bids(&self) -> bool {
        self.any_step(&|step| matches!(step, Step::Bid(_)))
    }

    /// True if a step may change what the program does.
    pub fn is_active(&self) -> bool {
        self.any_step(&|step| matches!(step, Step::Act(..)))
    }

    /// True if a step may do this.
    pub fn does(&self, act: Act) -> bool {
        self.any_step(&|step| matches!(step, Step::Act(done, _) if *done == act))
    }

    /// True if something is added to a table.
    pub fn adds(&self) -> bool {
        self.any_step(&|step| matches!(step, Step::Add { .. }))
    }

    /// True if something is added to a table whose rows each stand for one addition.
    pub fn adds_rows(&self, tables: &Tables) -> bool {
        let has_rows = |table: &u8| {
            let table = tables.all.get(usize::from(*table));
            table.is_some_and(|table| table.kind.has_single_rows())
        };
        self.any_step(&|step| matches!(step, Step::Add { table, .. } if has_rows(table)))
    }

    /// True if a variable of the thread is set or asked for.
    pub fn uses_variables(&self) -> bool {
        let is_asked = (0..MOST_VARIABLES).any(|n| self.uses(Source::Variable(n)));
        is_asked || self.any_step(&|step| matches!(step, Step::Keep(..) | Step::Increase(..)))
    }

    /// At a return: the number of the word that is kept for [`Source::SelfTime`].
    pub fn self_time(&self) -> Option<u8> {
        (0..MOST_KEPT as u8).find(|n| self.uses(Source::SelfTime(*n)))
    }

    /// True if it has to be known how long a call takes.
    pub fn is_timed(&self) -> bool {
        self.uses(Source::Elapsed) || self.self_time().is_some()
    }

    /// How many locals acts of a return may have: what is found out of time stands in the place of
    /// the last ones.
    pub fn most_locals(&self) -> u8 {
        let taken = u8::from(self.is_timed()) + u8::from(self.self_time().is_some());
        MOST_LOCALS - taken
    }

    /// True if the thread's set of tables is needed.
    pub fn needs_set(&self) -> bool {
        self.adds() || self.uses_variables() || self.self_time().is_some()
    }

    /// True if the slow path alone can run them.
    pub fn is_slow(&self) -> bool {
        self.is_active() || !self.texts().is_empty()
    }

    fn any_step(&self, is_it: &dyn Fn(&Step) -> bool) -> bool {
        fn any(steps: &[Step], is_it: &dyn Fn(&Step) -> bool) -> bool {
            steps.iter().any(|step| match step {
                Step::If(_, then, or) => any(then, is_it) || any(or, is_it),
                step => is_it(step),
            })
        }
        any(&self.steps, is_it)
    }

    /// What the slow path finds out, each once: texts, as [`Source::text`] has them, and
    /// [`crate::text::DEPTH`].
    pub fn texts(&self) -> Vec<(u8, u16)> {
        let mut all = Vec::new();
        for expression in self.expressions() {
            collect_texts(expression, &mut all);
        }
        all
    }

    /// How many locals are set or read.
    pub fn locals(&self) -> u8 {
        fn set(steps: &[Step]) -> u8 {
            let each = steps.iter().map(|step| match step {
                Step::Set(local, _) => local + 1,
                Step::If(_, then, or) => set(then).max(set(or)),
                Step::Next(local, _) => local + 1,
                Step::Add { .. } | Step::Record | Step::Act(..) | Step::Bid(_) => 0,
                Step::Keep(..) | Step::Increase(..) => 0,
            });
            each.max().unwrap_or(0)
        }
        fn read(expression: &Expression) -> u8 {
            match expression {
                Expression::Local(local) => local + 1,
                Expression::Load(inner, _) | Expression::Narrow(inner, _) => read(inner),
                Expression::Binary(_, a, b) | Expression::Both(a, b) | Expression::Either(a, b) => {
                    read(a).max(read(b))
                }
                Expression::Constant(_) | Expression::Source(_) => 0,
            }
        }
        let read = self.expressions().into_iter().map(read).max();
        set(&self.steps).max(read.unwrap_or(0)).min(MOST_LOCALS)
    }

    /// Puts sources into the places of those that are named.
    ///
    /// # Errors
    /// The number of a name for which there is none.
    pub fn resolve(&mut self, of: &dyn Fn(u8) -> Option<Expression>) -> Result<(), u8> {
        let mut unknown = 0;
        let all = replace(&mut self.steps, &mut |source| match source {
            Source::Named(number) => {
                unknown = number;
                of(number)
            }
            Source::NamedText(number, length) => {
                unknown = number;
                match of(number)? {
                    Expression::Source(Source::Argument(n)) => Some(Source::Text(n, length).into()),
                    _ => None,
                }
            }
            source => Some(source.into()),
        });
        all.ok_or(unknown)
    }

    /// For acts of a return: what is read of the call is kept by its entry, and named so.
    ///
    /// # Errors
    /// There are more words than are kept.
    pub fn keep(&mut self) -> Result<Vec<Source>, ActsError> {
        let mut kept = Vec::new();
        let all = replace(&mut self.steps, &mut |source| {
            let wanted = source;
            let source = match source {
                Source::Argument(_) | Source::Stack(_) | Source::StackPointer => source,
                Source::Caller | Source::Callers(_) => Source::Caller,
                Source::SelfTime(_) => Source::Inside,
                Source::Text(argument, _) => Source::Argument(argument),
                _ => return Some(source.into()),
            };
            let known = kept.iter().position(|known| *known == source);
            let at = known.unwrap_or_else(|| {
                kept.push(source);
                kept.len() - 1
            });
            let kept = match wanted {
                Source::Callers(count) => Source::KeptCallers(count, at as u8),
                Source::SelfTime(_) => Source::SelfTime(at as u8),
                Source::Text(_, length) => Source::KeptText(at as u8, length),
                _ => Source::Kept(at as u8),
            };
            (at < MOST_KEPT).then_some(kept.into())
        });
        all.ok_or(ActsError::Kept)?;
        Ok(kept)
    }

    /// True if an expression names a place that calls, or a stack of them.
    pub fn names_places(&self) -> bool {
        let is_stack = |count| self.uses(Source::Callers(count));
        self.uses(Source::Caller) || (1..=callers::MOST_PLACES).any(is_stack)
    }

    /// True if an expression names this.
    pub fn uses(&self, source: Source) -> bool {
        fn any(expression: &Expression, source: Source) -> bool {
            match expression {
                Expression::Source(named) => *named == source,
                Expression::Load(inner, _) | Expression::Narrow(inner, _) => any(inner, source),
                Expression::Binary(_, a, b) | Expression::Both(a, b) | Expression::Either(a, b) => {
                    any(a, source) || any(b, source)
                }
                Expression::Constant(_) | Expression::Local(_) => false,
            }
        }
        let all = self.expressions();
        all.into_iter().any(|expression| any(expression, source))
    }

    /// Does all of another's steps after its own.
    pub fn join(&mut self, other: &Self) {
        self.steps.extend(other.steps.iter().cloned());
        self.records |= other.records;
    }

    /// All expressions.
    pub fn expressions(&self) -> Vec<&Expression> {
        fn collect<'a>(steps: &'a [Step], all: &mut Vec<&'a Expression>) {
            for step in steps {
                match step {
                    Step::Set(_, value) | Step::Act(_, value) => all.push(value),
                    Step::Keep(_, value) | Step::Increase(_, value) => all.push(value),
                    Step::If(condition, then, or) => {
                        all.push(condition);
                        collect(then, all);
                        collect(or, all);
                    }
                    Step::Add { keys, value, .. } => {
                        all.extend(keys);
                        all.push(value);
                    }
                    Step::Record | Step::Next(..) | Step::Bid(_) => {}
                }
            }
        }
        let mut all = Vec::new();
        collect(&self.steps, &mut all);
        all
    }
}

/// Gives the word that takes the place of a source. None: there is none.
type Replace<'a> = dyn FnMut(Source) -> Option<Expression> + 'a;

/// Puts words into the places of sources. None: there is none for one of them.
fn replace(steps: &mut [Step], of: &mut Replace<'_>) -> Option<()> {
    for step in steps {
        match step {
            Step::Set(_, value) | Step::Act(_, value) => replace_in(value, of)?,
            Step::Keep(_, value) | Step::Increase(_, value) => replace_in(value, of)?,
            Step::If(condition, then, or) => {
                replace_in(condition, of)?;
                replace(then, of)?;
                replace(or, of)?;
            }
            Step::Add { keys, value, .. } => {
                for key in keys {
                    replace_in(key, of)?;
                }
                replace_in(value, of)?;
            }
            Step::Record | Step::Next(..) | Step::Bid(_) => {}
        }
    }
    Some(())
}

fn collect_texts(expression: &Expression, all: &mut Vec<(u8, u16)>) {
    match expression {
        Expression::Source(source) => {
            if let Some(found) = source.text().filter(|found| !all.contains(found)) {
                all.push(found);
            }
        }
        Expression::Load(inner, _) | Expression::Narrow(inner, _) => collect_texts(inner, all),
        Expression::Binary(_, a, b) | Expression::Both(a, b) | Expression::Either(a, b) => {
            collect_texts(a, all);
            collect_texts(b, all);
        }
        Expression::Constant(_) | Expression::Local(_) => {}
    }
}

fn replace_in(expression: &mut Expression, of: &mut Replace<'_>) -> Option<()> {
    match expression {
        Expression::Source(source) => *expression = of(*source)?,
        Expression::Load(inner, _) | Expression::Narrow(inner, _) => replace_in(inner, of)?,
        Expression::Binary(_, a, b) | Expression::Both(a, b) | Expression::Either(a, b) => {
            replace_in(a, of)?;
            replace_in(b, of)?;
        }
        Expression::Constant(_) | Expression::Local(_) => {}
    }
    Some(())
}

/// Looks at acts, given how many keys each table has.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(acts: &Acts, keys: &[u8]) -> Result<(), ActsError> {
    let mut left = MOST_PARTS;
    if acts.texts().len() > MOST_TEXTS {
        return Err(ActsError::Texts);
    }
    let parts: usize = acts.expressions().iter().map(|e| parts_of(e)).sum();
    left = left.checked_sub(parts).ok_or(ActsError::TooLong)?;
    check_steps(&acts.steps, keys, &mut left, 0)
}

fn parts_of(expression: &Expression) -> usize {
    1 + match expression {
        Expression::Load(inner, _) | Expression::Narrow(inner, _) => parts_of(inner),
        Expression::Binary(_, a, b) | Expression::Both(a, b) | Expression::Either(a, b) => {
            parts_of(a) + parts_of(b)
        }
        _ => 0,
    }
}

fn check_steps(
    steps: &[Step],
    keys: &[u8],
    left: &mut usize,
    depth: usize,
) -> Result<(), ActsError> {
    if depth > DEEPEST {
        return Err(ActsError::TooDeep);
    }
    for step in steps {
        *left = left.checked_sub(1).ok_or(ActsError::TooLong)?;
        match step {
            Step::Set(local, _) | Step::Next(local, _) if *local >= MOST_LOCALS => {
                return Err(ActsError::Locals);
            }
            Step::Next(_, counter) if *counter >= MOST_COUNTERS => return Err(ActsError::Counters),
            Step::Bid(number) if *number >= MOST_BIDS => return Err(ActsError::Bids),
            Step::If(_, then, or) => {
                check_steps(then, keys, left, depth + 1)?;
                check_steps(or, keys, left, depth + 1)?;
            }
            Step::Add {
                table, keys: given, ..
            } => {
                let wanted = keys.get(usize::from(*table)).copied();
                if given.len() > MOST_KEYS || wanted.map(usize::from) != Some(given.len()) {
                    return Err(ActsError::Table);
                }
            }
            Step::Keep(variable, _) | Step::Increase(variable, _)
                if *variable >= MOST_VARIABLES =>
            {
                return Err(ActsError::Variables);
            }
            Step::Set(..) | Step::Record | Step::Next(..) | Step::Act(..) => {}
            Step::Keep(..) | Step::Increase(..) | Step::Bid(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_acts_are_named() {
        let add = |keys: usize| Acts {
            steps: vec![Step::Add {
                table: 0,
                keys: vec![1.into(); keys],
                value: 1.into(),
            }],
            records: false,
        };
        assert_eq!(check(&add(1), &[1]), Ok(()));
        assert_eq!(check(&add(2), &[1]), Err(ActsError::Table));
        assert_eq!(check(&add(1), &[]), Err(ActsError::Table));
        let long = Acts {
            steps: vec![Step::Record; MOST_PARTS + 1],
            records: false,
        };
        assert_eq!(check(&long, &[]), Err(ActsError::TooLong));
        let local = Acts {
            steps: vec![Step::Set(MOST_LOCALS, 1.into())],
            records: false,
        };
        assert_eq!(check(&local, &[]), Err(ActsError::Locals));
    }
}
