//! The control-flow graph of a function of the running kernel.
//!
//! Given a function's name; finds it and the parts of it that are kept elsewhere among the kernel's
//! symbols, reads their text as it is in memory (the file of the kernel differs from it: the
//! kernel changes its own text when it starts), and gives their graph.
//!
//! Must not know: what is done to a block.

use crate::error::KernelError;
use crate::optimized::{self, Way};
use crate::symbols::{Symbol, Symbols};
use crate::text::Text;
use sptrace_code::graph::{self, Call, Graph};

/// Functions that never return. The kernel's own checker of objects keeps such a list
/// (tools/objtool/noreturns.h), since the code itself does not say it.
const NEVER_RETURN: [&str; 32] = [
    "__fortify_panic",
    "__invalid_creds",
    "__module_put_and_kthread_exit",
    "__stack_chk_fail",
    "__ubsan_handle_builtin_unreachable",
    "acpi_processor_ffh_play_dead",
    "arch_cpu_idle_dead",
    "cpu_bringup_and_idle",
    "cpu_startup_entry",
    "do_exit",
    "do_group_exit",
    "do_task_dead",
    "ex_handler_msr_mce",
    "fortify_panic",
    "hlt_play_dead",
    "kthread_complete_and_exit",
    "kthread_exit",
    "machine_real_restart",
    "make_task_dead",
    "mpt_halt_firmware",
    "native_play_dead",
    "nmi_panic_self_stop",
    "panic",
    "panic_smp_self_stop",
    "rest_init",
    "rewind_stack_and_make_dead",
    "rewind_stack_do_exit",
    "snp_abort",
    "start_kernel",
    "stop_this_cpu",
    "usercopy_abort",
    "x86_64_start_kernel",
];
/// How the names of the kernel's ways to return end, where it guards against guesses of the
/// processor; a jump there is a return.
const RETURN_THUNK: &str = "_return_thunk";

/// See the module.
#[derive(Clone, Debug)]
pub struct LiveGraph {
    /// The graph, by addresses in memory.
    pub graph: Graph,
    /// The function's name.
    pub name: String,
    /// The module that it belongs to.
    pub module: Option<String>,
    /// Where a branch or a call stands that the kernel itself changes, which it lets nobody hook.
    pub switched: Vec<u64>,
    /// Names of its ranges, in their order.
    parts: Vec<String>,
}

impl LiveGraph {
    /// The graph of a function of this name; of several the one whose text comes first.
    ///
    /// # Errors
    /// There is none, or its text cannot be read.
    pub fn of(name: &str, symbols: &Symbols, text: &Text) -> Result<Self, KernelError> {
        let is_named = |symbol: &Symbol| symbol.names.iter().any(|n| n == name);
        let Some(symbol) = symbols.iter().find(|s| is_named(s)) else {
            return Err(KernelError::NoSuchFunction(name.to_owned()));
        };
        let is_part = |s: &Symbol| s.module == symbol.module && is_part_of(&s.name, name);
        let elsewhere = symbols.iter().filter(|s| is_part(s));
        let mut parts = Vec::new();
        let mut names = Vec::new();
        for part in std::iter::once(symbol).chain(elsewhere) {
            let read = symbols.beginning_at(part.address);
            let read = read.and_then(|(_, bytes)| text.read(part.address, bytes as usize));
            match read {
                Some(bytes) => {
                    parts.push((part.address, bytes));
                    names.push(match part.address == symbol.address {
                        true => name.to_owned(),
                        false => part.name.clone(),
                    });
                }
                None if parts.is_empty() => return Err(KernelError::NoText(name.to_owned())),
                None => {}
            }
        }
        if let Some(at) = hooked_by_others(&parts) {
            return Err(KernelError::Hooked(name.to_owned(), at));
        }
        let named = |address: u64| symbols.beginning_at(address).map(|(s, _)| &s.names);
        let any = |address, is: &dyn Fn(&String) -> bool| {
            named(address).is_some_and(|names| names.iter().any(is))
        };
        let [switches, fixups, calls] = [(JUMP_TABLE, 16), (EX_TABLE, 12), (STATIC_CALLS, 8)]
            .map(|(section, bytes)| pairs(symbols, text, section, bytes));
        let graph = graph::of_text(&graph::Text {
            parts: &parts,
            memory: &|at, bytes| text.read(at, bytes),
            never_returns: &|at| any(at, &|n| NEVER_RETURN.binary_search(&n.as_str()).is_ok()),
            switches: &switches,
            fixups: &fixups,
            is_return: &|at| any(at, &|n| n.ends_with(RETURN_THUNK)),
        });
        let switched = switches.iter().chain(&calls).map(|(at, _)| *at);
        let switched = switched.filter(|at| graph.contains(*at)).collect();
        Ok(Self {
            graph,
            switched,
            name: name.to_owned(),
            module: symbol.module.clone(),
            parts: names,
        })
    }

