//! A call of a function as text: `name(arguments)` and `= result`.
//!
//! Given its description, its words and what of memory was captured. Must not know where these come
//! from.

use super::call::{Hex, Line, Made, Options};
use super::memory::Memory;
use super::printer::Printer;
use super::types::{Phase, Returns, Type};
use crate::functions::prototype::{Failure, Prototype, ResultIn};
use crate::names;
use std::fmt::Write;

/// A call of a function.
#[derive(Clone, Copy)]
pub struct Called<'a> {
    /// Its words at the entry.
    pub words: &'a [u64],
    /// What it has returned, if it has: rax, rdx, xmm0; and errno if it failed.
    pub result: Option<([u64; 3], u32)>,
    /// What was captured.
    pub memory: &'a dyn Memory,
}

/// Writes a call; `name` is what it is shown by.
pub fn line(prototype: &Prototype, name: &str, called: &Called<'_>, options: &Options<'_>) -> Line {
    let mut words = called.words.to_vec();
    words.resize(prototype.sources.len(), 0);
    let returned = called.result.map(|(result, errno)| {
        words.extend(result);
        prototype.told(result[0], errno)
    });
    let mut printer = printer(&words, returned, called.memory, options);
    printer.out.push_str(name);
    printer.out.push('(');
    let (parameters, returns) = prototype.call.of(&words);
    let count = match prototype.shown {
        Some(shown) => shown,
        None => parameters.len(),
    };
    let mut shown = 0;
    for (index, parameter) in (0u8..).zip(parameters.iter().take(count)) {
        printer.parameter(parameter, index, &mut shown);
    }
    if prototype.is_cut {
        printer
            .out
            .push_str(if shown > 0 { ", ..." } else { "..." });
    }
    let known_before = printer.known_before.unwrap_or(printer.out.len());
    printer.out.push(')');
    let call = std::mem::take(&mut printer.out);
    if let Some(result) = called.result {
        answer(&mut printer, prototype, result, (returns, &parameters));
    }
    Line {
        call,
        result: printer.out,
        known_before,
    }
}

/// What writes values of these words.
fn printer<'a>(
    words: &'a [u64],
    result: Option<i64>,
    memory: &'a dyn Memory,
    options: &Options<'a>,
) -> Printer<'a> {
    Printer {
        made: Made {
            number: 0,
            args: words,
            result,
            memory,
        },
        options: Options {
            hex: Hex::Never,
            ..*options
        },
        out: String::new(),
        known_before: None,
        phase: Phase::Entry,
        left: None,
        element: Vec::new(),
        element_at: 0,
    }
}

/// Writes what a call has given.
fn answer(
    printer: &mut Printer<'_>,
    prototype: &Prototype,
    (words, errno): ([u64; 3], u32),
    (returns, parameters): (Returns, &[Type]),
) {
    match &prototype.result {
        _ if errno != 0 => failed(prototype.failure, errno, &mut printer.out),
        Some(known) => {
            let word = match known.place {
                ResultIn::Register => words[0],
                ResultIn::Vector => words[2],
            };
            printer.out.push_str("= ");
            printer.phase = Phase::Exit;
            printer.value(&known.ty, word);
        }
        None if prototype.is_kernels => printer.result(returns, parameters),
        None => {}
    }
}

fn failed(failure: Failure, errno: u32, out: &mut String) {
    let value = match failure {
        Failure::Null => "NULL",
        _ => "-1",
    };
    let _ = match names::error(errno.into()) {
        Some((name, text)) => write!(out, "= {value} {name} ({text})"),
        None => write!(out, "= {value} (errno {errno})"),
    };
}
