//! Where the members of the kernel's structures lie: BTF, the types that a kernel carries with it
//! (kernel: Documentation/bpf/btf.rst).
//!
//! Given the bytes of `/sys/kernel/btf/vmlinux`; gives offsets. Structures change from kernel to
//! kernel, so no offset is written down in our code. Whatever the bytes claim, nothing outside of
//! them is read, and the search ends.
//!
//! Must not know: what the members mean.

use std::collections::HashMap;

/// Where the running kernel has it.
pub const FILE: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u32 = 0xeb9f;

/// Kinds of types that have something behind their twelve bytes, and how much.
const INT: u32 = 1;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const DECL_TAG: u32 = 17;
const ENUM64: u32 = 19;

/// Offsets in bytes of the members of a structure, by name.
pub fn members(btf: &[u8], structure: &str) -> Option<HashMap<String, u64>> {
    let word = |at: usize| Some(u32::from_le_bytes(*btf.get(at..)?.first_chunk()?));
    if word(0)? & 0xffff != MAGIC {
        return None;
    }
    let head = word(4)? as usize;
    let types = head.checked_add(word(8)? as usize)?;
    let types_end = types.checked_add(word(12)? as usize)?;
    let names = head.checked_add(word(16)? as usize)?;
    let name = |offset: u32| {
        let text = btf.get(names.checked_add(offset as usize)?..)?;
        let end = text.iter().position(|b| *b == 0)?;
        std::str::from_utf8(text.get(..end)?).ok()
    };
    let mut at = types;
    while at < types_end {
        let (info, count) = (word(at + 4)?, (word(at + 4)? & 0xffff) as usize);
        let kind = info >> 24 & 31;
        let behind = match kind {
            INT | VAR | DECL_TAG => 4,
            ARRAY => 12,
            STRUCT | UNION | DATASEC | ENUM64 => 12 * count,
            ENUM | FUNC_PROTO => 8 * count,
            _ => 0,
        };
        if kind == STRUCT && name(word(at)?) == Some(structure) {
            // With this flag the upper bits say how wide a bit field is.
            let has_bit_fields = info >> 31 != 0;
            let member = |number: usize| {
                let entry = at + 12 + 12 * number;
                let bits = word(entry + 8)?;
                let bits = if has_bit_fields {
                    bits & 0xff_ffff
                } else {
                    bits
                };
                Some((name(word(entry)?)?.to_owned(), u64::from(bits / 8)))
            };
            return Some((0..count).filter_map(member).collect());
        }
        at += 12 + behind;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn btf() -> Vec<u8> {
        let names = b"\0cred\0uid\0gid\0int\0";
        let words: [u32; 14] = [
            // int: name, kind 1, size, encoding
            14,
            1 << 24,
            4,
            32, //
            // cred: two members of type 1, eight bytes
            1,
            4 << 24 | 2,
            8, //
            6,
            1,
            32,
            10,
            1,
            64,
            0,
        ];
        let types: Vec<u8> = words[..13].iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut all = vec![0x9f, 0xeb, 1, 0];
        for word in [
            24,
            0,
            types.len() as u32,
            types.len() as u32,
            names.len() as u32,
        ] {
            all.extend(word.to_le_bytes());
        }
        all.extend(types);
        all.extend(names);
        all
    }

    #[test]
    fn members_are_found() {
        let found = members(&btf(), "cred").unwrap();
        assert_eq!((found["uid"], found["gid"], found.len()), (4, 8, 2));
        assert_eq!(members(&btf(), "task_struct"), None);
    }

    #[test]
    fn cut_and_hostile_bytes_give_nothing() {
        let whole = btf();
        for length in 0..whole.len() {
            let _ = members(&whole[..length], "cred");
            let mut changed = whole.clone();
            changed[length] ^= 0xff;
            let _ = members(&changed, "cred");
        }
        assert_eq!(members(&[], "cred"), None);
    }
}
