//! A type as text, and how a value of it is passed.
//!
//! Given an entry that describes a type; gives the words that `sptrace_types::functions::parse`
//! reads. What is larger than two words goes by the stack or a hidden pointer (System V ABI for
//! x86-64, section 3.2.3), strings of C++ and Rust by a pointer to them. Must not know functions.

use gimli::constants as dw;
use gimli::{AttributeValue, UnitOffset};

use crate::entries::{Entry, Place};

/// Types inside of each other.
const MOST_NESTED: usize = 12;
/// Fields of a structure that are shown, and its bytes.
const MOST_FIELDS: usize = 24;
const MOST_BYTES: u64 = 256;
/// Structures inside of pointers inside of structures.
const MOST_POINTERS: usize = 1;
/// Constants of an enumeration.
const MOST_CONSTANTS: usize = 128;
const WORD_BYTES: u64 = 8;

/// How a parameter is passed.
pub(crate) enum Passed {
    /// As these parameters.
    As(Vec<String>),
    /// Not at all: it has no bytes.
    Nothing,
}

pub(crate) struct Types<'a> {
    pub(crate) place: Place<'a>,
}

/// What a type is, behind its names.
struct Found<'a> {
    place: Place<'a>,
    entry: Entry,
    is_const: bool,
}

/// A string of its own, or a view of one.
enum Stringlike {
    /// Where the pointer and the length are.
    Owned(u64, u64),
    /// The two words themselves.
    View,
}

impl<'a> Types<'a> {
    /// A parameter of this type. `None`: it cannot be told.
    pub(crate) fn parameter(&self, offset: UnitOffset) -> Option<Passed> {
        let found = self.behind_names(offset)?;
        let one = |text: String| Some(Passed::As(vec![text]));
        match found.stringlike() {
            Some(Stringlike::Owned(pointer, length)) => {
                return one(format!("text({pointer}, {length})*"));
            }
            Some(Stringlike::View) => return one("slice".to_owned()),
            None => {}
        }
        if !found.is_aggregate() {
            return one(found.text(0, 0)?);
        }
        match found.size()? {
            0 => Some(Passed::Nothing),
            size if size <= 2 * WORD_BYTES => Some(Passed::As(found.words(size)?)),
            _ => None,
        }
    }

    /// The text of a result, and whether a hidden parameter says where it goes.
    pub(crate) fn result(&self, offset: UnitOffset) -> (bool, String) {
        let Some(found) = self.behind_names(offset) else {
            return (false, "unknown".to_owned());
        };
        match found.stringlike() {
            Some(Stringlike::Owned(pointer, length)) => {
                return (true, format!("text({pointer}, {length})"));
            }
            Some(Stringlike::View) => return (false, "slice".to_owned()),
            None => {}
        }
        let is_large = found.is_aggregate() && found.size().is_some_and(|s| s > 2 * WORD_BYTES);
        match found.is_aggregate() {
            true if is_large => (true, "addr".to_owned()),
            true => (false, "x64".to_owned()),
            false => (
                false,
                found.text(0, 0).unwrap_or_else(|| "unknown".to_owned()),
            ),
        }
    }

    fn behind_names(&self, offset: UnitOffset) -> Option<Found<'a>> {
        let (mut place, mut offset, mut is_const) = (self.place, offset, false);
        for _ in 0..MOST_NESTED {
            let entry = place.entry(offset)?;
            match entry.tag() {
                dw::DW_TAG_const_type => is_const = true,
                dw::DW_TAG_typedef
                | dw::DW_TAG_volatile_type
                | dw::DW_TAG_restrict_type
                | dw::DW_TAG_atomic_type => {}
                _ => {
                    return Some(Found {
                        place,
                        entry,
                        is_const,
                    });
                }
            }
            let (next, at) = place.reference(&entry, dw::DW_AT_type)?;
            (place, offset) = (*next, at);
        }
        None
    }
}

