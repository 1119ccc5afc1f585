//! Slots for everything but plain direct calls: their code, and what depends on addresses.
//!
//! ```text
//!   [moved instructions]              those before a short call
//!   push OPERAND                      the operand of the call or jump
//!   call indirect | tail_indirect     records, takes the id off; the operand is left below rsp
//!   call|jmp [rsp-8]
//!   call exit ; jmp back              calls only
//! ```
//! `push` evaluates a stack-relative operand before it moves rsp (Intel SDM, PUSH), so any operand
//! of a call can be pushed as it is. Direct jumps: `call tail_first ; jmp TARGET`. What lies below
//! rsp between the two instructions is inside the red zone, which signals respect.

use iced_x86::{
    Code, Decoder, DecoderOptions, Encoder, Instruction, MemoryOperand, Mnemonic, OpKind, Register,
};
use sptrace_addr::Svma;
use sptrace_image::Object;
use sptrace_wire::plan::{
    CALL, Fixup, FixupKind, HOOK_ENTRY, HOOK_ENTRY_ID, INC_GS, JUMP, JUMP_BYTES, NOP, RETURN_ENTRY,
    Room, SYSTEM_CALL_ALONE, SYSTEM_CALL_ALONE_ID, SYSTEM_CALL_UNSEEN, Template, TemplateView,
    common, kept_order,
};

mod kept_acts;

use crate::movable::movable;
use crate::special::HookRange;

/// How control goes on behind moved instructions, if not to the next one: by the last of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onward {
    /// It returns, by an instruction of so many bytes.
    Return {
        /// The instruction's.
        bytes: usize,
    },
    /// It jumps, by an instruction of so many bytes.
    Jump {
        /// The instruction's.
        bytes: usize,
        /// To this place.
        target: Svma,
    },
}

/// A template being written.
#[derive(Default)]
pub struct Builder {
    code: Vec<u8>,
    fixups: Vec<Fixup>,
    header: Template,
    base_svma: u64,
    /// Moved instructions that make room.
    room: Option<(Room, Vec<u8>)>,
}

impl Builder {
    /// Empty; offsets count from `base_svma`.
    pub fn new(base_svma: Svma) -> Self {
        Self {
            base_svma: base_svma.0,
            ..Self::default()
        }
    }

    /// Filling, so that the next instruction's rel32 (after `opcode_bytes`) is wirable: inside one
    /// aligned 8-byte word; and the id behind it in another word than that of a return before it,
    /// since readers of records tell ids apart by words.
    fn align_rel32(&mut self) {
        let is_near = |code: &[u8], id: u16| id != 0 && (code.len() + 5) / 8 == usize::from(id) / 8;
        while (self.code.len() + 1) % 8 > 4 || is_near(&self.code, self.header.exit_id) {
            self.code.push(NOP);
        }
    }

    fn rel32(&mut self, kind: FixupKind, value: i32) {
        self.fixups.push(Fixup {
            position: self.here(),
            to_end: 4,
            kind,
            value,
        });
        self.code.extend([0; 4]);
    }

    /// Offset in the slot of what comes next.
    pub(crate) fn here(&self) -> u16 {
        self.code.len() as u16
    }

    fn call_common(&mut self, routine: i32) {
        self.code.push(CALL);
        self.rel32(FixupKind::Common, routine);
    }

    fn branch_to_text(&mut self, opcode: u8, target: Svma) {
        self.code.push(opcode);
        self.rel32(
            FixupKind::Text,
            target.0.wrapping_sub(self.base_svma) as i32,
        );
    }

    /// Copies an instruction, keeping what its rip-relative operand points at.
    fn copy(&mut self, instruction: &Instruction, decoder: &Decoder<'_>, bytes: &[u8]) {
        let start = self.code.len();
        self.code.extend(bytes);
        if instruction.is_ip_rel_memory_operand() {
            let at = decoder
                .get_constant_offsets(instruction)
                .displacement_offset();
            let value = instruction
                .ip_rel_memory_address()
                .wrapping_sub(self.base_svma) as i32;
            self.fixups.push(Fixup {
                position: (start + at) as u16,
                to_end: (bytes.len() - at) as u8,
                kind: FixupKind::Text,
                value,
            });
        }
    }

