//! What a recorded call of a function has brought with it: arguments, result, errno.
//!
//! Given a call's values and the trace's descriptions; gives values as scripts have them. `()` is
//! what was not recorded of this call. Must not know handlers, nor how values are recorded.

use rhai::Dynamic;
use sptrace_render::call_values::{Begun, Descriptions, Parts};
use sptrace_types::decode::fields::{Place, led_to};
use sptrace_types::decode::types::Type;
use sptrace_types::functions::prototype::ResultIn;

use crate::value::read;

/// How a parameter is written of which nothing is recorded.
const HIDDEN: &str = "hide(";

fn parts<'a>(call: Option<&'a Begun>, descriptions: &'a Descriptions) -> Option<Parts<'a>> {
    descriptions.parts(call?)
}

/// Refuses where nothing can be known of any call.
fn recorded(descriptions: &Descriptions) -> Result<(), String> {
    match descriptions.is_empty() {
        true => Err(
            "values of functions were not recorded\twrite values(\"NAME\") at the script's top level"
                .to_owned(),
        ),
        false => Ok(()),
    }
}

/// An argument, or a part of what it leads to. `()`: it was not recorded.
fn at(parts: &Parts<'_>, index: usize, path: &str) -> Result<Dynamic, String> {
    let prototype = parts.prototype;
    let fragment = prototype.fragments.get(index);
    if fragment.is_none_or(|fragment| fragment.starts_with(HIDDEN)) {
        return Ok(Dynamic::UNIT);
    }
    let (types, _) = prototype.call.of(parts.words);
    let ty = types.get(index).copied().unwrap_or(Type::Hex(8));
    let way = path.split('.').skip(1);
    let place = led_to(u8::try_from(index).unwrap_or(0), ty).part(way, (path, &prototype.name))?;
    Ok(cut(parts, &place, read(&place, parts.words, parts.memory)))
}

/// A string as far as it is shown elsewhere.
fn cut(parts: &Parts<'_>, place: &Place, value: Dynamic) -> Dynamic {
    match (place.ty, value.as_immutable_string_ref()) {
        (Type::Str, Ok(text)) if text.len() > parts.string_limit => {
            let mut ends = (0..=parts.string_limit).rev();
            let kept = ends.find_map(|end| text.get(..end));
            Dynamic::from(kept.unwrap_or("").to_owned())
        }
        _ => value.clone(),
    }
}

/// An argument by its number, from 0.
///
/// # Errors
/// The trace has no values of functions, or this function has not so many arguments.
pub fn by_number(
    call: Option<&Begun>,
    descriptions: &Descriptions,
    index: usize,
) -> Result<Dynamic, String> {
    recorded(descriptions)?;
    let Some(parts) = parts(call, descriptions) else {
        return Ok(Dynamic::UNIT);
    };
    match index < parts.prototype.fragments.len() {
        true => at(&parts, index, ""),
        false => Err(format!(
            "{} has no argument {}",
            parts.prototype.name,
            index + 1
        )),
    }
}

/// An argument by the name that its prototype has, or as `arg1`.
///
/// # Errors
/// The trace has no values of functions, or there is no such argument; says which there are.
pub fn by_name(
    call: Option<&Begun>,
    descriptions: &Descriptions,
    name: &str,
) -> Result<Dynamic, String> {
    recorded(descriptions)?;
    let Some(parts) = parts(call, descriptions) else {
        return Ok(Dynamic::UNIT);
    };
    let first = name.split('.').next().unwrap_or("");
    let known = &parts.prototype.names;
    let by_name = known.iter().position(|known| known == first);
    let number = first.strip_prefix("arg").and_then(|n| n.parse().ok());
    let by_number = number.and_then(|n: usize| n.checked_sub(1));
    match by_name.or(by_number.filter(|n| *n < known.len())) {
        Some(index) => at(&parts, index, name),
        None => Err(format!(
            "{} has no {first:?}, only {}",
            parts.prototype.name,
            names(call, descriptions).join(", ")
        )),
    }
}

/// What its arguments are called, those without a name by their number.
pub fn names(call: Option<&Begun>, descriptions: &Descriptions) -> Vec<String> {
    let Some(parts) = parts(call, descriptions) else {
        return Vec::new();
    };
    let known = &parts.prototype.names;
    let name = |index: usize| match known.get(index).filter(|name| !name.is_empty()) {
        Some(name) => name.clone(),
        None => format!("arg{}", index + 1),
    };
    (0..parts.prototype.fragments.len()).map(name).collect()
}

/// What it returned.
pub fn result(call: Option<&Begun>, descriptions: &Descriptions) -> Dynamic {
    let result = || {
        let parts = parts(call, descriptions)?;
        let (words, _) = parts.result?;
        let Some(known) = &parts.prototype.result else {
            return parts
                .prototype
                .is_kernels
                .then(|| Dynamic::from(words[0] as i64));
        };
        let word = match known.place {
            ResultIn::Register => words[0],
            ResultIn::Vector => words[2],
        };
        let place = led_to(0, known.ty);
        Some(cut(&parts, &place, read(&place, &[word], parts.memory)))
    };
    result().unwrap_or(Dynamic::UNIT)
}

/// The errno that it has set as it failed.
pub fn error(call: Option<&Begun>, descriptions: &Descriptions) -> Option<u64> {
    let (_, errno) = parts(call, descriptions)?.result?;
    (errno != 0).then(|| u64::from(errno))
}
