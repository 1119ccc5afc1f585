//! What the options -A and -R say: which values of which functions.
//!
//! ```text
//! option    = spec {";" spec}
//! spec      = GLOB ["@" item {"," item}]        without items: as the prototype has it
//! item      = value ["/" format] ["%" place] | value comparison number
//! value     = argN | fpargN | retval | NAME of a parameter
//! format    = d i u x o (with 8, 16, 32, 64) | s | S | c | b | p | f (with 32, 64) | {type}
//! place     = a register (rdi, rsi, rdx, rcx, r8, r9, xmm0 .. xmm7) | stackN
//! comparison = == != < <= > >=
//! ```
//!
//! Given such a text; gives [`Spec`]s, or where it is wrong. Must not know what functions there
//! are.

use super::parse::{Wrong, one_type};
use super::prototype::{Prototype, Source};

/// What is wanted of the functions that a glob fits.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Their names.
    pub glob: String,
    /// What of them; empty: what their prototypes say.
    pub items: Vec<Item>,
    /// Calls are wanted only if this holds.
    pub condition: Option<Condition>,
    /// The result alone (-R).
    pub result_only: bool,
}

/// A value.
#[derive(Clone, Debug)]
pub struct Item {
    /// Which.
    pub value: Value,
    /// What it is, if the user says so: a type's text.
    pub ty: Option<String>,
    /// Where it is, if the user says so.
    pub source: Option<Source>,
}

/// Which value of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// An argument by number, from 0.
    Argument(u8),
    /// An argument in a vector register, from 0.
    Float(u8),
    /// What it gives.
    Result,
    /// A parameter by name.
    Named(String),
}

/// What must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Of this argument, or parameter.
    pub value: Value,
    /// How it is compared.
    pub comparison: Comparison,
    /// With what.
    pub with: i64,
}

/// How two numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// What is recorded of one function.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The line that says so.
    pub text: String,
    /// The word of the condition, and what must hold.
    pub condition: Option<(u8, Condition)>,
    /// Values that the function has not, as the user wrote them.
    pub missing: Vec<String>,
}

impl Spec {
    /// What this says of a function with that prototype, if one is known. `None`: nothing, as the
    /// prototype is not known.
    pub fn of(&self, name: &str, base: Option<&Prototype>) -> Option<Wanted> {
        let mut missing = Vec::new();
        let condition = self.condition.clone().and_then(|condition| {
            let place = place(&condition.value, base);
            if place.is_none() {
                missing.push(condition.value.to_string());
            }
            Some((place?, condition))
        });
        if self.items.is_empty() {
            return Some(Wanted {
                text: self.whole(name, base?),
                condition,
                missing,
            });
        }
        Some(Wanted {
            text: self.chosen(name, base, &mut missing),
            condition,
            missing,
        })
    }

    /// All that a prototype says, or of results alone the result.
    fn whole(&self, name: &str, base: &Prototype) -> String {
        match self.result_only {
            false => base.text.clone(),
            true => line(name, &base.result_text, &hidden(base)),
        }
    }

    /// What the items say.
    fn chosen(&self, name: &str, base: Option<&Prototype>, missing: &mut Vec<String>) -> String {
        let mut parameters = base.map_or_else(Vec::new, hidden);
        let (mut more, mut result) = (Vec::new(), "");
        let result_of = |base: Option<&Prototype>| match base {
            Some(base) if !base.result_text.is_empty() => base.result_text.clone(),
            _ => "unknown".to_owned(),
        };
        let known = result_of(base);
        for item in &self.items {
            let Some(place) = place(&item.value, base) else {
                missing.push(item.value.to_string());
                continue;
            };
            if item.value == Value::Result {
                result = item.ty.as_deref().unwrap_or(&known);
                continue;
            }
            if let Value::Float(i) = item.value {
                let ty = item.ty.as_deref().unwrap_or("double");
                more.push(format!("{ty} @x{i}"));
                continue;
            }
            let place = usize::from(place);
            while parameters.len() <= place {
                parameters.push("hide(unknown)".to_owned());
            }
            let of_base = base.and_then(|base| base.fragments.get(place));
            let of_base = of_base.map_or("unknown", String::as_str);
            let ty = item.ty.as_deref().unwrap_or(of_base);
            let source = item.source.map(text_of_source).unwrap_or_default();
            parameters[place] = format!("{ty}{source}");
        }
        parameters.extend(more);
        let hides = base.is_some_and(|base| base.result_text.starts_with('^'));
        let result = match hides && !result.starts_with('^') {
            true => format!("^{result}"),
            false => result.to_owned(),
        };
        line(name, &result, &parameters)
    }
}

