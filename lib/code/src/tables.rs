//! Jump tables: recognising the forms that GCC and clang emit, and reading their entries.
//!
//! Two forms: 32-bit offsets from the table's own start (`lea base; movsxd x, [base+i*4]; add x,
//! base; jmp x`) and 64-bit addresses (`jmp [table+i*8]`, or loaded first). The number of entries
//! is taken from the comparison that guards the index when the path shows one.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind,
    Register,
};
use sptrace_addr::Svma;
use sptrace_image::{Object, ObjectKind};

use crate::history::History;

/// How many candidate tables one jump may have before it is given up.
pub(crate) const MOST_CANDIDATES: usize = 64;
/// Entries of the largest table that is believed.
const MOST_ENTRIES: u64 = 65536;
/// Larger displacements from a register are no structure offsets but addresses of tables.
const LARGEST_STRUCTURE_BYTES: u64 = 0x1_0000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableForm {
    Offsets32,
    Addresses64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Table {
    /// First entry.
    pub base: u64,
    /// What 32-bit entries are offsets from: nearly always the base itself.
    pub origin: u64,
    pub form: TableForm,
}

impl Table {
    pub fn entry_bytes(&self) -> u64 {
        match self.form {
            TableForm::Offsets32 => 4,
            TableForm::Addresses64 => 8,
        }
    }

    /// Where entry `index` points.
    pub fn target(&self, object: &Object<'_>, index: u64) -> Option<u64> {
        let slot = Svma(self.base.wrapping_add(index * self.entry_bytes()));
        match self.form {
            TableForm::Offsets32 => Some(
                self.origin
                    .wrapping_add_signed(i64::from(object.space.read_i32(slot)?)),
            ),
            TableForm::Addresses64 if object.kind == ObjectKind::Relocatable => {
                let found = object
                    .code_pointers
                    .binary_search_by_key(&slot, |p| p.slot)
                    .ok()?;
                Some(object.code_pointers[found].target.0)
            }
            TableForm::Addresses64 => object.space.read_u64(slot),
        }
    }
}

/// A jump through a table, as far as its path tells.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableQuery {
    pub jump: u64,
    pub form: TableForm,
    pub base: Option<u64>,
    /// What is added to an entry, when that is another constant than the base.
    pub origin: Option<u64>,
    /// Holds the base, if that was loaded before the path; else `None`.
    pub base_register: Register,
    pub entries: Option<u64>,
    /// Without a table it may as well be a call through an array of pointers.
    pub may_be_pointer: bool,
}

impl TableQuery {
    /// The table, if its place is known.
    pub fn table(&self) -> Option<Table> {
        let base = self.base?;
        Some(Table {
            base,
            origin: self.origin.unwrap_or(base),
            form: self.form,
        })
    }
}

#[derive(Debug)]
pub(crate) enum JumpShape {
    Table(TableQuery),
    /// Through a pointer that was loaded or passed.
    Pointer,
    /// The target is computed in a way that is not understood.
    Computed,
}

/// A table may begin here: loaded, and not code.
pub(crate) fn may_hold_table(object: &Object<'_>, svma: u64) -> bool {
    object.space.segment_at(Svma(svma)).is_some() && object.code_range_at(Svma(svma)).is_none()
}

/// Constants that point at aligned data, with the registers they are loaded into, by a linear sweep
/// of a region: good to know where tables may begin and which entries are absurd, not to know what
/// is code. `at_instruction` is told where each instruction of the sweep begins.
pub(crate) fn data_constants_in(
    object: &Object<'_>,
    start: u64,
    end: u64,
    mut at_instruction: impl FnMut(u64),
) -> Vec<(Register, u64)> {
    let Some(code) = object.code_from(Svma(start)) else {
        return Vec::new();
    };
    let code = &code[..code.len().min((end - start) as usize)];
    Decoder::with_ip(64, code, start, DecoderOptions::NONE)
        .into_iter()
        .inspect(|i| at_instruction(i.ip()))
        .filter(|i| i.mnemonic() == Mnemonic::Lea && i.is_ip_rel_memory_operand())
        .map(|i| (i.op0_register().full_register(), i.ip_rel_memory_address()))
        .filter(|(_, constant)| constant.is_multiple_of(4) && may_hold_table(object, *constant))
        .collect()
}

/// What kind of indirect jump ends the path `history` (the jump being its newest instruction).
pub(crate) fn shape_of(
    jump: &Instruction,
    history: &History,
    decode: &dyn Fn(u64) -> Option<Instruction>,
) -> JumpShape {
    let path = Path {
        newest_first: history.backwards().map_while(decode).collect(),
    };
    if jump.op0_kind() == OpKind::Memory {
        return path.memory_shape(jump, 0);
    }
    path.register_shape(jump)
}

struct Path {
    newest_first: Vec<Instruction>,
}

/// Where a register got its value.
enum Definition {
    At(usize),
    BeforePath,
    /// A call or an instruction that is not understood may have changed it.
    Lost,
}

