//! Sizes as they are written on the command line.
//!
//! Given a text; gives bytes, or what is wrong with it. Must not know what has the size.

/// `64K`, `1M`, `2G`, or bytes.
///
/// # Errors
/// What is wrong.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((i, c)) if c.is_ascii_alphabetic() => (&text[..i], c.to_ascii_uppercase()),
        _ => (text, 'B'),
    };
    let factor = match unit {
        'B' => 1,
        'K' => 1 << 10,
        'M' => 1 << 20,
        'G' => 1 << 30,
        _ => return Err("a size ends in K, M or G".to_owned()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "not a number with K, M or G".to_owned())?;
    number
        .checked_mul(factor)
        .filter(|n| *n > 0)
        .ok_or_else(|| "out of range".to_owned())
}