/// A line with these parts.
fn line(name: &str, result: &str, parameters: &[String]) -> String {
    let space = if result.is_empty() { "" } else { " " };
    format!("{result}{space}{name}({})", parameters.join(", "))
}

/// The parameters of a prototype, none of which is shown.
fn hidden(base: &Prototype) -> Vec<String> {
    let hide = |fragment: &String| match fragment.starts_with("hide(") {
        true => fragment.clone(),
        false => format!("hide({fragment})"),
    };
    base.fragments.iter().map(hide).collect()
}

fn text_of_source(source: Source) -> String {
    match source {
        Source::Register(i) => format!(" @r{i}"),
        Source::Vector(i) => format!(" @x{i}"),
        Source::Stack(i) => format!(" @s{i}"),
    }
}

/// The number of a parameter.
fn place(value: &Value, base: Option<&Prototype>) -> Option<u8> {
    match value {
        Value::Argument(i) => Some(*i),
        Value::Float(_) | Value::Result => Some(0),
        Value::Named(name) => {
            let place = base?.names.iter().position(|known| known == name)?;
            Some(place as u8)
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Argument(i) => write!(f, "arg{}", i + 1),
            Self::Float(i) => write!(f, "fparg{}", i + 1),
            Self::Result => f.write_str("retval"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

/// Longest first.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

/// Reads an option's text.
///
/// # Errors
/// Where it is wrong.
pub fn parse(text: &str, result_only: bool) -> Result<Vec<Spec>, Wrong> {
    let mut specs = Vec::new();
    for (at, part) in pieces(text, 0, ';') {
        specs.push(spec(part, at, result_only)?);
    }
    Ok(specs)
}

/// The parts of a text between separators outside of braces, with where they begin.
fn pieces(text: &str, first: usize, separator: char) -> Vec<(usize, &str)> {
    let (mut depth, mut start, mut found) = (0i32, 0, Vec::new());
    for (i, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            c if c == separator && depth <= 0 => {
                found.push((first + start, &text[start..i]));
                start = i + c.len_utf8();
            }
            _ => {}
        }
    }
    found.push((first + start, &text[start..]));
    found
}

fn wrong<T>(at: usize, why: impl Into<String>) -> Result<T, Wrong> {
    let why = why.into();
    Err(Wrong { at, why })
}

fn spec(text: &str, at: usize, result_only: bool) -> Result<Spec, Wrong> {
    let (glob, items) = match text.split_once('@') {
        Some((glob, items)) => (glob, Some(items)),
        None => (text, None),
    };
    if glob.trim().is_empty() {
        return wrong(at, "here the name of a function is missing, or a glob");
    }
    let mut found = Spec {
        glob: glob.trim().to_owned(),
        items: Vec::new(),
        condition: None,
        result_only,
    };
    let Some(items) = items else {
        return Ok(found);
    };
    for (at, part) in pieces(items, at + glob.len() + 1, ',') {
        match compared(part) {
            Some((value, comparison, number)) => {
                let condition = condition((value, comparison, number), at, part)?;
                if found.condition.replace(condition).is_some() {
                    return wrong(at, "one condition is as much as a function can have");
                }
            }
            None => found.items.push(item(part, at)?),
        }
    }
    if result_only && found.items.iter().any(|i| i.value != Value::Result) {
        return wrong(
            at + glob.len() + 1,
            "-R shows results: retval; for arguments use -A",
        );
    }
    Ok(found)
}

fn compared(part: &str) -> Option<(&str, Comparison, &str)> {
    if part.contains('{') {
        return None;
    }
    let first = part.find(['=', '!', '<', '>'])?;
    let rest = &part[first..];
    let (sign, comparison) = COMPARISONS
        .iter()
        .find(|(sign, _)| rest.starts_with(sign))?;
    Some((&part[..first], *comparison, &rest[sign.len()..]))
}

fn condition(
    (left, comparison, right): (&str, Comparison, &str),
    at: usize,
    part: &str,
) -> Result<Condition, Wrong> {
    let value = value(left.trim(), at)?;
    if value == Value::Result || matches!(value, Value::Float(_)) {
        return wrong(
            at,
            "a condition is about an argument that is a whole number",
        );
    }
    let number = right.trim();
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, number),
    };
    let parsed = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    };
    match parsed {
        Some(with) => Ok(Condition {
            value,
            comparison,
            with: sign * with as i64,
        }),
        None => wrong(
            at + part.len() - right.len(),
            "here a whole number is missing",
        ),
    }
}

