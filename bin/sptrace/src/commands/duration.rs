//! Durations as they are written on the command line.

use std::time::Duration;

use anyhow::{Context, bail};

/// A duration with its unit; a number alone is seconds.
///
/// # Errors
/// What it should be.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds = match &text[number.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("a duration ends in us, ms, s, m or h".to_owned()),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| "not a number with us, ms, s, m or h".to_owned())?;
    Duration::try_from_secs_f64(number * seconds)
        .ok()
        .filter(|d| !d.is_zero())
        .ok_or_else(|| "out of range".to_owned())
}

/// Reads `5us`, `1.5ms`, `2s`, `3m`, `250ns`, `250`.
///
/// # Errors
/// What is wrong.
pub fn parse_time_ns(text: &str) -> anyhow::Result<u64> {
    let number_length = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(number_length);
    let unit_ns = match unit.trim() {
        "" | "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        _ => bail!("unknown unit '{unit}' (ns, us, ms, s, m)"),
    };
    let number: f64 = number.parse().context("not a number")?;
    Ok((number * unit_ns).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, ns) in [
            ("5us", 5_000),
            ("1.5ms", 1_500_000),
            ("2s", 2_000_000_000),
            ("7", 7),
        ] {
            assert_eq!(parse_time_ns(text).unwrap(), ns);
        }
        for text in ["", "us", "5 parsecs", "1.2.3s", "-1s"] {
            assert!(parse_time_ns(text).is_err(), "{text}");
        }
    }
}
