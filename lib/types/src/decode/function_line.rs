//! A call of a function as text: `name(arguments)` and `= result`.
//!
//! Given its description, its words and what of memory was captured. Must not know where these come
//! from.

use super::call::{Hex, Line, Made, Options};
use super::memory::Memory;
use super::printer::Printer;
use super::types::Phase;
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
    let mut printer = Printer {
        made: Made {
            number: 0,
            args: &words,
            result: returned,
            memory: called.memory,
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
    };
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
    if let Some((result, errno)) = called.result {
        match &prototype.result {
            _ if errno != 0 => failed(prototype.failure, errno, &mut printer.out),
            Some(known) => {
                let word = match known.place {
                    ResultIn::Register => result[0],
                    ResultIn::Vector => result[2],
                };
                printer.out.push_str("= ");
                printer.phase = Phase::Exit;
                printer.value(&known.ty, word);
            }
            None if prototype.is_kernels => printer.result(returns, &parameters),
            None => {}
        }
    }
    Line {
        call,
        result: printer.out,
        known_before,
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