    /// Moves the plain instructions and conditional jumps in `[start, end)`. False: one of them
    /// cannot be moved.
    pub fn relocate(&mut self, object: &Object<'_>, start: Svma, end: Svma) -> bool {
        let Some(code) = object
            .code_from(start)
            .and_then(|c| c.get(..(end.0 - start.0) as usize))
        else {
            return false;
        };
        let mut decoder = Decoder::with_ip(64, code, start.0, DecoderOptions::NONE);
        while decoder.can_decode() {
            let at = decoder.position();
            let i = decoder.decode();
            if i.is_jcc_short_or_near() {
                self.conditional_jump(&i);
                continue;
            }
            if !movable(&i) {
                return false;
            }
            self.copy(&i, &decoder, &code[at..decoder.position()]);
        }
        decoder.position() == code.len()
    }

    /// Conditional jumps become `0f 8x rel32`, whatever their length was.
    fn conditional_jump(&mut self, jcc: &Instruction) {
        let condition = jcc.condition_code() as u8 - iced_x86::ConditionCode::o as u8;
        self.code.push(0x0f);
        self.branch_to_text(0x80 + condition, Svma(jcc.near_branch_target()));
    }

    /// What was moved so far is the run before the call or jump.
    pub fn end_of_moved(&mut self) {
        self.header.moved = self.here();
    }

    /// `push` of the operand of the indirect call or jump at `site`. False: a form that has none.
    pub fn push_operand(&mut self, object: &Object<'_>, site: Svma, length: u8) -> bool {
        let Some(code) = object
            .code_from(site)
            .and_then(|c| c.get(..usize::from(length)))
        else {
            return false;
        };
        let mut decoder = Decoder::with_ip(64, code, site.0, DecoderOptions::NONE);
        let i = decoder.decode();
        if !matches!(i.mnemonic(), Mnemonic::Call | Mnemonic::Jmp)
            || i.op0_kind() == OpKind::Register && i.op0_register() == Register::RSP
        {
            return false;
        }
        let mut bytes = code.to_vec();
        // Prefixes, then ff /2 or /4: the register field of the ModRM byte becomes 6.
        let Some(opcode) = bytes.iter().position(|b| *b == 0xff) else {
            return false;
        };
        let prefixes_ok = bytes[..opcode]
            .iter()
            .all(|b| matches!(b, 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0xf2 | 0x40..=0x4f));
        let Some(modrm) = bytes.get_mut(opcode + 1) else {
            return false;
        };
        if !prefixes_ok || !matches!(*modrm >> 3 & 7, 2 | 4) {
            return false;
        }
        *modrm = *modrm & 0xc7 | 6 << 3;
        // `bnd` means nothing to push: without the prefix the displacement moves, so it is kept
        // only where it does no harm.
        if bytes[0] == 0xf2 {
            bytes[0] = 0x3e;
        }
        self.copy(&i, &decoder, &bytes);
        true
    }

    /// `push` of the operand of the indirect call or jump at `site`, whose stack pointer is 8 less
    /// than in the text if a return address was pushed. False: a form that has none.
    pub fn push_operand_below(
        &mut self,
        object: &Object<'_>,
        (site, length): (Svma, u8),
        has_return_address: bool,
    ) -> bool {
        let Some(i) = instruction_at(object, site, length) else {
            return false;
        };
        let is_on_stack = i.op0_kind() == OpKind::Memory && i.memory_base() == Register::RSP;
        if !is_on_stack || !has_return_address {
            return self.push_operand(object, site, length);
        }
        let operand = operand_of(&i, 8);
        let is_call = matches!(i.code(), Code::Call_rm64 | Code::Jmp_rm64);
        let push = Instruction::with1(Code::Push_rm64, operand);
        let Some(push) = push.ok().filter(|_| is_call) else {
            return false;
        };
        let mut encoder = Encoder::new(64);
        if encoder.encode(&push, 0).is_err() {
            return false;
        }
        self.code.extend(encoder.take_buffer());
        true
    }

