//! Stores: what handlers keep by key from one event to another.
//!
//! Must not know events.

use rhai::Dynamic;

use super::Vocabulary;
use crate::error::refuse;
use crate::sheets::{Failure, Stored};

/// Stores of a script, at most.
const MOST_STORES: usize = 32;

/// Adds them.
pub fn add(all: &mut Vocabulary<'_>) {
    all.type_name::<Stored>("store");
    all.section("What handlers keep: stores");
    let shared = all.shared.clone();
    all.function(
        "store(TITLE)",
        "values by key, for handlers: up to two million keys, where a map of the language gets slow \
         after some thousands. What does not fit is counted and said at the end",
        move |title: &str| -> Result<Stored, Failure> {
            let mut draft = shared.lock();
            if draft.stores.len() >= MOST_STORES {
                let reason = format!("more than {MOST_STORES} stores");
                return refuse(&reason, "make them at the top level");
            }
            let store = Stored::new(title);
            draft.stores.push(store.clone());
            Ok(store)
        },
    );
    all.function(
        "store.set(key, value)",
        "keep it; a key is a value, or a list of values",
        |store: &mut Stored, key: Dynamic, value: Dynamic| store.lock().set(key, value),
    );
    all.function(
        "store.get(key)",
        "the value; () if there is none",
        |store: &mut Stored, key: Dynamic| store.lock().get(key),
    );
    all.function(
        "store.take(key)",
        "the same, which is kept no longer",
        |store: &mut Stored, key: Dynamic| store.lock().take(key),
    );
    all.function(
        "store.increase(key, n)",
        "add a number, or a list of numbers one by one, to what is kept, or to 0; gives the sums",
        |store: &mut Stored, key: Dynamic, by: Dynamic| store.lock().add(key, &by),
    );
    all.function(
        "store.keys()",
        "the keys in their order, at most 200,000",
        |store: &mut Stored| store.lock().keys(),
    );
    all.function(
        "store.size()",
        "how many keys it has",
        |store: &mut Stored| store.lock().len() as i64,
    );
}