impl<'a> Found<'a> {
    fn number(&self, attribute: gimli::DwAt) -> Option<u64> {
        match self.entry.attr_value(attribute)? {
            AttributeValue::Sdata(value) => u64::try_from(value).ok(),
            other => other.udata_value(),
        }
    }

    fn size(&self) -> Option<u64> {
        self.number(dw::DW_AT_byte_size)
    }

    fn name(&self) -> String {
        self.place.any_name(&self.entry).unwrap_or_default()
    }

    fn is_aggregate(&self) -> bool {
        let tags = [
            dw::DW_TAG_structure_type,
            dw::DW_TAG_class_type,
            dw::DW_TAG_union_type,
            dw::DW_TAG_array_type,
            dw::DW_TAG_variant_part,
        ];
        tags.contains(&self.entry.tag())
    }

    /// What this type refers to.
    fn inner(&self) -> Option<Found<'a>> {
        let (place, offset) = self.place.reference(&self.entry, dw::DW_AT_type)?;
        Types { place: *place }.behind_names(offset)
    }

    fn stringlike(&self) -> Option<Stringlike> {
        if !self.is_aggregate() {
            return None;
        }
        let name = self.name();
        if name == "&str" || name == "&mut str" || name == "&[u8]" {
            return Some(Stringlike::View);
        }
        if name.starts_with("basic_string<char") && self.size() == Some(32) {
            return Some(Stringlike::Owned(0, 8));
        }
        if name == "String" && self.size() == Some(24) {
            return self.owned_by_rust();
        }
        None
    }

    /// A `String` of Rust: where its compiler has put the pointer and the length.
    fn owned_by_rust(&self) -> Option<Stringlike> {
        let (mut pointer, mut length) = (None, None);
        let mut inside = vec![(self.place, self.entry.clone(), 0u64)];
        for _ in 0..64 {
            let Some((place, entry, base)) = inside.pop() else {
                break;
            };
            let members = place.children_of(entry.offset()).into_iter();
            for member in members.filter(|m| m.tag() == dw::DW_TAG_member) {
                let Some((offset, name, found)) = member_of(place, &member) else {
                    continue;
                };
                let at = base + offset;
                match (name.as_str(), found.entry.tag()) {
                    ("len", dw::DW_TAG_base_type) => length = Some(at),
                    ("pointer", dw::DW_TAG_pointer_type) => pointer = Some(at),
                    (_, dw::DW_TAG_structure_type) => inside.push((found.place, found.entry, at)),
                    _ => {}
                }
            }
        }
        Some(Stringlike::Owned(pointer?, length?))
    }

    /// The text of a value, at so many types and pointers inside of others.
    fn text(&self, nested: usize, pointers: usize) -> Option<String> {
        if nested > MOST_NESTED {
            return None;
        }
        match self.entry.tag() {
            dw::DW_TAG_base_type => self.basic(),
            dw::DW_TAG_enumeration_type => self.enumeration(),
            dw::DW_TAG_pointer_type
            | dw::DW_TAG_reference_type
            | dw::DW_TAG_rvalue_reference_type => Some(self.pointer(nested, pointers)),
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type => self.structure(nested, pointers),
            dw::DW_TAG_array_type => self.array(nested, pointers),
            dw::DW_TAG_unspecified_type => Some("addr".to_owned()),
            _ => None,
        }
    }

    fn basic(&self) -> Option<String> {
        let size = self.size()?;
        let encoding = match self.entry.attr_value(dw::DW_AT_encoding)? {
            AttributeValue::Encoding(encoding) => encoding,
            _ => return None,
        };
        let bits = size * 8;
        Some(match (encoding, size) {
            (dw::DW_ATE_boolean, 1) => "bool".to_owned(),
            (dw::DW_ATE_float, 4) => "float".to_owned(),
            (dw::DW_ATE_float, 8) => "double".to_owned(),
            (dw::DW_ATE_signed_char, 1) if self.name() == "char" => "char".to_owned(),
            (dw::DW_ATE_signed | dw::DW_ATE_signed_char, 1 | 2 | 4 | 8) => format!("i{bits}"),
            (dw::DW_ATE_unsigned | dw::DW_ATE_unsigned_char | dw::DW_ATE_UTF, 1 | 2 | 4 | 8) => {
                format!("u{bits}")
            }
            (dw::DW_ATE_boolean, 2 | 4 | 8) => format!("u{bits}"),
            _ => return None,
        })
    }

    fn enumeration(&self) -> Option<String> {
        let size = self.size().unwrap_or(4);
        let base = match size {
            1 | 2 | 4 | 8 => format!("u{}", size * 8),
            _ => return None,
        };
        let mut values = Vec::new();
        for child in self.place.children_of(self.entry.offset()) {
            let value = match child.attr_value(dw::DW_AT_const_value)? {
                AttributeValue::Sdata(value) => value,
                other => other.udata_value()? as i64,
            };
            values.push((self.place.name(&child)?, value));
        }
        if values.is_empty() || values.len() > MOST_CONSTANTS {
            return Some(base);
        }
        let is_bit = |value: &i64| value.count_ones() == 1;
        let bits = values.iter().filter(|(_, value)| is_bit(value)).count();
        let others = values
            .iter()
            .filter(|(_, value)| !is_bit(value) && *value != 0);
        // 1, 2 alone, and 0, 1, 2 are numbers that happen to be bits.
        let kind = match bits > 2 && others.count() == 0 {
            true => "flags",
            false => "enum",
        };
        let list: Vec<_> = values
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        Some(format!("{kind}[{base}]({})", list.join(", ")))
    }

    fn pointer(&self, nested: usize, pointers: usize) -> String {
        let plain = || "addr".to_owned();
        let Some(inner) = self.inner() else {
            return plain();
        };
        if let Some(Stringlike::Owned(pointer, length)) = inner.stringlike() {
            return format!("text({pointer}, {length})*");
        }
        match inner.entry.tag() {
            dw::DW_TAG_base_type => match inner.basic().as_deref() {
                Some("char") => "string".to_owned(),
                None => plain(),
                Some(text) => inner.behind(text),
            },
            dw::DW_TAG_enumeration_type => match inner.enumeration() {
                Some(text) => inner.behind(&text),
                None => plain(),
            },
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type if pointers < MOST_POINTERS => {
                match inner.structure(nested + 1, pointers + 1) {
                    Some(text) => format!("{text}*"),
                    None => plain(),
                }
            }
            _ => plain(),
        }
    }

    /// This type's text behind a pointer: what may be written is shown before and after.
    fn behind(&self, text: &str) -> String {
        match self.is_const {
            true => format!("{text}*"),
            false => format!("changed({text})"),
        }
    }

    fn structure(&self, nested: usize, pointers: usize) -> Option<String> {
        let size = self.size().filter(|size| (1..=MOST_BYTES).contains(size))?;
        let mut fields = Vec::new();
        for child in self.place.children_of(self.entry.offset()) {
            if child.tag() != dw::DW_TAG_member && child.tag() != dw::DW_TAG_inheritance {
                continue;
            }
            let Some((offset, name, found)) = member_of(self.place, &child) else {
                continue;
            };
            let is_part = child.attr_value(dw::DW_AT_bit_size).is_some()
                || child.attr_value(dw::DW_AT_data_bit_offset).is_some();
            let text = match found.stringlike() {
                _ if is_part => None,
                Some(Stringlike::Owned(pointer, length)) => {
                    Some(format!("text({pointer}, {length})"))
                }
                Some(Stringlike::View) => Some("text(0, 8)".to_owned()),
                None => found.text(nested + 1, pointers),
            };
            if let (Some(text), false) = (text, name.is_empty()) {
                fields.push(format!("{name}@{offset}: {text}"));
            }
        }
        let is_shown = !fields.is_empty() && fields.len() <= MOST_FIELDS;
        is_shown.then(|| format!("struct[{size}]({})", fields.join(", ")))
    }

    fn array(&self, nested: usize, pointers: usize) -> Option<String> {
        let count = self.elements()?;
        let inner = self.inner()?;
        let text = inner.text(nested + 1, pointers)?;
        match text.as_str() {
            "char" if count <= MOST_BYTES => Some(format!("chars({count})")),
            _ if count <= 32 => Some(format!("array({text}, {count})")),
            _ => None,
        }
    }

    fn elements(&self) -> Option<u64> {
        let children = self.place.children_of(self.entry.offset());
        let mut ranges = children
            .iter()
            .filter(|e| e.tag() == dw::DW_TAG_subrange_type);
        let range = ranges.next()?;
        if ranges.next().is_some() {
            return None;
        }
        let value = |attribute| range.attr_value(attribute)?.udata_value();
        value(dw::DW_AT_count).or_else(|| value(dw::DW_AT_upper_bound)?.checked_add(1))
    }

    /// A small structure as the words that it is passed in: a word all of whose parts are numbers
    /// with a point goes by a vector register.
    fn words(&self, size: u64) -> Option<Vec<String>> {
        let mut classes = [Class::Empty; 2];
        self.classify(0, &mut classes, 0)?;
        let words = size.div_ceil(WORD_BYTES) as usize;
        let text = |class: &Class| match class {
            Class::Doubles => "double".to_owned(),
            Class::Floats(1) => "float".to_owned(),
            Class::Floats(_) => "floats".to_owned(),
            Class::Empty | Class::Integers => "x64".to_owned(),
        };
        Some(classes.iter().take(words).map(text).collect())
    }

    fn classify(&self, base: u64, classes: &mut [Class; 2], nested: usize) -> Option<()> {
        if nested > MOST_NESTED {
            return None;
        }
        if self.entry.tag() == dw::DW_TAG_array_type {
            let inner = self.inner()?;
            let each = inner.size()?;
            for i in 0..self.elements()?.min(16) {
                inner.classify(base + i * each, classes, nested + 1)?;
            }
            return Some(());
        }
        if !self.is_aggregate() {
            let text = self.text(0, MOST_POINTERS).unwrap_or_default();
            let class = classes.get_mut((base / WORD_BYTES) as usize)?;
            *class = match (text.as_str(), *class) {
                ("float", Class::Empty) => Class::Floats(1),
                ("float", Class::Floats(_)) => Class::Floats(2),
                ("double", Class::Empty) => Class::Doubles,
                _ => Class::Integers,
            };
            return Some(());
        }
        for child in self.place.children_of(self.entry.offset()) {
            if child.tag() == dw::DW_TAG_variant_part {
                return None;
            }
            if child.tag() == dw::DW_TAG_member || child.tag() == dw::DW_TAG_inheritance {
                let (offset, _, found) = member_of(self.place, &child)?;
                found.classify(base + offset, classes, nested + 1)?;
            }
        }
        Some(())
    }
}

/// What a word of a small structure is passed in.
#[derive(Clone, Copy)]
enum Class {
    Empty,
    Doubles,
    Floats(u8),
    Integers,
}

/// Offset, name and type of a member of a structure.
fn member_of<'a>(place: Place<'a>, member: &Entry) -> Option<(u64, String, Found<'a>)> {
    let offset = match member.attr_value(dw::DW_AT_data_member_location) {
        None => 0,
        Some(AttributeValue::Sdata(value)) => u64::try_from(value).ok()?,
        Some(value) => value.udata_value()?,
    };
    // Static members are none of a value.
    if member.attr_value(dw::DW_AT_external).is_some() {
        return None;
    }
    let (at, ty) = place.reference(member, dw::DW_AT_type)?;
    let found = Types { place: *at }.behind_names(ty)?;
    let name = place.name(member).unwrap_or_default();
    Some((offset, name, found))
}
