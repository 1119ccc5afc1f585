//! Which of the kernel's functions are recorded: where a recording begins, how deep it follows
//! calls, what is left out.
//!
//! Given roots, a depth and patterns; gives the functions that the kernel's tracer must be switched
//! on for, never all of them unless that was asked for. Calls are found in the kernel's text as it
//! is in memory. Those through pointers are not: what they reach must be named.
//!
//! Must not know: tracefs's files, records, tasks.

use crate::error::KernelError;
use crate::symbols::{Symbol, Symbols};
use sptrace_trace::glob_matches;
use std::collections::{HashMap, HashSet, VecDeque};

/// More functions than this are switched on only if `*` was asked for: it takes seconds, and slows
/// the whole machine down.
pub const MOST: usize = 10_000;

/// Levels of calls, if nobody says how many.
pub const DEPTH: u32 = 3;

/// Where a recording of functions begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// System calls.
    SystemCalls,
    /// Interrupts, of devices and of the processor's own.
    Interrupts,
    /// Work that interrupts have left for later.
    SoftInterrupts,
}

impl Root {
    /// The functions of the kernel's that do it: globs, of which a kernel has some.
    fn globs(self) -> &'static [&'static str] {
        match self {
            Self::SystemCalls => &["__x64_sys_*"],
            // What stands before them in the kernel's entry code cannot be traced.
            Self::Interrupts => &["__common_interrupt", "__sysvec_*", "handle_irq_event"],
            Self::SoftInterrupts => &["handle_softirqs", "__do_softirq"],
        }
    }
}

/// What was asked for.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Where it begins.
    pub roots: Vec<Root>,
    /// Functions at which it begins, too.
    pub functions: Vec<String>,
    /// So many levels of calls, with the one that it begins at.
    pub depth: Option<u32>,
    /// What is left out.
    pub without: Vec<String>,
}

/// The functions that can be traced: each name with its places in the kernel's list, which begins
/// with 1. Several functions may have one name.
#[derive(Clone, Debug, Default)]
pub struct Traceable(HashMap<String, Vec<usize>>);

impl Traceable {
    /// Parses `available_filter_functions`.
    pub fn parse(text: &str) -> Self {
        let mut names: HashMap<String, Vec<usize>> = HashMap::new();
        for (i, line) in text.lines().enumerate() {
            if let Some(name) = line.split_whitespace().next() {
                names.entry(name.to_owned()).or_default().push(i + 1);
            }
        }
        Self(names)
    }

    /// Of these names.
    pub fn of<'a>(names: impl Iterator<Item = &'a String>) -> Self {
        Self(names.map(|name| (name.clone(), Vec::new())).collect())
    }

    /// True if a function can be. The list has one of its names.
    fn has(&self, symbol: &Symbol) -> bool {
        symbol.names.iter().any(|name| self.0.contains_key(name))
    }

    /// Places of the functions at these addresses, in order, with those of others that are called
    /// the same.
    pub fn places(&self, addresses: &HashSet<u64>, symbols: &Symbols) -> Vec<usize> {
        let chosen = symbols.iter().filter(|s| addresses.contains(&s.address));
        let names = chosen.flat_map(|s| &s.names);
        let found = names.filter_map(|name| self.0.get(name)).flatten();
        let mut places: Vec<usize> = found.copied().collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

/// What comes of a policy on a machine.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// Where the functions begin that are recorded.
    pub functions: HashSet<u64>,
    /// Those of them that a recording begins at.
    pub roots: HashSet<u64>,
    /// Levels of calls.
    pub depth: u32,
    /// Every function that can be traced was asked for.
    pub is_everything: bool,
}

impl Policy {
    fn is_left_out(&self, symbol: &Symbol) -> bool {
        self.without.iter().any(|glob| is_called(symbol, glob))
    }