impl Path {
    fn jump(&self) -> u64 {
        self.newest_first.first().map_or(0, Instruction::ip)
    }

    fn definition(&self, register: Register, after: usize) -> Definition {
        for (index, instruction) in self.newest_first.iter().enumerate().skip(after + 1) {
            if is_call(instruction) && !is_preserved(register) {
                return Definition::Lost;
            }
            if writes(instruction, register) {
                return Definition::At(index);
            }
        }
        Definition::BeforePath
    }

    /// A jump to, or a load of the target from, a memory operand.
    fn memory_shape(&self, load: &Instruction, at: usize) -> JumpShape {
        let (base, index) = (load.memory_base(), load.memory_index());
        if load.is_ip_rel_memory_operand() {
            return JumpShape::Pointer;
        }
        let displacement = load.memory_displacement64();
        let is_array = index != Register::None && load.memory_index_scale() == 8;
        if !is_array {
            let is_far =
                (LARGEST_STRUCTURE_BYTES..=u64::from(u32::MAX >> 1)).contains(&displacement);
            return if is_far {
                JumpShape::Computed
            } else {
                JumpShape::Pointer
            };
        }
        let (table, base_register) = match base {
            Register::None => (Some(displacement), Register::None),
            _ if displacement != 0 => (None, Register::None),
            _ => self.base(base, at),
        };
        JumpShape::Table(TableQuery {
            jump: self.jump(),
            form: TableForm::Addresses64,
            base: table,
            origin: None,
            base_register,
            entries: self.entries(index.full_register(), at),
            may_be_pointer: base != Register::None,
        })
    }

    fn register_shape(&self, jump: &Instruction) -> JumpShape {
        let mut register = jump.op0_register().full_register();
        let mut at = 0;
        loop {
            let index = match self.definition(register, at) {
                Definition::At(index) => index,
                Definition::BeforePath | Definition::Lost => return JumpShape::Pointer,
            };
            let instruction = &self.newest_first[index];
            match (instruction.mnemonic(), instruction.op1_kind()) {
                (Mnemonic::Mov, OpKind::Register) => {
                    register = instruction.op1_register().full_register();
                    at = index;
                }
                (Mnemonic::Mov, OpKind::Memory) => return self.memory_shape(instruction, index),
                (Mnemonic::Add, OpKind::Register) => {
                    let (a, b) = (instruction.op0_register(), instruction.op1_register());
                    return self.sum_shape(a, b, index);
                }
                (Mnemonic::Lea, _) if instruction.is_ip_rel_memory_operand() => {
                    return JumpShape::Pointer;
                }
                (Mnemonic::Lea, _)
                    if instruction.memory_index_scale() == 1
                        && instruction.memory_index() != Register::None
                        && instruction.memory_displacement64() == 0 =>
                {
                    let (a, b) = (instruction.memory_base(), instruction.memory_index());
                    return self.sum_shape(a, b, index);
                }
                // glibc keeps pointers mangled by xor and rotate.
                (Mnemonic::Mov | Mnemonic::Pop | Mnemonic::Xor | Mnemonic::Ror, _) => {
                    return JumpShape::Pointer;
                }
                (mnemonic, _) if is_conditional_move(mnemonic) => return JumpShape::Pointer,
                _ => return JumpShape::Computed,
            }
        }
    }

    /// `add a, b` or `lea x, [a+b]`: one is the entry, loaded by movsxd, the other the base.
    fn sum_shape(&self, a: Register, b: Register, at: usize) -> JumpShape {
        let (a, b) = (a.full_register(), b.full_register());
        for (entry, added) in [(a, b), (b, a)] {
            let Definition::At(index) = self.definition(entry, at) else {
                continue;
            };
            let load = &self.newest_first[index];
            let is_entry = load.mnemonic() == Mnemonic::Movsxd
                && load.op1_kind() == OpKind::Memory
                && load.memory_index() != Register::None;
            if !is_entry || load.memory_index_scale() != 4 {
                continue;
            }
            let Some((base, origin, base_register)) = self.base_and_origin(load, index, added, at)
            else {
                continue;
            };
            return JumpShape::Table(TableQuery {
                jump: self.jump(),
                form: TableForm::Offsets32,
                base,
                origin,
                base_register,
                entries: self.entries(load.memory_index().full_register(), index),
                may_be_pointer: false,
            });
        }
        JumpShape::Computed
    }

    /// Base, origin if another, and the base's register if it was loaded before the path.
    fn base_and_origin(
        &self,
        load: &Instruction,
        load_at: usize,
        added: Register,
        at: usize,
    ) -> Option<(Option<u64>, Option<u64>, Register)> {
        let (origin, added) = self.base(added, at);
        let displacement = load.memory_displacement64();
        if load.memory_base() == Register::None {
            return Some((Some(displacement), Some(origin?), Register::None));
        }
        let (base, base_register) = self.base(load.memory_base(), load_at);
        match (base, origin) {
            _ if displacement != 0 => None,
            (Some(base), Some(origin)) => Some((Some(base), Some(origin), Register::None)),
            (None, None) if added == base_register && added != Register::None => {
                Some((None, None, added))
            }
            _ => None,
        }
    }