    /// An address of the function's code, in words: `pipe_write+0x1a`.
    pub fn place(&self, address: u64) -> String {
        let ranges = self.graph.ranges.iter().zip(&self.parts);
        let mut own = ranges.filter(|(range, _)| range.contains(&address));
        own.next().map_or_else(
            || format!("{address:#x}"),
            |(range, name)| format!("{name}+{:#x}", address - range.start),
        )
    }
}

/// Section of the branches that are switched (struct jump_entry: two relative addresses of 32 bits
/// and a key of 64).
const JUMP_TABLE: &str = "__jump_table";
/// Section of the instructions that may fault (struct exception_table_entry: two relative addresses
/// of 32 bits, and as many of something else).
const EX_TABLE: &str = "__ex_table";
/// Section of the calls whose target is switched (struct static_call_site: two relative addresses).
const STATIC_CALLS: &str = "static_call_sites";
/// No table is longer.
const LONGEST_TABLE_BYTES: u64 = 16 << 20;

/// Pairs of addresses of a table of the kernel's own, by the first one. Modules have theirs
/// elsewhere, which are not looked for.
fn pairs(symbols: &Symbols, text: &Text, section: &str, entry_bytes: usize) -> Vec<(u64, u64)> {
    let table = symbols.table(section);
    let table = table.filter(|(start, stop)| stop - start <= LONGEST_TABLE_BYTES);
    let Some((start, stop)) = table else {
        return Vec::new();
    };
    let bytes = text
        .read(start, (stop - start) as usize)
        .unwrap_or_default();
    let mut pairs: Vec<(u64, u64)> = bytes
        .chunks_exact(entry_bytes)
        .enumerate()
        .filter_map(|(number, entry)| {
            let at = start + (number * entry_bytes) as u64;
            let relative = |from: usize| {
                let word = entry.get(from..)?.first_chunk()?;
                let offset = i64::from(i32::from_le_bytes(*word));
                Some((at + from as u64).wrapping_add_signed(offset))
            };
            relative(0).zip(relative(4))
        })
        .collect();
    pairs.sort_unstable();
    pairs
}

/// What a call leads to, as far as the instruction says; empty if it does not.
pub fn callee(symbols: &Symbols, call: &Call) -> String {
    let Some(target) = call.target else {
        return String::new();
    };
    match symbols.at(target) {
        Some((symbol, _)) if symbol.address == target => symbol.name.clone(),
        Some((symbol, _)) => format!("{}+{:#x}", symbol.name, target - symbol.address),
        None => format!("{target:#x}"),
    }
}

/// Where somebody's probe has replaced what the text was. One that the function tracer reaches has
/// replaced filling only.
fn hooked_by_others(parts: &[(u64, Vec<u8>)]) -> Option<u64> {
    let ways = optimized::ways().unwrap_or_default();
    let is_inside = |at: u64| {
        parts.iter().any(|(start, bytes)| {
            at.checked_sub(*start)
                .is_some_and(|o| o < bytes.len() as u64)
        })
    };
    let changes = ways
        .into_iter()
        .filter(|(_, way)| matches!(way, Way::Jump | Way::Breakpoint));
    changes.map(|(at, _)| at).filter(|at| is_inside(*at)).min()
}

/// Compilers name a part that is kept elsewhere `f.cold`, some with a number behind.
fn is_part_of(part: &str, function: &str) -> bool {
    let rest = part.strip_prefix(function);
    let rest = rest.and_then(|rest| rest.strip_prefix(".cold"));
    rest.is_some_and(|rest| rest.chars().all(|c| c == '.' || c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_known_by_their_names() {
        assert!(is_part_of("pipe_write.cold", "pipe_write"));
        assert!(is_part_of("pipe_write.cold.12", "pipe_write"));
        assert!(!is_part_of("pipe_write_iter.cold", "pipe_write"));
        assert!(!is_part_of("pipe_write.part.0", "pipe_write"));
        assert!(!is_part_of("pipe_write", "pipe_write"));
    }

    #[test]
    fn the_list_is_in_order() {
        assert!(NEVER_RETURN.is_sorted());
    }
}
