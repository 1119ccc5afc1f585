//! What functions are called for people: demangled names (Rust legacy and v0, C++), `sub_<svma>`
//! for those without one.

use crate::globs::glob_matches;
use crate::model::{Function, FunctionId};
use crate::reader::Dictionary;
use crate::sources::{CallPlace, SourceLine, Sources};
use std::cell::OnceCell;
use std::fmt::{self, Write};

/// A demangled name may be this long; substitutions make exponential ones possible.
const MAX_NAME_BYTES: usize = 16 << 10;

/// The readable form of a raw symbol; the symbol itself if it is not mangled.
pub fn demangle(symbol: &str) -> String {
    if !symbol.starts_with("_Z") && !symbol.starts_with("_R") {
        return symbol.to_owned();
    }
    // A name in another module's table: `name@plt`, `name@@VERSION`.
    let (mangled, suffix) = symbol
        .find('@')
        .map_or((symbol, ""), |at| symbol.split_at(at));
    let mut name = Bounded(String::new());
    let is_rust = rustc_demangle::try_demangle(mangled).is_ok_and(|name_of| {
        // The alternate form leaves the hash out.
        write!(name, "{name_of:#}").is_ok()
    });
    if !is_rust {
        name.0.clear();
        let is_cpp = cpp_demangle::Symbol::new(mangled).is_ok_and(|name_of| {
            let options = cpp_demangle::DemangleOptions::default();
            name_of.structured_demangle(&mut name, &options).is_ok()
        });
        if !is_cpp {
            return symbol.to_owned();
        }
    }
    name.0.push_str(suffix);
    name.0
}

struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_NAME_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Display names of a trace's functions, made when first asked for.
pub struct Names<'a> {
    dictionary: &'a Dictionary,
    names: Vec<OnceCell<String>>,
    sources: Option<Sources>,
    /// Names are the symbols.
    is_raw: bool,
}

impl<'a> Names<'a> {
    /// Names for the functions of `dictionary`.
    pub fn new(dictionary: &'a Dictionary) -> Self {
        Self {
            dictionary,
            names: vec![OnceCell::new(); dictionary.functions.len()],
            sources: None,
            is_raw: false,
        }
    }

    /// The same, with what is known of the source.
    #[must_use]
    pub fn with_sources(self, sources: Option<Sources>) -> Self {
        Self { sources, ..self }
    }

    /// The same with symbols for names, as linkers know them.
    #[must_use]
    pub fn as_symbols(self) -> Self {
        Self {
            is_raw: true,
            ..self
        }
    }

    /// True if lines of the source are asked for.
    pub fn has_sources(&self) -> bool {
        self.sources.is_some()
    }

    /// Where a function begins, as far as that is asked for and known.
    pub fn source(&self, id: FunctionId) -> Option<&SourceLine> {
        self.sources.as_ref()?.function(id)
    }

    /// Where a function may call another, as far as that is asked for and known.
    pub fn call_places(&self, caller: FunctionId, callee: FunctionId) -> &[CallPlace] {
        match &self.sources {
            Some(sources) => sources.calls(caller, callee),
            None => &[],
        }
    }

    /// The dictionary behind.
    pub fn dictionary(&self) -> &'a Dictionary {
        self.dictionary
    }

    /// The display name of a function.
    pub fn name(&self, id: FunctionId) -> &str {
        let known = self
            .names
            .get(id.0 as usize)
            .zip(self.dictionary.function(id));
        known.map_or("?", |(cell, function)| {
            cell.get_or_init(|| display_name(function, self.is_raw))
        })
    }

    /// The base name of the module that holds a function.
    pub fn module(&self, id: FunctionId) -> &'a str {
        let function = self.dictionary.function(id);
        let module = function.and_then(|function| self.dictionary.module(function.module));
        module.map_or("?", |module| module.base_name())
    }

    /// Marks the functions that a glob chooses, by their index; `None` if it chooses none.
    pub fn choose(&self, glob: &str) -> Option<Vec<bool>> {
        let ids = (0..self.names.len() as u32).map(FunctionId);
        let chosen: Vec<bool> = ids.map(|id| self.is_chosen(id, glob)).collect();
        chosen.contains(&true).then_some(chosen)
    }

    /// Marks the functions of modules of which `is_wanted` says so by their path; `None` if there
    /// are none.
    pub fn choose_modules(&self, is_wanted: impl Fn(&str) -> bool) -> Option<Vec<bool>> {
        let modules = self.dictionary.modules.iter();
        let wanted: Vec<bool> = modules.map(|module| is_wanted(&module.path)).collect();
        let is_in = |function: &Function| wanted.get(function.module.0 as usize).copied();
        let functions = self.dictionary.functions.iter();
        let chosen: Vec<bool> = functions.map(|f| is_in(f).unwrap_or(false)).collect();
        chosen.contains(&true).then_some(chosen)
    }

    fn is_chosen(&self, id: FunctionId, glob: &str) -> bool {
        let raw = self
            .dictionary
            .function(id)
            .map_or("", |function| &function.symbol);
        let name = self.name(id);
        glob_matches(glob, name)
            || glob_matches(glob, raw)
            || glob_matches(glob, without_parameters(name))
    }

    /// The function whose name is closest to `text`, if any is near.
    pub fn nearest(&self, text: &str) -> Option<&str> {
        let wanted = text.trim_matches('*');
        let ids = (0..self.names.len() as u32).map(FunctionId);
        let names = ids.map(|id| without_parameters(self.name(id)));
        let scored = names.map(|name| (strsim::jaro_winkler(wanted, name), name));
        let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
        (best.0 > 0.7).then_some(best.1)
    }
}

fn display_name(function: &Function, is_raw: bool) -> String {
    if function.symbol.is_empty() {
        return format!("sub_{:x}", function.svma.0);
    }
    // Names come from the traced program: they must not steer the reader's terminal.
    let name = match is_raw {
        true => function.symbol.clone(),
        false => demangle(&function.symbol),
    };
    name.replace(char::is_control, "\u{fffd}")
}

/// `ns::f(int, char)` without its parameters; names without any as they are.
pub fn without_parameters(name: &str) -> &str {
    let anonymous = "(anonymous namespace)";
    let mut from = 0;
    while let Some(at) = name[from..].find('(').map(|at| at + from) {
        if name[at..].starts_with(anonymous) {
            from = at + anonymous.len();
        } else if name[..at].ends_with("operator") && name[at..].starts_with("()") {
            from = at + 2;
        } else {
            return if at == 0 { name } else { &name[..at] };
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_demangled() {
        assert_eq!(demangle("main"), "main");
        assert_eq!(demangle("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(
            demangle("_ZN4core3fmt5write17h0123456789abcdefE"),
            "core::fmt::write"
        );
        assert_eq!(demangle("_RNvC6_123foo3bar"), "123foo::bar");
        assert_eq!(demangle("_ZN3foo3barEi@plt"), "foo::bar(int)@plt");
        assert_eq!(demangle("_Znonsense"), "_Znonsense");
        assert_eq!(demangle(""), "");
    }

    #[test]
    fn parameters_are_cut() {
        assert_eq!(without_parameters("foo::bar(int)"), "foo::bar");
        assert_eq!(without_parameters("main"), "main");
        assert_eq!(
            without_parameters("(anonymous namespace)::f(int)"),
            "(anonymous namespace)::f"
        );
        assert_eq!(without_parameters("A::operator()(int)"), "A::operator()");
    }
}
