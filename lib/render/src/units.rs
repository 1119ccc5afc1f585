//! Numbers for people: durations with a unit, counts with thousands separators, dates; and text
//! from the traced program made harmless for a terminal.

use std::fmt;

/// A duration in nanoseconds, shown as `1.234 us`: a number below 1000 and a unit of two letters.
#[derive(Clone, Copy)]
pub struct Duration(pub u64);

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        push_duration(&mut text, self.0, f.width().unwrap_or(0));
        f.write_str(&text)
    }
}

/// Appends a [`Duration`], right-aligned. A tree has millions of them: this takes a third of the
/// time of the formatter's own way.
pub fn push_duration(text: &mut String, ns: u64, width: usize) {
    let (unit_ns, unit) = match ns {
        0..1_000 => (1, " ns"),
        1_000..1_000_000 => (1_000, " us"),
        1_000_000..1_000_000_000 => (1_000_000, " ms"),
        1_000_000_000..60_000_000_000 => (1_000_000_000, " s "),
        _ => (60_000_000_000, " m "),
    };
    let width = width.saturating_sub(unit.len());
    if unit_ns == 1 {
        push_number(text, ns, width);
    } else {
        push_number(text, ns / unit_ns, width.saturating_sub(4));
        let thousandths = ns % unit_ns * 1000 / unit_ns;
        let digit = |unit: u64| char::from(b'0' + (thousandths / unit % 10) as u8);
        text.push('.');
        [100, 10, 1]
            .into_iter()
            .for_each(|unit| text.push(digit(unit)));
    }
    text.push_str(unit);
}

/// Appends a number, right-aligned.
pub fn push_number(text: &mut String, mut number: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    while at == digits.len() || number > 0 {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    push_spaces(text, width.saturating_sub(digits.len() - at));
    text.push_str(std::str::from_utf8(&digits[at..]).unwrap_or_default());
}

/// Appends spaces.
pub fn push_spaces(text: &mut String, mut count: usize) {
    const SPACES: &str = "                                                                ";
    while count > 0 {
        let some = count.min(SPACES.len());
        text.push_str(&SPACES[..some]);
        count -= some;
    }
}

/// A count, shown as `1,234,567`.
#[derive(Clone, Copy)]
pub struct Count(pub u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() + digits.len() / 3);
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

/// A number of bytes, shown as `23.4 MB`.
pub fn size_text(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", value / 1e6),
        _ => format!("{:.1} GB", value / 1e9),
    }
}

/// Nanoseconds since 1970 as `2026-11-21 03:38:48 UTC`.
pub fn date_text(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Gregorian calendar in 400-year eras that begin on 1 March (so that leap days come last).
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Text that came from the traced program, in one line and without what would steer a terminal.
pub fn clean(text: &str) -> String {
    text.replace(['\n', '\t'], " ")
        .replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_234, "1.234 us"),
            (999_999_999, "999.999 ms"),
            (50_000_000_000, "50.000 s "),
            (90_000_000_000, "1.500 m "),
        ] {
            assert_eq!(Duration(ns).to_string(), text);
        }
        assert_eq!(format!("{:>11}", Duration(1_234)), "   1.234 us");
        assert_eq!(format!("{:>11}", Duration(12)), "      12 ns");
    }

    #[test]
    fn counts_and_dates() {
        assert_eq!(Count(0).to_string(), "0");
        assert_eq!(Count(1_234_567).to_string(), "1,234,567");
        assert_eq!(format!("{:>8}", Count(1_000)), "   1,000");
        assert_eq!(date_text(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(
            date_text(1_709_210_096_000_000_000),
            "2024-02-29 12:34:56 UTC"
        );
    }
}
