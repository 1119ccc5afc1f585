//! Prototypes from text: the form of ltrace.conf(5), and some more.
//!
//! ```text
//! line      = [type ["!"]] name "(" [parameter {"," parameter}] ")" [";"]
//!             "!": errno after a failure
//!           | "sys" name "as" name                     the first is a call of the kernel
//!           | "typedef" name "=" type                  of a file
//! parameter = ["+"] [type] [name] ["@" source] | "..."
//!             "+": what is behind it is shown afterwards
//!           | hide(parameter)
//! source    = "r0".."r5" | "x0".."x7" | "s0".. "s15"    registers, vector registers, the stack
//! type      = basic {"*"}
//! basic     = void int uint long ulong short ushort char uchar llong ullong
//!           | bool float floats double addr octal file hex(type) fd mode signal date
//!           | string["[" length "]"] | format | scanf
//!           | string0 | stringN                        ends with 0, or as long as the result,
//!                                                      or argument N, says
//!           | i8 .. i64, u8 .. u64, x8 .. x64
//!           | text(pointer, length) | slice | unknown
//!           | array(type, length) | struct["[" bytes "]"](name[@offset]: type, ...)
//!           | enum["[" type "]"](NAME=VALUE, ...) | flags[...](...) | names(table)
//!           | changed(type)                             behind a pointer, before and after
//!           | chars(N)                                  in a structure
//!           | sysarg(name, N)                           a parameter of a call of the kernel
//! length    = number | argN | retval | zero(N)
//! ```
//!
//! Given such a text; gives it as [`Prototype`], or where it is wrong. Must not know who wrote it.

use super::prototype::{Failure, Given, Parameter, Prototype, ResultIn, Source, keep, keep_all};
use super::words::{named, plain};
use crate::calls;
use crate::decode::types::{Field, Len, Phase, Show, Struct, Type};
use crate::names::Names;
use std::borrow::Cow;
use std::collections::HashMap;

/// Types inside of each other.
const MOST_NESTED: usize = 16;
/// The most elements that a length may name.
const MOST_ELEMENTS: u64 = 1 << 20;

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Byte of the text.
    pub at: usize,
    /// Why.
    pub why: String,
}

impl Wrong {
    /// The text, the place in it and the reason, in one line.
    pub fn shown(&self, text: &str) -> String {
        let column = 1 + text.get(..self.at).map_or(0, |head| head.chars().count());
        match text.get(self.at..).unwrap_or("") {
            "" => format!("'{text}' at its end: {}", self.why),
            rest => format!("'{text}' at column {column} ('{rest}'): {}", self.why),
        }
    }
}

/// Texts of types that a file has given names.
pub type Defined = HashMap<String, String>;

/// A prototype.
///
/// # Errors
/// Where it is wrong.
pub fn prototype(text: &str, defined: &Defined) -> Result<Prototype, Wrong> {
    let text = expanded(text, defined);
    let mut parser = Parser::new(&text);
    let found = parser.prototype()?;
    parser.end()?;
    Ok(found)
}

/// A line with the texts of types in the places of their names: what a trace keeps of it needs
/// nothing else. A name before a parenthesis is a function's.
fn expanded<'a>(text: &'a str, defined: &Defined) -> Cow<'a, str> {
    if defined.is_empty() {
        return Cow::Borrowed(text);
    }
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let (mut out, mut rest) = (String::new(), text);
    while let Some(first) = rest.chars().next() {
        let end = match is_part(first) {
            true => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (word, behind) = rest.split_at(end);
        let is_type = !behind.trim_start().starts_with('(');
        match defined.get(word).filter(|_| is_type) {
            Some(ty) => out.push_str(ty),
            None => out.push_str(word),
        }
        rest = behind;
    }
    Cow::Owned(out)
}

/// A type, as a user names one value's.
///
/// # Errors
/// Where it is wrong.
pub fn one_type(text: &str) -> Result<Type, Wrong> {
    let mut parser = Parser::new(text);
    let after = parser.takes("+");
    let ty = parser.pointed(after)?;
    parser.end()?;
    Ok(ty.ty)
}

/// A string whose type has a number: that of the argument which says how long it is at most, or 0
/// for the result.
fn limited(word: &str, phase: Phase) -> Option<Type> {
    let number: u8 = word.strip_prefix("string")?.parse().ok()?;
    let length = match number.checked_sub(1) {
        None => Len::Result,
        Some(index) if index < 16 => Len::Arg(index),
        Some(_) => return None,
    };
    Some(Type::At(phase, keep(Type::Limited(length))))
}

