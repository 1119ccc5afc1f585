//! Entries of debug information, and what they refer to.
//!
//! Given a unit among the others; gives entries, their names, and those inside of them. Must not
//! know functions and types.

use gimli::constants as dw;
use gimli::{AttributeValue, DebuggingInformationEntry, Dwarf, Unit, UnitOffset};

use crate::sections::Bytes;

pub(crate) type Entry = DebuggingInformationEntry<Bytes>;

/// Entries that refer to each other, at most.
pub(crate) const MOST_REFERENCES: usize = 8;

/// A unit among the others.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) dwarf: &'a Dwarf<Bytes>,
    pub(crate) units: &'a [Unit<Bytes>],
    /// Units of the file that this one refers to.
    pub(crate) shared: &'a [Unit<Bytes>],
    pub(crate) unit: &'a Unit<Bytes>,
}

/// The unit in which an offset of `.debug_info` lies.
fn unit_with(units: &[Unit<Bytes>], offset: usize) -> Option<&Unit<Bytes>> {
    let begins = |unit: &Unit<Bytes>| unit.header.debug_info_offset();
    let index = units.partition_point(|unit| begins(unit).is_some_and(|at| at.0 <= offset));
    units.get(index.checked_sub(1)?)
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
                let unit = unit_with(self.units, offset.0)?;
                let place = Place { unit, ..*self };
                Some((Box::new(place), offset.to_unit_offset(&unit.header)?))
            }
            AttributeValue::DebugInfoRefSup(offset) => {
                let unit = unit_with(self.shared, offset.0)?;
                let place = Place {
                    dwarf: self.dwarf.sup()?,
                    units: self.shared,
                    shared: &[],
                    unit,
                };
                Some((Box::new(place), offset.to_unit_offset(&unit.header)?))
            }
            _ => None,
        }
    }

    /// What an entry is a body or a part of.
    pub(crate) fn origin(&self, entry: &Entry) -> Option<(Place<'a>, Entry)> {
        let attributes = [dw::DW_AT_abstract_origin, dw::DW_AT_specification];
        let found = attributes.iter().find_map(|a| self.reference(entry, *a));
        let (place, offset) = found?;
        let entry = place.entry(offset)?;
        Some((*place, entry))
    }

    /// An entry and what it refers to, and the name that they give.
    pub(crate) fn chain(&self, offset: UnitOffset) -> (Vec<(Place<'a>, Entry)>, String) {
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
    pub(crate) fn children(&self, entry: &Entry) -> (Vec<Entry>, bool) {
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
