//! Short names for what many descriptions are made of.

use crate::decode::types::{Len, Type};
use crate::names::table;

/// A 32-bit value of named constants.
macro_rules! one {
    ($names:expr) => {
        crate::decode::types::Type::Named($names, 4)
    };
}
/// A pointer to what goes in.
macro_rules! into {
    ($ty:expr) => {
        crate::decode::types::Type::At(crate::decode::types::Phase::Entry, $ty)
    };
}
/// A pointer to what comes out.
macro_rules! out {
    ($ty:expr) => {
        crate::decode::types::Type::At(crate::decode::types::Phase::Exit, $ty)
    };
}
/// Bytes that go in, as many as an argument says.
macro_rules! buffer {
    ($len:literal) => {
        into!(&crate::decode::types::Type::Bytes(
            crate::decode::types::Len::Arg($len)
        ))
    };
}
/// A call with what it returns.
macro_rules! r {
    ($name:literal, $returns:expr, $parameters:expr) => {
        crate::decode::types::Call {
            name: $name,
            returns: $returns,
            parameters: $parameters,
            variants: None,
        }
    };
}
/// A call whose result is a number.
macro_rules! c {
    ($name:literal, $parameters:expr) => {
        r!($name, crate::decode::types::Returns::Number, $parameters)
    };
}
/// A call with variants.
macro_rules! v {
    ($name:literal, $parameters:expr, $variants:expr) => {
        crate::decode::types::Call {
            name: $name,
            returns: crate::decode::types::Returns::Number,
            parameters: $parameters,
            variants: Some($variants),
        }
    };
}
pub(super) use {buffer, c, into, one, out, r, v};

pub(super) const INT: Type = Type::Signed(4);
pub(super) const LONG: Type = Type::Signed(8);
pub(super) const UINT: Type = Type::Unsigned(4);
pub(super) const ULONG: Type = Type::Unsigned(8);
pub(super) const HEX: Type = Type::Hex(8);
pub(super) const HEX4: Type = Type::Hex(4);
pub(super) const ADDR: Type = Type::Address;
pub(super) const FD: Type = Type::Fd;
pub(super) const DIR: Type = Type::DirFd;
pub(super) const ID: Type = Type::Id;
pub(super) const SIG: Type = Type::Signal;
pub(super) const MODE: Type = Type::Octal;
pub(super) const PATH: Type = into!(&Type::Path);
pub(super) const STR: Type = into!(&Type::Str);
pub(super) const OPEN: Type = Type::Parts(3, &table::ACCMODE, &table::OPEN);
pub(super) const OPEN_FLAGS: Type = one!(&table::OPEN);

/// Bytes that come out, as many as the result says.
pub(super) const FILLED: Type = out!(&Type::Bytes(Len::Result));
