//! Durations as they are written on the command line.

use std::time::Duration;

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
