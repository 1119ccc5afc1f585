//! Where in the source the functions of a trace are, and where they are called.
//!
//! A trace keeps which function was called, not at which place of its caller: several places that
//! call the same function are told together. Found out by others, who read files; kept beside the
//! names ([`crate::Names`]) for those who show them.

use std::collections::HashMap;
use std::fmt;

use crate::model::FunctionId;

/// A line of a file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SourceLine {
    /// The file, as the compiler was given it.
    pub file: String,
    /// From 1 on.
    pub line: u32,
}

/// Where a function calls another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallPlace {
    /// The line of the call.
    pub at: SourceLine,
    /// The functions, inlined into each other and into the caller, in which it was written:
    /// innermost first.
    pub inlined: Vec<String>,
}

/// What is known of the functions of a trace.
#[derive(Clone, Default, Debug)]
pub struct Sources {
    /// Where each begins, by its number.
    pub functions: Vec<Option<SourceLine>>,
    /// Where a function (the first) calls another, sorted.
    pub calls: HashMap<(FunctionId, FunctionId), Vec<CallPlace>>,
}

impl Sources {
    /// Where a function begins.
    pub fn function(&self, id: FunctionId) -> Option<&SourceLine> {
        self.functions.get(id.0 as usize)?.as_ref()
    }

    /// Where a function may call another; one if that is sure.
    pub fn calls(&self, caller: FunctionId, callee: FunctionId) -> &[CallPlace] {
        self.calls
            .get(&(caller, callee))
            .map_or(&[], |places| places.as_slice())
    }
}

impl SourceLine {
    /// The last component of the file's path, and the line.
    pub fn short(&self) -> String {
        let name = self.file.rsplit('/').next().unwrap_or(&self.file);
        format!("{name}:{}", self.line)
    }
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// More places of a call are counted, not named.
const MOST_PLACES: usize = 3;

/// Places of a call in words: `a.c:12`, `a.c:12 in helper (inlined)`, `a.c:12 or a.c:15`.
pub fn call_words(places: &[CallPlace], line: impl Fn(&SourceLine) -> String) -> String {
    let one = |place: &CallPlace| {
        let inlined = place.inlined.iter();
        let inlined: String = inlined
            .map(|name| format!(" in {name} (inlined)"))
            .collect();
        line(&place.at) + &inlined
    };
    let shown: Vec<String> = places.iter().take(MOST_PLACES).map(one).collect();
    let more = places.len().saturating_sub(MOST_PLACES);
    match more {
        0 => shown.join(" or "),
        more => format!("{} or {more} more", shown.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{CallPlace, SourceLine, call_words};

    #[test]
    fn places_are_told_in_words() {
        let place = |line, inlined: &[&str]| CallPlace {
            at: SourceLine {
                file: "/src/a.c".to_owned(),
                line,
            },
            inlined: inlined.iter().map(|name| (*name).to_owned()).collect(),
        };
        let words = |places: &[CallPlace]| call_words(places, SourceLine::short);
        assert_eq!(words(&[]), "");
        assert_eq!(words(&[place(3, &[])]), "a.c:3");
        assert_eq!(
            words(&[place(3, &["g", "h"])]),
            "a.c:3 in g (inlined) in h (inlined)"
        );
        let many: Vec<_> = (1..6).map(|line| place(line, &[])).collect();
        assert_eq!(words(&many), "a.c:1 or a.c:2 or a.c:3 or 2 more");
        assert_eq!(many[0].at.to_string(), "/src/a.c:1");
    }
}
