//! Which calls of the kernel's functions are shown in a task's tree, and by what names.
//!
//! Given the frames that are open, and a function that begins; says whether it belongs to what the
//! policy asks for: it is one to begin at, or is called by such a one, near enough. What an
//! interrupt calls belongs to the interrupt.
//!
//! Must not know: tracefs, and how frames are written.

use crate::policy::Chosen;
use crate::source::Frame;
use crate::symbols::Symbols;
use std::collections::{HashMap, HashSet};

/// The module of functions of the kernel's own.
const KERNEL: &str = "[kernel]";

/// A function as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// Its module, in brackets.
    pub module: String,
    /// Its name.
    pub name: String,
    /// Where it begins, counted from its module's first function.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    symbols: Symbols,
    /// Where functions begin that a recording begins at.
    roots: HashSet<u64>,
    depth: usize,
    /// Functions and blocks that are hooked one by one, with what they are known by. True: a block.
    hooked: HashMap<u64, (Called, bool)>,
}

/// Addresses of the kernel have this bit; what is hooked is known by its address without it.
const KERNEL_BIT: u64 = 1 << 63;

impl Calls {
    /// By the functions that were chosen.
    pub fn new(chosen: &Chosen, symbols: Symbols) -> Self {
        Self {
            roots: chosen.roots.clone(),
            symbols,
            depth: chosen.depth as usize,
            hooked: HashMap::new(),
        }
    }

    /// For names alone.
    pub fn of_symbols(symbols: Symbols) -> Self {
        Self {
            symbols,
            ..Self::default()
        }
    }

    /// Shows these, too, whatever they are in.
    pub fn hook(&mut self, hooked: HashMap<u64, (Called, bool)>) {
        self.hooked.extend(hooked);
    }

    /// What the hooked ones are known by.
    pub fn hooked(&self) -> Vec<u64> {
        let mut addresses: Vec<u64> = self.hooked.keys().copied().collect();
        addresses.sort_unstable();
        addresses
    }

    /// The function at an address.
    pub fn at(&self, address: u64) -> Called {
        if let Some((called, _)) = self.hooked.get(&address) {
            return called.clone();
        }
        let Some((symbol, bytes)) = self.symbols.at(address) else {
            return Called {
                module: KERNEL.to_owned(),
                name: format!("{address:#x}"),
                offset: address,
                bytes: 0,
            };
        };
        let module = symbol.module.as_deref();
        Called {
            module: module.map_or_else(|| KERNEL.to_owned(), |name| format!("[{name}]")),
            name: symbol.name.clone(),
            offset: symbol.address - self.symbols.base(module).min(symbol.address),
            bytes,
        }
    }

    fn is_root(&self, address: u64) -> bool {
        let symbol = self.symbols.at(address | KERNEL_BIT);
        let symbol = symbol.or_else(|| self.symbols.at(address));
        symbol.is_some_and(|(symbol, _)| self.roots.contains(&symbol.address))
    }

    /// What the kernel calls to have an event recorded. What records a switch returns when the task
    /// is told not to run already.
    fn is_tracing(&self, address: u64) -> bool {
        const TRACING: [&str; 2] = ["__traceiter_", "trace_event_raw_event_"];
        let symbol = self.symbols.at(address);
        symbol.is_some_and(|(s, _)| TRACING.iter().any(|start| s.name.starts_with(start)))
    }

    fn is_block(&self, address: u64) -> bool {
        self.hooked.get(&address).is_some_and(|(_, is)| *is)
    }

    /// True if a function that begins while these frames are open is shown.
    pub fn is_shown(&self, open: &[Frame], address: u64) -> bool {
        if self.hooked.contains_key(&address) {
            return true;
        }
        let runs = !matches!(open.last(), Some(Frame::Waiting(_) | Frame::Preempted(_)));
        if !runs || self.is_tracing(address) {
            return false;
        }
        let symbol = self
            .symbols
            .at(address)
            .map(|(s, _)| s.address & !KERNEL_BIT);
        if symbol.is_some_and(|known| self.hooked.contains_key(&known)) {
            // Its hooks show it already.
            return false;
        }
        if self.is_root(address) {
            return true;
        }
        let mut around = 0;
        for frame in open.iter().rev() {
            match frame {
                Frame::Function { address, .. } if self.is_block(*address) => {}
                Frame::Function { address, .. } => {
                    around += 1;
                    if self.is_root(*address) {
                        return around < self.depth;
                    }
                }
                _ => return false,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_shown_below_a_root_down_to_the_depth_and_not_through_interrupts() {
        let symbols = Symbols::parse("1000 t root\n1010 t a\n1020 t b\n1030 t c\t[ext4]");
        let chosen = Chosen {
            roots: HashSet::from([0x1000]),
            depth: 2,
            ..Chosen::default()
        };
        let calls = Calls::new(&chosen, symbols);
        let of = |address| Frame::Function { address, depth: 0 };
        assert!(calls.is_shown(&[], 0x1004));
        assert!(!calls.is_shown(&[], 0x1010));
        let below = [Frame::SystemCall(0), of(0x1000)];
        assert!(calls.is_shown(&below, 0x1010));
        assert!(!calls.is_shown(&[of(0x1000), of(0x1010)], 0x1020));
        assert!(!calls.is_shown(&[of(0x1000), Frame::SoftInterrupt(1)], 0x1010));
        let does_not_run = [of(0x1000), Frame::Preempted(String::new())];
        assert!(!calls.is_shown(&does_not_run, 0x1010));
        assert_eq!(calls.at(0x1014).name, "a");
        assert_eq!(calls.at(0x1014).offset, 0x10);
        assert_eq!(calls.at(0x1030).module, "[ext4]");
        assert_eq!(calls.at(0x10).name, "0x10");
    }
}
