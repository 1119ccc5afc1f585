//! Where the members of the kernel's structures lie, and what its functions take: BTF, the types
//! that a kernel carries with it (kernel: Documentation/bpf/btf.rst).
//!
//! Given the bytes of `/sys/kernel/btf/vmlinux`; gives offsets, and prototypes in the words that
//! `lib/types` reads. Structures change from kernel to kernel, so no offset is written down in our
//! code. Whatever the bytes claim, nothing outside of them is read, and the search ends.
//!
//! Must not know: what members and parameters mean.

use std::collections::HashMap;

/// Where the running kernel has it.
pub const FILE: &str = "/sys/kernel/btf/vmlinux";
/// What is said where it has none.
pub const ABSENT: &str = "this kernel does not say what its functions take (CONFIG_DEBUG_INFO_BTF)";
const MAGIC: u32 = 0xeb9f;

/// Kinds of types that have something behind their twelve bytes, and how much.
const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;
/// Encodings of whole numbers.
const IS_SIGNED: u32 = 1;
const IS_BOOL: u32 = 4;
/// Names around a type.
const MOST_NAMES: usize = 32;
/// Parameters that a prototype may have.
const MOST_PARAMETERS: usize = 16;

/// Bytes that a type of this kind has behind its first twelve.
fn behind(kind: u32, count: usize) -> usize {
    match kind {
        INT | VAR | DECL_TAG => 4,
        ARRAY => 12,
        STRUCT | UNION | DATASEC | ENUM64 => 12 * count,
        ENUM | FUNC_PROTO => 8 * count,
        _ => 0,
    }
}

/// All types of a kernel.
#[derive(Debug)]
pub struct Types {
    btf: Vec<u8>,
    /// Where each begins; the first has the number 1.
    places: Vec<usize>,
    /// Where the names begin.
    names: usize,
    /// Types of functions, by name.
    functions: HashMap<String, u32>,
}

/// A type's first words.
#[derive(Clone, Copy)]
struct Head {
    at: usize,
    name: u32,
    kind: u32,
    count: usize,
    /// Its size, or the type that it refers to.
    word: u32,
}

impl Types {
    /// Those of the running kernel. `None`: it has none.
    pub fn read() -> Option<Self> {
        Self::new(std::fs::read(FILE).ok()?)
    }

