//! Which entry describes the function at an address, and its line.
//!
//! Given debug information; gives lines. A function that the compiler has made a body of refers to
//! its declaration (DW_AT_abstract_origin, DW_AT_specification), where its parameters' types and
//! names are. Must not know types.

use std::cell::OnceCell;
use std::collections::HashMap;

use gimli::constants as dw;
use gimli::{AttributeValue, DebuggingInformationEntry, Dwarf, Unit, UnitOffset};
use sptrace_addr::Svma;

use crate::sections::{self, Bytes};
use crate::types::{Passed, Types};

pub(crate) type Entry = DebuggingInformationEntry<Bytes>;

/// Entries that refer to each other, at most.
const MOST_REFERENCES: usize = 8;
/// Parameters that are looked at.
const MOST_PARAMETERS: usize = 24;
/// Entries inside of each other: namespaces, classes.
const MOST_DEPTH: isize = 24;

/// The prototypes of an image.
pub struct Prototypes {
    file: Option<Vec<u8>>,
    read: OnceCell<Option<Read>>,
}

struct Read {
    dwarf: Dwarf<Bytes>,
    units: Vec<Unit<Bytes>>,
    /// Unit and entry, by address.
    functions: HashMap<u64, (usize, UnitOffset)>,
}

impl Prototypes {
    /// Of a file with debug information, if there is one.
    pub fn new(file: Option<Vec<u8>>) -> Self {
        Self {
            file,
            read: OnceCell::new(),
        }
    }

    /// True if a file has debug information.
    pub fn are_in(file: &[u8]) -> bool {
        sections::dwarf(file).is_some()
    }

    /// The line of the function at an address.
    pub fn of(&self, svma: Svma) -> Option<String> {
        let read = self
            .read
            .get_or_init(|| Read::new(self.file.as_deref()?))
            .as_ref()?;
        let (unit, offset) = *read.functions.get(&svma.0)?;
        read.line(unit, offset)
    }
}

impl Read {
    fn new(file: &[u8]) -> Option<Self> {
        let dwarf = sections::dwarf(file)?;
        let (mut units, mut functions) = (Vec::new(), HashMap::new());
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            let Ok(unit) = dwarf.unit(header) else {
                continue;
            };
            if !is_assembly(&unit) {
                find_functions(&dwarf, &unit, units.len(), &mut functions);
            }
            units.push(unit);
        }
        Some(Self {
            dwarf,
            units,
            functions,
        })
    }

    fn line(&self, number: usize, offset: UnitOffset) -> Option<String> {
        let unit = self.units.get(number)?;
        let place = Place {
            dwarf: &self.dwarf,
            units: &self.units,
            unit,
        };
        let (chain, name) = place.chain(offset);
        let types = Types { place };
        let result = chain.iter().find_map(|(place, entry)| {
            let ty = place.reference(entry, dw::DW_AT_type)?;
            Some(Types { place: *ty.0 }.result(ty.1))
        });
        let parameters = chain
            .iter()
            .map(|(place, entry)| (*place, place.children(entry)));
        let (at, parameters) = parameters
            .into_iter()
            .find(|(_, list)| !list.0.is_empty() || list.1)
            .unwrap_or((types.place, (Vec::new(), false)));
        let (list, mut is_open) = parameters;
        let mut shown = Vec::new();
        for parameter in list.iter().take(MOST_PARAMETERS) {
            match parameter_text(at, parameter) {
                Some(texts) => shown.extend(texts),
                None => {
                    is_open = true;
                    break;
                }
            }
        }
        if is_open {
            shown.push("...".to_owned());
        }
        let (hides, result) = result.unwrap_or((false, "void".to_owned()));
        let hidden = if hides { "^" } else { "" };
        Some(format!("{hidden}{result} {name}({})", shown.join(", ")))
    }
}

/// In assembly functions have no parameters that the information knows of.
fn is_assembly(unit: &Unit<Bytes>) -> bool {
    let mut entries = unit.entries();
    let language = match entries.next_dfs() {
        Ok(Some(root)) => root.attr_value(dw::DW_AT_language),
        _ => None,
    };
    matches!(
        language,
        Some(AttributeValue::Language(dw::DW_LANG_Mips_Assembler))
    )
}

/// The functions of a unit that have a body.
fn find_functions(
    dwarf: &Dwarf<Bytes>,
    unit: &Unit<Bytes>,
    number: usize,
    functions: &mut HashMap<u64, (usize, UnitOffset)>,
) {
    let mut entries = unit.entries();
    while let Ok(Some(entry)) = entries.next_dfs() {
        if entry.tag() != dw::DW_TAG_subprogram || entry.depth() > MOST_DEPTH {
            continue;
        }
        let address = match entry.attr_value(dw::DW_AT_low_pc) {
            Some(AttributeValue::Addr(address)) => Some(address),
            Some(AttributeValue::DebugAddrIndex(index)) => dwarf.address(unit, index).ok(),
            _ => None,
        };
        if let Some(address) = address {
            functions.entry(address).or_insert((number, entry.offset()));
        }
    }
}