    /// The functions that a recording begins at.
    ///
    /// # Errors
    /// A pattern matches nothing.
    fn begin(&self, traceable: &Traceable, symbols: &Symbols) -> Result<HashSet<u64>, KernelError> {
        let all: Vec<&Symbol> = symbols.iter().filter(|s| traceable.has(s)).collect();
        for glob in &self.functions {
            if !all.iter().any(|symbol| is_called(symbol, glob)) {
                return Err(KernelError::NoFunction(glob.clone()));
            }
        }
        let of_roots = self.roots.iter().flat_map(|root| root.globs());
        let functions = self.functions.iter().map(String::as_str);
        let globs: Vec<&str> = of_roots.copied().chain(functions).collect();
        let is_root = |symbol: &&&Symbol| {
            globs.iter().any(|glob| is_called(symbol, glob)) && !self.is_left_out(symbol)
        };
        let roots: HashSet<u64> = all.iter().filter(is_root).map(|s| s.address).collect();
        match roots.is_empty() {
            true => Err(KernelError::NoFunction("the roots".to_owned())),
            false => Ok(roots),
        }
    }

    /// Finds the functions. `text` gives the bytes of a function by address and length.
    ///
    /// # Errors
    /// A pattern matches nothing, or too many are reached.
    pub fn choose(
        &self,
        traceable: &Traceable,
        symbols: &Symbols,
        text: impl Fn(u64, usize) -> Option<Vec<u8>>,
    ) -> Result<Chosen, KernelError> {
        let roots = self.begin(traceable, symbols)?;
        let is_everything = self.functions.iter().any(|glob| glob == "*");
        let depth = self.depth.unwrap_or(DEPTH);
        let functions = match is_everything || depth <= 1 {
            true => roots.clone(),
            false => self.reached(&roots, depth, (traceable, symbols), text),
        };
        if functions.len() > MOST && !is_everything {
            return Err(KernelError::TooMany(functions.len()));
        }
        Ok(Chosen {
            functions,
            roots,
            depth,
            is_everything: is_everything && self.without.is_empty(),
        })
    }

    /// The roots, and what they call directly, down to the depth. What cannot be traced is no level
    /// of its own: parts that the compiler has split off are such.
    fn reached(
        &self,
        roots: &HashSet<u64>,
        depth: u32,
        (traceable, symbols): (&Traceable, &Symbols),
        text: impl Fn(u64, usize) -> Option<Vec<u8>>,
    ) -> HashSet<u64> {
        let mut queue: VecDeque<(u64, u32)> = roots.iter().map(|root| (*root, 1)).collect();
        let mut seen: HashMap<u64, u32> = queue.iter().copied().collect();
        let mut functions = roots.clone();
        while let Some((address, level)) = queue.pop_front() {
            // It was found nearer to a root meanwhile.
            if seen.get(&address).is_some_and(|known| *known < level) {
                continue;
            }
            let Some((_, length)) = symbols.beginning_at(address) else {
                continue;
            };
            let bytes = text(address, length as usize).unwrap_or_default();
            for callee in callees(&bytes, address, symbols) {
                let is_level = traceable.has(callee);
                let at = level + u32::from(is_level);
                let is_far = at > depth || self.is_left_out(callee);
                if is_far || seen.get(&callee.address).is_some_and(|known| *known <= at) {
                    continue;
                }
                seen.insert(callee.address, at);
                if is_level {
                    functions.insert(callee.address);
                    queue.push_back((callee.address, at));
                } else {
                    queue.push_front((callee.address, at));
                }
            }
        }
        functions
    }
}

/// Is one of its names such?
fn is_called(symbol: &Symbol, glob: &str) -> bool {
    symbol.names.iter().any(|name| glob_matches(glob, name))
}