    /// From their bytes.
    pub fn new(btf: Vec<u8>) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(*btf.get(at..)?.first_chunk()?));
        if word(0)? & 0xffff != MAGIC {
            return None;
        }
        let head = word(4)? as usize;
        let mut at = head.checked_add(word(8)? as usize)?;
        let end = at.checked_add(word(12)? as usize)?.min(btf.len());
        let names = head.checked_add(word(16)? as usize)?;
        let mut places = Vec::new();
        while at < end {
            let info = word(at.checked_add(4)?)?;
            places.push(at);
            at += 12 + behind(info >> 24 & 31, (info & 0xffff) as usize);
        }
        let mut types = Self {
            btf,
            places,
            names,
            functions: HashMap::new(),
        };
        let all = 1..=types.places.len() as u32;
        let heads = all.filter_map(|id| types.head(id));
        let functions = heads.filter(|head| head.kind == FUNC);
        let named = functions.filter_map(|f| Some((types.name(f.name)?.to_owned(), f.word)));
        types.functions = named.collect();
        Some(types)
    }

    fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.btf.get(at..)?.first_chunk()?))
    }

    fn name(&self, offset: u32) -> Option<&str> {
        let text = self.btf.get(self.names.checked_add(offset as usize)?..)?;
        let end = text.iter().position(|b| *b == 0)?;
        std::str::from_utf8(text.get(..end)?).ok()
    }

    fn head(&self, id: u32) -> Option<Head> {
        let at = *self.places.get((id as usize).checked_sub(1)?)?;
        let info = self.word(at + 4)?;
        Some(Head {
            at,
            name: self.word(at)?,
            kind: info >> 24 & 31,
            count: (info & 0xffff) as usize,
            word: self.word(at + 8)?,
        })
    }

    /// What stands behind names and qualifiers, and is it constant? `None`: nothing (void).
    fn plain(&self, mut id: u32) -> Option<(Head, bool)> {
        let mut is_const = false;
        for _ in 0..MOST_NAMES {
            let head = self.head(id)?;
            match head.kind {
                CONST => is_const = true,
                TYPEDEF | VOLATILE | RESTRICT | TYPE_TAG => {}
                _ => return Some((head, is_const)),
            }
            id = head.word;
        }
        None
    }

    /// The words of a parameter. `None`: it cannot be told where the ones behind it are.
    fn words(&self, id: u32) -> Option<Vec<&'static str>> {
        let (head, _) = self.plain(id)?;
        if head.kind != STRUCT && head.kind != UNION {
            return Some(vec![self.text(id)?]);
        }
        // Small structures are passed in registers of whole numbers: the kernel uses no others.
        match head.word {
            0 => Some(Vec::new()),
            1..=8 => Some(vec!["x64"]),
            9..=16 => Some(vec!["x64", "x64"]),
            _ => None,
        }
    }

    /// A value of one word.
    fn text(&self, id: u32) -> Option<&'static str> {
        let (head, _) = self.plain(id)?;
        Some(match head.kind {
            PTR => match self.plain(head.word) {
                Some((inner, true)) if self.is_char(inner) => "string",
                _ => "addr",
            },
            INT => {
                let encoding = self.word(head.at + 12)? >> 24 & 15;
                match (
                    encoding & IS_BOOL != 0,
                    encoding & IS_SIGNED != 0,
                    head.word,
                ) {
                    (true, _, 1) => "bool",
                    (_, true, 1) => "i8",
                    (_, true, 2) => "i16",
                    (_, true, 4) => "i32",
                    (_, true, 8) => "i64",
                    (_, false, 1) => "u8",
                    (_, false, 2) => "u16",
                    (_, false, 4) => "u32",
                    (_, false, 8) => "u64",
                    _ => return None,
                }
            }
            ENUM => "u32",
            ENUM64 => "u64",
            _ => return None,
        })
    }

    fn is_char(&self, head: Head) -> bool {
        head.kind == INT && head.word == 1 && self.name(head.name) == Some("char")
    }

    /// What a function takes and gives, as a line of `lib/types`. `None`: it is not known, or
    /// cannot be told.
    pub fn prototype(&self, function: &str) -> Option<String> {
        let head = self.head(*self.functions.get(function)?)?;
        if head.kind != FUNC_PROTO || head.count > MOST_PARAMETERS {
            return None;
        }
        let mut parameters = Vec::new();
        for i in 0..head.count {
            let at = head.at + 12 + 8 * i;
            let (name, ty) = (self.name(self.word(at)?)?, self.word(at + 4)?);
            if ty == 0 {
                // More may follow, of which nothing is known.
                break;
            }
            for text in self.words(ty)? {
                parameters.push(format!("{text} {name}").trim_end().to_owned());
            }
        }
        let result = match self.plain(head.word) {
            None => String::new(),
            Some((given, _)) if given.kind == STRUCT || given.kind == UNION => match given.word {
                0..=8 => "x64 ".to_owned(),
                _ => return None,
            },
            Some(_) => format!("{} ", self.text(head.word)?),
        };
        Some(format!("{result}{function}({})", parameters.join(", ")))
    }

    /// Offsets in bytes of the members of a structure, by name.
    pub fn members(&self, structure: &str) -> Option<HashMap<String, u64>> {
        let mut heads = (1..=self.places.len() as u32).filter_map(|id| self.head(id));
        let head = heads.find(|h| h.kind == STRUCT && self.name(h.name) == Some(structure))?;
        // With this flag the upper bits say how wide a bit field is.
        let has_bit_fields = self.word(head.at + 4)? >> 31 != 0;
        let member = |number: usize| {
            let entry = head.at + 12 + 12 * number;
            let bits = self.word(entry + 8)?;
            let bits = match has_bit_fields {
                true => bits & 0xff_ffff,
                false => bits,
            };
            let name = self.name(self.word(entry)?)?.to_owned();
            Some((name, u64::from(bits / 8)))
        };
        Some((0..head.count).filter_map(member).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An int (1), a char (2), that constant (3), a pointer to it (4), a structure with two members
    /// (5), a pointer to it (6), what a function takes (7), and the function (8).
    fn btf() -> Vec<u8> {
        let names = b"\0cred\0uid\0gid\0int\0char\0vfs_name\0path";
        let kind = |kind: u32, count: u32| kind << 24 | count;
        let words: [Vec<u32>; 8] = [
            vec![14, kind(INT, 0), 4, IS_SIGNED << 24 | 32],
            vec![18, kind(INT, 0), 1, 8],
            vec![0, kind(CONST, 0), 2],
            vec![0, kind(PTR, 0), 3],
            vec![1, kind(STRUCT, 2), 12, 6, 1, 32, 10, 1, 64],
            vec![0, kind(PTR, 0), 5],
            vec![0, kind(FUNC_PROTO, 4), 1, 1, 6, 32, 4, 6, 5, 0, 0],
            vec![23, kind(FUNC, 0), 7],
        ];
        let words = words.concat();
        let types: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let (types_bytes, names_bytes) = (types.len() as u32, names.len() as u32 + 1);
        let mut all = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, types_bytes, types_bytes, names_bytes] {
            all.extend(word.to_le_bytes());
        }
        all.extend(types);
        all.extend(names);
        all.push(0);
        all
    }

    #[test]
    fn members_are_found() {
        let types = Types::new(btf()).unwrap();
        let found = types.members("cred").unwrap();
        assert_eq!((found["uid"], found["gid"], found.len()), (4, 8, 2));
        assert_eq!(types.members("task_struct"), None);
    }

    #[test]
    fn functions_are_told_in_words_that_are_understood() {
        use sptrace_types::functions::parse::{Defined, prototype};
        let types = Types::new(btf()).unwrap();
        let text = types.prototype("vfs_name").unwrap();
        // The structure goes in two words; what follows it may be more.
        assert_eq!(
            text,
            "i32 vfs_name(addr cred, string path, x64 uid, x64 uid)"
        );
        assert_eq!(prototype(&text, &Defined::new()).unwrap().sources.len(), 4);
        assert_eq!(types.prototype("vfs_read"), None);
    }

    #[test]
    fn cut_and_hostile_bytes_give_nothing() {
        let look = |bytes: &[u8]| {
            if let Some(types) = Types::new(bytes.to_vec()) {
                let _ = (types.members("cred"), types.prototype("vfs_name"));
            }
        };
        let whole = btf();
        for length in 0..whole.len() {
            look(&whole[..length]);
            let mut changed = whole.clone();
            changed[length] ^= 0xff;
            look(&changed);
        }
        assert!(Types::new(Vec::new()).is_none());
    }
}