/// The texts of a parameter. `None`: it cannot be told how it is passed.
fn parameter_text(place: Place<'_>, parameter: &Entry) -> Option<Vec<String>> {
    let mut at = (place, parameter.clone());
    let (mut name, mut ty) = (None, None);
    for _ in 0..MOST_REFERENCES {
        let (place, entry) = &at;
        name = name.or_else(|| place.name(entry));
        let found = place.reference(entry, dw::DW_AT_type);
        ty = ty.or_else(|| found.map(|(place, offset)| (*place, offset)));
        let Some(origin) = place.origin(entry) else {
            break;
        };
        at = origin;
    }
    let (place, offset) = ty?;
    let name = name.unwrap_or_default();
    let named = |text: String| format!("{text} {name}").trim_end().to_owned();
    match (Types { place }).parameter(offset)? {
        Passed::As(texts) => {
            let mut texts = texts.into_iter();
            let first = texts.next().map(named);
            Some(first.into_iter().chain(texts).collect())
        }
        Passed::Nothing => Some(Vec::new()),
    }
}

/// A unit among the others.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) dwarf: &'a Dwarf<Bytes>,
    units: &'a [Unit<Bytes>],
    pub(crate) unit: &'a Unit<Bytes>,
}

impl<'a> Place<'a> {
    pub(crate) fn entry(&self, offset: UnitOffset) -> Option<Entry> {
        self.unit.entry(offset).ok()
    }

    /// What an attribute of an entry refers to.
    pub(crate) fn reference(
        &self,
        entry: &Entry,
        attribute: gimli::DwAt,
    ) -> Option<(Box<Place<'a>>, UnitOffset)> {
        match entry.attr_value(attribute)? {
            AttributeValue::UnitRef(offset) => Some((Box::new(*self), offset)),
            AttributeValue::DebugInfoRef(offset) => {
                let begins = |unit: &Unit<Bytes>| unit.header.debug_info_offset();
                let is_before =
                    |unit: &Unit<Bytes>| begins(unit).is_some_and(|at| at.0 <= offset.0);
                let index = self.units.partition_point(is_before);
                let unit = self.units.get(index.checked_sub(1)?)?;
                let place = Place { unit, ..*self };
                Some((Box::new(place), offset.to_unit_offset(&unit.header)?))
            }
            _ => None,
        }
    }

    /// What an entry is a body or a part of.
    fn origin(&self, entry: &Entry) -> Option<(Place<'a>, Entry)> {
        let attributes = [dw::DW_AT_abstract_origin, dw::DW_AT_specification];
        let found = attributes.iter().find_map(|a| self.reference(entry, *a));
        let (place, offset) = found?;
        let entry = place.entry(offset)?;
        Some((*place, entry))
    }

    /// An entry and what it refers to, and the name that they give.
    fn chain(&self, offset: UnitOffset) -> (Vec<(Place<'a>, Entry)>, String) {
        let mut chain: Vec<(Place<'a>, Entry)> = Vec::new();
        let mut next = self.entry(offset).map(|entry| (*self, entry));
        while let Some((place, entry)) = next.filter(|_| chain.len() < MOST_REFERENCES) {
            next = place.origin(&entry);
            chain.push((place, entry));
        }
        let name = chain.iter().find_map(|(place, entry)| place.name(entry));
        (chain, name.unwrap_or_else(|| "f".to_owned()))
    }

    /// The name of an entry, if it is one of C: others cannot stand in a line.
    pub(crate) fn name(&self, entry: &Entry) -> Option<String> {
        let name = self.any_name(entry)?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_word = name.chars().all(is_plain) && !name.starts_with(|c: char| c.is_ascii_digit());
        (is_word && !name.is_empty()).then_some(name)
    }

    pub(crate) fn any_name(&self, entry: &Entry) -> Option<String> {
        let value = entry.attr_value(dw::DW_AT_name)?;
        let text = self.dwarf.attr_string(self.unit, value).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// The parameters of a function, and whether there may be more.
    fn children(&self, entry: &Entry) -> (Vec<Entry>, bool) {
        let of_tag = self.children_of(entry.offset());
        let is_open = of_tag
            .iter()
            .any(|e| e.tag() == dw::DW_TAG_unspecified_parameters);
        let parameters = of_tag.into_iter();
        let parameters = parameters.filter(|e| e.tag() == dw::DW_TAG_formal_parameter);
        (parameters.collect(), is_open)
    }

    /// The entries directly inside of one.
    pub(crate) fn children_of(&self, offset: UnitOffset) -> Vec<Entry> {
        let mut found = Vec::new();
        let Ok(mut tree) = self.unit.entries_tree(Some(offset)) else {
            return found;
        };
        let Ok(root) = tree.root() else {
            return found;
        };
        let mut children = root.children();
        while let Ok(Some(child)) = children.next() {
            found.push(child.entry().clone());
        }
        found
    }
}
