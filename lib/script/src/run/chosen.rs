//! Which functions' calls a handler is told of, and which rows of a payload's table count.
//!
//! Given the names of a trace. Must not know what handlers do.

use sptrace_trace::{FunctionId, without_parameters};

use super::{Live, Run, indexes};
use crate::draft::Wanted;
use crate::policy::{Functions, Names, PayloadTable, file_fits};

/// The functions of which a handler wants something. None: of none; without any: of all.
type Pick = fn(&Wanted) -> Option<Option<&Functions>>;

impl Run<'_> {
    /// `files`: where functions begin, as far as that is known.
    pub(super) fn choose_functions(&mut self, files: &[Option<String>]) {
        let of = |pick: Pick| -> Vec<Vec<usize>> {
            let is_meant = |at: usize, wanted: &Wanted| match pick(wanted) {
                Some(Some(functions)) => {
                    let file = files.get(at).and_then(Option::as_deref);
                    let is_there = |of: &String| file.is_some_and(|path| file_fits(of, path));
                    self.fits(&functions.names, at) && functions.file.as_ref().is_none_or(is_there)
                }
                Some(None) => true,
                None => false,
            };
            let all = self.is_system_call.iter().enumerate();
            let chosen = all.map(|(at, is_system_call)| match is_system_call {
                true => Vec::new(),
                false => indexes(&self.handlers, |wanted| is_meant(at, wanted)),
            });
            chosen.collect()
        };
        let ends = of(|wanted| match wanted {
            Wanted::All => Some(None),
            Wanted::Calls(functions) => Some(Some(functions)),
            _ => None,
        });
        let begins = of(|wanted| match wanted {
            Wanted::Begins(functions) => Some(Some(functions)),
            _ => None,
        });
        (self.of_function, self.of_beginning) = (ends, begins);
        let callers = self.handlers.iter().map(|handler| self.callers_of(handler));
        let callers: Vec<_> = callers.collect();
        for (handler, by) in self.handlers.iter_mut().zip(callers) {
            handler.by = by;
        }
        let names = self.book.names.iter().zip(&self.is_system_call);
        let names = names.map(|((name, _), is_call)| (!is_call).then(|| name.clone()));
        self.script.shared.lock().names = names.collect();
    }

    /// Does the function of this number have such a name?
    fn fits(&self, names: &Names, at: usize) -> bool {
        let function = self.dictionary.functions.get(at);
        self.book.names.get(at).is_some_and(|(name, module)| {
            let symbol = function.map_or("", |function| &function.symbol);
            names.fit([name, without_parameters(name), symbol], module)
        })
    }

    fn callers_of(&self, handler: &Live) -> Option<Vec<bool>> {
        let (Wanted::Calls(functions) | Wanted::Begins(functions)) = &handler.wanted else {
            return None;
        };
        let caller = functions.caller.as_ref()?;
        let all = 0..self.book.names.len();
        Some(all.map(|at| self.fits(caller, at)).collect())
    }

    /// Of handlers those that want calls made by this function.
    pub(super) fn made_by(&self, caller: Option<FunctionId>, wanted: &[usize]) -> Vec<usize> {
        let is_meant =
            |by: &Vec<bool>| caller.is_some_and(|id| by.get(id.0 as usize) == Some(&true));
        let wants = |at: &&usize| {
            let by = self
                .handlers
                .get(**at)
                .and_then(|handler| handler.by.as_ref());
            by.is_none_or(is_meant)
        };
        wanted.iter().filter(wants).copied().collect()
    }

    /// The words of a row that are keys of the sheet; None: the calls were made by others than is
    /// asked for.
    pub(super) fn keys_of<'k>(&self, table: &PayloadTable, words: &'k [u64]) -> Option<&'k [u64]> {
        let Some(caller) = &table.caller else {
            return Some(words);
        };
        let (by, keys) = words.split_last()?;
        // One more than the function's number.
        let at = usize::try_from(*by).ok()?.checked_sub(1)?;
        self.fits(caller, at).then_some(keys)
    }
}
