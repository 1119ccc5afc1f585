//! Fields of RFC 4180.

use std::borrow::Cow;

/// A field, quoted where it has to be.
pub fn field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        return Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")));
    }
    Cow::Borrowed(text)
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn fields_are_quoted_where_they_have_to_be() {
        assert_eq!(field("main"), "main");
        assert_eq!(field("f(int, char)"), "\"f(int, char)\"");
        assert_eq!(field("operator\"\"_s"), "\"operator\"\"\"\"_s\"");
    }
}
