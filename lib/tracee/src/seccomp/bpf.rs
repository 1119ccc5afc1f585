//! What a seccomp filter does with a system call of which only a part is known.
//!
//! Given a classic BPF program as the kernel takes it (linux/filter.h, struct sock_filter) and a
//! call whose arguments may be unknown; gives every action that the program may end with. An
//! unknown value makes both ways of a branch possible, so an action that is given may be
//! impossible, but none is left out.
//!
//! Must not know: where the program comes from, and which calls somebody needs.

use std::collections::HashSet;

/// One instruction of a program (struct sock_filter).
pub type Instruction = libc::sock_filter;

/// A program may be looked at in so many states before it counts as too complicated.
const STATES_MAX: usize = 1 << 16;
/// AUDIT_ARCH_X86_64 (linux/audit.h).
const ARCH: u32 = 0xc000_003e;
/// BPF_MEMWORDS (linux/filter.h).
const MEMORY_WORDS: usize = 16;

/// A system call, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its number (x86-64).
    pub number: u32,
    /// Its arguments; `None`: any value.
    pub arguments: [Option<u64>; 6],
}

/// What the kernel does with a call (seccomp(2), "Filter return values").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is made.
    Allow,
    /// It is not made, and fails with this error number; 0 looks like success.
    Fail(u32),
    /// It ends the process, raises SIGSYS, or somebody else decides on it.
    Interfere,
}

impl Action {
    fn of(value: u32) -> Self {
        const DATA: u32 = 0xffff;
        match value & !DATA {
            libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG => Self::Allow,
            libc::SECCOMP_RET_ERRNO => Self::Fail(value & DATA),
            _ => Self::Interfere,
        }
    }
}

/// Words that a program computes with; `None`: any value.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    at: usize,
    a: Option<u32>,
    x: Option<u32>,
    memory: [Option<u32>; MEMORY_WORDS],
}

/// Every action that `program` may end with for `call`. `None`: it is none that the kernel would
/// have taken, or too complicated.
pub fn actions(program: &[Instruction], call: &Call) -> Option<Vec<Action>> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut ways = vec![State {
        at: 0,
        a: Some(0),
        x: Some(0),
        memory: [Some(0); MEMORY_WORDS],
    }];
    while let Some(state) = ways.pop() {
        if seen.len() >= STATES_MAX {
            return None;
        }
        if !seen.insert(state.clone()) {
            continue;
        }
        match step(program.get(state.at)?, state, call)? {
            Next::One(state) => ways.push(state),
            Next::Both(states) => ways.extend(*states),
            Next::End(action) if found.contains(&action) => {}
            Next::End(action) => found.push(action),
        }
    }
    Some(found)
}

enum Next {
    One(State),
    Both(Box<[State; 2]>),
    End(Action),
}

/// Executes one instruction. `None`: the kernel has no such (kernel/seccomp.c,
/// `seccomp_check_filter`).
fn step(i: &Instruction, mut s: State, call: &Call) -> Option<Next> {
    let code = u32::from(i.code);
    let operand = if code & libc::BPF_X != 0 {
        s.x
    } else {
        Some(i.k)
    };
    s.at += 1;
    match code & 0x07 {
        libc::BPF_LD if code & 0x18 == 0 => s.a = load(i, call, &s)?,
        libc::BPF_LDX if code & 0x18 == 0 => s.x = load(i, call, &s)?,
        libc::BPF_ST => *s.memory.get_mut(i.k as usize)? = s.a,
        libc::BPF_STX => *s.memory.get_mut(i.k as usize)? = s.x,
        libc::BPF_ALU => s.a = compute(code & 0xf0, s.a, operand)?,
        libc::BPF_JMP => return jump(i, s, operand),
        libc::BPF_RET => {
            let value = if code & 0x18 == libc::BPF_A {
                s.a
            } else {
                Some(i.k)
            };
            // A value that is computed may be anything.
            return Some(Next::End(value.map_or(Action::Interfere, Action::of)));
        }
        libc::BPF_MISC if code & 0xf8 == libc::BPF_TAX => s.x = s.a,
        libc::BPF_MISC if code & 0xf8 == libc::BPF_TXA => s.a = s.x,
        _ => return None,
    }
    Some(Next::One(s))
}

/// A word that is loaded: of the call (struct seccomp_data), of the memory, or stated.
fn load(i: &Instruction, call: &Call, s: &State) -> Option<Option<u32>> {
    const DATA_BYTES: u32 = 64;
    Some(match u32::from(i.code) & 0xe0 {
        libc::BPF_IMM => Some(i.k),
        libc::BPF_LEN => Some(DATA_BYTES),
        libc::BPF_MEM => *s.memory.get(i.k as usize)?,
        libc::BPF_ABS => match i.k {
            0 => Some(call.number),
            4 => Some(ARCH),
            // Where the call is made from.
            8 | 12 => None,
            at if at < DATA_BYTES && at % 4 == 0 => {
                let half = |value: u64| (value >> (at % 8 * 8)) as u32;
                call.arguments.get((at as usize - 16) / 8)?.map(half)
            }
            _ => return None,
        },
        _ => return None,
    })
}