/// The functions that this text calls or jumps to. No instruction is decoded: four bytes that lead
/// exactly to the beginning of a function are hardly anything else, and if they are, then a
/// function too many is recorded.
fn callees<'a>(
    bytes: &'a [u8],
    address: u64,
    symbols: &'a Symbols,
) -> impl Iterator<Item = &'a Symbol> {
    /// Opcodes of `call rel32` and `jmp rel32`, and the second byte of `jcc rel32`.
    fn is_branch(bytes: &[u8], i: usize) -> bool {
        let before = i.checked_sub(1).and_then(|i| bytes.get(i));
        match bytes.get(i) {
            Some(0xe8 | 0xe9) => true,
            Some(0x80..=0x8f) => before == Some(&0x0f),
            _ => false,
        }
    }
    let target = move |i: usize| {
        let rel = bytes.get(i + 1..)?.first_chunk()?;
        let next = address.wrapping_add(i as u64 + 5);
        let to = next.wrapping_add_signed(i64::from(i32::from_le_bytes(*rel)));
        let is_inside = to.wrapping_sub(address) < bytes.len() as u64;
        symbols.beginning_at(to).filter(|_| !is_inside)
    };
    let branches = (0..bytes.len()).filter(move |i| is_branch(bytes, *i));
    branches.filter_map(target).map(|(symbol, _)| symbol)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four functions of 16 bytes: each calls the next one, the second jumps to a part of itself
    /// that lies elsewhere, and that calls the third.
    fn world() -> (Symbols, Traceable, impl Fn(u64, usize) -> Option<Vec<u8>>) {
        let symbols = Symbols::parse(
            "1000 t __ia32_sys_a\n1000 t __x64_sys_a\n1010 t b\n1020 t b.cold\n1030 t c\n1040 t d\n1050 t end",
        );
        let traceable = Traceable::parse("__ia32_sys_a\nb\nc\nd [mod]\nend\n");
        let text = |address: u64, bytes: usize| {
            let next = |opcode, to: u64| {
                let rel = to.wrapping_sub(address + 5) as u32;
                let mut text = vec![opcode];
                text.extend(rel.to_le_bytes());
                text.resize(bytes, 0x90);
                Some(text)
            };
            match address {
                0x1000 => next(0xe8, 0x1010),
                0x1010 => next(0xe9, 0x1020),
                0x1020 => next(0xe8, 0x1030),
                0x1030 => next(0xe8, 0x1040),
                _ => None,
            }
        };
        (symbols, traceable, text)
    }

    fn chosen(policy: &Policy) -> Vec<String> {
        let (symbols, traceable, text) = world();
        let chosen = policy.choose(&traceable, &symbols, text).unwrap();
        let is_chosen = |s: &&Symbol| chosen.functions.contains(&s.address);
        let mut names: Vec<_> = symbols.iter().filter(is_chosen).collect();
        names.sort_by(|a, b| a.name.cmp(&b.name));
        names.iter().map(|s| s.name.clone()).collect()
    }

    #[test]
    fn calls_are_followed_to_the_depth() {
        let of = |depth, without: &[&str]| Policy {
            roots: vec![Root::SystemCalls],
            depth: Some(depth),
            without: without.iter().map(|w| (*w).to_owned()).collect(),
            ..Policy::default()
        };
        assert_eq!(chosen(&of(1, &[])), ["__x64_sys_a"]);
        assert_eq!(chosen(&of(2, &[])), ["__x64_sys_a", "b"]);
        assert_eq!(chosen(&of(3, &[])), ["__x64_sys_a", "b", "c"]);
        assert_eq!(chosen(&of(9, &["c"])), ["__x64_sys_a", "b"]);
    }

    #[test]
    fn functions_are_roots_and_what_matches_nothing_is_refused() {
        let of = |glob: &str| Policy {
            functions: vec![glob.to_owned()],
            depth: Some(2),
            ..Policy::default()
        };
        assert_eq!(chosen(&of("c")), ["c", "d"]);
        let (symbols, traceable, text) = world();
        let refused = of("zz*").choose(&traceable, &symbols, text);
        assert!(matches!(refused, Err(KernelError::NoFunction(glob)) if glob == "zz*"));
    }

    #[test]
    fn places_are_those_of_the_kernels_list() {
        let traceable = Traceable::parse("a\nb\na\n");
        let symbols = Symbols::parse("1000 t other\n1000 t a\n1010 t a\n1020 t zz");
        let chosen = HashSet::from([0x1000, 0x1020]);
        assert_eq!(traceable.places(&chosen, &symbols), [1, 3]);
    }
}
