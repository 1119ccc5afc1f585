//! The slots of calls through pointers that keep a callee with acts
//! ([`sptrace_wire::plan::SITE_KEEPS_ACTS`]).
//!
//! Given such a call, behind what was moved before it; gives the slot's code. Must not know which
//! callee is kept.

use iced_x86::Register;
use sptrace_addr::Svma;
use sptrace_image::Object;
use sptrace_wire::plan::kept_acts::*;
use sptrace_wire::plan::{NOP, common};

use super::Builder;

/// Nops of one to eight bytes (Intel SDM, NOP).
const NOPS: [&[u8]; 8] = [
    &[0x90],
    &[0x66, 0x90],
    &[0x0f, 0x1f, 0x00],
    &[0x0f, 0x1f, 0x40, 0x00],
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
    &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
];

/// Where in its bytes an instruction with filling stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stands {
    First,
    Last,
}

impl Builder {
    /// The call through the pointer at `place`, or through a GOT slot. The stack pointer is 8 less
    /// than in the text. False: a form that has none; nothing is written then.
    pub fn keep_acts(
        &mut self,
        object: &Object<'_>,
        place: (Svma, u8),
        got_slot: Option<Svma>,
    ) -> bool {
        let (bytes, fixups) = (self.code.len(), self.fixups.len());
        // The question, from where the compare begins, lies in one aligned word.
        while (self.code.len() + (ASK - BEGIN) as usize) % 8 > 3 {
            self.code.push(NOP);
        }
        let is_made = self.compare(object, place, got_slot) && self.ask(object, place, got_slot);
        if !is_made {
            self.code.truncate(bytes);
            self.fixups.truncate(fixups);
            return false;
        }
        self.call_or_record();
        true
    }

    /// Is it the callee that is kept? Keeps all flags: rcx becomes what is left of it.
    fn compare(&mut self, object: &Object<'_>, place: (Svma, u8), got: Option<Svma>) -> bool {
        /// With two registers and the return address pushed.
        const BELOW: u64 = 24;
        // push rcx ; push rdx
        self.code.extend([0x51, 0x52]);
        let is_loaded = self.padded(Stands::First, &mut |t| {
            t.load_target(object, place, got, (Register::RCX, BELOW))
        });
        // mov rdx, [MINUS] ; lea rcx, [rcx+rdx] ; pop rdx ; jrcxz HIT ; pop rcx
        self.code.extend([0x48, 0x8b, 0x15, 0, 0, 0, 0]);
        self.code.extend([0x48, 0x8d, 0x0c, 0x11, 0x5a]);
        self.code.extend([0xe3, (HIT - POPPED_ONE + 1) as u8, 0x59]);
        is_loaded
    }

    /// Asks whether to keep it, and puts it where a call through a pointer has it.
    fn ask(&mut self, object: &Object<'_>, place: (Svma, u8), got: Option<Svma>) -> bool {
        let is_pushed = self.padded(Stands::Last, &mut |t| match got {
            Some(slot) => {
                t.push_slot(slot);
                true
            }
            None => t.push_operand_below(object, place, true),
        });
        self.call_common(common::ACTS_FIRST);
        self.code.extend(POP_TO_TOP);
        is_pushed
    }

    fn call_or_record(&mut self) {
        self.call_common(common::INDIRECT);
        self.header.entry_id = self.here();
        self.code.extend([0xff, 0x54, 0x24, 0xf8]);
        self.call_common(common::EXIT);
        self.header.exit_id = self.here();
        // push [BACK] ; ret ; HIT: pop rcx ; call [CODE] ; jmp [CALLEE]
        self.code.extend(PUSH_WORD);
        self.code.extend([0, 0, 0, 0, 0xc3, 0x59]);
        self.code.extend([0xff, 0x15, 0, 0, 0, 0]);
        self.code.extend([0xff, 0x25, 0, 0, 0, 0]);
        while !self.code.len().is_multiple_of(8) {
            self.code.push(NOP);
        }
        let words = self.code.len() as i64;
        self.code.extend([0; WORDS_BYTES]);
        let entry = i64::from(self.header.entry_id);
        // The ends of the instructions that name a word, and which of the words it is.
        let named = [(BEGIN + 18, 0), (DONE + 6, 1), (DONE, 2), (RETURN, 3)];
        for (end, word) in named {
            let end = entry + end;
            let rel = (words + 8 * word - end) as u32;
            self.code[end as usize - 4..end as usize].copy_from_slice(&rel.to_le_bytes());
        }
    }

    /// One instruction, with filling in front of it or behind. False: it is none, or too long.
    fn padded(&mut self, stands: Stands, make: &mut dyn FnMut(&mut Self) -> bool) -> bool {
        let (start, first) = (self.code.len(), self.fixups.len());
        let is_made = make(self);
        let filling = OPERAND_BYTES.checked_sub(self.code.len() - start);
        let nops = match filling {
            Some(0) => &[][..],
            Some(bytes) if is_made => NOPS[bytes - 1],
            _ => return false,
        };
        match stands {
            Stands::First => self.code.extend(nops),
            Stands::Last => {
                self.code.splice(start..start, nops.iter().copied());
                let moved = self.fixups.iter_mut().skip(first);
                moved.for_each(|fixup| fixup.position += nops.len() as u16);
            }
        }
        is_made
    }
}
