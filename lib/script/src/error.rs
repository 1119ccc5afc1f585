//! What is wrong with a script: where, why, and what to write instead.
//!
//! Given what the engine says and the script's text; gives a line, a column, a caret and a reason.
//! Must not know what words there are, but for their names and forms.

use std::fmt;

use rhai::{EvalAltResult, ParseError, Position};

use crate::word::Word;

/// A script that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// What the script is called.
    pub name: String,
    /// From 1; 0: of no line.
    pub line: usize,
    /// From 1; 0: of no column.
    pub column: usize,
    /// The line.
    pub text: String,
    /// Why.
    pub reason: String,
    /// What to write or do instead; may be empty.
    pub hint: String,
}

impl std::error::Error for ScriptError {}

/// Longer lines are not shown whole.
const MOST_COLUMNS: usize = 120;

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match (self.line, self.column) {
            (0, _) => write!(f, "{name}: {}", self.reason)?,
            (line, 0) => write!(f, "{name}:{line}: {}", self.reason)?,
            (line, column) => write!(f, "{name}:{line}:{column}: {}", self.reason)?,
        }
        if !self.hint.is_empty() {
            write!(f, "; {}", self.hint)?;
        }
        Ok(())
    }
}

impl ScriptError {
    /// Of no place in it.
    pub fn of_whole(name: &str, reason: &str, hint: &str) -> Self {
        Self {
            name: name.to_owned(),
            line: 0,
            column: 0,
            text: String::new(),
            reason: reason.to_owned(),
            hint: hint.to_owned(),
        }
    }

    /// At a place.
    pub fn at(name: &str, source: &str, at: Position, reason: &str, hint: &str) -> Self {
        let (line, column) = (at.line().unwrap_or(0), at.position().unwrap_or(0));
        let text = match line {
            0 => "",
            line => source.lines().nth(line - 1).unwrap_or(""),
        };
        Self {
            line,
            column,
            text: text.replace(char::is_control, " "),
            ..Self::of_whole(name, reason, hint)
        }
    }

    /// The line with a caret below the column; nothing if there is none.
    pub fn picture(&self) -> Vec<String> {
        if self.line == 0 || self.text.trim().is_empty() {
            return Vec::new();
        }
        // The part around the column, if the line is long.
        let from = (self.column + 20).saturating_sub(MOST_COLUMNS);
        let shown: String = self.text.chars().skip(from).take(MOST_COLUMNS).collect();
        let margin = format!("{:>5} | ", self.line);
        let mut lines = vec![format!("{margin}{shown}")];
        if self.column > 0 {
            let blank = " ".repeat(self.column - 1 - from.min(self.column - 1));
            lines.push(format!("      | {blank}^"));
        }
        lines
    }
}

/// What is wrong with a script that cannot be parsed.
pub(crate) fn of_syntax(name: &str, source: &str, error: &ParseError) -> ScriptError {
    let reason = error.err_type().to_string();
    let hint = match reason.as_str() {
        r if r.contains("is reserved") || r.contains("reserved") => "choose another name",
        r if r.contains("terminate") => "end the statement with ;",
        _ => "",
    };
    ScriptError::at(name, source, error.position(), &reason, hint)
}

/// What is wrong with a script that could not be evaluated.
pub(crate) fn of_evaluation(
    name: &str,
    source: &str,
    error: &EvalAltResult,
    words: &[Word],
) -> ScriptError {
    use EvalAltResult as E;
    let mut inner = error;
    let mut at = inner.position();
    while let E::ErrorInFunctionCall(_, _, cause, _) | E::ErrorInModule(_, cause, _) = inner {
        inner = cause;
        if !inner.position().is_none() {
            at = inner.position();
        }
    }
    let (reason, hint) = match inner {
        E::ErrorFunctionNotFound(signature, _) => unknown_function(signature, words),
        E::ErrorVariableNotFound(variable, _) => (
            format!("there is no '{variable}'"),
            format!("define it: let {variable} = ...;"),
        ),
        E::ErrorTooManyOperations(_) => (
            "this takes too many operations".to_owned(),
            "does a loop or a recursion never end?".to_owned(),
        ),
        E::ErrorStackOverflow(_) => (
            "functions call each other too deeply".to_owned(),
            "does a recursion never end?".to_owned(),
        ),
        E::ErrorDataTooLarge(what, _) => (
            format!(
                "{} grows too large",
                what.to_lowercase().trim_start_matches("length of ")
            ),
            "keep less: sums and counts by key instead of all values".to_owned(),
        ),
        E::ErrorDotExpr(what, _) | E::ErrorPropertyNotFound(what, _) => (
            what.replace("Unknown property ", "there is no property "),
            "man sptrace-script lists what there is".to_owned(),
        ),
        E::ErrorRuntime(value, _) => {
            let text = value.to_string();
            let (reason, hint) = text.split_once('\t').unwrap_or((&text, ""));
            (reason.to_owned(), hint.to_owned())
        }
        E::ErrorParsing(kind, _) => (kind.to_string(), String::new()),
        other => {
            let text = other.to_string();
            let cut = text.rfind(" (line ").unwrap_or(text.len());
            let reason = text.get(..cut).unwrap_or(&text).to_owned();
            (reason, String::new())
        }
    };
    ScriptError::at(name, source, at, &reason, &hint)
}

/// A call that fits nothing: no such word, or other types than it takes.
fn unknown_function(signature: &str, words: &[Word]) -> (String, String) {
    let function = signature.split([' ', '(']).next().unwrap_or(signature);
    if let Some(property) = function.strip_prefix("get$") {
        let hint = near(property, words, false).unwrap_or_default();
        return (format!("there is no property '{property}'"), hint);
    }
    let types = signature.split_once('(').map_or("", |(_, rest)| rest);
    let types = types.trim_end_matches(')');
    let forms: Vec<_> = words
        .iter()
        .filter(|word| word.name == function)
        .map(|word| word.form)
        .collect();
    match forms.is_empty() {
        true => (
            format!("there is no function '{function}'"),
            near(function, words, true)
                .unwrap_or_else(|| "man sptrace-script lists them".to_owned()),
        ),
        false => (
            format!("'{function}' does not take ({})", plain_types(types)),
            format!("write {}", forms.join(" or ")),
        ),
    }
}

fn plain_types(types: &str) -> String {
    types
        .replace("&str | ImmutableString | String", "string")
        .replace("i64", "number")
        .replace("f64", "number")
}

/// The word of the same kind that is most like it; of words with one name, that which stands alone.
fn near(name: &str, words: &[Word], is_function: bool) -> Option<String> {
    let same = words.iter().filter(|w| w.form.contains('(') == is_function);
    let scored = same.map(|word| (strsim::jaro_winkler(name, word.name), word));
    let stands_alone = |word: &Word| word.form.starts_with(word.name);
    let best = scored.max_by(|a, b| {
        let likeness = a.0.total_cmp(&b.0);
        likeness.then(stands_alone(a.1).cmp(&stands_alone(b.1)))
    })?;
    (best.0 > 0.8).then(|| format!("did you mean {}?", best.1.form))
}

/// An error of ours inside of the engine: a reason, and what to write instead.
pub(crate) fn refuse<T>(reason: &str, hint: &str) -> Result<T, Box<EvalAltResult>> {
    Err(format!("{reason}\t{hint}").into())
}
