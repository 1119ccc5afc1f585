//! Words of prototypes that stand for a type by themselves.
//!
//! Given a word; gives the type. Must not know the rest of a line.

use crate::decode::types::Type;
use crate::names::table;

/// Types that are one word.
pub(super) fn plain(word: &str) -> Option<Type> {
    Some(match word {
        "int" | "i32" => Type::Signed(4),
        "uint" | "u32" => Type::Unsigned(4),
        "long" | "llong" | "i64" => Type::Signed(8),
        "ulong" | "ullong" | "u64" => Type::Unsigned(8),
        "short" | "i16" => Type::Signed(2),
        "ushort" | "u16" => Type::Unsigned(2),
        "char" => Type::Char,
        "i8" => Type::Signed(1),
        "uchar" | "u8" => Type::Unsigned(1),
        "x8" => Type::Hex(1),
        "x16" => Type::Hex(2),
        "x32" => Type::Hex(4),
        "x64" => Type::Hex(8),
        "float" => Type::Float(4),
        "floats" => Type::Float(2),
        "double" => Type::Float(8),
        "addr" | "file" => Type::Address,
        "octal" => Type::Octal,
        "fd" => Type::Fd,
        "dirfd" => Type::DirFd,
        "mode" => Type::Octal,
        "signal" => Type::Signal,
        "date" => Type::Date,
        "unknown" => Type::Unknown,
        _ => return None,
    })
}

/// Constants that have names already.
pub(super) fn named(name: &str) -> Option<Type> {
    Some(match name {
        "open" => Type::Parts(3, &table::ACCMODE, &table::OPEN),
        "prot" => Type::Named(&table::PROT, 4),
        _ => return None,
    })
}
