//! For the tests of templates: small ELF images made of given code, and templates read from a plan,
//! shown as text or loaded at fake addresses as the agent does it.

#![allow(dead_code, reason = "each test file uses a part")]

use sptrace_addr::Svma;
use sptrace_wire::plan::{FixupKind, PlanView, TemplateView, common};

/// Where the code of [`elf`] begins.
pub const CODE: u64 = 0x40_1000;

/// Names of the common routines by number.
const ROUTINES: [&str; common::COUNT] = [
    "ENTRY",
    "EXIT",
    "INDIRECT",
    "TAIL",
    "TAIL_INDIRECT",
    "FIRST",
    "TAIL_FIRST",
    "SPECIAL",
    "ENTRY_ONLY",
    "ENTRY_ONLY_FIRST",
    "HOOK",
    "HOOK_EXIT",
    "SYSTEM_CALL",
    "SYSTEM_RETURN",
    "COUNT_FIRST",
    "COUNT_INDIRECT",
    "ORDER_FIRST",
    "ORDER_INDIRECT",
    "ORDER_FULL",
    "ACTS_FIRST",
    "ENTRY_PLACED",
    "INDIRECT_PLACED",
    "HOOK_RULED",
    "KEPT",
    "KEPT_FIRST",
    "KEPT_INDIRECT",
    "RETURN",
    "RETURN_IN_CALL",
    "KEPT_IN_LANE",
    "KEPT_INDIRECT_IN_LANE",
    "RETURN_IN_LANE",
    "RETURN_IN_CALL_IN_LANE",
];

/// A program with one executable segment at [`CODE`] and no sections.
pub fn elf(code: &[u8]) -> Vec<u8> {
    let mut out = b"\x7fELF\x02\x01\x01".to_vec();
    out.resize(16, 0);
    out.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    for word in [CODE, 64, 0] {
        out.extend(word.to_le_bytes());
    }
    out.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    out.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    let length = code.len() as u64;
    for word in [0x1000, CODE, CODE, length, length, 0x1000] {
        out.extend(word.to_le_bytes());
    }
    out.resize(0x1000, 0);
    out.extend(code);
    out
}

/// Bytes written as hex digits, spaces ignored.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    digits
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// One fixup.
#[derive(Clone, Copy, Debug)]
pub struct ReadFixup {
    pub position: usize,
    pub to_end: usize,
    pub kind: FixupKind,
    pub value: i32,
}

/// A template taken apart.
#[derive(Clone, Debug)]
pub struct ReadTemplate {
    pub original: Vec<u8>,
    pub code: Vec<u8>,
    pub fixups: Vec<ReadFixup>,
    pub entry_id: usize,
    pub exit_id: usize,
    pub moved: usize,
    /// Where instructions that made room were moved to, or 0.
    pub room_to: usize,
    /// Their original bytes.
    pub room: Vec<u8>,
    /// How far before the springboard they began.
    pub room_back: u8,
    /// Where the springboard lies, from the end of the two-byte jump.
    pub springboard: i8,
}

impl ReadTemplate {
    /// The template that `argument` of a site or special names.
    pub fn of_plan(view: PlanView<'_>, argument: u32) -> Self {
        Self::from(view.template(argument).unwrap())
    }

    /// The template at the start of `bytes`.
    pub fn read(bytes: &[u8]) -> Self {
        Self::from(TemplateView::read(bytes).unwrap())
    }

    fn from(t: TemplateView<'_>) -> Self {
        let fixups = t.fixups().map(|f| ReadFixup {
            position: usize::from(f.position),
            to_end: usize::from(f.to_end),
            kind: f.kind,
            value: f.value,
        });
        Self {
            original: t.original.to_vec(),
            code: t.code.to_vec(),
            fixups: fixups.collect(),
            entry_id: usize::from(t.head.entry_id),
            exit_id: usize::from(t.head.exit_id),
            room_to: usize::from(t.head.room_to),
            room: t.room.map_or(Vec::new(), |room| room.1.to_vec()),
            room_back: t.room.map_or(0, |room| room.0.back),
            springboard: t.head.springboard,
            moved: usize::from(t.head.moved),
        }
    }

    /// The code in hex, each rel32 as `<svma>` or `<ROUTINE>`.
    pub fn show(&self, base: Svma) -> String {
        let mut words = Vec::new();
        let mut at = 0;
        while at < self.code.len() {
            if let Some(f) = self.fixups.iter().find(|f| f.position == at) {
                words.push(match f.kind {
                    FixupKind::Common => format!("<{}>", ROUTINES[f.value as usize]),
                    FixupKind::Text => {
                        format!("<{:x}>", base.0.wrapping_add_signed(i64::from(f.value)))
                    }
                    other => panic!("fixup of kind {other:?}"),
                });
                at += 4;
            } else {
                words.push(format!("{:02x}", self.code[at]));
                at += 1;
            }
        }
        words.join(" ")
    }

    /// The code as it is written to `slot` (AVMA) for a module whose `base_svma` lies at `base`.
    ///
    /// # Panics
    /// A target is out of reach.
    pub fn load(&self, base: u64, slot: u64, area: u64) -> Vec<u8> {
        let mut code = self.code.clone();
        for f in &self.fixups {
            let target = match f.kind {
                FixupKind::Text => base.wrapping_add_signed(i64::from(f.value)),
                FixupKind::Common => routine(area, f.value),
                other => panic!("fixup of kind {other:?}"),
            };
            let next = slot + (f.position + f.to_end) as u64;
            let rel32 = i32::try_from(target.wrapping_sub(next) as i64).expect("within 2 GiB");
            code[f.position..f.position + 4].copy_from_slice(&rel32.to_le_bytes());
        }
        code
    }
}

/// Fake address of a common routine.
pub fn routine(area: u64, number: i32) -> u64 {
    area + 0x40 * number as u64
}
