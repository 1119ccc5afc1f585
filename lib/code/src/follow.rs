//! Following control flow inside one region.
//!
//! From given roots every instruction that control can reach is decoded once and marked; leaders,
//! calls, jumps out of the region and indirect jumps are noted. Nothing is found by linear sweep.
//! Does not decide what a function is.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};
use sptrace_addr::Svma;
use sptrace_image::{Object, ObjectKind};

use crate::bits::CodeBits;
use crate::history::History;
use crate::regions::{Region, Seen, region_at, region_starting_at};
use crate::sweep::Sweep;
use crate::tables::{self, JumpShape, JumpTable, Origin, Table, TableQuery};

/// How control passes from one region to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EdgeKind {
    Jump,
    Conditional,
    Table,
    Fall,
    /// Past the end of the region after a call: real only when the call returns.
    FallAfterCall,
}

/// Control that leaves a region other than by a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    pub target: u64,
    pub from: u64,
    pub kind: EdgeKind,
}

/// An indirect jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum IndirectJump {
    /// All its targets are known.
    Table,
    /// It looks like a table or computes its target, and could not be resolved.
    Unresolved,
    /// It jumps through a pointer.
    Pointer,
    /// It jumps through an array of addresses, of which it is not known where it lies. In the frame
    /// of a function these are its labels, else it is a call.
    Array,
}

/// A table that waits for all regions to be seen, since only then its end is known.
#[derive(Debug, Clone)]
pub(crate) struct PendingTable {
    pub jump: u64,
    pub tables: Vec<tables::Table>,
}

/// What a thread gathers while it follows regions.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Targets of calls, but not of those to the next instruction.
    pub calls: Vec<u64>,
    pub edges: Vec<Edge>,
    /// Addresses of code that instructions form.
    pub code_constants: Vec<u64>,
    /// Aligned addresses of data that instructions form: where tables may begin.
    pub data_constants: Vec<u64>,
    pub indirect_jumps: Vec<(u64, IndirectJump)>,
    pub pending: Vec<PendingTable>,
    /// Tables whose length is known.
    pub tables: Vec<JumpTable>,
    pub seen: Vec<(u64, Seen)>,
    /// Bytes of the instructions that were decoded.
    pub followed_bytes: u64,
}

/// What all threads share.
pub(crate) struct Context<'a, 'data> {
    pub object: &'a Object<'data>,
    pub regions: &'a [Region],
    /// Starts of reached instructions.
    pub reached: &'a CodeBits,
    /// Addresses that control may come to other than from the instruction before.
    pub leaders: &'a CodeBits,
    /// Functions that never return, sorted.
    pub noreturn: &'a [u64],
    /// Where instructions begin.
    pub sweep: &'a Sweep,
}

impl Context<'_, '_> {
    /// Whether a call instruction is known not to return.
    pub fn is_noreturn_call(&self, call: &Instruction) -> bool {
        if call.is_call_near() {
            return self
                .noreturn
                .binary_search(&call.near_branch_target())
                .is_ok();
        }
        call.is_ip_rel_memory_operand()
            && self
                .object
                .slot_name(Svma(call.ip_rel_memory_address()))
                .is_some_and(crate::noreturn::is_noreturn_import)
    }
}

/// Follows `region` from `roots`; roots outside it or already reached cost nothing.
pub(crate) fn follow(
    context: &Context<'_, '_>,
    region: &Region,
    roots: impl IntoIterator<Item = u64>,
    found: &mut Found,
) {
    let Some(range) = context.object.code_range_at(Svma(region.start)) else {
        return;
    };
    let mut walk = Walk {
        context,
        region,
        decoder: Decoder::with_ip(64, range.bytes, range.start.0, DecoderOptions::NONE),
        range_start: range.start.0,
        stack: Vec::new(),
        bases: Vec::new(),
        labels: Vec::new(),
        queries: Vec::new(),
        table_budget: TABLE_BUDGET + (region.end - region.start) as usize,
        seen: Seen::default(),
        found,
    };
    for root in roots {
        if walk.contains(root) {
            walk.lead(root);
            walk.run_from(root, History::default());
        }
    }
    walk.resolve_late();
    let seen = walk.seen;
    found.seen.push((region.start, seen));
}

