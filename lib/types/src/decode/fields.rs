//! Values by name: what scripts and filters ask for.
//!
//! Given a path as `flags`, `statbuf.st_size` or `msg.msg_iovlen`; gives where the value is and
//! what it is. Names of parameters are those of the kernel's source.
//!
//! Must not know: values.

use super::types::{Call, Phase, Type};
use crate::syscalls;

/// Where a value is.
#[derive(Clone, Debug)]
pub struct Place {
    /// The argument in which it is, or at which the way to it begins.
    pub argument: u8,
    /// Offsets to be added to each pointer on the way; none: the value is the argument.
    pub offsets: Vec<u16>,
    /// When it can be read.
    pub phase: Phase,
    /// What it is.
    pub ty: Type,
}

/// The value with this name.
///
/// # Errors
/// No such parameter or field; says which there are.
pub fn place(call: &Call, args: &[u64], path: &str) -> Result<Place, String> {
    let mut parts = path.split('.');
    let first = parts.next().unwrap_or("");
    let names = parameter_names(call);
    let Some(index) = names.iter().position(|name| *name == first) else {
        return Err(format!(
            "{} has no {first:?}, only {}",
            call.name,
            names.join(", ")
        ));
    };
    let ty = call.of(args).0.get(index).copied().unwrap_or(Type::Hex(8));
    let argument = u8::try_from(index).unwrap_or(0);
    led_to(argument, ty).part(parts, (path, call.name))
}

/// Where the value of an argument of this type is: itself, or what it leads to.
pub fn led_to(argument: u8, ty: Type) -> Place {
    let mut place = Place {
        argument,
        offsets: Vec::new(),
        phase: Phase::Entry,
        ty,
    };
    place.enter();
    place
}

impl Place {
    /// A part of it by the names of fields on the way; the path and the call's name are for errors.
    ///
    /// # Errors
    /// No such field; says which there are.
    pub fn part<'a>(
        mut self,
        names: impl Iterator<Item = &'a str>,
        (path, call): (&str, &str),
    ) -> Result<Self, String> {
        for name in names {
            let Type::Struct(description) = self.ty else {
                return Err(format!("{path} of {call} has no parts"));
            };
            let Some(field) = description.fields.iter().find(|field| field.name == name) else {
                let known: Vec<_> = description.fields.iter().map(|field| field.name).collect();
                return Err(format!(
                    "there is no {name:?} in {path}, only {}",
                    known.join(", ")
                ));
            };
            if let Some(last) = self.offsets.last_mut() {
                *last += field.offset;
            }
            self.ty = field.ty;
            self.enter();
        }
        Ok(self)
    }

    /// Follows the pointer that the value is, if it leads to something with a size.
    fn enter(&mut self) {
        loop {
            self.ty = match self.ty {
                Type::If(_, _, inner) | Type::Boxed(inner) | Type::Changed(inner) => *inner,
                Type::Either(_, _, inner, _) | Type::Arrow(inner, _) => *inner,
                Type::Kept(inner) | Type::Was(inner) => *inner,
                Type::Label(_, argument, inner) => {
                    self.argument = argument;
                    *inner
                }
                Type::At(phase, inner) => {
                    if self.offsets.is_empty() {
                        self.phase = phase;
                    }
                    self.offsets.push(0);
                    *inner
                }
                _ => return,
            };
        }
    }
}

/// The names of a call's parameters.
pub fn parameter_names(call: &Call) -> Vec<&'static str> {
    let known = syscalls::by_name(call.name).and_then(|known| known.parameters);
    known
        .unwrap_or(&[])
        .iter()
        .map(|parameter| parameter.name)
        .collect()
}
