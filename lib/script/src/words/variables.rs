//! Variables of a thread, which payloads alone set and ask for.
//!
//! Must not know how a payload is compiled.

use sptrace_payload::tables::MOST_VARIABLES;

use super::Vocabulary;
use crate::error::refuse;
use crate::sheets::Failure;

/// A variable of each thread, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadVariable(pub u8);

/// Adds the word for it.
pub fn add(all: &mut Vocabulary<'_>) {
    all.type_name::<ThreadVariable>("variable of a thread");
    let shared = all.shared.clone();
    all.function(
        "thread_var(NAME)",
        "a whole number of each thread, 0 at first, for payloads: X.set(VALUE), X.add(VALUE) and \
         X.get(). What one payload sets another finds, at the next call of the \
         same thread. At most seven",
        move |name: &str| -> Result<ThreadVariable, Failure> {
            let mut draft = shared.lock();
            let known = draft.variables.iter().position(|known| known == name);
            let number = known.unwrap_or(draft.variables.len());
            if number >= usize::from(MOST_VARIABLES) {
                let reason = format!("more than {MOST_VARIABLES} variables of a thread");
                return refuse(&reason, "keep what belongs together in one number");
            }
            if known.is_none() {
                draft.variables.push(name.to_owned());
            }
            Ok(ThreadVariable(number as u8))
        },
    );
}
