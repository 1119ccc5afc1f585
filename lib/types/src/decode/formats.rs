//! The arguments that a format asks for: the families of printf(3) and scanf(3).
//!
//! Given the words behind the format: from `first` to [`VECTOR_WORDS`] those that are integers and
//! pointers, then those of vector registers. Must not know where memory comes from.

use super::capture::VECTOR_WORDS;
use super::printer::Printer;
use super::scalar;
use super::types::{Phase, Type};

/// The most arguments that are shown.
const MOST_ARGUMENTS: usize = 32;
const FORMAT_BYTES: usize = 1024;

/// What a conversion takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Signed(u8),
    Unsigned(u8),
    Hex(u8),
    Octal,
    Char,
    Text,
    Pointer,
    Float(u8),
    /// A long double lies on the stack: nothing after it is found.
    Lost,
}

/// Writes a format and what it asks for.
pub(super) fn write(printer: &mut Printer<'_>, address: u64, scans: bool, first: u8) {
    printer.phase = Phase::Entry;
    let read = printer
        .made
        .memory
        .read(Phase::Entry, address, FORMAT_BYTES);
    let Some(end) = read.iter().position(|byte| *byte == 0) else {
        scalar::address(address, &mut printer.out);
        return;
    };
    let format = read.get(..end).unwrap_or(&[]).to_vec();
    printer.string(false, address);
    let (mut word, mut vector) = (first, VECTOR_WORDS);
    for taken in conversions(&format, scans).into_iter().take(MOST_ARGUMENTS) {
        let place = match taken {
            Taken::Float(_) if !scans => &mut vector,
            _ => &mut word,
        };
        let limit = match taken {
            Taken::Float(_) if !scans => printer.made.args.len().min(16) as u8,
            _ => VECTOR_WORDS,
        };
        if *place >= limit || taken == Taken::Lost {
            printer.out.push_str(", ...");
            return;
        }
        let value = printer.arg(*place);
        *place += 1;
        printer.out.push_str(", ");
        match scans {
            false => printed(printer, taken, value),
            true => scanned(printer, taken, value),
        }
    }
}

fn printed(printer: &mut Printer<'_>, taken: Taken, value: u64) {
    let ty = match taken {
        Taken::Signed(width) => Type::Signed(width),
        Taken::Unsigned(width) => Type::Unsigned(width),
        Taken::Hex(width) => Type::Hex(width),
        Taken::Octal => Type::Octal,
        Taken::Char => Type::Char,
        Taken::Text => Type::At(Phase::Entry, &Type::Str),
        Taken::Float(_) => Type::Float(8),
        Taken::Pointer | Taken::Lost => Type::Address,
    };
    printer.value(&ty, value);
}

fn scanned(printer: &mut Printer<'_>, taken: Taken, address: u64) {
    const EACH: [&Type; 12] = [
        &Type::Signed(1),
        &Type::Signed(2),
        &Type::Signed(4),
        &Type::Signed(8),
        &Type::Unsigned(4),
        &Type::Unsigned(8),
        &Type::Str,
        &Type::Char,
        &Type::Float(4),
        &Type::Address,
        &Type::Unsigned(2),
        &Type::Float(8),
    ];
    let [
        i8_,
        i16_,
        i32_,
        i64_,
        u32_,
        u64_,
        text,
        char_,
        float,
        pointer,
        u16_,
        double,
    ] = EACH;
    let inner = match taken {
        Taken::Signed(1) => i8_,
        Taken::Signed(2) => i16_,
        Taken::Signed(4) => i32_,
        Taken::Signed(_) => i64_,
        Taken::Unsigned(2) | Taken::Hex(2) => u16_,
        Taken::Unsigned(8) | Taken::Hex(8) => u64_,
        Taken::Unsigned(_) | Taken::Hex(_) | Taken::Octal => u32_,
        Taken::Text => text,
        Taken::Char => char_,
        Taken::Float(8) => double,
        Taken::Float(_) => float,
        Taken::Pointer | Taken::Lost => pointer,
    };
    // A number that was read, or the address if nothing was.
    let shown = match printer.made.result {
        Some(count) if count > 0 => Type::At(Phase::Exit, inner),
        _ => Type::Address,
    };
    printer.phase = Phase::Entry;
    printer.value(&shown, address);
}

/// What a format takes, in order.
fn conversions(format: &[u8], scans: bool) -> Vec<Taken> {
    let mut found = Vec::new();
    let mut bytes = format.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            continue;
        }
        let (mut length, mut is_dropped) = (4u8, false);
        while let Some(byte) = bytes.next() {
            match byte {
                b'0'..=b'9' | b'-' | b'+' | b' ' | b'#' | b'.' | b'\'' => {}
                b'*' if scans => is_dropped = true,
                b'*' => found.push(Taken::Signed(4)),
                b'l' | b'j' | b'z' | b't' | b'q' => length = 8,
                b'h' => length = if length == 2 { 1 } else { 2 },
                b'L' => length = 16,
                b'$' => return found,
                b'[' => {
                    bytes.find(|byte| *byte == b']');
                    found.extend((!is_dropped).then_some(Taken::Text));
                    break;
                }
                b'%' => break,
                other => {
                    let taken = conversion(other, length);
                    found.extend(taken.filter(|_| !is_dropped));
                    break;
                }
            }
        }
    }
    found
}

fn conversion(letter: u8, length: u8) -> Option<Taken> {
    Some(match letter {
        b'd' | b'i' => Taken::Signed(length.min(8)),
        b'u' => Taken::Unsigned(length.min(8)),
        b'x' | b'X' => Taken::Hex(length.min(8)),
        b'o' => Taken::Octal,
        b'c' => Taken::Char,
        b's' if length == 8 => Taken::Pointer,
        b's' => Taken::Text,
        b'p' | b'n' => Taken::Pointer,
        b'e' | b'E' | b'f' | b'F' | b'g' | b'G' | b'a' | b'A' => match length {
            16 => Taken::Lost,
            _ => Taken::Float(length),
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_says_what_it_takes() {
        let printf = |text: &str| conversions(text.as_bytes(), false);
        assert_eq!(
            printf("%d %5.2f%% %-10s %lx %hhu %c %p\n"),
            [
                Taken::Signed(4),
                Taken::Float(4),
                Taken::Text,
                Taken::Hex(8),
                Taken::Unsigned(1),
                Taken::Char,
                Taken::Pointer,
            ]
        );
        assert_eq!(printf("%*d"), [Taken::Signed(4), Taken::Signed(4)]);
        assert_eq!(printf("%m 100%"), []);
        assert_eq!(printf("%Lf %d"), [Taken::Lost, Taken::Signed(4)]);
    }

    #[test]
    fn what_is_scanned_and_dropped_is_no_argument() {
        let scanf = |text: &str| conversions(text.as_bytes(), true);
        assert_eq!(
            scanf("%*s %hd %[a-z] %lf"),
            [Taken::Signed(2), Taken::Text, Taken::Float(8)]
        );
    }
}
