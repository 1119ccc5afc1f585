//! Bytes on their way out: buffered, with numbers and escaped text.
//!
//! An error of the output is kept until [`Output::finish`], so that a format does not have to check
//! each word it writes. Knows nothing of traces.

use std::io::{self, Write};

/// Bytes gathered before they are written.
const FULL_BYTES: usize = 256 << 10;

/// An output with a buffer of its own.
pub struct Output<W> {
    inner: W,
    /// What is not written yet.
    pub buffer: Vec<u8>,
    /// What is.
    written_bytes: u64,
    result: io::Result<()>,
}

impl<W: Write> Output<W> {
    /// Nothing written yet.
    pub fn new(inner: W) -> Self {
        Self {
            inner,
            buffer: Vec::with_capacity(FULL_BYTES + (4 << 10)),
            written_bytes: 0,
            result: Ok(()),
        }
    }

    /// How much has come by now.
    pub fn bytes_so_far(&self) -> u64 {
        self.written_bytes + self.buffer.len() as u64
    }

    /// Has writing failed?
    pub fn is_closed(&self) -> bool {
        self.result.is_err()
    }

    /// Something that belongs to the output has failed.
    #[cfg(feature = "parquet")]
    pub fn fail(&mut self, error: io::Error) {
        if self.result.is_ok() {
            self.result = Err(error);
        }
    }

    /// Writes text as it is.
    pub fn text(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Writes a number.
    pub fn number(&mut self, number: u64) {
        put_number(&mut self.buffer, number);
    }

    /// Writes nanoseconds as microseconds with three decimals.
    pub fn micros(&mut self, ns: u64) {
        self.number(ns / 1000);
        self.decimals(ns % 1000, 3);
    }

    /// Writes nanoseconds as milliseconds with six decimals.
    pub fn millis(&mut self, ns: u64) {
        self.number(ns / 1_000_000);
        self.decimals(ns % 1_000_000, 6);
    }

    fn decimals(&mut self, fraction: u64, digits: u32) {
        self.buffer.push(b'.');
        for place in (0..digits).rev() {
            let digit = fraction / 10_u64.pow(place) % 10;
            self.buffer.push(b'0' + digit as u8);
        }
    }

    /// Something whole is in the buffer: writes it if that is enough.
    pub fn pass(&mut self) {
        if self.buffer.len() >= FULL_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.result.is_ok() {
            self.result = self.inner.write_all(&self.buffer);
        }
        self.written_bytes += self.buffer.len() as u64;
        self.buffer.clear();
    }

    /// Writes the rest.
    ///
    /// # Errors
    /// The first one of the output.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush();
        self.result?;
        self.inner.flush()
    }
}

/// Appends a number in decimal.
pub fn put_number(buffer: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    buffer.extend_from_slice(&digits[at..]);
}

/// `text` as a string of JSON, with its quotes.
pub fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            // U+2028 and U+2029 end a line in older JavaScript.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `text` as a field of RFC 4180.
pub fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// `text` in the content or a quoted attribute of XML, which has no place for control characters.
pub fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact() {
        let mut out = Output::new(Vec::new());
        for number in [0, 7, 10, u64::MAX] {
            out.number(number);
            out.text(" ");
        }
        out.micros(1_002_003);
        out.text(" ");
        out.millis(1_000_000_000_000_001);
        let text = String::from_utf8(out.buffer).unwrap();
        assert_eq!(
            text,
            "0 7 10 18446744073709551615 1002.003 1000000000.000001"
        );
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(json("a\"b\\c\n\u{2028}"), "\"a\\\"b\\\\c\\u000a\\u2028\"");
        assert_eq!(field("f(int, char)"), "\"f(int, char)\"");
        assert_eq!(field("operator\"\"_s"), "\"operator\"\"\"\"_s\"");
        assert_eq!(
            xml("a<b> & \"c\" 'd'\u{1}"),
            "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;\u{fffd}"
        );
    }
}
