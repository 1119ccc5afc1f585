//! The kernel's symbols: which function lies at an address.
//!
//! Given the text of `/proc/kallsyms`; gives functions by address, each with its module, and their
//! ends: where the next one begins.
//!
//! Must not know: what is traced, and what a function's text holds.

use crate::error::KernelError;
use crate::tracefs;
use std::collections::HashMap;
use std::path::Path;

/// Where the kernel says them.
const FILE: &str = "/proc/kallsyms";
/// How the names of system calls begin that this machine's own programs make.
const NATIVE: &str = "__x64_sys_";
/// How the names of a table's beginning and end begin.
const BOUNDS: [&str; 2] = ["__start_", "__stop_"];
/// No function is longer: what follows the last one is something else.
const LONGEST_BYTES: u64 = 1 << 20;

/// A function of the kernel's, or of a module that is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Where it begins.
    pub address: u64,
    /// Its name, which others may have, too: of several the one that says most to a reader.
    pub name: String,
    /// All of its names, if there are several: of a system call without arguments, for one.
    pub names: Vec<String>,
    /// The module that it belongs to.
    pub module: Option<String>,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// By address.
    sorted: Vec<Symbol>,
    /// Where tables that the kernel's linker has made begin and end.
    bounds: HashMap<String, u64>,
}

impl Symbols {
    /// Reads those of the running kernel.
    ///
    /// # Errors
    /// They cannot be read, or are told without addresses.
    pub fn read() -> Result<Self, KernelError> {
        let symbols = Self::parse(&tracefs::read(Path::new(FILE))?);
        match symbols.sorted.last() {
            Some(last) if last.address != 0 => Ok(symbols),
            _ => Err(KernelError::NoAddresses),
        }
    }

    /// Parses lines such as `ffffffff81000000 T _stext` and, of a module's, with `[ext4]` behind.
    pub fn parse(text: &str) -> Self {
        let mut bounds = HashMap::new();
        let symbol = |line: &str| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let kind = words.next()?;
            let name = words.next()?.to_owned();
            if BOUNDS.iter().any(|begin| name.starts_with(begin)) {
                bounds.insert(name, address);
                return None;
            }
            let module = words.next().map(|m| m.trim_matches(['[', ']']).to_owned());
            matches!(kind, "t" | "T" | "w" | "W").then_some(Symbol {
                address,
                names: vec![name.clone()],
                name,
                module,
            })
        };
        let mut sorted: Vec<Symbol> = text.lines().filter_map(symbol).collect();
        sorted.sort_by_key(|s| s.address);
        sorted.dedup_by(|other, first| {
            let is_same = other.address == first.address;
            if is_same {
                if other.name.starts_with(NATIVE) {
                    first.name.clone_from(&other.name);
                }
                first.names.append(&mut other.names);
            }
            is_same
        });
        Self { sorted, bounds }
    }

    /// Where a table begins and ends that the kernel's linker has made of a section.
    pub fn table(&self, section: &str) -> Option<(u64, u64)> {
        let of = |begin: &str| self.bounds.get(&format!("{begin}{section}")).copied();
        let [start, stop] = BOUNDS;
        of(start).zip(of(stop)).filter(|(start, stop)| start < stop)
    }

    /// The function that `address` lies in, and its length.
    pub fn at(&self, address: u64) -> Option<(&Symbol, u64)> {
        let next = self.sorted.partition_point(|s| s.address <= address);
        let symbol = self.sorted.get(next.checked_sub(1)?)?;
        let end = self.sorted.get(next).map_or(u64::MAX, |s| s.address);
        let length = (end - symbol.address).min(LONGEST_BYTES);
        (address - symbol.address < length).then_some((symbol, length))
    }

    /// The function that begins at `address`, and its length.
    pub fn beginning_at(&self, address: u64) -> Option<(&Symbol, u64)> {
        self.at(address).filter(|(s, _)| s.address == address)
    }

    /// All, by address.
    pub fn iter(&self) -> impl Iterator<Item = &Symbol> {
        self.sorted.iter()
    }

    /// The lowest address of a module's functions, or of the kernel's own: what addresses in a
    /// trace count from, since a kernel lies elsewhere after each start.
    pub fn base(&self, module: Option<&str>) -> u64 {
        let first = self
            .sorted
            .iter()
            .find(|s| s.module.as_deref() == module && s.address != 0);
        first.map_or(0, |s| s.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_address() {
        let text = "0000000000001000 T first\n0000000000001040 t second\n\
            0000000000001040 T alias\n0000000000001060 d data\n\
            0000000000002000 t third\t[ext4]\nnonsense\n";
        let symbols = Symbols::parse(text);
        let at = |address| symbols.at(address).map(|(s, l)| (s.name.as_str(), l));
        assert_eq!(at(0xfff), None);
        assert_eq!(at(0x1000), Some(("first", 0x40)));
        assert_eq!(at(0x1044), Some(("second", 0xfc0)));
        let names = symbols.at(0x1040).map(|(s, _)| s.names.clone());
        assert_eq!(names.unwrap_or_default(), ["second", "alias"]);
        assert_eq!(at(0x2000), Some(("third", LONGEST_BYTES)));
        assert_eq!(at(u64::MAX), None);
        assert!(symbols.beginning_at(0x1044).is_none());
        assert_eq!(symbols.base(None), 0x1000);
        assert_eq!(symbols.base(Some("ext4")), 0x2000);
    }
}
