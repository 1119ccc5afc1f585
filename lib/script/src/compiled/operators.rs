//! Operators, conversions and units of payloads.
//!
//! Given how a script writes one; gives what it means. Must not know expressions.

use sptrace_payload::program::{Binary, Width};

use super::Type;

/// `u8(n)` and so on.
pub(super) fn width_of(name: &str) -> Option<Width> {
    Some(match name {
        "i8" => Width::I8,
        "i16" => Width::I16,
        "i32" => Width::I32,
        "u8" => Width::U8,
        "u16" => Width::U16,
        "u32" => Width::U32,
        _ => return None,
    })
}

/// `5.us`: nanoseconds or bytes of one.
pub(super) fn factor_of(unit: &str) -> Option<i64> {
    Some(match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "kb" => 1 << 10,
        "mb" => 1 << 20,
        "gb" => 1 << 30,
        _ => return None,
    })
}

/// An operator, whether its operands change places, and what it gives.
pub(super) fn binary(name: &str) -> Option<(Binary, bool, Type)> {
    use Type::{Number, Truth};
    Some(match name {
        "+" => (Binary::Add, false, Number),
        "-" => (Binary::Subtract, false, Number),
        "*" => (Binary::Multiply, false, Number),
        "&" => (Binary::And, false, Number),
        "|" => (Binary::Or, false, Number),
        "^" => (Binary::ExclusiveOr, false, Number),
        "<<" => (Binary::ShiftLeft, false, Number),
        ">>" => (Binary::ShiftRightSigned, false, Number),
        "==" => (Binary::Equal, false, Truth),
        "!=" => (Binary::NotEqual, false, Truth),
        "<" => (Binary::Less, false, Truth),
        "<=" => (Binary::LessOrEqual, false, Truth),
        ">" => (Binary::Less, true, Truth),
        ">=" => (Binary::LessOrEqual, true, Truth),
        _ => return None,
    })
}
