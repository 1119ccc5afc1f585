//! The language: each word, how it is written, and what it does.
//!
//! A word is registered together with its text: the manual and the hints of errors are made of
//! these. Must not know how scripts are found, nor what becomes of a policy.

pub mod activation;
pub mod bids;
pub mod events;
pub mod handlers;
pub mod options;
pub mod propagation;
pub mod sheets;
pub mod stores;
pub mod units;
pub mod variables;

use rhai::{Engine, RhaiNativeFunc, Variant};

use crate::checks::Checks;
use crate::draft::Shared;
use crate::word::Word;

/// The language while it is put together.
pub struct Vocabulary<'a> {
    engine: &'a mut Engine,
    /// So far.
    pub words: Vec<Word>,
    section: &'static str,
    /// What words work on.
    pub shared: Shared,
    /// How the host reads what it understands better.
    pub checks: Checks,
}

impl<'a> Vocabulary<'a> {
    /// All words.
    pub fn build(engine: &'a mut Engine, shared: &Shared, checks: Checks) -> Vec<Word> {
        let mut all = Self {
            engine,
            words: Vec::new(),
            section: "",
            shared: shared.clone(),
            checks,
        };
        units::add(&mut all);
        activation::add(&mut all);
        propagation::add(&mut all);
        handlers::add(&mut all);
        bids::add(&mut all);
        events::add(&mut all);
        sheets::add(&mut all);
        stores::add(&mut all);
        options::add(&mut all);
        all.words
    }

    /// What follows stands below this heading.
    pub fn section(&mut self, title: &'static str) {
        self.section = title;
    }

    /// A function or a method: `form` says how it is written, and so its name.
    pub fn function<A: 'static, const N: usize, const X: bool, R, const F: bool>(
        &mut self,
        form: &'static str,
        text: &'static str,
        function: impl RhaiNativeFunc<A, N, X, R, F> + Send + Sync + 'static,
    ) where
        R: Variant + Clone,
    {
        let name = self.note(form, text);
        self.engine.register_fn(name, function);
    }

    /// Another way to write the word before.
    pub fn also<A: 'static, const N: usize, const X: bool, R, const F: bool>(
        &mut self,
        function: impl RhaiNativeFunc<A, N, X, R, F> + Send + Sync + 'static,
    ) where
        R: Variant + Clone,
    {
        let name = self.words.last().map_or("", |word| word.name);
        self.engine.register_fn(name, function);
    }

    /// A property.
    pub fn property<A: 'static, const N: usize, const X: bool, R, const F: bool>(
        &mut self,
        form: &'static str,
        text: &'static str,
        get: impl RhaiNativeFunc<A, N, X, R, F> + Send + Sync + 'static,
    ) where
        R: Variant + Clone,
    {
        let name = self.note(form, text);
        // As the engine names getters.
        self.engine.register_fn(format!("get${name}"), get);
    }

    /// A type gets the name that errors show.
    pub fn type_name<T: Variant + Clone>(&mut self, name: &'static str) {
        self.engine.register_type_with_name::<T>(name);
    }

    fn note(&mut self, form: &'static str, text: &'static str) -> &'static str {
        let head = form.split('(').next().unwrap_or(form);
        let name = head.rsplit('.').next().unwrap_or(head);
        self.words.push(Word {
            name,
            form,
            text,
            section: self.section,
        });
        name
    }
}