fn compute(operation: u32, a: Option<u32>, operand: Option<u32>) -> Option<Option<u32>> {
    if operation == libc::BPF_NEG {
        return Some(a.map(u32::wrapping_neg));
    }
    // What is masked with zero is known even if it was not before.
    if operation == libc::BPF_AND && (a == Some(0) || operand == Some(0)) {
        return Some(Some(0));
    }
    let (Some(a), Some(b)) = (a, operand) else {
        return Some(None);
    };
    Some(match operation {
        libc::BPF_ADD => Some(a.wrapping_add(b)),
        libc::BPF_SUB => Some(a.wrapping_sub(b)),
        libc::BPF_MUL => Some(a.wrapping_mul(b)),
        // The kernel ends the program with 0 here: SECCOMP_RET_KILL_THREAD. It is no value to go on
        // with.
        libc::BPF_DIV => Some(a.checked_div(b)?),
        libc::BPF_OR => Some(a | b),
        libc::BPF_AND => Some(a & b),
        libc::BPF_LSH => Some(a.checked_shl(b)?),
        libc::BPF_RSH => Some(a.checked_shr(b)?),
        libc::BPF_XOR => Some(a ^ b),
        _ => return None,
    })
}

fn jump(i: &Instruction, mut s: State, operand: Option<u32>) -> Option<Next> {
    let kind = u32::from(i.code) & 0xf0;
    if kind == libc::BPF_JA {
        s.at = s.at.checked_add(i.k as usize)?;
        return Some(Next::One(s));
    }
    let mut otherwise = s.clone();
    s.at += usize::from(i.jt);
    otherwise.at += usize::from(i.jf);
    let (Some(a), Some(b)) = (s.a, operand) else {
        return Some(Next::Both(Box::new([s, otherwise])));
    };
    let is_true = match kind {
        libc::BPF_JEQ => a == b,
        libc::BPF_JGT => a > b,
        libc::BPF_JGE => a >= b,
        libc::BPF_JSET => a & b != 0,
        _ => return None,
    };
    Some(Next::One(if is_true { s } else { otherwise }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD_NUMBER: Instruction = statement(0x20, 0);
    const ALLOW: Instruction = statement(0x06, libc::SECCOMP_RET_ALLOW);
    const KILL: Instruction = statement(0x06, libc::SECCOMP_RET_KILL_PROCESS);
    const EPERM: Instruction = statement(0x06, libc::SECCOMP_RET_ERRNO | 1);

    const fn statement(code: u16, k: u32) -> Instruction {
        branch(code, k, 0, 0)
    }

    const fn branch(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
        Instruction { code, jt, jf, k }
    }

    fn call(number: u32, first: Option<u64>) -> Call {
        Call {
            number,
            arguments: [first, None, None, None, None, None],
        }
    }

    #[test]
    fn a_number_that_is_known_has_one_way() {
        let program = [LOAD_NUMBER, branch(0x15, 9, 0, 1), ALLOW, KILL];
        assert_eq!(actions(&program, &call(9, None)), Some(vec![Action::Allow]));
        assert_eq!(
            actions(&program, &call(10, None)),
            Some(vec![Action::Interfere])
        );
    }

    #[test]
    fn an_argument_that_is_not_known_has_both_ways() {
        let upper_half_first = [statement(0x20, 20), branch(0x15, 1, 0, 1), EPERM, ALLOW];
        let any = actions(&upper_half_first, &call(0, None)).unwrap();
        assert!(any.contains(&Action::Allow) && any.contains(&Action::Fail(1)));
        let known = call(0, Some(1 << 32));
        assert_eq!(
            actions(&upper_half_first, &known),
            Some(vec![Action::Fail(1)])
        );
    }

    #[test]
    fn bits_of_flags_are_looked_at() {
        // Fails where a bit of 0x7e020000 is set: as filters for namespaces do.
        let masked = [
            statement(0x20, 16),
            statement(0x54, 0x7e02_0000),
            branch(0x15, 0, 0, 1),
            ALLOW,
            EPERM,
        ];
        assert_eq!(
            actions(&masked, &call(272, Some(0x100))),
            Some(vec![Action::Allow])
        );
        assert_eq!(
            actions(&masked, &call(272, Some(0x1000_0000))),
            Some(vec![Action::Fail(1)])
        );
    }

    #[test]
    fn memory_and_the_index_keep_what_is_known() {
        let program = [
            LOAD_NUMBER,
            statement(0x02, 3),
            statement(0x00, 0),
            statement(0x61, 3),
            statement(0x87, 0),
            branch(0x15, 7, 0, 1),
            ALLOW,
            KILL,
        ];
        assert_eq!(actions(&program, &call(7, None)), Some(vec![Action::Allow]));
    }

    #[test]
    fn a_program_that_the_kernel_would_not_take_has_no_answer() {
        for program in [
            &[][..],
            &[LOAD_NUMBER],
            &[statement(0x20, 2), ALLOW],
            &[statement(0x20, 64), ALLOW],
            &[statement(0x02, 16), ALLOW],
            &[statement(0xffff, 0), ALLOW],
            &[branch(0x05, u32::MAX, 0, 0), ALLOW],
            &[statement(0x34, 0), ALLOW],
        ] {
            assert_eq!(actions(program, &call(1, None)), None);
        }
    }

    #[test]
    fn too_many_ways_have_no_answer() {
        // Each argument half that is tested doubles what the index may be.
        let mut program = Vec::new();
        for k in 0..40 {
            program.push(statement(0x20, 16 + k % 6 * 8));
            program.push(branch(0x15, k, 0, 1));
            program.push(statement(0x61, k % 16));
            program.push(statement(0x87, 0));
            program.push(statement(0x04, 1 << (k % 31)));
            program.push(statement(0x02, (k + 1) % 16));
        }
        program.push(ALLOW);
        assert_eq!(actions(&program, &call(1, None)), None);
    }
}