/// What a file in the form of ltrace.conf(5) describes; lines that are wrong are given beside it,
/// with their numbers.
pub fn file(text: &str) -> (Vec<Prototype>, Vec<(usize, Wrong)>) {
    let mut defined = Defined::new();
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        // What follows a prototype's end is a comment, too.
        let line = line.split(';').next().unwrap_or("").trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let result = match line.strip_prefix("typedef ") {
            Some(_) => typedef(line, &mut defined),
            None => prototype(line, &defined).map(|one| found.push(one)),
        };
        wrong.extend(result.err().map(|error| (number, error)));
    }
    (found, wrong)
}

fn typedef(line: &str, defined: &mut Defined) -> Result<(), Wrong> {
    let line = expanded(line, defined);
    let mut parser = Parser::new(&line);
    parser.word()?;
    let name = parser.word()?.to_owned();
    parser.needs("=")?;
    let start = parser.at;
    parser.pointed(false)?;
    let ty = line.get(start..parser.at).unwrap_or("").trim().to_owned();
    parser.end()?;
    defined.insert(name, ty);
    Ok(())
}

/// A type that was read.
#[derive(Clone, Copy)]
struct Read {
    ty: Type,
    is_pair: bool,
    is_void: bool,
}

impl From<Type> for Read {
    fn from(ty: Type) -> Self {
        Self {
            ty,
            is_pair: false,
            is_void: false,
        }
    }
}

