//! The text that selects system calls, as strace has it.
//!
//! Given the text; gives the selection, or a line that shows where it is wrong.

use regex_lite::Regex;
use sptrace_types::calls::Selection;

/// Reads the selection.
///
/// # Errors
/// What is wrong, where, and what would be right.
pub fn parse(text: &str) -> Result<Selection, String> {
    let matches = |expression: &str, name: &str| match Regex::new(expression) {
        Ok(expression) => Ok(expression.is_match(name)),
        Err(e) => Err(e.to_string()),
    };
    Selection::parse(text, &matches).map_err(|e| {
        let column = e.at + 1;
        format!(
            "{} (column {column}; names, sets as %file, /regex/, or ! before all)",
            e.cause
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_select_by_name() {
        let selection = parse("/^open").unwrap();
        assert!(selection.contains(2) && selection.contains(257));
        assert!(!selection.contains(0));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_column() {
        let error = parse("read,raed").unwrap_err();
        assert!(
            error.contains("column 6") && error.contains("raed"),
            "{error}"
        );
        assert!(parse("/(").is_err());
    }
}
