//! Which entry describes the function at an address, and its line.
//!
//! Given debug information; gives lines. A function that the compiler has made a body of refers to
//! its declaration (DW_AT_abstract_origin, DW_AT_specification), where its parameters' types and
//! names are. Must not know types.

use std::cell::OnceCell;
use std::collections::HashMap;

use gimli::constants as dw;
use gimli::{AttributeValue, Dwarf, Unit, UnitOffset};
use sptrace_addr::Svma;

use crate::entries::{Entry, MOST_REFERENCES, Place};
use crate::sections::{self, Bytes};
use crate::types::{Passed, Types};

/// Parameters that are looked at.
const MOST_PARAMETERS: usize = 24;
/// Entries inside of each other: namespaces, classes.
const MOST_DEPTH: isize = 24;

/// The prototypes of an image.
pub struct Prototypes {
    file: Option<Vec<u8>>,
    supplement: Option<Vec<u8>>,
    read: OnceCell<Option<Read>>,
}

struct Read {
    dwarf: Dwarf<Bytes>,
    units: Vec<Unit<Bytes>>,
    /// Of the file that it refers to.
    shared: Vec<Unit<Bytes>>,
    /// Unit and entry, by address.
    functions: HashMap<u64, (usize, UnitOffset)>,
}

impl Prototypes {
    /// Of a file with debug information, if there is one.
    pub fn new(file: Option<Vec<u8>>) -> Self {
        Self {
            file,
            supplement: None,
            read: OnceCell::new(),
        }
    }

    /// The same with the file that its debug information refers to.
    #[must_use]
    pub fn with_supplement(self, supplement: Option<Vec<u8>>) -> Self {
        Self { supplement, ..self }
    }

    fn read(&self) -> Option<&Read> {
        let read = || Read::new(self.file.as_deref()?, self.supplement.as_deref());
        self.read.get_or_init(read).as_ref()
    }

    /// Of each variable that points to a function: its name, and the line of such a function.
    pub fn of_pointers(&self) -> Vec<(String, String)> {
        let units = self
            .read()
            .into_iter()
            .flat_map(|read| (0..read.units.len()).map(move |i| (read, i)));
        units.flat_map(|(read, i)| read.pointers(i)).collect()
    }

    /// The line of the function at an address.
    pub fn of(&self, svma: Svma) -> Option<String> {
        let read = self.read()?;
        let (unit, offset) = *read.functions.get(&svma.0)?;
        read.line(unit, offset)
    }
}

impl Read {
    fn new(file: &[u8], supplement: Option<&[u8]>) -> Option<Self> {
        let dwarf = sections::dwarf(file, supplement)?;
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
            shared: dwarf.sup().map(units_of).unwrap_or_default(),
            dwarf,
            units,
            functions,
        })
    }

    fn place(&self, number: usize) -> Option<Place<'_>> {
        Some(Place {
            dwarf: &self.dwarf,
            units: &self.units,
            shared: &self.shared,
            unit: self.units.get(number)?,
        })
    }

    fn pointers(&self, number: usize) -> Vec<(String, String)> {
        let Some(place) = self.place(number) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let mut entries = place.unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            let target = || {
                let (at, offset) = place.reference(entry, dw::DW_AT_type)?;
                let pointer = at.entry(offset)?;
                let (at, offset) = at.reference(&pointer, dw::DW_AT_type)?;
                let function = at.entry(offset)?;
                let is_function = function.tag() == dw::DW_TAG_subroutine_type;
                is_function.then(|| Some((place.name(entry)?, self.described(*at, offset)?)))?
            };
            if entry.tag() == dw::DW_TAG_variable {
                found.extend(target());
            }
        }
        found
    }

    fn line(&self, number: usize, offset: UnitOffset) -> Option<String> {
        self.described(self.place(number)?, offset)
    }

    fn described(&self, place: Place<'_>, offset: UnitOffset) -> Option<String> {
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

/// The units of a file that others refer to.
fn units_of(dwarf: &Dwarf<Bytes>) -> Vec<Unit<Bytes>> {
    let (mut units, mut headers) = (Vec::new(), dwarf.units());
    while let Ok(Some(header)) = headers.next() {
        units.extend(dwarf.unit(header));
    }
    units
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
            // In parts, of which the first is where it begins.
            _ => dwarf.die_ranges(unit, entry).ok().and_then(|mut ranges| {
                let first = ranges.next().ok()??;
                (first.begin != 0).then_some(first.begin)
            }),
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