    /// Pushes an address of the module; keeps all registers and flags.
    pub fn push_address(&mut self, svma: Svma) {
        // lea rsp, [rsp-8] ; push rax ; lea rax, [rip+ADDRESS] ; mov [rsp+8], rax ; pop rax
        self.code
            .extend([0x48, 0x8d, 0x64, 0x24, 0xf8, 0x50, 0x48, 0x8d, 0x05]);
        self.rel32(FixupKind::Text, svma.0.wrapping_sub(self.base_svma) as i32);
        self.code.extend([0x48, 0x89, 0x44, 0x24, 0x08, 0x58]);
    }

    /// Counts the call or jump through the pointer at `site`, or through a GOT slot, and makes it.
    /// The stack pointer is 8 less than in the text if a return address was pushed. False: a form
    /// that has none.
    pub fn count_kept(
        &mut self,
        object: &Object<'_>,
        place: (Svma, u8),
        got_slot: Option<Svma>,
        has_return_address: bool,
    ) -> bool {
        let below = if has_return_address { 8 } else { 0 };
        if !self.load_target(object, place, got_slot, (Register::R11, below)) {
            return false;
        }
        // cmp r11, [rip+CALLEE] ; jne MISS
        let compare = self.code.len();
        self.code.extend([0x4c, 0x3b, 0x1d, 0, 0, 0, 0, 0x75, 12]);
        self.code.extend(INC_GS);
        self.code.extend([0; 4]);
        self.code.extend([0x41, 0xff, 0xe3]);
        self.code.extend([0x41, 0x53]);
        self.finish_counted(common::COUNT_INDIRECT);
        while !self.code.len().is_multiple_of(8) {
            self.code.push(NOP);
        }
        let rel = (self.code.len() - (compare + 7)) as u32;
        self.code[compare + 3..compare + 7].copy_from_slice(&rel.to_le_bytes());
        self.code.extend([0; 8]);
        true
    }

    /// `mov REGISTER, OPERAND` of the call or jump at `place`, or the content of a GOT slot, where
    /// the stack pointer is so much less than in the text. False: a form that has none.
    pub(crate) fn load_target(
        &mut self,
        object: &Object<'_>,
        place: (Svma, u8),
        got_slot: Option<Svma>,
        to: (Register, u64),
    ) -> bool {
        let Some(slot) = got_slot else {
            return self.load_operand(object, place, to);
        };
        self.load_word(to.0, slot);
        true
    }

    /// `mov REGISTER, [rip+SLOT]`, of rcx or r11.
    fn load_word(&mut self, register: Register, slot: Svma) {
        self.code.extend(match register {
            Register::RCX => [0x48, 0x8b, 0x0d],
            _ => [0x4c, 0x8b, 0x1d],
        });
        self.rel32(FixupKind::Text, slot.0.wrapping_sub(self.base_svma) as i32);
    }

    /// `mov REGISTER, OPERAND`.
    fn load_operand(
        &mut self,
        object: &Object<'_>,
        (site, length): (Svma, u8),
        (register, below): (Register, u64),
    ) -> bool {
        let Some(i) = instruction_at(object, site, length) else {
            return false;
        };
        if !matches!(i.code(), Code::Call_rm64 | Code::Jmp_rm64) {
            return false;
        }
        if i.is_ip_rel_memory_operand() {
            if i.segment_prefix() != Register::None {
                return false;
            }
            self.load_word(register, Svma(i.ip_rel_memory_address()));
            return true;
        }
        let load = match i.op0_kind() {
            OpKind::Register if i.op0_register() == Register::RSP => return false,
            OpKind::Register => Instruction::with2(Code::Mov_r64_rm64, register, i.op0_register()),
            _ => {
                let is_on_stack = i.memory_base() == Register::RSP;
                let operand = operand_of(&i, if is_on_stack { below } else { 0 });
                Instruction::with2(Code::Mov_r64_rm64, register, operand)
            }
        };
        let mut encoder = Encoder::new(64);
        let is_encoded = load.is_ok_and(|load| encoder.encode(&load, 0).is_ok());
        self.code.extend(encoder.take_buffer());
        is_encoded
    }