fn value(text: &str, at: usize) -> Result<Value, Wrong> {
    let number = |digits: &str| digits.parse::<u8>().ok();
    if let Some(n) = text.strip_prefix("fparg").and_then(number) {
        return match n {
            1..=8 => Ok(Value::Float(n - 1)),
            _ => wrong(at, "they are fparg1 to fparg8"),
        };
    }
    if let Some(n) = text.strip_prefix("arg").and_then(number) {
        return match n {
            1..=16 => Ok(Value::Argument(n - 1)),
            _ => wrong(at, "arguments are arg1 to arg16"),
        };
    }
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    match text {
        "retval" => Ok(Value::Result),
        "" => wrong(
            at,
            "here a value is missing: argN, fpargN, retval or a parameter's name",
        ),
        name if name.chars().all(is_name) => Ok(Value::Named(name.to_owned())),
        _ => wrong(at, "a value is argN, fpargN, retval or a parameter's name"),
    }
}

fn item(part: &str, at: usize) -> Result<Item, Wrong> {
    let (head, place) = match part.rsplit_once('%') {
        Some((head, place)) if !place.contains('}') => (head, Some((at + head.len() + 1, place))),
        _ => (part, None),
    };
    let (name, format) = match head.split_once('/') {
        Some((name, format)) => (name, Some((at + name.len() + 1, format))),
        None => (head, None),
    };
    let value = value(name.trim(), at)?;
    let is_result = value == Value::Result;
    let ty = format
        .map(|(at, text)| form(text, at, is_result))
        .transpose()?;
    let source = place
        .map(|(at, text)| source(text.trim(), at))
        .transpose()?;
    Ok(Item { value, ty, source })
}

fn source(text: &str, at: usize) -> Result<Source, Wrong> {
    const REGISTERS: [&str; 6] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];
    if let Some(i) = REGISTERS.iter().position(|name| *name == text) {
        return Ok(Source::Register(i as u8));
    }
    let number = |prefix| text.strip_prefix(prefix)?.parse::<u8>().ok();
    match (number("xmm"), number("stack")) {
        (Some(i @ ..8), _) => Ok(Source::Vector(i)),
        (_, Some(i @ 1..=100)) => Ok(Source::Stack(i - 1)),
        _ => wrong(
            at,
            "a place is rdi, rsi, rdx, rcx, r8, r9, xmm0 to xmm7, or stack1 and so on",
        ),
    }
}

