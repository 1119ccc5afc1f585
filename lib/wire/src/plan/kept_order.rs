//! The slot of a call through a pointer that is recorded in order and keeps a callee.
//!
//! It is that of a site of [`super::SITE_KEEPS_CALLEE`] and [`super::SITE_IN_ORDER`], and records
//! the call by itself if that is of the callee that it keeps, which reads no flag. The template has
//! the slot of any other pointer, in which the agent has a jump in the place of the push, and puts
//! what that leads to behind it. Offsets from the id; no register is changed, and no flag before
//! that callee is known to be called:
//!
//! ```text
//!        [moved instructions] ; [push of the return address]
//!        jmp  LOOK                      else: push OPERAND
//!   -5   call ORDER_INDIRECT            the id points behind it
//!        jmp  [rsp-8]
//!   +4   LOOK: push rcx ; push rdx
//!   +6   mov  rdx, OPERAND              nine bytes, with filling behind it
//!  +15   mov  rcx, [MINUS] ; lea rcx, [rcx+rdx] ; jrcxz HIT
//!  +28   pop  rdx ; pop rcx
//!  +30   ASK: push OPERAND              nine bytes, with filling behind it
//!  +39   jmp  -5
//!  +41   HIT: mov [rsp-8], rdx
//!  +46   mov  ecx, 12 ; xadd gs:[cursor], rcx
//!  +61   cmp  rcx, gs:[limit] ; jae FULL
//!  +72   mov  dword [rcx+4], id ; mov [rcx+8], edx ; lea edx, [rsp+8] ; mov [rcx], edx
//!  +88   pop  rdx ; pop rcx
//!  +90   jmp  [rsp-24]
//!  +94   FULL: pop rdx ; pop rcx ; jmp ASK
//!        MINUS:  8 bytes, aligned: the callee with the other sign, or FREE or STOPPED
//! ```

/// Where the jump in the place of the push leads to.
pub const LOOK: u64 = 4;
/// Both registers are pushed.
pub const LOAD: u64 = 6;
/// Behind that.
pub const COMPARE: u64 = 15;
/// It is another callee.
pub const MISS: u64 = 28;
/// Neither register is pushed any more.
pub const ASK: u64 = 30;
/// What is called is pushed, and the routine is to be called.
pub const PUSHED: u64 = 39;
/// It is the callee that is kept, and in rdx.
pub const HIT: u64 = 41;
/// From here on it also stands below both registers, where no handler writes (System V ABI, 3.2.2).
pub const HELD: u64 = 46;
/// The record is reserved in front of this, at rcx.
pub const RESERVED: u64 = 61;
/// The id, as a number of 32 bits.
pub const NUMBER: u64 = 75;
/// The record is complete.
pub const WRITTEN: u64 = 88;
/// The jump to the callee.
pub const JUMP: u64 = 90;
/// Where there was no room for a record.
pub const FULL: u64 = 94;
/// The jump to ASK.
pub const BACK: u64 = 96;
/// Behind all instructions: the word lies at the next multiple of 8.
pub const END: u64 = 98;
/// Bytes of the instructions with the operand, with their filling.
pub const OPERAND_BYTES: usize = 9;
/// Bytes of a slot behind those of its template, at most.
pub const BYTES: u32 = 112;
/// `push rcx ; push rdx` (Intel SDM, PUSH).
pub const PUSH_TWO: [u8; 2] = [0x51, 0x52];
/// `pop rdx ; pop rcx` (Intel SDM, POP).
pub const POP_TWO: [u8; 2] = [0x5a, 0x59];
/// `mov rcx, [MINUS]` but for its displacement (Intel SDM, MOV).
pub const LOAD_MINUS: [u8; 3] = [0x48, 0x8b, 0x0d];
/// Behind that instruction.
pub const MINUS_NAMED: u64 = COMPARE + 7;
/// `lea rcx, [rcx+rdx] ; jrcxz HIT` (Intel SDM, LEA, Jcc).
pub const ADD: [u8; 6] = [0x48, 0x8d, 0x0c, 0x11, 0xe3, (HIT - MISS) as u8];
/// `mov [rsp-8], rdx ; mov ecx, 12 ; xadd gs:[CURSOR], rcx` but for the displacement (Intel SDM,
/// MOV, XADD).
pub const RESERVE: [u8; 16] = [
    0x48, 0x89, 0x54, 0x24, 0xf8, 0xb9, 12, 0, 0, 0, 0x65, 0x48, 0x0f, 0xc1, 0x0c, 0x25,
];
/// `jae FULL ; mov dword [rcx+4], id` but for the id (Intel SDM, Jcc, MOV): it comes first, so that
/// a record that is never completed says how long it is.
pub const WRITE_ID: [u8; 5] = [0x73, 22, 0xc7, 0x41, 4];
/// `mov [rcx+8], edx ; lea edx, [rsp+8] ; mov [rcx], edx` (Intel SDM, MOV, LEA).
pub const WRITE: [u8; 9] = [0x89, 0x51, 8, 0x8d, 0x54, 0x24, 8, 0x89, 0x11];
/// `jmp [rsp-24]` (Intel SDM, JMP).
pub const JUMP_HELD: [u8; 4] = [0xff, 0x64, 0x24, 0xe8];
/// A slot that does not keep the callee that is called asks its routine, which has the agent look
/// whether it should where a record lies at a place that has none of these bits: one or two of
/// some thousand.
pub const LOOKED_AT: u32 = 0x3ff0;
/// What MINUS is as long as no callee is kept: no address has it with the other sign.
pub const FREE: u64 = 1 << 63;
/// The same, and none is to be kept any more.
pub const STOPPED: u64 = (1 << 63) + 1;

