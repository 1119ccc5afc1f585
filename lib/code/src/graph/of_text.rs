//! The graph of a function of which nothing but its bytes in memory is known.
//!
//! Given the bytes of its ranges, and ways to ask for more; gives the graph. The kernel's code is
//! meant: behind a trap its handler may go on, since that is how it warns.

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::Graph;
use super::build::{Code, Targets, build};
use crate::history::History;
use crate::tables::{JumpShape, Origin, TableForm, TableQuery, shape_of};

/// Entries of a table whose length no comparison tells.
const MOST_ENTRIES: u64 = 1024;
/// No instruction is longer.
const INSTRUCTION_BYTES: usize = 15;
/// `int3`, which fills the space between functions.
const FILLING: u8 = 0xcc;

/// Code in memory.
pub struct Text<'a> {
    /// The function's ranges: where each begins, and its bytes. The first has its entry.
    pub parts: &'a [(u64, Vec<u8>)],
    /// So many bytes of the memory around, where jump tables lie.
    pub memory: &'a dyn Fn(u64, usize) -> Option<Vec<u8>>,
    /// The function that begins there never returns.
    pub never_returns: &'a dyn Fn(u64) -> bool,
    /// Branches that are switched, sorted: where each stands, and where it leads if it is on.
    pub switches: &'a [(u64, u64)],
    /// Instructions that may fault, sorted, and where control goes on then.
    pub fixups: &'a [(u64, u64)],
    /// What begins there does nothing but return: a jump to it is a return.
    pub is_return: &'a dyn Fn(u64) -> bool,
}

/// See the module.
pub fn of_text(text: &Text<'_>) -> Graph {
    let ranges: Vec<_> = text
        .parts
        .iter()
        .map(|(start, bytes)| *start..start.saturating_add(bytes.len() as u64))
        .collect();
    build(text, &ranges, &[], &[])
}

impl Text<'_> {
    fn bytes_at(&self, at: u64) -> Option<&[u8]> {
        self.parts.iter().find_map(|(start, bytes)| {
            let offset = usize::try_from(at.checked_sub(*start)?).ok()?;
            bytes.get(offset..).filter(|rest| !rest.is_empty())
        })
    }

    fn entry(&self, query: &TableQuery, base: u64, index: u64) -> Option<u64> {
        let origin = match query.origin {
            Origin::Table => base,
            Origin::Label(label) => label,
            Origin::LabelIn(_) => return None,
        };
        match query.form {
            TableForm::Offsets32 => {
                let bytes = (self.memory)(base.wrapping_add(index * 4), 4)?;
                let offset = i32::from_le_bytes(*bytes.first_chunk()?);
                Some(origin.wrapping_add_signed(i64::from(offset)))
            }
            TableForm::Addresses64 => {
                let bytes = (self.memory)(base.wrapping_add(index * 8), 8)?;
                Some(u64::from_le_bytes(*bytes.first_chunk()?))
            }
        }
    }
}

impl Code for Text<'_> {
    fn decode(&self, at: u64) -> Option<Instruction> {
        let bytes = self.bytes_at(at)?;
        let bytes = &bytes[..bytes.len().min(INSTRUCTION_BYTES)];
        Some(Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode())
    }

    fn targets(&self, jump: &Instruction, history: &History) -> Targets {
        let query = match shape_of(jump, history, &|at| self.decode(at)) {
            JumpShape::Table(query) => query,
            JumpShape::Pointer => return Targets::Pointer,
            JumpShape::Computed => return Targets::Unknown,
        };
        let Some(base) = query.base else {
            return match query.may_be_pointer {
                true => Targets::Pointer,
                false => Targets::Unknown,
            };
        };
        let is_inside = |target: &u64| self.bytes_at(*target).is_some();
        let entries = query.entries.unwrap_or(MOST_ENTRIES);
        let targets: Vec<u64> = (0..entries)
            .map_while(|index| self.entry(&query, base, index))
            .take_while(|target| is_inside(target))
            .collect();
        let is_whole = query.entries.is_none_or(|e| e == targets.len() as u64);
        match (is_whole, targets.is_empty()) {
            (true, false) => Targets::Table(targets),
            _ if query.may_be_pointer => Targets::Pointer,
            _ => Targets::Unknown,
        }
    }

    fn returns(&self, call: &Instruction) -> bool {
        !call.is_call_near() || !(self.never_returns)(call.near_branch_target())
    }

    fn goes_on_after(&self, trap: &Instruction) -> bool {
        let next = self.bytes_at(trap.next_ip()).and_then(|b| b.first());
        next.is_some_and(|byte| *byte != FILLING)
    }

    fn switch(&self, at: u64) -> Option<u64> {
        in_pairs(self.switches, at)
    }

    fn fixup(&self, at: u64) -> Option<u64> {
        in_pairs(self.fixups, at)
    }

    fn is_return(&self, target: u64) -> bool {
        (self.is_return)(target)
    }
}

