//! A call as a line of text, as strace writes it.
//!
//! Given a call's number, arguments, result, and the memory that [`super::capture`] asked for;
//! gives `name(arguments) = result`, without process and time. What cannot be read is shown as an
//! address.
//!
//! Must not know: where calls and memory come from.

use super::call::{Line, Made, Options};
use super::capture::number;
use super::printer::Printer;
use super::types::{Field, Len, Phase, Returns, Show, Struct, Type};
use super::{formats, scalar, special, text, words};
use crate::names::Style;
use crate::{calls, names, syscalls};
use std::fmt::Write;

/// The most buffers that a call takes.
const MOST_BUFFERS: u64 = 1024;

/// Writes a call.
pub fn line(made: &Made<'_>, options: &Options<'_>) -> Line {
    let known = calls::by_number(made.number);
    let name = syscalls::by_number(made.number).map(|call| call.name);
    let mut printer = Printer {
        made: *made,
        options: *options,
        out: String::new(),
        known_before: None,
        phase: Phase::Entry,
        left: None,
        element: Vec::new(),
        element_at: 0,
    };
    match name {
        Some(name) => printer.out.push_str(name),
        None => drop(write!(printer.out, "syscall_{:#x}", made.number)),
    }
    printer.out.push('(');
    let (parameters, returns) = match known {
        Some(call) => call.of(made.args),
        None => (vec![Type::Hex(8); 6], Returns::Number),
    };
    let mut shown = 0;
    for (index, parameter) in (0u8..).zip(&parameters) {
        printer.parameter(parameter, index, &mut shown);
    }
    let known_before = printer.known_before.unwrap_or(printer.out.len());
    printer.out.push(')');
    let call = std::mem::take(&mut printer.out);
    printer.result(returns, &parameters);
    Line {
        call,
        result: printer.out,
        known_before,
    }
}