    /// The counting of what was pushed, or its record, by a routine, and the jump there: the return
    /// address stands above it.
    pub fn finish_counted(&mut self, routine: i32) {
        self.call_common(routine);
        self.header.entry_id = self.here();
        self.code.extend([0xff, 0x64, 0x24, 0xf8]);
    }

    /// What has been pushed from here on ([`Self::here`]) may be looked at before that
    /// ([`kept_order`]).
    pub fn may_keep_in_order(&self, pushed_from: u16) -> bool {
        let push = self.code.get(usize::from(pushed_from)..).unwrap_or(&[]);
        kept_order::Operand::of_push(push).is_some()
    }

    /// One byte behind the jump says that the end of the call is seen elsewhere, as long as it is
    /// not [`sptrace_wire::plan::END_UNSEEN`].
    pub fn end_is_seen(&mut self) {
        self.code.push(NOP);
    }

    /// `push` of a GOT slot's content.
    pub fn push_slot(&mut self, slot: Svma) {
        self.code.extend([0xff, 0x35]);
        self.rel32(FixupKind::Text, slot.0.wrapping_sub(self.base_svma) as i32);
    }

    /// The call of what was pushed, its exit and the way back.
    pub fn finish_indirect_call(&mut self, back: Svma) {
        self.call_common(common::INDIRECT);
        self.header.entry_id = self.here();
        self.code.extend([0xff, 0x54, 0x24, 0xf8]);
        self.finish_exit(back);
    }

    fn finish_exit(&mut self, back: Svma) {
        self.call_common(common::EXIT);
        self.header.exit_id = self.here();
        self.branch_to_text(JUMP, back);
    }

    /// A direct call that is no plain `e8 rel32` (prefixes).
    pub fn direct_call(&mut self, target: Svma, back: Svma) {
        self.align_rel32();
        self.call_common(common::FIRST);
        self.header.entry_id = self.here();
        self.branch_to_text(CALL, target);
        self.finish_exit(back);
    }

    /// The event of a return. Which call's it is gets said when the slots have their places
    /// ([`call_of_return`]).
    pub fn return_of_other(&mut self, routine: i32) {
        self.code.extend([0; RETURN_ENTRY as usize]);
        self.call_common(routine);
        self.header.exit_id = self.here();
    }

    /// The event of a return, and what stands behind the call ([`crate::return_points`]). False:
    /// an instruction there cannot be moved.
    pub fn return_point(
        &mut self,
        object: &Object<'_>,
        (start, end): (Svma, Svma),
        onward: Option<Onward>,
    ) -> bool {
        self.return_of_other(common::RETURN);
        let last_bytes = match onward {
            Some(Onward::Return { bytes } | Onward::Jump { bytes, .. }) => bytes as u64,
            None => 0,
        };
        let last = Svma(end.0 - last_bytes);
        if !self.relocate(object, start, last) {
            return false;
        }
        match onward {
            None => self.branch_to_text(JUMP, end),
            Some(Onward::Jump { target, .. }) => self.branch_to_text(JUMP, target),
            Some(Onward::Return { bytes }) => {
                let code = object.code_from(last).and_then(|code| code.get(..bytes));
                self.code.extend(code.unwrap_or(&[]));
                return code.is_some();
            }
        }
        true
    }

    /// The jump to what was pushed.
    pub fn finish_indirect_tail(&mut self) {
        self.call_common(common::TAIL_INDIRECT);
        self.header.entry_id = self.here();
        self.code.extend([0xff, 0x64, 0x24, 0xf8]);
    }

    /// A direct jump to another function, or an entry-only call.
    pub fn direct_jump(&mut self, routine: i32, target: Svma) {
        self.align_rel32();
        self.call_common(routine);
        self.header.entry_id = self.here();
        self.branch_to_text(JUMP, target);
    }

