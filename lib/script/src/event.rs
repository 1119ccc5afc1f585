//! What handlers are told of: a call of a function, a system call, something of a process.
//!
//! Given what the replay knows; gives the values that scripts ask for. Must not know handlers.

use std::sync::Arc;

use rhai::{Dynamic, ImmutableString};
use sptrace_render::Call;
use sptrace_render::acted::mark;
use sptrace_render::call_values::{Begun, Descriptions};
use sptrace_trace::Dictionary;
use sptrace_types::calls;
use sptrace_types::decode::call::{Line, Made, Options};
use sptrace_types::decode::fields::{parameter_names, place};
use sptrace_types::decode::print::line;
use sptrace_types::decode::types::{Phase, Type};
use sptrace_types::names;

use crate::given;
use crate::value::read;

/// Names of functions, by index.
#[derive(Default)]
pub struct Book {
    pub names: Vec<(ImmutableString, ImmutableString)>,
}

impl Book {
    pub fn of(dictionary: &Dictionary) -> Self {
        let names = sptrace_trace::Names::new(dictionary);
        let ids = (0..dictionary.functions.len() as u32).map(sptrace_trace::FunctionId);
        let names = ids.map(|id| (names.name(id).into(), names.module(id).into()));
        Self {
            names: names.collect(),
        }
    }
}

/// What has ended.
pub enum What {
    /// With what it has brought, if that was recorded, and the descriptions of the trace.
    Function(Option<Box<Begun>>, Arc<Descriptions>),
    SystemCall(Box<Call>),
}

/// What a handler is told.
pub struct Facts {
    pub what: What,
    pub name: ImmutableString,
    pub module: ImmutableString,
    pub caller: ImmutableString,
    pub caller_module: ImmutableString,
    pub thread: ImmutableString,
    pub pid: u32,
    pub tid: u32,
    pub depth: u32,
    pub start_ns: u64,
    pub elapsed_ns: Option<u64>,
    pub self_ns: Option<u64>,
    /// How it ended: `return`, `jump`, `process`; `?`: that was not seen.
    pub end: &'static str,
    /// The name of the descriptor that the first argument is.
    pub fd_path: ImmutableString,
    /// What a payload has done to it, in words.
    pub injected: ImmutableString,
    /// Which event it is.
    pub serial: u64,
}

/// Shared by the script's variables.
#[derive(Clone)]
pub struct Event(pub Arc<Facts>);

/// Of what something is told beside calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    Process,
    Thread,
    Module,
    Signal,
}

/// Something of a process or of a thread, a module that was mapped, or a signal.
#[derive(Clone)]
pub struct ProcessEvent {
    pub subject: Subject,
    /// `begin`, `exec` or `exit`; `map` of a module; `signal`.
    pub kind: &'static str,
    pub pid: u32,
    /// The process's, if it concerns no one thread.
    pub tid: u32,
    pub ppid: u32,
    pub time_ns: u64,
    /// Of the program executed, or the module; of a signal its name.
    pub path: ImmutableString,
    pub thread: ImmutableString,
    /// How it ended: `0`, `1`, `signal 9`.
    pub status: ImmutableString,
}

/// Calls of a function by another in a thread, of which only the number is known.
#[derive(Clone)]
pub struct Counted {
    pub name: ImmutableString,
    pub module: ImmutableString,
    pub caller: ImmutableString,
    pub tid: u32,
    pub calls: u64,
}

impl Facts {
    pub fn call(&self) -> Option<&Call> {
        match &self.what {
            What::SystemCall(call) => Some(call),
            What::Function(..) => None,
        }
    }

    /// The error that a call returned, from 1.
    pub fn error(&self) -> Option<u64> {
        if let What::Function(begun, descriptions) = &self.what {
            return given::error(begun.as_deref(), descriptions);
        }
        let result = self.call()?.result?;
        (-4095..0).contains(&result).then(|| result.unsigned_abs())
    }

    pub fn errno(&self) -> &'static str {
        let known = self.error().and_then(names::error);
        known.map_or("", |(name, _)| name)
    }

    pub fn line(&self) -> Option<String> {
        if let What::Function(begun, descriptions) = &self.what {
            let line = descriptions.line_of(begun.as_deref(), &self.name)?;
            return Some(match line.result.is_empty() {
                true => line.call,
                false => format!("{} {}", line.call, line.result),
            });
        }
        let call = self.call()?;
        let made = Made {
            number: call.number,
            args: &call.args,
            result: call.result,
            memory: &call.captured,
        };
        let Line { call, result, .. } = line(&made, &Options::default());
        let mark = self.call()?.acted.as_ref().map_or("", mark);
        Some(format!("{call} {result}{mark}"))
    }

    /// The first path among the arguments, or what the descriptor leads to that is the first.
    pub fn path(&self) -> ImmutableString {
        let path = self.call().and_then(|call| {
            let (parameters, _) = calls::by_number(call.number)?.of(&call.args);
            let place = parameters
                .iter()
                .position(|ty| matches!(ty, Type::At(Phase::Entry, Type::Path)))?;
            let address = *call.args.get(place)?;
            let text = crate::descriptors::text(call, address);
            (!text.is_empty()).then_some(text)
        });
        path.unwrap_or_else(|| self.fd_path.clone())
    }

    /// An argument, or a part of what it leads to, by its name.
    ///
    /// # Errors
    /// There is no such argument; says which there are.
    pub fn argument(&self, path: &str) -> Result<Dynamic, String> {
        let call = match &self.what {
            What::SystemCall(call) => call,
            What::Function(begun, descriptions) => {
                return given::by_name(begun.as_deref(), descriptions, path);
            }
        };
        let Some(description) = calls::by_number(call.number) else {
            return Err(format!("system call {} is not known", call.number));
        };
        let place = place(description, &call.args, path)?;
        Ok(read(&place, &call.args, &call.captured))
    }

    /// An argument by its number, from 1.
    ///
    /// # Errors
    /// There is no such argument.
    pub fn numbered(&self, number: i64) -> Result<Dynamic, String> {
        let at = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
        match &self.what {
            What::Function(begun, descriptions) => {
                let at = at.ok_or("arguments are counted from 1")?;
                given::by_number(begun.as_deref(), descriptions, at)
            }
            What::SystemCall(call) => {
                let word = at.and_then(|at| call.args.get(at));
                let word = word.ok_or("a system call has arguments 1 to 6")?;
                Ok(Dynamic::from(*word as i64))
            }
        }
    }

    /// What it returned; `()`: that is not known.
    pub fn result(&self) -> Dynamic {
        match &self.what {
            What::SystemCall(call) => call.result.map_or(Dynamic::UNIT, Dynamic::from),
            What::Function(begun, descriptions) => given::result(begun.as_deref(), descriptions),
        }
    }
}

/// The names of a call's arguments.
pub fn argument_names(facts: &Facts) -> Vec<String> {
    if let What::Function(begun, descriptions) = &facts.what {
        return given::names(begun.as_deref(), descriptions);
    }
    let known = facts.call().and_then(|call| calls::by_number(call.number));
    let names = known.map(parameter_names).unwrap_or_default();
    names.into_iter().map(str::to_owned).collect()
}
