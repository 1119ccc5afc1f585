//! What a program must fulfil before it is compiled: every number in its range, nothing deeper or
//! longer than a call can bear.

use thiserror::Error;

use crate::captured::HEADER_BYTES;
use crate::contract::*;
use crate::program::{Expression, Program, Source, Statement};
use crate::tables::MOST_VARIABLES;

/// What a program may keep at most.
pub const MOST_BYTES: usize = 16 << 10;
/// How many expressions and statements may be evaluated at one call.
pub const MOST_STEPS: u64 = 20_000;
/// How deep expressions and statements may be nested.
pub const DEEPEST: usize = 24;

/// What is wrong with a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CheckError {
    /// A number without a meaning.
    #[error("there is no {what} number {number}")]
    NoSuch {
        /// Of what.
        what: &'static str,
        /// The number.
        number: u8,
    },
    /// Too much is kept.
    #[error("up to {0} bytes would be kept at a call, at most {MOST_BYTES} can be")]
    TooMany(usize),
    /// It takes too long.
    #[error("a call might take {0} steps, at most {MOST_STEPS} are allowed")]
    TooLong(u64),
    /// It is nested too deep.
    #[error("it is nested deeper than {DEEPEST} levels")]
    TooDeep,
}

/// How many bytes a program keeps at most.
pub fn most_bytes(program: &Program) -> usize {
    program.words.len() * 8 + all_bytes(&program.parts)
}

fn all_bytes(statements: &[Statement]) -> usize {
    let each = statements.iter().map(|s| match s {
        Statement::Set(..) | Statement::Keep(..) => 0,
        Statement::Word { .. } => HEADER_BYTES + 8,
        Statement::Bytes { limit, .. } | Statement::Text { limit, .. } => {
            HEADER_BYTES + usize::from(*limit).next_multiple_of(8)
        }
        Statement::If(_, then, or) => all_bytes(then).max(all_bytes(or)),
        Statement::Repeat { limit, body, .. } => {
            usize::from(*limit).saturating_mul(all_bytes(body))
        }
    });
    each.fold(0, usize::saturating_add)
}

/// Looks at a whole program.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn check(program: &Program) -> Result<(), CheckError> {
    let expressions = program.wanted.iter().chain(&program.words);
    let mut steps = 0u64;
    for expression in expressions {
        steps = steps.saturating_add(steps_of(expression, 0)?);
    }
    steps = steps.saturating_add(all_steps(&program.parts, 0)?);
    if steps > MOST_STEPS {
        return Err(CheckError::TooLong(steps));
    }
    match most_bytes(program) {
        bytes if bytes > MOST_BYTES => Err(CheckError::TooMany(bytes)),
        _ => Ok(()),
    }
}

fn all_steps(statements: &[Statement], depth: usize) -> Result<u64, CheckError> {
    if depth > DEEPEST {
        return Err(CheckError::TooDeep);
    }
    let mut steps = 0u64;
    for statement in statements {
        let own = match statement {
            Statement::Set(local, value) => {
                within("local", *local, LOCALS)?;
                steps_of(value, depth)?
            }
            Statement::Keep(number, value) => {
                within("kept word", *number, KEPT_COUNT)?;
                steps_of(value, depth)?
            }
            Statement::Word { value, .. } => steps_of(value, depth)?,
            Statement::Bytes {
                address, length, ..
            } => steps_of(address, depth)?.saturating_add(steps_of(length, depth)?),
            Statement::Text { address, .. } => steps_of(address, depth)?,
            Statement::If(condition, then, or) => {
                let longer = all_steps(then, depth + 1)?.max(all_steps(or, depth + 1)?);
                steps_of(condition, depth)?.saturating_add(longer)
            }
            Statement::Repeat {
                count,
                limit,
                counter,
                body,
            } => {
                within("local", *counter, LOCALS)?;
                let once = all_steps(body, depth + 1)?.saturating_add(1);
                let all = once.saturating_mul(u64::from(*limit));
                steps_of(count, depth)?.saturating_add(all)
            }
        };
        steps = steps.saturating_add(own).saturating_add(1);
    }
    Ok(steps)
}

fn steps_of(expression: &Expression, depth: usize) -> Result<u64, CheckError> {
    if depth > DEEPEST {
        return Err(CheckError::TooDeep);
    }
    let below = |e: &Expression| steps_of(e, depth + 1);
    let below = match expression {
        Expression::Constant(_) => 0,
        Expression::Local(local) => within("local", *local, LOCALS).map(|()| 0)?,
        Expression::Source(source) => source_exists(*source).map(|()| 0)?,
        Expression::Load(inner, _) | Expression::Narrow(inner, _) => below(inner)?,
        Expression::Binary(_, a, b) | Expression::Both(a, b) | Expression::Either(a, b) => {
            below(a)?.saturating_add(below(b)?)
        }
    };
    Ok(below.saturating_add(1))
}

fn source_exists(source: Source) -> Result<(), CheckError> {
    match source {
        Source::Argument(n) => within("argument in a register", n, ARGUMENT_COUNT),
        Source::Vector(n) => within("vector register", n, VECTOR_COUNT),
        Source::Stack(n) => within("argument on the stack", n, STACK_ARGUMENTS),
        Source::Kept(n) => within("kept word", n, KEPT_COUNT),
        Source::Named(n) | Source::NamedText(n, _) => within("argument with a name", n, 0),
        Source::Text(n, _) | Source::KeptText(n, _) => within("text", n, 0),
        Source::ResultText(_) => within("text", 0, 0),
        Source::Depth => within("depth", 0, 0),
        Source::Caller => within("caller", 0, 0),
        Source::Callers(n) | Source::KeptCallers(n, _) => within("stack", n, 0),
        Source::Variable(n) => within("variable", n, MOST_VARIABLES),
        Source::Thread => within("number of the thread", 0, 0),
        Source::Errno => within("errno", 0, 0),
        Source::Elapsed | Source::SelfTime(_) | Source::Inside => within("elapsed time", 0, 0),
        Source::Result | Source::SecondResult | Source::StackPointer => Ok(()),
    }
}

fn within(what: &'static str, number: u8, end: u8) -> Result<(), CheckError> {
    match number < end {
        true => Ok(()),
        false => Err(CheckError::NoSuch { what, number }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_named() {
        let program = Program {
            words: vec![Expression::argument(6)],
            ..Program::default()
        };
        let error = check(&program).unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no argument in a register number 6"
        );
    }

    #[test]
    fn what_repeats_is_counted_as_often() {
        let body = vec![Statement::Text {
            tag: 1,
            address: Expression::Local(0),
            limit: 33,
        }];
        let repeat = |limit| Program {
            parts: vec![Statement::Repeat {
                count: 1.into(),
                limit,
                counter: 0,
                body: body.clone(),
            }],
            ..Program::default()
        };
        assert_eq!(most_bytes(&repeat(10)), 480);
        assert_eq!(check(&repeat(255)), Ok(()));
        let nested = Program {
            parts: vec![Statement::Repeat {
                count: 1.into(),
                limit: 255,
                counter: 1,
                body: repeat(255).parts,
            }],
            ..Program::default()
        };
        assert!(matches!(check(&nested), Err(CheckError::TooLong(_))));
    }

    #[test]
    fn what_is_nested_without_end_is_refused() {
        let deep = (0..100).fold(Expression::from(1), |e, _| {
            e.load(crate::program::Width::U8)
        });
        let program = Program {
            wanted: Some(deep),
            ..Program::default()
        };
        assert_eq!(check(&program), Err(CheckError::TooDeep));
    }
}