/// The operand of a `push`, as other instructions have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    bytes: [u8; OPERAND_BYTES],
    length: usize,
    is_relative: bool,
}

impl Operand {
    /// What these bytes push. `None`: they are no `push r/m64` without prefixes but REX (Intel SDM,
    /// PUSH), or the stack pointer says what.
    pub fn of_push(push: &[u8]) -> Option<Self> {
        const PUSH: u8 = 6;
        const OF_STACK: u8 = 4;
        let is_rex = |byte: &u8| byte & 0xf0 == 0x40;
        let (rex, push) = match push {
            [rex, rest @ ..] if is_rex(rex) => (*rex, rest),
            all => (0, all),
        };
        let [0xff, modrm, rest @ ..] = push else {
            return None;
        };
        let (mode, low, is_high) = (modrm >> 6, modrm & 7, rex & 1 != 0);
        let base = match (mode, low, rest) {
            (0..=2, 4, [sib, ..]) => sib & 7,
            _ => low,
        };
        let is_of_stack = base == OF_STACK && !is_high;
        if modrm >> 3 & 7 != PUSH || is_of_stack || 3 + rest.len() > OPERAND_BYTES {
            return None;
        }
        let mut bytes = [0; OPERAND_BYTES];
        let all = [0x40 | rex & 0xf, 0xff, *modrm];
        let all = all.iter().chain(rest);
        bytes.iter_mut().zip(all).for_each(|(to, byte)| *to = *byte);
        Some(Self {
            bytes,
            length: 3 + rest.len(),
            is_relative: (mode, low) == (0, 5),
        })
    }

    /// `mov rdx, OPERAND` at `at` (Intel SDM, MOV), with filling, if the push ends at `push_end`.
    pub fn load(self, push_end: u64, at: u64) -> [u8; OPERAND_BYTES] {
        const RDX: u8 = 2;
        let Self { mut bytes, .. } = self;
        let [rex, opcode, modrm, ..] = &mut bytes;
        *rex |= 8;
        *opcode = 0x8b;
        *modrm = *modrm & 0xc7 | RDX << 3;
        self.filled(bytes, push_end, at)
    }

    /// `push OPERAND`, with filling, the same.
    pub fn push(self, push_end: u64, at: u64) -> [u8; OPERAND_BYTES] {
        self.filled(self.bytes, push_end, at)
    }

    fn filled(self, mut bytes: [u8; OPERAND_BYTES], push_end: u64, at: u64) -> [u8; OPERAND_BYTES] {
        let end = self.length;
        let by = (at + end as u64).wrapping_sub(push_end);
        if let Some(rel32) = bytes.get_mut(end.wrapping_sub(4)..end)
            && self.is_relative
        {
            let mut old = [0; 4];
            old.copy_from_slice(rel32);
            let new = u32::from_le_bytes(old).wrapping_sub(by as u32);
            rel32.copy_from_slice(&new.to_le_bytes());
        }
        // One nop, with prefixes (Intel SDM, NOP).
        if let Some((last, prefixes)) = bytes.get_mut(end..).and_then(<[u8]>::split_last_mut) {
            prefixes.fill(0x66);
            *last = 0x90;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_is_loaded() {
        // push [rip+0x100] ; push [rax+8] ; push r12 ; push [r8+rcx*8+0x10]
        let of = |push: &[u8]| Operand::of_push(push).map(|operand| operand.load(100, 109));
        assert_eq!(
            of(&[0xff, 0x35, 0, 1, 0, 0]),
            Some([0x48, 0x8b, 0x15, 0xf0, 0, 0, 0, 0x66, 0x90])
        );
        assert_eq!(
            of(&[0xff, 0x70, 8]),
            Some([0x48, 0x8b, 0x50, 8, 0x66, 0x66, 0x66, 0x66, 0x90])
        );
        assert_eq!(
            of(&[0x41, 0xff, 0xf4]),
            Some([0x49, 0x8b, 0xd4, 0x66, 0x66, 0x66, 0x66, 0x66, 0x90])
        );
        assert_eq!(
            of(&[0x41, 0xff, 0x74, 0xc8, 0x10]),
            Some([0x49, 0x8b, 0x54, 0xc8, 0x10, 0x66, 0x66, 0x66, 0x90])
        );
        let again =
            Operand::of_push(&[0xff, 0x35, 0, 1, 0, 0]).map(|operand| operand.push(100, 109));
        assert_eq!(again, Some([0x40, 0xff, 0x35, 0xf0, 0, 0, 0, 0x66, 0x90]));
    }

    #[test]
    fn what_the_stack_pointer_says_and_other_instructions_are_not_taken() {
        let refused: [&[u8]; 7] = [
            &[0xff, 0x74, 0x24, 8],
            &[0xff, 0x34, 0x24],
            &[0xff, 0xf4],
            &[0xff, 0x10],
            &[0x64, 0xff, 0x30],
            &[0x50],
            &[],
        ];
        for push in refused {
            assert_eq!(Operand::of_push(push), None, "{push:x?}");
        }
        // r12 as the base.
        assert!(Operand::of_push(&[0x41, 0xff, 0x74, 0x24, 8]).is_some());
    }
}