pub(super) struct Parser<'a> {
    text: &'a str,
    at: usize,
    nested: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            nested: 0,
        }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn skip_spaces(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn wrong<T>(&self, at: usize, why: impl Into<String>) -> Result<T, Wrong> {
        let why = why.into();
        Err(Wrong { at, why })
    }

    fn takes(&mut self, what: &str) -> bool {
        self.skip_spaces();
        let is_there = self.rest().starts_with(what);
        self.at += if is_there { what.len() } else { 0 };
        is_there
    }

    fn needs(&mut self, what: &str) -> Result<(), Wrong> {
        match self.takes(what) {
            true => Ok(()),
            false => self.wrong(self.at, format!("here {what:?} is missing")),
        }
    }

    fn end(&mut self) -> Result<(), Wrong> {
        self.takes(";");
        self.skip_spaces();
        match self.rest() {
            "" => Ok(()),
            _ => self.wrong(self.at, "what follows is not understood"),
        }
    }

    fn peek_word(&mut self) -> &'a str {
        self.skip_spaces();
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '.' | '~' | '$');
        let rest = self.rest();
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        rest.get(..end).unwrap_or("").trim_end_matches(':')
    }

    fn word(&mut self) -> Result<&'a str, Wrong> {
        match self.peek_word() {
            "" => self.wrong(self.at, "here a name is missing"),
            word => {
                self.at += word.len();
                Ok(word)
            }
        }
    }

    fn number(&mut self) -> Result<i64, Wrong> {
        self.skip_spaces();
        let start = self.at;
        let minus = self.takes("-");
        let word = self.peek_word();
        let value = match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => word.parse().ok(),
        };
        let Some(value) = value else {
            return self.wrong(start, "here a number is missing");
        };
        self.at += word.len();
        Ok(if minus {
            (value as i64).wrapping_neg()
        } else {
            value as i64
        })
    }

    fn prototype(&mut self) -> Result<Prototype, Wrong> {
        if self.peek_word() == "sys" {
            return self.kernels();
        }
        let first = self.at;
        let hides = self.takes("^");
        let start = self.at;
        let result = self.pointed(true);
        let (result, failure, name) = match result {
            // Without a result a name stands first.
            Ok(_) if self.rest().trim_start().starts_with('(') => {
                self.at = start;
                (None, false, self.word()?)
            }
            Ok(result) => {
                let fails = self.takes("!");
                (Some(result), fails, self.word()?)
            }
            Err(wrong) => {
                self.at = start;
                match self.word() {
                    Ok(name) if self.rest().trim_start().starts_with('(') => (None, false, name),
                    _ => return Err(wrong),
                }
            }
        };
        let before = self.text.get(first..self.at - name.len());
        let result_text = before.unwrap_or("").trim();
        self.needs("(")?;
        let mut parameters = Vec::new();
        let mut is_cut = false;
        while !self.takes(")") {
            if !parameters.is_empty() || is_cut {
                self.needs(",")?;
            }
            if self.takes("...") {
                is_cut = true;
                continue;
            }
            parameters.extend(self.parameter(parameters.len())?);
        }
        let given = result.filter(|read| !read.is_void).map(|read| Given {
            ty: read.ty,
            is_pair: read.is_pair,
            place: match read.ty {
                Type::Float(_) => ResultIn::Vector,
                _ => ResultIn::Register,
            },
        });
        let failure = match given {
            Some(given) if failure => match given.ty {
                Type::Address | Type::At(..) => Failure::Null,
                _ => Failure::MinusOne,
            },
            _ => Failure::Never,
        };
        let text = (name, self.text.trim(), result_text);
        let more = (is_cut, hides);
        Ok(Prototype::new(text, parameters, given, failure, more))
    }

    fn kernels(&mut self) -> Result<Prototype, Wrong> {
        self.word()?;
        self.skip_spaces();
        let at = self.at;
        let call = self.word()?;
        if self.word()? != "as" {
            return self.wrong(self.at, "here \"as\" is missing");
        }
        let name = self.word()?;
        match calls::by_name(call) {
            Some(known) => Ok(Prototype::kernels(name, self.text.trim(), known)),
            None => self.wrong(at, format!("there is no call of the kernel named {call:?}")),
        }
    }

    fn parameter(&mut self, place: usize) -> Result<Option<Parameter>, Wrong> {
        self.skip_spaces();
        let start = self.at;
        let after = self.takes("+");
        let is_hidden = self.peek_word() == "hide";
        if is_hidden {
            self.word()?;
            self.needs("(")?;
            // As a parameter, with its name.
            if let Some(inner) = self.parameter(place)? {
                self.needs(")")?;
                return Ok(Some(Parameter { is_hidden, ..inner }));
            }
            return self.wrong(start, "there is nothing to hide");
        }
        let mut read = self.pointed(after)?;
        if let Type::Format(scans, _) = read.ty {
            read.ty = Type::Format(scans, place as u8 + 1);
        }
        let name = self.peek_word().to_owned();
        self.at += name.len();
        let fragment = self.text.get(start..self.at).unwrap_or("").to_owned();
        let source = match self.takes("@") {
            true => Some(self.source()?),
            false => None,
        };
        let parameter = Parameter {
            ty: read.ty,
            fragment,
            name,
            is_hidden,
            source,
            is_pair: read.is_pair,
        };
        Ok((!read.is_void).then_some(parameter))
    }

    fn source(&mut self) -> Result<Source, Wrong> {
        let at = self.at;
        let word = self.word()?;
        let number = |text: &str| text.parse::<u8>().ok();
        let found = match word.split_at_checked(1) {
            Some(("r", n)) => number(n).filter(|n| *n < 6).map(Source::Register),
            Some(("x", n)) => number(n).filter(|n| *n < 8).map(Source::Vector),
            Some(("s", n)) => number(n).filter(|n| *n < 128).map(Source::Stack),
            _ => None,
        };
        match found {
            Some(source) => Ok(source),
            None => self.wrong(at, "a source is r0 to r5, x0 to x7, or s0 to s127"),
        }
    }

    /// A type, and how often it is pointed at; `after`: what is behind it is read after the call.
    fn pointed(&mut self, after: bool) -> Result<Read, Wrong> {
        self.nested += 1;
        if self.nested > MOST_NESTED {
            return self.wrong(self.at, "types are nested too deeply");
        }
        let phase = if after { Phase::Exit } else { Phase::Entry };
        let mut read = self.basic(phase)?;
        while self.takes("*") {
            let inner = match read.ty {
                _ if read.is_void => None,
                Type::Address => Some(Type::Boxed(&Type::Address)),
                Type::Array(..) | Type::Struct(_) | Type::Owned(..) | Type::Bytes(_) => {
                    Some(read.ty)
                }
                ty => Some(Type::Boxed(keep(ty))),
            };
            read = match inner {
                Some(inner) => Type::At(phase, keep(inner)).into(),
                None => Type::Address.into(),
            };
        }
        // What has no bytes of its own is always behind a pointer.
        if let Type::Owned(..) | Type::Array(..) | Type::Bytes(_) = read.ty {
            read = Type::At(phase, keep(read.ty)).into();
        }
        self.nested -= 1;
        Ok(read)
    }

    fn basic(&mut self, phase: Phase) -> Result<Read, Wrong> {
        let at = {
            self.skip_spaces();
            self.at
        };
        let word = self.word()?;
        if let Some(plain) = plain(word).or_else(|| limited(word, phase)) {
            return Ok(plain.into());
        }
        let found = match word {
            "void" => Read {
                is_void: true,
                ..Type::Address.into()
            },
            "slice" => Read {
                is_pair: true,
                ..Type::Address.into()
            },
            "const" | "volatile" | "unsigned" | "signed" => return self.basic(phase),
            "hex" | "oct" | "bool" | "hidden" if self.takes("(") => {
                let inner = self.pointed(false)?.ty;
                self.needs(")")?;
                let width = inner.size().unwrap_or(8).min(8) as u8;
                match word {
                    "hex" => Type::Hex(width).into(),
                    "oct" => Type::Octal.into(),
                    "bool" => Type::Bool.into(),
                    _ => inner.into(),
                }
            }
            "bool" => Type::Bool.into(),
            "bitvec" | "bitvector" => {
                let inner = self.in_parentheses()?;
                Type::Hex(inner.size().unwrap_or(8).min(8) as u8).into()
            }
            "string" => self.string(phase)?.into(),
            "format" => Type::Format(false, 0).into(),
            "scanf" => Type::Format(true, 0).into(),
            "text" => self.owned()?.into(),
            "chars" => {
                self.needs("(")?;
                let length = self.length()?;
                self.needs(")")?;
                Type::Bytes(length).into()
            }
            "changed" => {
                let inner = self.in_parentheses()?;
                Type::At(Phase::Entry, keep(Type::Changed(keep(inner)))).into()
            }
            "array" => self.array()?.into(),
            "struct" => self.structure()?.into(),
            "enum" => self.constants(false)?.into(),
            "flags" => self.constants(true)?.into(),
            "names" => self.table()?.into(),
            "sysarg" => self.kernels_parameter()?.into(),
            _ => return self.wrong(at, no_type(word)),
        };
        Ok(found)
    }

    fn in_parentheses(&mut self) -> Result<Type, Wrong> {
        self.needs("(")?;
        let ty = self.pointed(false)?.ty;
        self.needs(")")?;
        Ok(ty)
    }

    fn length(&mut self) -> Result<Len, Wrong> {
        self.skip_spaces();
        let at = self.at;
        let word = self.peek_word();
        let argument = |text: &str| text.parse::<u8>().ok()?.checked_sub(1);
        if word == "retval" {
            self.word()?;
            return Ok(Len::Result);
        }
        if let Some(index) = word.strip_prefix("arg") {
            self.word()?;
            let Some(index) = argument(index).filter(|index| *index < 16) else {
                return self.wrong(at, "arguments are arg1 to arg16");
            };
            if self.takes("|retval") {
                return Ok(Len::ArgOrResult(index));
            }
            if self.takes("*arg") {
                let other = self.word()?;
                return match argument(other) {
                    Some(other) => Ok(Len::Product(index, other)),
                    None => self.wrong(at, "a product is argN*argM"),
                };
            }
            return Ok(Len::Arg(index));
        }
        if word == "zero" {
            self.word()?;
            if self.takes("(") {
                let most = self.length()?;
                self.needs(")")?;
                return Ok(most);
            }
            return Ok(Len::Const(256));
        }
        match self.number()? {
            count @ 0.. if count as u64 <= MOST_ELEMENTS => Ok(Len::Const(count as u32)),
            _ => self.wrong(at, "that is too much"),
        }
    }

    fn string(&mut self, phase: Phase) -> Result<Type, Wrong> {
        let length = if self.takes("[") {
            let length = self.length()?;
            self.needs("]")?;
            Some(length)
        } else if self.takes("(") {
            // ltrace.conf(5): a lens around a type of characters.
            self.pointed(false)?;
            self.needs(")")?;
            None
        } else {
            None
        };
        Ok(match length {
            None => Type::At(phase, &Type::Str),
            Some(length) => Type::At(phase, keep(Type::Bytes(length))),
        })
    }

    fn owned(&mut self) -> Result<Type, Wrong> {
        self.needs("(")?;
        let pointer = self.number()?;
        self.needs(",")?;
        let length = self.number()?;
        self.needs(")")?;
        match (u16::try_from(pointer), u16::try_from(length)) {
            (Ok(pointer @ ..1024), Ok(length @ ..1024)) => Ok(Type::Owned(pointer, length)),
            _ => self.wrong(self.at, "offsets are below 1024"),
        }
    }

    fn array(&mut self) -> Result<Type, Wrong> {
        self.needs("(")?;
        let element = self.pointed(false)?.ty;
        self.needs(",")?;
        let length = self.length()?;
        self.needs(")")?;
        Ok(Type::Array(keep(element), length))
    }

    fn structure(&mut self) -> Result<Type, Wrong> {
        let mut size = None;
        if self.takes("[") {
            size = Some(self.number()?.clamp(0, 4096) as u16);
            self.needs("]")?;
        }
        self.needs("(")?;
        let (mut fields, mut end) = (Vec::new(), 0u16);
        while !self.takes(")") {
            if !fields.is_empty() {
                self.needs(",")?;
            }
            let field = self.field(end)?;
            end = field
                .offset
                .saturating_add(field.ty.size().unwrap_or(8) as u16);
            fields.push(field);
        }
        let size = size.unwrap_or(end.next_multiple_of(8));
        let fields = keep_all(fields);
        Ok(Type::Struct(keep(Struct { size, fields })))
    }

    /// A field that lies behind `end`, if it does not say where.
    fn field(&mut self, end: u16) -> Result<Field, Wrong> {
        let start = self.at;
        let word = self.peek_word();
        self.at += word.len();
        let mut offset = None;
        if !word.is_empty() && self.takes("@") {
            offset = Some(self.number()?.clamp(0, 4096) as u16);
        }
        let name = if !word.is_empty() && self.takes(":") {
            word.to_owned().leak()
        } else {
            self.at = start;
            ""
        };
        let ty = match self.pointed(false)?.ty {
            // Inside of a structure an array is not behind a pointer.
            Type::At(_, inner @ Type::Array(_, Len::Const(_))) => *inner,
            Type::At(_, inner @ (Type::Owned(..) | Type::Bytes(Len::Const(_)))) => *inner,
            ty => ty,
        };
        let align = (ty.size().unwrap_or(8).clamp(1, 8) as u16).next_power_of_two();
        Ok(Field {
            name,
            offset: offset.unwrap_or_else(|| end.next_multiple_of(align)),
            ty,
            show: Show::Always,
        })
    }

    fn constants(&mut self, flags: bool) -> Result<Type, Wrong> {
        let mut width = 4;
        if self.takes("[") {
            width = self.pointed(false)?.ty.size().unwrap_or(4).clamp(1, 8) as u8;
            self.needs("]")?;
        }
        self.needs("(")?;
        let (mut values, mut next) = (Vec::new(), 0u64);
        while !self.takes(")") {
            if !values.is_empty() {
                self.needs(",")?;
            }
            let name: &'static str = self.word()?.to_owned().leak();
            if self.takes("=") {
                next = self.number()? as u64;
            }
            let mask = if width == 8 {
                u64::MAX
            } else {
                (1 << (8 * u32::from(width))) - 1
            };
            values.push((next & mask, name));
            next = next.wrapping_add(1);
        }
        let names = keep(Names {
            fallback: "",
            flags,
            values: keep_all(values),
        });
        Ok(Type::Named(names, width))
    }

    /// What a parameter of a call of the kernel is.
    fn kernels_parameter(&mut self) -> Result<Type, Wrong> {
        self.needs("(")?;
        self.skip_spaces();
        let at = self.at;
        let call = calls::by_name(self.word()?);
        self.needs(",")?;
        let number = self.number()?;
        self.needs(")")?;
        let index = usize::try_from(number - 1).ok();
        match call.zip(index).and_then(|(c, i)| c.parameters.get(i)) {
            Some(ty) => Ok(*ty),
            None => self.wrong(at, "there is no such parameter of a call of the kernel"),
        }
    }

    /// A table of the kernel's names.
    fn table(&mut self) -> Result<Type, Wrong> {
        self.needs("(")?;
        self.skip_spaces();
        let at = self.at;
        let name = self.word()?;
        self.needs(")")?;
        match named(name) {
            Some(ty) => Ok(ty),
            None => self.wrong(at, format!("there is no table {name:?}")),
        }
    }
}

fn no_type(word: &str) -> String {
    format!("there is no type {word:?} (see man sptrace-values)")
}

#[cfg(test)]
mod tests;
