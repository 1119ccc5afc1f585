//! Strings as strace quotes them.
//!
//! Must not know: where the bytes come from.

use super::call::Hex;
use std::fmt::Write;

/// Writes bytes in quotes; `more` if there are further ones that are not shown.
pub(super) fn quote(bytes: &[u8], more: bool, hex: Hex, out: &mut String) {
    out.push('"');
    escape(bytes, hex, out);
    out.push('"');
    if more {
        out.push_str("...");
    }
}

/// Writes bytes so that they can stand between quotes.
pub(super) fn escape(bytes: &[u8], hex: Hex, out: &mut String) {
    let plain = |b: u8| matches!(b, b' '..=b'~' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r');
    let all_hex = match hex {
        Hex::Never => false,
        Hex::NonAscii => !bytes.iter().all(|b| plain(*b)),
        Hex::All => true,
    };
    for (index, byte) in bytes.iter().enumerate() {
        if all_hex {
            let _ = write!(out, "\\x{byte:02x}");
            continue;
        }
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\t' => out.push_str("\\t"),
            b'\n' => out.push_str("\\n"),
            0x0b => out.push_str("\\v"),
            0x0c => out.push_str("\\f"),
            b'\r' => out.push_str("\\r"),
            b' '..=b'~' => out.push(char::from(*byte)),
            _ => {
                let digit_follows = bytes
                    .get(index + 1)
                    .is_some_and(|b| matches!(b, b'0'..=b'7'));
                let _ = match digit_follows {
                    true => write!(out, "\\{byte:03o}"),
                    false => write!(out, "\\{byte:o}"),
                };
            }
        }
    }
}

/// A time as strace dates it, in universal time.
/// No date: no time at all, more than a second's nanoseconds, or a year that no calendar reaches.
pub(super) fn date(seconds: i64, nanoseconds: Option<u64>, out: &mut String) {
    const SECOND_NS: u64 = 1_000_000_000;
    const MOST_SECONDS: i64 = (i32::MAX as i64) * 31_556_952;
    let part = nanoseconds.unwrap_or(0);
    if part >= SECOND_NS || seconds == 0 && part == 0 || seconds.abs() > MOST_SECONDS {
        return;
    }
    let (days, second) = (seconds.div_euclid(86400), seconds.rem_euclid(86400));
    // Days since the first of March of the year 0, in years that end with February.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let _ = write!(
        out,
        " /* {year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
    );
    if let Some(part) = nanoseconds.filter(|part| *part != 0) {
        let _ = write!(out, ".{part:09}");
    }
    out.push_str("+0000 */");
}
