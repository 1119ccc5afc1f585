//! What must be known of code whose calls are counted (`--count`).
//!
//! A counted call stays a call, or a jump, in the text: its slot adds one to a cell of the thread
//! and jumps to the callee (the layout is in `lib/wire/src/plan/site.rs`), so the return address is
//! the program's own and nobody who walks stacks sees a difference. The slot takes the block that
//! gs points at for its thread's own without a look. That is so but for two moments: a new thread
//! has its creator's gs, and a forked child its parent's block. So the instructions that make new
//! tasks are intercepted ([`is_creation`]: the agent looks whose thread it is behind them), and
//! what is called in a function that has one ([`Creators`]) is counted by a routine that looks.
//! Must not know how counts come to the host.

use std::collections::HashSet;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind,
    Register, RflagsBits,
};
use sptrace_addr::Svma;
use sptrace_code::{Analysis, Function};
use sptrace_image::Object;

use crate::system_calls::Interception;

/// clone, fork, vfork, clone3 (arch/x86/entry/syscalls/syscall_64.tbl).
const CREATION: [u64; 4] = [56, 57, 58, 435];
/// No window before an instruction has more.
const WINDOW_BYTES: u64 = 64;

/// Functions in which a new task may begin to run.
pub struct Creators(HashSet<u64>);

impl Creators {
    /// Those with an instruction whose number is one of a creation, or is not set just before it.
    pub fn of(object: &Object<'_>, analysis: &Analysis) -> Self {
        let calls = analysis.system_calls.iter();
        let may_create = calls.filter(|site| {
            number_before(object, site.window_start, site.address)
                .is_none_or(|number| CREATION.contains(&number))
        });
        let functions = may_create.filter_map(|site| analysis.function_at(site.address));
        let functions = functions.filter_map(|i| analysis.functions.get(i));
        Self(functions.map(|f| f.entry.0).collect())
    }

    /// Is it one?
    pub fn holds(&self, f: &Function) -> bool {
        self.0.contains(&f.entry.0)
    }
}

/// True if the instruction makes a new task.
pub fn is_creation(object: &Object<'_>, analysis: &Analysis, call: &Interception) -> bool {
    let base = object.lowest_svma().0 & !4095;
    let at = Svma(base + u64::from(call.at));
    let mut sites = analysis.system_calls.iter();
    let window = sites
        .find(|site| site.address == at)
        .map(|site| site.window_start);
    let covered = Svma(base + u64::from(call.start).min(u64::from(call.at)));
    let mut starts = window.into_iter().chain([covered]);
    starts.any(|from| {
        number_before(object, from, at).is_some_and(|number| CREATION.contains(&number))
    })
}

/// What `mov eax, imm` has last put into rax between `from`, where an instruction begins, and `at`.
/// `None`: nothing is known of it.
fn number_before(object: &Object<'_>, from: Svma, at: Svma) -> Option<u64> {
    let bytes = at.0.checked_sub(from.0).filter(|n| *n <= WINDOW_BYTES)?;
    let code = object.code_from(from)?.get(..bytes as usize)?;
    let mut factory = InstructionInfoFactory::new();
    let mut number = None;
    for i in Decoder::with_ip(64, code, from.0, DecoderOptions::NONE) {
        if let Some(constant) = constant_in_rax(&i) {
            number = Some(constant);
        } else if writes_rax(&mut factory, &i) {
            number = None;
        }
    }
    number
}

fn constant_in_rax(i: &Instruction) -> Option<u64> {
    let is_rax = matches!(i.op0_register(), Register::EAX | Register::RAX);
    let is_constant = matches!(
        i.op1_kind(),
        OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
    );
    let is_mov = i.mnemonic() == iced_x86::Mnemonic::Mov && i.op0_kind() == OpKind::Register;
    (is_mov && is_rax && is_constant).then(|| i.immediate(1))
}

fn writes_rax(factory: &mut InstructionInfoFactory, i: &Instruction) -> bool {
    let used = factory.info(i).used_registers().iter();
    let mut of_rax = used.filter(|u| u.register().full_register() == Register::RAX);
    of_rax.any(|u| !matches!(u.access(), OpAccess::Read | OpAccess::CondRead))
}

/// True if one of the instructions in `[start, end)` uses the stack pointer or leads elsewhere: it
/// cannot be executed with a return address pushed.
pub fn needs_its_stack(object: &Object<'_>, start: Svma, end: Svma) -> bool {
    let code = object.code_from(start);
    let Some(code) = code.and_then(|c| c.get(..end.0.saturating_sub(start.0) as usize)) else {
        return true;
    };
    let mut factory = InstructionInfoFactory::new();
    Decoder::with_ip(64, code, start.0, DecoderOptions::NONE)
        .into_iter()
        .any(|i| {
            let used = factory.info(&i).used_registers().iter();
            let mut used = used.map(|u| u.register().full_register());
            i.flow_control() != FlowControl::Next || used.any(|r| r == Register::RSP)
        })
}

/// What `inc` changes of the flags, all but CF.
const CHANGED: u32 =
    RflagsBits::OF | RflagsBits::SF | RflagsBits::ZF | RflagsBits::AF | RflagsBits::PF;
/// So many instructions are looked at.
const STEPS: usize = 24;

/// True if the code at `entry` certainly does not read a flag that it is entered with, but perhaps
/// CF unless `with_carry`: parts of a function that stand elsewhere, and routines in assembly, do.
pub fn flags_are_dead(object: &Object<'_>, entry: Svma, with_carry: bool) -> bool {
    let wanted = CHANGED | if with_carry { RflagsBits::CF } else { 0 };
    let mut at = entry;
    let mut changed = 0;
    for _ in 0..STEPS {
        let Some(code) = object.code_from(at) else {
            return false;
        };
        let i = Decoder::with_ip(64, code, at.0, DecoderOptions::NONE).decode();
        if i.rflags_read() & wanted & !changed != 0 {
            return false;
        }
        changed |= i.rflags_modified();
        if changed & wanted == wanted {
            return true;
        }
        at = match i.flow_control() {
            FlowControl::Next => Svma(i.next_ip()),
            FlowControl::UnconditionalBranch => Svma(i.near_branch_target()),
            // By the ABI nobody passes flags there.
            FlowControl::Call | FlowControl::IndirectCall | FlowControl::Return => return true,
            _ => return false,
        };
    }
    false
}
