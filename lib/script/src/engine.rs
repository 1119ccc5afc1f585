//! The engine: limits, what it may do, and where its prints go.
//!
//! Given what words work on; gives an engine that knows them. Must not know a script.

use std::sync::atomic::{AtomicBool, Ordering};

use rhai::{Dynamic, Engine, Token};

use crate::checks::Checks;
use crate::draft::Shared;
use crate::word::Word;
use crate::words::Vocabulary;

/// Operations of the top level, and of each call of a handler: some seconds at most.
const MOST_OPERATIONS: u64 = 10_000_000;
/// Functions inside of each other.
const MOST_LEVELS: usize = 48;
/// Expressions inside of each other, at the top level and in functions.
const MOST_DEPTHS: (usize, usize) = (64, 48);
/// Bytes of a string.
const MOST_STRING_BYTES: usize = 1 << 20;
/// Elements of an array or a map, with what is in them.
const MOST_ELEMENTS: usize = 200_000;

/// Words of ours that Rhai reserves.
const OWN: [&str; 2] = ["module", "thread"];
/// The same behind a point: `c.print(...)`.
const OWN_OF_A_CALL: &str = "print";

/// What a closure of `propagate` gives.
pub const RECORD: &str = "record";
/// See [`RECORD`].
pub const SKIP: &str = "skip";
/// See [`RECORD`].
pub const LEAF: &str = "leaf";

/// An engine that knows the language, and its words.
pub fn engine(shared: &Shared, checks: Checks) -> (Engine, Vec<Word>) {
    let mut engine = Engine::new();
    engine
        .set_max_operations(MOST_OPERATIONS)
        .set_max_call_levels(MOST_LEVELS)
        .set_max_expr_depths(MOST_DEPTHS.0, MOST_DEPTHS.1)
        .set_max_string_size(MOST_STRING_BYTES)
        .set_max_array_size(MOST_ELEMENTS)
        .set_max_map_size(MOST_ELEMENTS)
        .set_max_functions(1000)
        .set_max_variables(1000);
    engine.disable_symbol("eval");
    // Their results are what they are called, also inside of closures.
    #[allow(deprecated, reason = "marked as volatile, not as going away")]
    engine.on_var(|name, _, _| {
        let known = [RECORD, SKIP, LEAF].contains(&name);
        Ok(known.then(|| Dynamic::from(name.to_owned())))
    });
    // Reserved for what Rhai may become; here they are what tracing is about.
    let was_point = AtomicBool::new(false);
    #[allow(deprecated, reason = "marked as volatile, not as going away")]
    engine.on_parse_token(move |token, _, _| {
        let was_point = was_point.swap(token == Token::Period, Ordering::Relaxed);
        match token {
            Token::Reserved(word) if OWN.contains(&word.as_str()) => Token::Identifier(word),
            Token::Reserved(word) if was_point && *word == OWN_OF_A_CALL => Token::Identifier(word),
            other => other,
        }
    });
    let words = Vocabulary::build(&mut engine, shared, checks);
    let to = shared.clone();
    engine.on_print(move |text| {
        if to.lock().form.has_lines() {
            to.print(&format!("{text}\n"));
        }
    });
    let to = shared.clone();
    engine.on_debug(move |text, _, at| to.print(&format!("{at}: {text}\n")));
    (engine, words)
}