fn in_pairs(pairs: &[(u64, u64)], at: u64) -> Option<u64> {
    let found = pairs.binary_search_by_key(&at, |(from, _)| *from).ok()?;
    pairs.get(found).map(|(_, to)| *to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{EdgeKind, Exit};

    fn graph(parts: &[(u64, Vec<u8>)], memory: &dyn Fn(u64, usize) -> Option<Vec<u8>>) -> Graph {
        of_text(&Text {
            parts,
            memory,
            never_returns: &|target| target == 0x9000,
            switches: &[(0x7000, 0x7008)],
            fixups: &[(0x7005, 0x700a)],
            is_return: &|target| target == 0xa000,
        })
    }

    fn edges(graph: &Graph) -> Vec<(u64, u64, EdgeKind)> {
        let start = |i: usize| graph.blocks[i].start;
        let of = |e: &crate::graph::Edge| (start(e.from), start(e.to), e.kind);
        graph.edges.iter().map(of).collect()
    }

    #[test]
    fn a_loop_a_condition_and_a_call() {
        // 1000: test edi, edi; je 100d; call 2000; dec edi; jne 1004 ; 100d: ret
        let mut code = vec![0x85, 0xff, 0x74, 0x09];
        code.extend([0xe8, 0xf7, 0x0f, 0x00, 0x00]);
        code.extend([0xff, 0xcf, 0x75, 0xf7, 0xc3, 0xcc, 0xcc]);
        let graph = graph(&[(0x1000, code)], &|_, _| None);
        let starts: Vec<u64> = graph.blocks.iter().map(|b| b.start).collect();
        assert_eq!(starts, [0x1000, 0x1004, 0x100d]);
        assert_eq!(graph.blocks[1].calls[0].target, Some(0x2000));
        assert_eq!(
            (graph.blocks[1].last, graph.blocks[1].end),
            (0x100b, 0x100d)
        );
        assert_eq!(graph.blocks[2].exit, Some(Exit::Return));
        assert_eq!(
            edges(&graph),
            [
                (0x1000, 0x1004, EdgeKind::Falls),
                (0x1000, 0x100d, EdgeKind::Taken),
                (0x1004, 0x1004, EdgeKind::Taken),
                (0x1004, 0x100d, EdgeKind::Falls),
            ]
        );
        assert_eq!(graph.unreached_bytes, 0, "filling is not code");
    }

    #[test]
    fn a_table_of_addresses_that_a_comparison_bounds() {
        // cmp edi, 1; ja 1012; mov edi, edi; jmp [rdi*8 + 0x5000]; ret; nop; 1012: ud2; 1014: ret
        let mut code = vec![0x83, 0xff, 0x01, 0x77, 0x0d, 0x89, 0xff];
        code.extend([0xff, 0x24, 0xfd, 0x00, 0x50, 0x00, 0x00]);
        code.extend([0xc3, 0x90, 0x90, 0xc3, 0x0f, 0x0b, 0xc3]);
        let memory = |at: u64, bytes: usize| {
            let targets: [u64; 2] = [0x100e, 0x1011];
            let index = usize::try_from(at.checked_sub(0x5000)? / 8).ok()?;
            Some(targets.get(index)?.to_le_bytes()[..bytes].to_vec())
        };
        let graph = graph(&[(0x1000, code)], &memory);
        let block = graph.block_at(0x1005).unwrap();
        assert_eq!(graph.blocks[block].table_entries, Some(2));
        let from = |at| graph.edges_from(graph.block_at(at).unwrap());
        assert_eq!(from(0x1005).len(), 2);
        assert!(from(0x1005).iter().all(|e| e.kind == EdgeKind::Table));
        assert_eq!(from(0x1012)[0].kind, EdgeKind::Trap);
        assert_eq!(graph.edges_to(graph.block_at(0x1014).unwrap()).count(), 1);
    }

    #[test]
    fn other_parts_tails_and_calls_without_return() {
        // 1000: je 3000; jmp a000 — 3000: call 9000
        let hot = vec![
            0x0f, 0x84, 0xfa, 0x1f, 0x00, 0x00, 0xe9, 0xf5, 0x8f, 0x00, 0x00,
        ];
        let cold = vec![0xe8, 0xfb, 0x5f, 0x00, 0x00, 0x31, 0xc0];
        let graph = graph(&[(0x1000, hot), (0x3000, cold)], &|_, _| None);
        let exit = |at| graph.blocks[graph.block_at(at).unwrap()].exit;
        assert_eq!(exit(0x1006), Some(Exit::Return));
        assert_eq!(exit(0x3000), Some(Exit::NoReturn));
        assert!(graph.has_edge(0, 2));
        assert_eq!(graph.unreached_bytes, 2);
    }

    #[test]
    fn switched_branches_and_faults_lead_on() {
        // 7000: nop (2 bytes); 7002: nop; ret; nop; 7005: mov eax, [rdi]; ret; 7008: jmp 7005;
        // 700a: xor eax, eax; ret
        let code = vec![
            0x66, 0x90, 0x90, 0xc3, 0x90, 0x8b, 0x07, 0xc3, 0xeb, 0xfb, 0x31, 0xc0, 0xc3,
        ];
        let graph = graph(&[(0x7000, code)], &|_, _| None);
        assert_eq!(
            edges(&graph),
            [
                (0x7000, 0x7002, EdgeKind::Falls),
                (0x7000, 0x7008, EdgeKind::Switch),
                (0x7005, 0x700a, EdgeKind::Fault),
                (0x7008, 0x7005, EdgeKind::Jumps),
            ]
        );
        assert_eq!(
            (graph.unreached_bytes, graph.blocks[0].first.as_str()),
            (0, "nop")
        );
    }

    #[test]
    fn any_bytes_give_a_graph() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..300 {
            let mut code = Vec::new();
            for _ in 0..16 {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                code.extend(seed.to_le_bytes());
            }
            let graph = graph(&[(0x1000, code)], &|_, _| None);
            assert!(graph.edges.iter().all(|e| e.to < graph.blocks.len()));
            assert!(
                graph
                    .blocks
                    .iter()
                    .all(|b| b.end > b.start && b.last < b.end)
            );
        }
    }
}