fn form(text: &str, at: usize, is_result: bool) -> Result<String, Wrong> {
    if let Some(inner) = text.strip_prefix('{') {
        let Some(inner) = inner.strip_suffix('}') else {
            return wrong(at + text.len(), "here \"}\" is missing");
        };
        one_type(inner).map_err(|error| Wrong {
            at: at + 1 + error.at,
            ..error
        })?;
        return Ok(inner.to_owned());
    }
    let bits = text.get(1..).unwrap_or("");
    if !matches!(bits, "" | "8" | "16" | "32" | "64") {
        return wrong(at + 1, "sizes are 8, 16, 32 and 64");
    }
    let whole = if bits.is_empty() { "64" } else { bits };
    Ok(match (text.as_bytes().first(), bits) {
        (Some(b'd' | b'i'), _) => format!("i{whole}"),
        (Some(b'u'), _) => format!("u{whole}"),
        (Some(b'x'), _) => format!("x{whole}"),
        (Some(b'o'), _) => "octal".to_owned(),
        (Some(b'f'), "" | "64") => "double".to_owned(),
        (Some(b'f'), "32") => "float".to_owned(),
        (Some(b's'), "") => "string".to_owned(),
        (Some(b'S'), "") if is_result => "text(0, 8)".to_owned(),
        (Some(b'S'), "") => "text(0, 8)*".to_owned(),
        (Some(b'c'), "") => "char".to_owned(),
        (Some(b'b'), "") => "bool".to_owned(),
        (Some(b'p'), "") => "addr".to_owned(),
        _ => {
            return wrong(
                at,
                "formats are d, i, u, x, o, f (with 8, 16, 32 or 64 behind), s, S, c, b, p, {type}",
            );
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::parse::{Defined, prototype};
    use super::*;

    fn one(text: &str) -> Spec {
        parse(text, false).unwrap().remove(0)
    }

    fn place(text: &str) -> usize {
        parse(text, false).unwrap_err().at
    }

    #[test]
    fn values_come_with_formats_and_places() {
        let spec = one("open*@arg1/s,arg2/x32%rcx,fparg1,retval/d");
        assert_eq!(spec.glob, "open*");
        let values: Vec<_> = spec.items.iter().map(|item| item.value.clone()).collect();
        assert_eq!(
            values,
            [
                Value::Argument(0),
                Value::Argument(1),
                Value::Float(0),
                Value::Result
            ]
        );
        assert_eq!(spec.items[0].ty.as_deref(), Some("string"));
        assert_eq!(spec.items[1].ty.as_deref(), Some("x32"));
        assert_eq!(spec.items[1].source, Some(Source::Register(3)));
        assert!(one("f").items.is_empty());
        assert_eq!(parse("f@arg1;g", false).unwrap().len(), 2);
    }

    #[test]
    fn conditions_stand_among_the_values() {
        let spec = one("open@arg2!=-0x10,path/s");
        assert_eq!(
            spec.condition,
            Some(Condition {
                value: Value::Argument(1),
                comparison: Comparison::NotEqual,
                with: -16,
            })
        );
        assert_eq!(spec.items[0].value, Value::Named("path".to_owned()));
    }

    #[test]
    fn a_spec_makes_a_line_of_its_own_of_a_prototype() {
        let defined = Defined::new();
        let base = prototype(
            "int! open(string path, names(open) flags, octal mode)",
            &defined,
        );
        let base = base.unwrap();
        let text = |spec: &str, base| one(spec).of("open", base).unwrap().text;
        assert_eq!(text("open", Some(&base)), base.text);
        assert_eq!(
            text("open@flags,retval", Some(&base)),
            "int! open(hide(string path), names(open) flags, hide(octal mode))"
        );
        assert_eq!(
            text("open@arg2/x,fparg1", None),
            "open(hide(unknown), x64, double @x0)"
        );
        assert_eq!(
            text("open@arg1/s%rsi,retval", None),
            "unknown open(string @r1)"
        );
        for spec in [
            "open",
            "open@flags,retval",
            "open@arg5,arg1/i32",
            "open@fparg2/f32",
        ] {
            let wanted = one(spec).of("open", Some(&base)).unwrap();
            let again = prototype(&wanted.text, &defined);
            assert!(again.is_ok(), "{}: {again:?}", wanted.text);
        }
        assert!(one("open").of("open", None).is_none());
        assert_eq!(
            one("open@size").of("open", Some(&base)).unwrap().missing,
            ["size"]
        );
        let wanted = one("open@flags!=0").of("open", Some(&base)).unwrap();
        assert_eq!(wanted.condition.unwrap().0, 1);
    }

    #[test]
    fn types_in_braces_may_hold_commas() {
        let spec = one("f@arg1/{struct(a: int, b: double)*},arg2");
        assert_eq!(spec.items.len(), 2);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        assert_eq!(place(""), 0);
        assert_eq!(place("f@arg0"), 2);
        assert_eq!(place("f@arg1/q"), 7);
        assert_eq!(place("f@arg1/x33"), 8);
        assert_eq!(place("f@arg1%rax"), 7);
        assert_eq!(place("f@arg1,arg2!=x"), 13);
        assert_eq!(place("f@arg1/{itn}"), 8);
        assert_eq!(place("f@arg1/{int"), 11);
        assert_eq!(place("f;@arg1"), 2);
        assert_eq!(parse("f@arg1", true).unwrap_err().at, 2);
    }
}