impl Printer<'_> {
    pub(super) fn parameter(&mut self, ty: &Type, index: u8, shown: &mut usize) {
        if let Type::If(arg, bits, inner) = ty {
            if self.arg(*arg) & bits != 0 {
                self.parameter(inner, index, shown);
            }
            return;
        }
        if *shown > 0 {
            self.out.push_str(", ");
        }
        *shown += 1;
        let (ty, index) = match ty {
            Type::Label(name, index, inner) => {
                if !name.is_empty() {
                    let _ = write!(self.out, "{name}=");
                }
                (*inner, *index)
            }
            Type::Either(arg, bits, yes, no) => (
                if self.arg(*arg) & bits != 0 {
                    *yes
                } else {
                    *no
                },
                index,
            ),
            ty => (ty, index),
        };
        if let (Type::At(Phase::Exit | Phase::Always, _), None) = (ty, self.known_before) {
            self.known_before = Some(self.out.len());
        }
        self.phase = Phase::Entry;
        self.value(ty, self.arg(index));
    }

    /// Writes a value that is in a register or has been read.
    pub(super) fn value(&mut self, ty: &Type, value: u64) {
        if scalar::write(ty, value, &self.options, &mut self.out) {
            return;
        }
        match ty {
            Type::At(phase, inner) => {
                let before = self.phase;
                if before == Phase::Entry {
                    self.phase = *phase;
                }
                self.follow(inner, value);
                self.phase = before;
            }
            Type::Shown(special) => special::register(self, *special, value),
            Type::Format(scans, first) => formats::write(self, value, *scans, *first),
            _ => scalar::address(value, &mut self.out),
        }
    }

    /// Writes what a pointer leads to, or the pointer.
    fn follow(&mut self, ty: &Type, address: u64) {
        let length = self.out.len();
        if address == 0 {
            self.out.push_str("NULL");
        } else if match self.phase == Phase::Exit && self.failed() {
            true => !self.as_it_was(ty, address),
            false => !self.pointee(ty, address),
        } {
            self.out.truncate(length);
            scalar::address(address, &mut self.out);
        }
    }

    /// Of what a failed call did not fill, the parts that were kept from before; false: none were.
    fn as_it_was(&mut self, ty: &Type, address: u64) -> bool {
        let Type::Kept(Type::Struct(description)) = ty else {
            return false;
        };
        let bytes = usize::from(description.size);
        let before = self.made.memory.read(Phase::Entry, address, bytes).to_vec();
        if before.len() < bytes {
            return false;
        }
        let mut separator = "{";
        for field in description.fields {
            let Type::Was(inner) = field.ty else { continue };
            let part = before.get(usize::from(field.offset)..).unwrap_or(&[]);
            let _ = write!(self.out, "{separator}{}=", field.name);
            self.inside(inner, part);
            separator = ", ";
        }
        self.out.push('}');
        true
    }

    /// Writes what is at an address; false if it cannot be read.
    pub(super) fn pointee(&mut self, ty: &Type, address: u64) -> bool {
        match ty {
            Type::Path | Type::Str => self.string(matches!(ty, Type::Path), address),
            Type::Bytes(len) => {
                let bytes = self.length(*len);
                self.bytes(address, bytes)
            }
            Type::Limited(len) => {
                // What is not kept of a name that is too long nobody has said.
                let bytes = self.length(*len);
                self.limited(address, bytes, matches!(len, Len::Const(_)))
            }
            // Of a known length: all of it or nothing.
            Type::Array(element, len) if !matches!(len, Len::Const(_)) => {
                let count = self.length(*len);
                self.array(element, address, count)
            }
            Type::Strings => self.strings(address),
            Type::Environment => self.environment(address),
            Type::Buffers(len, by_result) => {
                let count = self.length(*len);
                self.buffers(address, count, *by_result)
            }
            Type::Boxed(inner) => {
                self.out.push('[');
                let done = self.pointee(inner, address);
                self.out.push(']');
                done
            }
            Type::Changed(inner) => self.changed(inner, address),
            Type::Arrow(before, after) => self.arrow(before, after, address),
            Type::Kept(inner) => self.pointee(inner, address),
            Type::Shown(special) => special::memory(self, *special, address),
            Type::Owned(pointer, length) => self.owned(address, *pointer, *length),
            _ => {
                let Some(size) = ty.size() else { return false };
                let Some(bytes) = self.exactly(address, size as usize) else {
                    return false;
                };
                self.element_at = address;
                self.inside(ty, &bytes);
                true
            }
        }
    }

    /// Writes a value whose bytes are here.
    fn inside(&mut self, ty: &Type, bytes: &[u8]) {
        match ty {
            Type::Struct(description) => self.structure(description, bytes),
            Type::Boxed(inner) => {
                self.out.push('[');
                self.inside(inner, bytes);
                self.out.push(']');
            }
            Type::Array(element, Len::Const(_)) => {
                self.out.push('[');
                let size = element.size().unwrap_or(1) as usize;
                for (index, part) in bytes.chunks_exact(size.max(1)).enumerate() {
                    self.out.push_str(if index == 0 { "" } else { ", " });
                    self.inside(element, part);
                }
                self.out.push(']');
            }
            Type::Bytes(_) => {
                let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
                text::quote(
                    bytes.get(..end).unwrap_or(bytes),
                    false,
                    self.options.hex,
                    &mut self.out,
                );
            }
            Type::Shown(special) => special::bytes(self, *special, bytes),
            Type::Owned(pointer, length) => {
                let (at, count) = (number(bytes, *pointer, 8), number(bytes, *length, 8));
                self.owned_at(at, count);
            }
            Type::Moment => {
                let seconds = number(bytes, 0, 8) as i64;
                let _ = write!(self.out, "{seconds}");
                text::date(seconds, Some(number(bytes, 8, 8)), &mut self.out);
            }
            _ => {
                let width = ty.size().unwrap_or(8).min(8) as u8;
                let value = number(bytes, 0, width);
                self.value(ty, value);
            }
        }
    }

    fn structure(&mut self, description: &Struct, bytes: &[u8]) {
        let outer = std::mem::replace(&mut self.element, bytes.to_vec());
        self.out.push('{');
        let mut shown = 0;
        let mut hidden = false;
        for field in description.fields {
            match self.shows(field, bytes) {
                Some(true) => {
                    self.out.push_str(if shown == 0 { "" } else { ", " });
                    shown += 1;
                    if !field.name.is_empty() {
                        let _ = write!(self.out, "{}=", field.name);
                    }
                    let rest = bytes.get(usize::from(field.offset)..).unwrap_or(&[]);
                    let size = match field.ty {
                        Type::Moment => 16,
                        ty => ty.size().unwrap_or(8) as usize,
                    };
                    let part = rest.get(..size).unwrap_or(rest).to_vec();
                    let at = self.element_at;
                    if let Type::Was(inner) = field.ty {
                        self.was(inner, at.wrapping_add(u64::from(field.offset)), &part);
                    } else {
                        self.inside(&field.ty, &part);
                    }
                    self.element_at = at;
                }
                Some(false) => {}
                None => hidden = true,
            }
        }
        self.out.push_str(if hidden { ", ...}" } else { "}" });
        self.element = outer;
    }

    /// Whether a field is shown; `None`: left out for brevity.
    fn shows(&self, field: &Field, bytes: &[u8]) -> Option<bool> {
        match field.show {
            Show::Always => Some(true),
            Show::Verbose => self.options.verbose.then_some(true),
            Show::Bits(offset, bits, set) => {
                let value = number(bytes, offset, 4) & u64::from(bits);
                Some((value != 0) == set)
            }
            Show::VerboseBits(offset, bits) => {
                let set = number(bytes, offset, 4) & u64::from(bits) != 0;
                self.options.verbose.then_some(set)
            }
            Show::Device(offset, device) => {
                let kind = number(bytes, offset, 2) & 0o170_000;
                Some(matches!(kind, 0o020_000 | 0o060_000) == device)
            }
        }
    }

    fn array(&mut self, element: &Type, address: u64, count: u64) -> bool {
        let size = u64::from(element.size().unwrap_or(1));
        self.out.push('[');
        for index in 0..count {
            self.out.push_str(if index == 0 { "" } else { ", " });
            if !self.options.verbose && index as usize >= self.options.string_limit {
                self.out.push_str("...");
                break;
            }
            let at = address.wrapping_add(index.wrapping_mul(size));
            let Some(bytes) = self.exactly(at, size as usize) else {
                if index == 0 {
                    return false;
                }
                let _ = write!(self.out, "... /* {at:#x} */");
                break;
            };
            self.inside(element, &bytes);
        }
        self.out.push(']');
        true
    }

    fn strings(&mut self, address: u64) -> bool {
        self.out.push('[');
        for index in 0u64.. {
            let at = address.wrapping_add(index * 8);
            let Some(pointer) = self.exactly(at, 8) else {
                if index == 0 {
                    return false;
                }
                let _ = write!(self.out, ", ... /* {at:#x} */");
                break;
            };
            let pointer = number(&pointer, 0, 8);
            if pointer == 0 {
                break;
            }
            self.out.push_str(if index == 0 { "" } else { ", " });
            if !self.options.verbose && index as usize >= self.options.string_limit {
                self.out.push_str("...");
                break;
            }
            self.follow(&Type::Str, pointer);
        }
        self.out.push(']');
        true
    }

    fn environment(&mut self, address: u64) -> bool {
        if self.options.verbose {
            return self.strings(address);
        }
        let read = self.made.memory.read(self.phase, address, 65536);
        let Some(count) = read.chunks_exact(8).position(|p| p.iter().all(|b| *b == 0)) else {
            return false;
        };
        let plural = if count == 1 { "" } else { "s" };
        let _ = write!(self.out, "{address:#x} /* {count} var{plural} */");
        true
    }

    fn buffers(&mut self, address: u64, count: u64, by_result: bool) -> bool {
        // As the kernel has it: more is an error.
        if count > MOST_BUFFERS {
            return false;
        }
        let returned = u64::try_from(self.made.result.unwrap_or(0)).unwrap_or(0);
        self.left = by_result.then_some(returned);
        self.out.push('[');
        for index in 0..count {
            self.out.push_str(if index == 0 { "" } else { ", " });
            if !self.options.verbose && index as usize >= self.options.string_limit {
                self.out.push_str("...");
                break;
            }
            let at = address.wrapping_add(index.wrapping_mul(16));
            let Some(element) = self.exactly(at, 16) else {
                return index != 0;
            };
            let (base, length) = (number(&element, 0, 8), number(&element, 8, 8));
            let shown = self.left.map_or(length, |left| left.min(length));
            self.left = self.left.map(|left| left - shown);
            self.out.push_str("{iov_base=");
            let before = self.out.len();
            if base == 0 {
                self.out.push_str("NULL");
            } else if !self.bytes(base, shown) {
                self.out.truncate(before);
                scalar::address(base, &mut self.out);
            }
            let _ = write!(self.out, ", iov_len={length}}}");
        }
        self.out.push(']');
        true
    }

    fn changed(&mut self, inner: &Type, address: u64) -> bool {
        let mut text = |phase| {
            let outer = std::mem::take(&mut self.out);
            self.phase = phase;
            let done = self.pointee(inner, address);
            let text = std::mem::replace(&mut self.out, outer);
            done.then_some(text)
        };
        let Some(before) = text(Phase::Entry) else {
            return false;
        };
        let after = text(Phase::Exit).filter(|after| *after != before && !self.failed());
        self.phase = Phase::Entry;
        let _ = match after {
            Some(after) => write!(self.out, "[{before} => {after}]"),
            None => write!(self.out, "[{before}]"),
        };
        true
    }

    fn arrow(&mut self, before: &Type, after: &Type, address: u64) -> bool {
        if !self.pointee(before, address) {
            return false;
        }
        let length = self.out.len();
        self.out.push_str(" => ");
        self.phase = Phase::Exit;
        let done = !self.failed() && self.pointee(after, address);
        self.phase = Phase::Entry;
        if !done || self.out.ends_with("{}") {
            self.out.truncate(length);
        }
        true
    }

    /// A part that was kept, if it has changed, and as it is.
    fn was(&mut self, ty: &Type, address: u64, now: &[u8]) {
        let before = self
            .made
            .memory
            .read(Phase::Entry, address, now.len())
            .to_vec();
        if before.len() == now.len() && before != now {
            self.inside(ty, &before);
            self.out.push_str(" => ");
        }
        self.inside(ty, now);
    }

    pub(super) fn result(&mut self, returns: Returns, parameters: &[Type]) {
        let Some(value) = self.made.result else {
            self.out.push_str("= ?");
            return;
        };
        if let Some(number) = u64::try_from(-i128::from(value))
            .ok()
            .filter(|n| (1..4096).contains(n))
        {
            let _ = match names::error(number) {
                Some((name, text)) if (512..517).contains(&number) => {
                    write!(self.out, "= ? {name} ({text})")
                }
                Some((name, text)) => write!(self.out, "= -1 {name} ({text})"),
                None => write!(self.out, "= -1 (errno {number})"),
            };
            return;
        }
        let _ = match returns {
            Returns::Fd => {
                self.out.push_str("= ");
                scalar::descriptor(value as i32, false, &self.options, &mut self.out);
                Ok(())
            }
            Returns::Never => write!(self.out, "= ?"),
            Returns::Hex if value == 0 => write!(self.out, "= 0"),
            Returns::Hex => write!(self.out, "= {value:#x}"),
            Returns::Octal => write!(self.out, "= 0{value:02o}"),
            Returns::Flags(Type::Named(..)) if value == 0 => write!(self.out, "= 0"),
            Returns::Flags(ty) => {
                let _ = write!(self.out, "= {} (flags ", scalar::hex(value as u64));
                scalar::write(ty, value as u64, &self.options, &mut self.out);
                write!(self.out, ")")
            }
            Returns::Timeout | Returns::Poll | Returns::Select if value == 0 => {
                write!(self.out, "= 0 (Timeout)")
            }
            Returns::IoPriority => {
                let _ = write!(self.out, "= {value}");
                if self.options.style != Style::Raw {
                    let mut text = String::new();
                    words::io_priority_name(value as u32, self.options.style, &mut text);
                    let _ = write!(self.out, " ({text})");
                }
                Ok(())
            }
            Returns::Poll => special::polled(self, value, parameters),
            Returns::Select => special::selected(self, value),
            _ => write!(self.out, "= {value}"),
        };
    }
}