    /// The constant in a base register, or the register itself when it was loaded before the path.
    fn base(&self, register: Register, at: usize) -> (Option<u64>, Register) {
        let (mut register, mut at) = (register.full_register(), at);
        loop {
            let index = match self.definition(register, at) {
                Definition::At(index) => index,
                Definition::BeforePath => return (None, register),
                Definition::Lost => return (None, Register::None),
            };
            let instruction = &self.newest_first[index];
            match (instruction.mnemonic(), instruction.op1_kind()) {
                (Mnemonic::Lea, _) if instruction.is_ip_rel_memory_operand() => {
                    return (Some(instruction.ip_rel_memory_address()), Register::None);
                }
                (
                    Mnemonic::Mov,
                    OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64,
                ) => {
                    return (Some(instruction.immediate(1)), Register::None);
                }
                (Mnemonic::Mov, OpKind::Register) => {
                    register = instruction.op1_register().full_register();
                    at = index;
                }
                _ => return (None, Register::None),
            }
        }
    }

    /// How many values the index may have, from the comparison that guards it. Its width, or a mask, says
    /// nothing: compilers leave out the entries that they hold for impossible.
    fn entries(&self, index_register: Register, at: usize) -> Option<u64> {
        let mut wanted = Operand::Register(index_register);
        let mut guards: Vec<(Mnemonic, bool)> = Vec::new();
        for at in at + 1..self.newest_first.len() {
            let instruction = &self.newest_first[at];
            if instruction.flow_control() == FlowControl::ConditionalBranch {
                let taken = instruction.next_ip() != self.newest_first[at - 1].ip();
                guards.push((instruction.mnemonic(), taken));
                continue;
            }
            if is_call(instruction) {
                return None;
            }
            if instruction.mnemonic() == Mnemonic::Cmp && wanted.is_compared_by(instruction) {
                let entries = guards
                    .iter()
                    .find_map(|(m, taken)| limit(*m, *taken, instruction));
                if entries.is_some() {
                    return entries;
                }
            }
            if instruction.rflags_modified() != 0 {
                guards.clear();
            }
            let Operand::Register(register) = wanted else {
                continue;
            };
            if !writes(instruction, register) {
                continue;
            }
            match instruction.mnemonic() {
                Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsxd => {}
                _ => return None,
            }
            wanted = match instruction.op1_kind() {
                OpKind::Register => Operand::Register(instruction.op1_register().full_register()),
                OpKind::Memory => Operand::memory(instruction),
                _ => return None,
            };
        }
        None
    }
}

/// What a guard must compare.
#[derive(PartialEq)]
enum Operand {
    Register(Register),
    Memory(Register, Register, u32, u64),
}

impl Operand {
    fn memory(instruction: &Instruction) -> Self {
        Self::Memory(
            instruction.memory_base(),
            instruction.memory_index(),
            instruction.memory_index_scale(),
            instruction.memory_displacement64(),
        )
    }

    fn is_compared_by(&self, cmp: &Instruction) -> bool {
        match cmp.op0_kind() {
            OpKind::Register => *self == Self::Register(cmp.op0_register().full_register()),
            OpKind::Memory => *self == Self::memory(cmp),
            _ => false,
        }
    }
}

/// Number of values that pass the guard after `cmp x, imm`.
fn limit(guard: Mnemonic, taken: bool, cmp: &Instruction) -> Option<u64> {
    let immediate = matches!(
        cmp.op1_kind(),
        OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
    )
    .then(|| cmp.immediate(1))?;
    let entries = match (guard, taken) {
        (Mnemonic::Ja, false) | (Mnemonic::Jbe, true) => immediate.checked_add(1)?,
        (Mnemonic::Jae, false) | (Mnemonic::Jb, true) => immediate,
        _ => return None,
    };
    (1..=MOST_ENTRIES).contains(&entries).then_some(entries)
}

fn is_call(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    )
}

/// Preserved across calls by the psABI.
fn is_preserved(register: Register) -> bool {
    matches!(
        register,
        Register::RBX
            | Register::RBP
            | Register::R12
            | Register::R13
            | Register::R14
            | Register::R15
    )
}

fn is_conditional_move(mnemonic: Mnemonic) -> bool {
    (Mnemonic::Cmova..=Mnemonic::Cmovs).contains(&mnemonic)
}

fn writes(instruction: &Instruction, register: Register) -> bool {
    let mut info = InstructionInfoFactory::new();
    info.info(instruction).used_registers().iter().any(|used| {
        used.register().full_register() == register
            && !matches!(
                used.access(),
                iced_x86::OpAccess::None
                    | iced_x86::OpAccess::Read
                    | iced_x86::OpAccess::CondRead
                    | iced_x86::OpAccess::NoMemAccess
            )
    })
}