    /// The instruction that calls the kernel, between two events (see [`crate::system_calls`]).
    pub fn system_call(&mut self, back: Svma) {
        const BELOW_RED_ZONE: [u8; 5] = [0x48, 0x8d, 0x64, 0x24, 0x80];
        const ABOVE_RED_ZONE: [u8; 8] = [0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0];
        const SYSCALL: [u8; 2] = [0x0f, 0x05];
        // mov rcx, rax ; jrcxz over the call of the routine
        const IF_NOT_CHILD: [u8; 5] = [0x48, 0x89, 0xc1, 0xe3, 18];
        self.code.extend(BELOW_RED_ZONE);
        self.call_common(common::SYSTEM_CALL);
        self.header.entry_id = self.here();
        self.code.extend(ABOVE_RED_ZONE);
        self.code.extend(SYSCALL);
        self.code.extend(BELOW_RED_ZONE);
        self.call_common(common::SYSTEM_RETURN);
        self.header.exit_id = self.here();
        let exit = u64::from(self.header.exit_id);
        self.code.extend(ABOVE_RED_ZONE);
        self.branch_to_text(JUMP, back);
        debug_assert_eq!(u64::from(self.here()), exit + SYSTEM_CALL_ALONE);
        self.code.extend(ABOVE_RED_ZONE);
        self.code.extend(SYSCALL);
        self.code.extend(IF_NOT_CHILD);
        self.code.extend(BELOW_RED_ZONE);
        self.call_common(common::SYSTEM_RETURN);
        debug_assert_eq!(u64::from(self.here()), exit + SYSTEM_CALL_ALONE_ID);
        self.code.extend(ABOVE_RED_ZONE);
        self.branch_to_text(JUMP, back);
        debug_assert_eq!(u64::from(self.here()), exit + SYSTEM_CALL_UNSEEN);
        self.code.extend(ABOVE_RED_ZONE);
        self.code.extend(SYSCALL);
        self.branch_to_text(JUMP, back);
    }

    /// The interception of a function's entry: `prologue` is moved here.
    pub fn special(&mut self, object: &Object<'_>, start: Svma, end: Svma) -> bool {
        self.call_common(common::SPECIAL);
        self.header.entry_id = self.here();
        if !self.relocate(object, start, end) {
            return false;
        }
        self.branch_to_text(JUMP, end);
        true
    }

    /// The interception of a function's entry that may be all of the function.
    pub fn whole_special(&mut self, object: &Object<'_>, range: &HookRange) -> bool {
        if range.ret_bytes == 0 {
            return self.special(object, range.start, range.moved_end);
        }
        self.call_common(common::SPECIAL);
        self.header.entry_id = self.here();
        let is_moved = self.relocate(object, range.start, range.moved_end);
        let end = object.code_from(range.moved_end);
        let end = end.and_then(|code| code.get(..range.ret_bytes));
        self.code.extend(end.unwrap_or(&[]));
        is_moved && end.is_some()
    }

    /// The hook at a function's entry: its return, the interception, what was moved. `is_ruled`:
    /// its calls turn rules.
    pub fn hook(&mut self, object: &Object<'_>, range: &HookRange, is_ruled: bool) -> bool {
        self.code.extend([0x48, 0x8d, 0x64, 0x24, 0xf8]);
        self.call_common(common::HOOK_EXIT);
        self.header.exit_id = self.here();
        self.code.push(0xc3);
        debug_assert_eq!(self.code.len() as u64, HOOK_ENTRY);
        self.call_common(match is_ruled {
            true => common::HOOK_RULED,
            false => common::HOOK,
        });
        self.header.entry_id = self.here();
        debug_assert_eq!(u64::from(self.header.entry_id), HOOK_ENTRY_ID);
        if !self.relocate(object, range.start, range.moved_end) {
            return false;
        }
        match (range.leads_to, object.code_from(range.moved_end)) {
            (Some(slot), _) => {
                if let Some(back) = range.pushes {
                    self.push_address(back);
                }
                self.code.push(JUMP);
                self.rel32(FixupKind::Area, slot as i32);
            }
            (None, Some(code)) if range.ret_bytes > 0 => {
                self.code.extend(&code[..range.ret_bytes]);
            }
            _ => self.branch_to_text(JUMP, range.moved_end),
        }
        true
    }

    /// True if nothing is in the slot yet.
    pub fn is_empty(&self) -> bool {
        self.code.is_empty()
    }

    /// Bytes of the slot.
    pub fn slot_bytes(&self) -> u32 {
        self.code.len() as u32
    }

