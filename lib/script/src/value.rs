//! A value of a call as scripts have it: a number, a text, or `()` if it was not recorded.
//!
//! Given its place, the call's words and what was captured of memory. Must not know whose call it
//! is.

use rhai::Dynamic;
use sptrace_types::decode::fields::Place;
use sptrace_types::decode::memory::{Captured, Memory};
use sptrace_types::decode::types::{Len, Phase, Type};

const MOST_TEXT_BYTES: usize = 16 << 10;

/// The value at a place.
pub fn read(place: &Place, words: &[u64], memory: &Captured) -> Dynamic {
    let word = words.get(usize::from(place.argument)).copied().unwrap_or(0);
    let Some((last, way)) = place.offsets.split_last() else {
        return number(&place.ty, word);
    };
    let mut address = word;
    for offset in way {
        let at = address.wrapping_add(u64::from(*offset));
        let bytes = memory.read(place.phase, at, 8);
        let Some(next) = bytes.first_chunk() else {
            return Dynamic::UNIT;
        };
        address = u64::from_le_bytes(*next);
    }
    let at = address.wrapping_add(u64::from(*last));
    value(memory, place.phase, at, &place.ty)
}

/// A number as its type has it.
fn number(ty: &Type, raw: u64) -> Dynamic {
    if let Type::Float(bytes @ (4 | 8)) = ty {
        let half = f32::from_bits(raw as u32);
        let float = if *bytes == 4 {
            half.into()
        } else {
            f64::from_bits(raw)
        };
        return Dynamic::from(float);
    }
    let value = match ty {
        Type::Signed(1) => i64::from(raw as i8),
        Type::Signed(2) => i64::from(raw as i16),
        Type::Unsigned(1) | Type::Hex(1) | Type::Char => i64::from(raw as u8),
        Type::Unsigned(2) | Type::Hex(2) => i64::from(raw as u16),
        Type::Bool => return Dynamic::from(raw as u8 != 0),
        Type::Signed(4) | Type::Fd | Type::DirFd | Type::Signal => i64::from(raw as i32),
        Type::Unsigned(4) | Type::Hex(4) | Type::Named(_, 4) | Type::Octal => i64::from(raw as u32),
        _ => raw as i64,
    };
    Dynamic::from(value)
}

fn value(memory: &Captured, phase: Phase, at: u64, ty: &Type) -> Dynamic {
    let bytes = match ty.size() {
        _ if matches!(
            ty,
            Type::Path | Type::Str | Type::Bytes(_) | Type::Limited(_)
        ) =>
        {
            MOST_TEXT_BYTES
        }
        Some(size) => size as usize,
        None => MOST_TEXT_BYTES,
    };
    let read = memory.read(phase, at, bytes);
    match ty {
        _ if read.is_empty() => Dynamic::UNIT,
        // A field with a place for so many characters.
        Type::Bytes(Len::Const(most)) => {
            let read = read.get(..*most as usize).unwrap_or(read);
            let end = read.iter().position(|b| *b == 0).unwrap_or(read.len());
            let text = read.get(..end).unwrap_or(read);
            Dynamic::from(String::from_utf8_lossy(text).into_owned())
        }
        Type::Path | Type::Str | Type::Limited(_) => {
            let end = read.iter().position(|b| *b == 0).unwrap_or(read.len());
            let text = read.get(..end).unwrap_or(read);
            Dynamic::from(String::from_utf8_lossy(text).into_owned())
        }
        Type::Bytes(_) => Dynamic::from(String::from_utf8_lossy(read).into_owned()),
        _ if (1..=8).contains(&bytes) && read.len() >= bytes => {
            let mut word = [0; 8];
            word.iter_mut().zip(read).for_each(|(to, from)| *to = *from);
            number(ty, u64::from_le_bytes(word))
        }
        _ => Dynamic::UNIT,
    }
}
