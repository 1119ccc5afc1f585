//! Jump tables: recognising the forms that GCC and clang emit, and reading their entries.
//!
//! Two forms: 32-bit offsets from an origin (`lea base; movsxd x, [base+i*4]; add x, base; jmp x`)
//! and 64-bit addresses (`jmp [table+i*8]`, or loaded first). The origin is the table's own start,
//! or a label of the function where the source computes gotos from differences of labels (glibc's
//! vfprintf-internal.c). The number of entries is taken from the comparison that guards the index
//! when the path shows one.

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};
use sptrace_addr::Svma;
use sptrace_image::{Object, ObjectKind};

use crate::history::History;
use crate::regions::{Region, region_at};

/// How many candidate tables one jump may have before it is given up.
pub(crate) const MOST_CANDIDATES: usize = 8;
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
    pub base: u64,
    /// What 32-bit offsets count from.
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

/// A table that a jump goes through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JumpTable {
    pub jump: u64,
    pub table: Table,
    pub entries: u32,
}

/// A jump through a table, as far as its path tells.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableQuery {
    pub jump: u64,
    pub form: TableForm,
    pub base: Option<u64>,
    /// Holds the base, if that was loaded before the path; else `None`.
    pub base_register: Register,
    pub origin: Origin,
    pub entries: Option<u64>,
    /// Without a table it may as well be a call through an array of pointers.
    pub may_be_pointer: bool,
}

/// What the offsets of a table count from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The table's own start.
    Table,
    Label(u64),
    /// A label that this register was set to before the path.
    LabelIn(Register),
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

/// The start of a region that looks like a function, which a moved part without a frame also does.
pub(crate) fn is_entry(regions: &[Region], target: u64) -> bool {
    region_at(regions, target)
        .is_some_and(|index| regions[index].start == target && regions[index].entry_like)
}

/// A place in another region that is no function's entry: what a table may point at.
pub(crate) fn is_foreign_target(regions: &[Region], target: u64) -> bool {
    region_at(regions, target)
        .is_some_and(|index| regions[index].start != target || !regions[index].entry_like)
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
        if load.is_ip_rel_memory_operand() || self.leaves_frame(at) {
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
            base_register,
            origin: Origin::Table,
            entries: self.entries(index.full_register(), at),
            may_be_pointer: base != Register::None,
        })
    }

    /// The frame is taken down between instruction `at` and the jump: no switch does that.
    fn leaves_frame(&self, at: usize) -> bool {
        self.newest_first.iter().take(at).any(|i| {
            i.mnemonic() == Mnemonic::Pop
                || matches!(i.mnemonic(), Mnemonic::Add | Mnemonic::Leave)
                    && (i.mnemonic() == Mnemonic::Leave || i.op0_register() == Register::RSP)
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
            if self.leaves_frame(index) {
                return JumpShape::Pointer;
            }
            match (instruction.mnemonic(), instruction.op1_kind()) {
                (Mnemonic::Mov, OpKind::Register) => {
                    register = instruction.op1_register().full_register();
                    at = index;
                }
                (Mnemonic::Mov, OpKind::Memory) => return self.memory_shape(instruction, index),
                (Mnemonic::Add, OpKind::Register) => return self.sum_shape(instruction, index),
                (Mnemonic::Lea, _) if instruction.is_ip_rel_memory_operand() => {
                    return JumpShape::Pointer;
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

    /// `add a, b`: one is the entry, loaded by movsxd, the other the base.
    fn sum_shape(&self, add: &Instruction, at: usize) -> JumpShape {
        let (a, b) = (
            add.op0_register().full_register(),
            add.op1_register().full_register(),
        );
        for (entry, base) in [(a, b), (b, a)] {
            let Definition::At(index) = self.definition(entry, at) else {
                continue;
            };
            let load = &self.newest_first[index];
            let is_entry = load.mnemonic() == Mnemonic::Movsxd
                && load.op1_kind() == OpKind::Memory
                && load.memory_index_scale() == 4
                && load.memory_displacement64() == 0
                && load.memory_index() != Register::None;
            if !is_entry {
                continue;
            }
            let (table, base_register) = self.base(load.memory_base(), index);
            let origin = match self.base(base, at) {
                same if same == (table, base_register) => Origin::Table,
                (Some(label), _) => Origin::Label(label),
                (None, Register::None) => continue,
                (None, register) => Origin::LabelIn(register),
            };
            return JumpShape::Table(TableQuery {
                jump: self.jump(),
                form: TableForm::Offsets32,
                base: table,
                base_register,
                origin,
                entries: self.entries(load.memory_index().full_register(), index),
                may_be_pointer: false,
            });
        }
        // The entry was loaded elsewhere and kept (perl's S_maybe_multideref): the constant may be
        // the table's start all the same, if its entries make sense.
        let constants = [self.base(a, at).0, self.base(b, at).0];
        if let [Some(table), None] | [None, Some(table)] = constants {
            return JumpShape::Table(TableQuery {
                jump: self.jump(),
                form: TableForm::Offsets32,
                base: Some(table),
                base_register: Register::None,
                origin: Origin::Table,
                entries: None,
                may_be_pointer: false,
            });
        }
        JumpShape::Computed
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

    /// How many values the index may have, from the comparison or mask that guards it.
    fn entries(&self, index_register: Register, at: usize) -> Option<u64> {
        let mut wanted = Operand::Register(index_register);
        let mut by_width = None;
        let mut guards: Vec<(Mnemonic, bool)> = Vec::new();
        for at in at + 1..self.newest_first.len() {
            let instruction = &self.newest_first[at];
            if instruction.flow_control() == FlowControl::ConditionalBranch {
                let taken = instruction.next_ip() != self.newest_first[at - 1].ip();
                guards.push((instruction.mnemonic(), taken));
                continue;
            }
            if is_call(instruction) {
                return by_width;
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
            let source_bytes = match instruction.op1_kind() {
                OpKind::Register => instruction.op1_register().size(),
                OpKind::Memory => instruction.memory_size().size(),
                _ => 0,
            };
            match instruction.mnemonic() {
                Mnemonic::And => return mask_entries(instruction).or(by_width),
                Mnemonic::Movzx if source_bytes == 1 => by_width = Some(256),
                Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsxd => {}
                _ => return by_width,
            }
            wanted = match instruction.op1_kind() {
                OpKind::Register => Operand::Register(instruction.op1_register().full_register()),
                OpKind::Memory => Operand::memory(instruction),
                _ => return by_width,
            };
        }
        by_width
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

fn mask_entries(and: &Instruction) -> Option<u64> {
    let is_immediate = !matches!(and.op1_kind(), OpKind::Register | OpKind::Memory);
    let entries = is_immediate.then(|| and.immediate(1))?.checked_add(1)?;
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