    /// Offsets of the entry and exit ids.
    pub fn ids(&self) -> (u16, u16) {
        (self.header.entry_id, self.header.exit_id)
    }

    /// The long jump stands in a springboard, at this distance from the site's two-byte jump.
    pub fn set_springboard(&mut self, distance: i8) {
        self.header.springboard = distance;
    }

    /// Moves the instructions in `room` behind the slot's own code, so that the long jump of the
    /// two-byte jump at `site` can stand five bytes after their start. False: one of them cannot be
    /// moved, or they are out of reach.
    pub fn make_room(&mut self, object: &Object<'_>, room: (Svma, Svma), site: Svma) -> bool {
        let distance = (room.0.0 + JUMP_BYTES as u64).wrapping_sub(site.0 + 2) as i64;
        let bytes = object
            .code_from(room.0)
            .and_then(|c| c.get(..(room.1.0 - room.0.0) as usize));
        let (Ok(distance), Some(bytes)) = (i8::try_from(distance), bytes) else {
            return false;
        };
        let Ok(length) = u8::try_from(bytes.len()) else {
            return false;
        };
        self.header.room_to = self.here();
        if !self.relocate(object, room.0, room.1) {
            return false;
        }
        self.branch_to_text(JUMP, room.1);
        self.header.springboard = distance;
        let room = Room {
            back: JUMP_BYTES as u8,
            bytes: length,
        };
        self.room = Some((room, bytes.to_vec()));
        true
    }

    /// The template's bytes; `original` must be found in the text before it is used.
    pub fn finish(self, original: &[u8]) -> Vec<u8> {
        let head = Template {
            code_bytes: self.here(),
            fixups: self.fixups.len() as u16,
            original_bytes: original.len() as u8,
            ..self.header
        };
        let mut out = head.to_bytes().to_vec();
        out.extend(original);
        if let Some((room, bytes)) = self.room {
            out.extend(room.to_bytes());
            out.extend(bytes);
        }
        out.extend(&self.code);
        out.extend(self.fixups.iter().flat_map(|r| r.to_bytes()));
        out
    }
}

/// Says in the template of a return point that its call's entry id lies so far from its own.
pub fn call_of_return(template: &mut [u8], distance: i32) {
    let code = TemplateView::read(template).map(|t| {
        let room = t.room.map_or(0, |(_, moved)| Room::BYTES + moved.len());
        Template::BYTES + t.original.len() + room
    });
    let place = code.and_then(|at| template.get_mut(at..at + size_of::<i32>()));
    if let Some(place) = place {
        place.copy_from_slice(&distance.to_le_bytes());
    }
}

/// True if a call through the pointer at `site` leaves r11 to nobody, as the ABI has it (psABI
/// 3.2.1). Who calls a descriptor of thread-local storage goes on using it.
pub fn leaves_r11(object: &Object<'_>, (site, length): (Svma, u8)) -> bool {
    const CALL_AT_RAX: [u8; 2] = [0xff, 0x10];
    let code = object.code_from(site);
    let code = code.and_then(|code| code.get(..usize::from(length)));
    !object.has_tls_descriptors || code.is_some_and(|code| code != CALL_AT_RAX)
}

/// The instruction at `site`. `None`: the code ends before it does.
fn instruction_at(object: &Object<'_>, site: Svma, length: u8) -> Option<Instruction> {
    let code = object.code_from(site)?.get(..usize::from(length))?;
    Some(Decoder::with_ip(64, code, site.0, DecoderOptions::NONE).decode())
}

/// The memory operand of an instruction, `below` bytes higher.
fn operand_of(i: &Instruction, below: u64) -> MemoryOperand {
    /// What the encoder calls a displacement of 8 or 32 bits in 64-bit code; 0: there is none.
    const OF_64_BITS: u32 = 8;
    let displacement = i.memory_displacement64().wrapping_add(below);
    let has_none = i.memory_displ_size() == 0 && below == 0;
    MemoryOperand::new(
        i.memory_base(),
        i.memory_index(),
        i.memory_index_scale(),
        displacement as i64,
        if has_none { 0 } else { OF_64_BITS },
        false,
        i.segment_prefix(),
    )
}