/// Table entries that may be read for one region beyond one for each of its bytes.
const TABLE_BUDGET: usize = 65536;

struct Walk<'a, 'c, 'data> {
    context: &'a Context<'c, 'data>,
    region: &'a Region,
    decoder: Decoder<'data>,
    range_start: u64,
    stack: Vec<(u64, History)>,
    /// `lea register, [rip+data]` seen so far: candidates for a table's base.
    bases: Vec<(Register, u64)>,
    /// `lea register, [rip+code]` into the region itself: what a table's offsets may count from.
    labels: Vec<(Register, u64)>,
    /// Indirect jumps whose table base was not on their path.
    queries: Vec<TableQuery>,
    table_budget: usize,
    seen: Seen,
    found: &'a mut Found,
}

impl Walk<'_, '_, '_> {
    fn contains(&self, svma: u64) -> bool {
        (self.region.start..self.region.end).contains(&svma)
    }

    fn bit(&self, svma: u64) -> u64 {
        svma.wrapping_add(self.region.delta)
    }

    fn lead(&self, svma: u64) {
        self.context.leaders.set(self.bit(svma));
    }

    fn edge(&mut self, from: u64, target: u64, kind: EdgeKind) {
        self.found.edges.push(Edge { target, from, kind });
    }

    fn run_from(&mut self, root: u64, history: History) {
        self.stack.push((root, history));
        while let Some((svma, history)) = self.stack.pop() {
            self.run_path(svma, history);
        }
    }

    fn run_path(&mut self, start: u64, mut history: History) {
        if self.context.reached.get(self.bit(start)) {
            return;
        }
        if self
            .decoder
            .set_position((start - self.range_start) as usize)
            .is_err()
        {
            return;
        }
        self.decoder.set_ip(start);
        let mut instruction = Instruction::default();
        let mut svma = start;
        loop {
            if self.context.reached.set(self.bit(svma)) {
                return;
            }
            self.decoder.decode_out(&mut instruction);
            self.found.followed_bytes += instruction.len() as u64;
            if instruction.is_invalid() || instruction.next_ip() > self.region.end {
                self.seen.broken_paths += 1;
                return;
            }
            history.push(svma);
            let Some(kind) = self.step(&instruction, &history) else {
                return;
            };
            svma = instruction.next_ip();
            if svma >= self.region.end {
                self.edge(instruction.ip(), svma, kind);
                return;
            }
        }
    }

    /// Takes in one instruction; gives how control goes on to the next one, if it does.
    fn step(&mut self, instruction: &Instruction, history: &History) -> Option<EdgeKind> {
        match instruction.flow_control() {
            FlowControl::Next => {
                self.note_plain(instruction);
                // A program never goes on after hlt.
                (instruction.mnemonic() != Mnemonic::Hlt).then_some(EdgeKind::Fall)
            }
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                if instruction.op0_kind() == OpKind::NearBranch64 {
                    let target = instruction.near_branch_target();
                    self.branch(instruction.ip(), target, EdgeKind::Conditional, history);
                }
                Some(EdgeKind::Fall)
            }
            FlowControl::UnconditionalBranch => {
                let target = instruction.near_branch_target();
                self.branch(instruction.ip(), target, EdgeKind::Jump, history);
                None
            }
            FlowControl::Call => self.call(instruction),
            FlowControl::IndirectCall => {
                self.note_memory(instruction);
                let returns = !self.context.is_noreturn_call(instruction);
                returns.then_some(EdgeKind::FallAfterCall)
            }
            FlowControl::IndirectBranch => {
                self.indirect_jump(instruction, history);
                None
            }
            FlowControl::Return => {
                self.seen.returns = true;
                self.seen.pops |= instruction.op_count() > 0 && instruction.immediate(0) != 0;
                None
            }
            FlowControl::Interrupt => {
                let goes_on = !matches!(instruction.code(), Code::Int3 | Code::Int1);
                goes_on.then_some(EdgeKind::Fall)
            }
            FlowControl::Exception => None,
        }
    }

    /// iced counts syscall and its kin as calls.
    fn call(&mut self, instruction: &Instruction) -> Option<EdgeKind> {
        if !instruction.is_call_near() {
            return Some(EdgeKind::Fall);
        }
        let target = instruction.near_branch_target();
        if target == instruction.next_ip() {
            return Some(EdgeKind::Fall);
        }
        if target == 0 {
            // Of a weak symbol that nobody defines; a test of its address leads around it.
            return Some(EdgeKind::FallAfterCall);
        }
        if !self.is_sensible_callee(target) && !self.is_shared_part(instruction.ip(), target) {
            self.seen.broken_paths += 1;
            return None;
        }
        self.found.calls.push(target);
        if self.contains(target) {
            self.lead(target);
        }
        let returns = !self.context.is_noreturn_call(instruction);
        returns.then_some(EdgeKind::FallAfterCall)
    }

    /// Compiled code calls nothing in the middle of another function, or outside the image: what
    /// does is no code, but what a misread table or data in the text led to.
    fn is_sensible_callee(&self, target: u64) -> bool {
        let object = self.context.object;
        let Some(range) = object.code_range_at(Svma(target)) else {
            return false;
        };
        let Some(fde) = object.unwind.fde_at(Svma(target)) else {
            return true;
        };
        range.is_plt
            || fde.start.0 == target
            || self.region.fde_start == Some(fde.start.0)
            || region_starting_at(self.context.regions, target).is_some()
            || object.plt_stub_at(Svma(target)).is_some()
    }

    /// Assembler calls a part of another function (aesni_ctr32_encrypt_blocks of OpenSSL the loop
    /// of _aesni_encrypt6). Of both the linear sweep must know: it does not come upon the nonsense
    /// that a misread table leads to in the middle of instructions.
    fn is_shared_part(&self, call: u64, target: u64) -> bool {
        let begins = |region: &Region, svma: u64| {
            let sweep = &self.context.sweep;
            sweep.begins_at(self.context.object, region, svma)
        };
        let around = region_at(self.context.regions, target);
        let around = around.map(|index| &self.context.regions[index]);
        around.is_some_and(|around| {
            around.fde_start.is_some() && begins(around, target) && begins(self.region, call)
        })
    }

    fn branch(&mut self, from: u64, target: u64, kind: EdgeKind, history: &History) {
        if self.contains(target) {
            self.lead(target);
            if !self.context.reached.get(self.bit(target)) {
                self.stack.push((target, *history));
            }
        } else {
            self.edge(from, target, kind);
        }
    }

    fn note_plain(&mut self, instruction: &Instruction) {
        let frame = &mut self.seen.frame;
        match instruction.mnemonic() {
            Mnemonic::Lea => {
                if instruction.is_ip_rel_memory_operand() {
                    let constant = instruction.ip_rel_memory_address();
                    self.note_constant(constant, instruction.op0_register());
                } else if instruction.op0_register() == Register::RSP {
                    frame.lowers_rsp = true;
                } else {
                    self.note_memory(instruction);
                }
                return;
            }
            Mnemonic::Push => frame.pushes = frame.pushes.saturating_add(1),
            Mnemonic::Sub | Mnemonic::And | Mnemonic::Add
                if instruction.op0_register() == Register::RSP =>
            {
                self.note_frame(instruction);
            }
            Mnemonic::Enter => frame.lowers_rsp = true,
            Mnemonic::Mov
                if instruction.op0_register() == Register::RBP
                    && instruction.op1_register() == Register::RSP =>
            {
                frame.sets_rbp = true;
            }
            Mnemonic::Mov
                if instruction.op0_register().is_gpr64()
                    && instruction.memory_index() == Register::None =>
            {
                let displacement = instruction.memory_displacement64();
                match instruction.memory_base() {
                    Register::RSP if (1024..1 << 31).contains(&displacement) => {
                        frame.farthest_load_bytes = frame.farthest_load_bytes.max(displacement);
                    }
                    Register::RSP if displacement < 1024 => {
                        frame.loads_from_rsp |= 1 << (displacement / 8);
                    }
                    Register::RBP if displacement == 8 => frame.loads_above_rbp = true,
                    _ => {}
                }
            }
            Mnemonic::Wrgsbase => {
                self.seen.uses_gs = true;
                self.seen.sets_gs = true;
            }
            _ => {}
        }
        self.note_memory(instruction);
        if self.context.object.kind == ObjectKind::Fixed {
            self.note_immediate(instruction);
        }
    }

    /// An instruction that changes the stack pointer: by how much it is lowered.
    fn note_frame(&mut self, instruction: &Instruction) {
        let frame = &mut self.seen.frame;
        let is_known = is_immediate(instruction.op1_kind());
        let constant = if is_known {
            instruction.immediate(1) as i64
        } else {
            0
        };
        let lowered_bytes = match instruction.mnemonic() {
            // 128 bytes are taken so: the immediate has one byte then.
            Mnemonic::Add if constant < 0 => constant.unsigned_abs(),
            Mnemonic::Add => return,
            // A negative one raises it.
            Mnemonic::Sub => u64::try_from(constant).unwrap_or(0),
            _ => 0,
        };
        frame.lowers_rsp = true;
        frame.lowered_bytes = frame.lowered_bytes.saturating_add(lowered_bytes);
    }

    fn note_memory(&mut self, instruction: &Instruction) {
        if instruction.segment_prefix() == Register::GS && instruction.mnemonic() != Mnemonic::Nop {
            self.seen.uses_gs = true;
        }
        let displacement = instruction.memory_displacement64() as i64;
        match instruction.memory_base() {
            // Of an array in the frame, the element before the one that is counted to.
            Register::RSP
                if instruction.memory_index() != Register::None
                    && (-i64::from(instruction.memory_index_scale())..0)
                        .contains(&displacement) =>
            {
                self.seen.element_below_rsp = true;
            }
            Register::RSP
                if displacement < 0 && !self.is_go_idiom(instruction) && !is_fence(instruction) =>
            {
                self.seen.below_rsp = true;
            }
            Register::RBP if displacement < 0 => {
                let frame = &mut self.seen.frame;
                frame.deepest_bytes = frame.deepest_bytes.max(displacement.unsigned_abs());
            }
            _ => {}
        }
    }

    /// Go's compiler compares how far a frame would reach with the end of the stack, and keeps rbp
    /// below the word that calls of `runtime.duffzero` and `runtime.duffcopy` push (its source,
    /// `cmd/internal/obj/x86`: `stacksplit`, and `ADUFFZERO` in `preprocess`); these calls are left
    /// alone (`lib/patch`). It keeps nothing else there.
    fn is_go_idiom(&self, instruction: &Instruction) -> bool {
        let go_code = &self.context.object.go_code;
        let is_kept_rbp = instruction.op1_register() == Register::RBP
            && instruction.memory_displacement64() as i64 == -16;
        let is_idiom = match instruction.mnemonic() {
            Mnemonic::Lea => true,
            Mnemonic::Mov => is_kept_rbp,
            _ => false,
        };
        is_idiom && go_code.contains(&Svma(instruction.ip()))
    }

    /// In a fixed image addresses are immediates too.
    fn note_immediate(&mut self, instruction: &Instruction) {
        for operand in 0..instruction.op_count() {
            let kind = instruction.op_kind(operand);
            if matches!(
                kind,
                OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
            ) {
                self.note_constant(instruction.immediate(operand), instruction.op0_register());
            }
        }
    }

    fn note_constant(&mut self, constant: u64, register: Register) {
        let object = self.context.object;
        if self.contains(constant) {
            self.lead(constant);
            self.labels.push((register.full_register(), constant));
            if object.keeps_stack_maps {
                // A handler of exceptions (OCaml): nothing else tells where it begins, and jumps of
                // it lead back into the function.
                self.stack.push((constant, History::default()));
            }
        }
        if object.code_range_at(Svma(constant)).is_some() {
            self.found.code_constants.push(constant);
        } else if constant.is_multiple_of(4) && tables::may_hold_table(object, constant) {
            self.found.data_constants.push(constant);
            self.bases.push((register.full_register(), constant));
        }
    }

    fn indirect_jump(&mut self, instruction: &Instruction, history: &History) {
        let svma = instruction.ip();
        let decode = |svma: u64| {
            let bytes = self.context.object.code_from(Svma(svma))?;
            let mut decoder = Decoder::with_ip(
                64,
                &bytes[..bytes.len().min(15)],
                svma,
                DecoderOptions::NONE,
            );
            Some(decoder.decode())
        };
        match tables::shape_of(instruction, history, &decode) {
            JumpShape::Pointer => {
                self.seen.leaves_indirectly = true;
                self.found
                    .indirect_jumps
                    .push((svma, IndirectJump::Pointer));
            }
            JumpShape::Computed => self.unresolved(svma),
            JumpShape::Table(query) => match self.resolve_bounded(&query) {
                Some(targets) => {
                    self.found.indirect_jumps.push((svma, IndirectJump::Table));
                    for target in targets {
                        self.branch(svma, target, EdgeKind::Table, &History::default());
                    }
                }
                None => self.queries.push(query),
            },
        }
    }

    fn unresolved(&mut self, svma: u64) {
        self.seen.leaves_indirectly = true;
        self.found
            .indirect_jumps
            .push((svma, IndirectJump::Unresolved));
    }

    /// The targets of a table whose place and length the path tells, if every one is sensible.
    fn resolve_bounded(&mut self, query: &TableQuery) -> Option<Vec<u64>> {
        let (base, entries) = (query.base?, query.entries? as usize);
        if entries > self.table_budget || entries == 0 {
            return None;
        }
        self.table_budget -= entries;
        let origin = match query.origin {
            Origin::Table => base,
            Origin::Label(label) => label,
            Origin::LabelIn(_) => return None,
        };
        let form = query.form;
        let table = Table { base, origin, form };
        let targets: Vec<u64> = (0..entries as u64)
            .map(|index| table.target(self.context.object, index))
            .map(|target| target.filter(|t| self.is_sensible_target(*t)))
            .collect::<Option<_>>()?;
        // Pointers to functions only are no switch.
        let is_switch = targets
            .iter()
            .any(|t| !tables::is_entry(self.context.regions, *t));
        if is_switch {
            self.found.tables.push(JumpTable {
                jump: query.jump,
                table,
                entries: entries as u32,
            });
        }
        is_switch.then_some(targets)
    }

    fn is_sensible_target(&self, target: u64) -> bool {
        let (object, regions) = (self.context.object, self.context.regions);
        let is_sensible = self.contains(target)
            || tables::is_foreign_target(regions, target)
            || tables::is_entry(regions, target);
        let begins = |index: usize| {
            let region: &Region = &regions[index];
            self.context.sweep.begins_at(object, region, target)
        };
        is_sensible && region_at(regions, target).is_some_and(begins)
    }

    /// Jumps whose base register was loaded elsewhere in the region wait with all candidates.
    fn resolve_late(&mut self) {
        for query in std::mem::take(&mut self.queries) {
            let bases = match query.base {
                Some(base) => vec![base],
                None => candidates(&self.bases, query.base_register),
            };
            let form = query.form;
            if bases.is_empty() && query.may_be_pointer {
                self.seen.leaves_indirectly = true;
                self.found
                    .indirect_jumps
                    .push((query.jump, IndirectJump::Array));
            } else if bases.is_empty() {
                self.unresolved(query.jump);
            } else {
                self.seen.computed_gotos |= query.origin != Origin::Table;
                let tables = bases
                    .into_iter()
                    .flat_map(|base| {
                        let origins = match query.origin {
                            Origin::Table => vec![base],
                            Origin::Label(label) => vec![label],
                            Origin::LabelIn(register) => candidates(&self.labels, register),
                        };
                        let table = move |origin| Table { base, origin, form };
                        origins.into_iter().map(table)
                    })
                    .collect();
                self.found.pending.push(PendingTable {
                    jump: query.jump,
                    tables,
                });
            }
        }
    }
}

/// Constants that the register was set to, in order.
fn candidates(constants: &[(Register, u64)], register: Register) -> Vec<u64> {
    let own = constants.iter().filter(|(r, _)| *r == register);
    let mut found: Vec<u64> = own.map(|(_, constant)| *constant).collect();
    found.sort_unstable();
    found.dedup();
    found.truncate(tables::MOST_CANDIDATES);
    found
}

/// `lock or [rsp-64], 0`: clang's fence. What it changes nothing of is not kept there.
fn is_fence(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Or
        && instruction.has_lock_prefix()
        && instruction.op1_kind() == OpKind::Immediate8to32
        && instruction.immediate(1) == 0
}

fn is_immediate(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Immediate8to64 | OpKind::Immediate32to64 | OpKind::Immediate64
    )
}
