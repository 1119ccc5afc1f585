//! What of the files behind a trace a report shows: lines of the source, and names that the trace
//! does not have.
//!
//! Given the options and the trace's dictionary; reads images and debug files, and gives names and
//! lines. A file that has changed since the recording is not believed, and that is said. The trace
//! keeps which function was called, so the places of calls are those at which the image has a call
//! from the one function to the other. Must not know views.

use std::collections::HashMap;
use std::path::Path;

use clap::Args;
use sptrace_addr::Svma;
use sptrace_code::graph::parts_of;
use sptrace_code::{analyze, module_hash};
use sptrace_dwarf::Lines;
use sptrace_image::Object;
use sptrace_symbols::{Found, Image, places};
use sptrace_trace::{Dictionary, FunctionId, Header, Module, ModuleId, Sources};

use crate::commands::symbols::{SymbolArgs, call_place, is_meant, source_line};
use crate::talk::say;

/// Options of names and sources.
#[derive(Args, Debug)]
#[command(next_help_heading = "Symbols and sources")]
pub struct SourceArgs {
    /// Show files and lines, of modules with debug information: of calls in `tree`, `callers`,
    /// `callees` and `lines -k`, where one function calls another at several places all of them,
    /// and as `(inlined)` the functions whose bodies hold the call; of functions in `functions`;
    /// of both in exports (perfetto, firefox: of functions), as columns at the end
    #[arg(long)]
    pub source: bool,
    /// Show names of C++ and Rust as linkers know them
    #[arg(long)]
    pub no_demangle: bool,
    #[command(flatten)]
    pub symbols: SymbolArgs,
}

/// The functions of a module, by their addresses.
type ByAddress = HashMap<u64, FunctionId>;

impl SourceArgs {
    /// Gives functions of a trace the names that symbol files and debug files have for them.
    ///
    /// # Errors
    /// A sentence about an option.
    pub fn rename(&self, header: &Header, dictionary: &mut Dictionary) -> anyhow::Result<()> {
        self.symbols.apply()?;
        if self.source || self.symbols.is_any() {
            name_by_files(dictionary);
        }
        for listed in self.symbols.listed()? {
            let wanted = listed.module.as_deref();
            let program = program_of(header, dictionary);
            let numbers: Vec<ModuleId> =
                (0..).map(ModuleId).take(dictionary.modules.len()).collect();
            let meant: Vec<ModuleId> = numbers
                .into_iter()
                .zip(&dictionary.modules)
                .filter(|(id, m)| is_meant(wanted, &m.path, &m.build_id, program == Some(*id)))
                .map(|(id, _)| id)
                .collect();
            if meant.is_empty() {
                let of = wanted.unwrap_or("the program");
                say(&format!("--symbols: the trace has no functions of {of}"));
            }
            let names: HashMap<u64, String> = listed
                .names
                .into_iter()
                .map(|named| (named.address, named.name))
                .collect();
            let functions = dictionary.functions.iter_mut();
            for function in functions.filter(|f| meant.contains(&f.module)) {
                if let Some(name) = names.get(&function.svma.0) {
                    function.symbol.clone_from(name);
                }
            }
        }
        Ok(())
    }
}

/// Names of functions that have none, from the images and their debug files as they are now.
fn name_by_files(dictionary: &mut Dictionary) {
    let modules = dictionary.modules.clone();
    for (id, module) in (0..).map(ModuleId).zip(&modules) {
        let is_nameless = |f: &sptrace_trace::Function| f.module == id && f.symbol.is_empty();
        if !dictionary.functions.iter().any(is_nameless) {
            continue;
        }
        let Ok(bytes) = image_of(module) else {
            continue;
        };
        let Ok(object) = Object::parse(&bytes) else {
            continue;
        };
        let names = sptrace_code::names(&object, Path::new(&module.path));
        let functions = dictionary.functions.iter_mut();
        for function in functions.filter(|f| is_nameless(f)) {
            if let Ok(at) = names.binary_search_by_key(&function.svma, |name| name.svma) {
                function.symbol.clone_from(&names[at].name);
            }
        }
    }
}

/// The module of the program itself.
fn program_of(header: &Header, dictionary: &Dictionary) -> Option<ModuleId> {
    let command = header.command.first()?;
    let name = command.rsplit('/').next().unwrap_or(command);
    let numbered = || (0..).map(ModuleId).zip(&dictionary.modules);
    let of_name = numbered().find(|(_, module)| module.base_name() == name);
    let is_file = |module: &Module| module.path.starts_with('/');
    let first = || numbered().find(|(_, m)| is_file(m) && !m.base_name().contains(".so"));
    of_name.or_else(first).map(|(id, _)| id)
}

/// The bytes of a module's file, if it is the one that was recorded.
fn image_of(module: &Module) -> Result<Vec<u8>, Option<String>> {
    if !module.path.starts_with('/') {
        return Err(None);
    }
    let bytes = std::fs::read(&module.path).map_err(|_| None)?;
    let is_same = Object::parse(&bytes).is_ok_and(|object| {
        let hash = || module_hash(&object).to_be_bytes();
        // Of a file without a build id, and of the first traces, there is the hash.
        match object.build_id == module.build_id && !module.build_id.is_empty() {
            true => true,
            false => module.build_id == hash(),
        }
    });
    match is_same {
        true => Ok(bytes),
        false => Err(Some(format!(
            "{} has changed since the recording: no lines and names are taken from it",
            module.path
        ))),
    }
}

/// Lines of the source; `with_calls`: those of calls too.
pub fn read(dictionary: &Dictionary, with_calls: bool) -> Sources {
    let mut sources = Sources {
        functions: vec![None; dictionary.functions.len()],
        ..Sources::default()
    };
    let imports = imports(dictionary);
    for (id, module) in (0..).map(ModuleId).zip(&dictionary.modules) {
        let functions: ByAddress = (0..)
            .map(FunctionId)
            .zip(&dictionary.functions)
            .filter(|(_, function)| function.module == id)
            .map(|(number, function)| (function.svma.0, number))
            .collect();
        if functions.is_empty() || module.path.starts_with('[') {
            continue;
        }
        let image = image_of(module);
        if let Err(Some(why)) = &image {
            say(why);
        }
        let image = image.ok();
        let Some(lines) = lines_of(module, image.as_deref()) else {
            continue;
        };
        for (svma, number) in &functions {
            if let Some(place) = sources.functions.get_mut(number.0 as usize) {
                *place = lines.begin(Svma(*svma)).map(source_line);
            }
        }
        if let (true, Some(image)) = (with_calls, &image)
            && let Ok(object) = Object::parse(image)
        {
            add_calls(&object, &lines, (&functions, &imports), &mut sources);
        }
    }
    for places in sources.calls.values_mut() {
        places.sort();
        places.dedup();
    }
    sources
}

fn lines_of(module: &Module, image: Option<&[u8]>) -> Option<Lines> {
    let path = Path::new(&module.path);
    let found: Found = match image {
        Some(image) => places().debug_information(image, path),
        None => places().without_image(Image {
            path,
            build_id: &module.build_id,
            link: None,
        }),
    };
    found.refused.iter().for_each(|why| say(why));
    let (_, file) = found.file?;
    Lines::new(&file, found.supplement.as_deref())
}

/// The functions of all modules by what others call them; of several versions of one, of which the
/// loader chooses (`__strlen_avx2`), by what they are versions of.
fn imports(dictionary: &Dictionary) -> HashMap<&str, Vec<FunctionId>> {
    let mut imports: HashMap<&str, Vec<FunctionId>> = HashMap::new();
    for (id, function) in (0..).map(FunctionId).zip(&dictionary.functions) {
        let symbol = function.symbol.split('@').next().unwrap_or_default();
        if symbol.is_empty() || function.symbol.ends_with("@plt") {
            continue;
        }
        imports.entry(symbol).or_default().push(id);
        let version = symbol
            .strip_prefix("__")
            .and_then(|rest| rest.split_once('_'));
        if let Some((of, _)) = version.filter(|(of, _)| !of.is_empty()) {
            imports.entry(of).or_default().push(id);
        }
    }
    imports
}

/// Where the functions of an image call others that the trace names.
fn add_calls(
    object: &Object<'_>,
    lines: &Lines,
    (functions, imports): (&ByAddress, &HashMap<&str, Vec<FunctionId>>),
    sources: &mut Sources,
) {
    let analysis = analyze(object);
    for (index, function) in analysis.functions.iter().enumerate() {
        let Some(&caller) = functions.get(&function.entry.0) else {
            continue;
        };
        // What the compiler has moved elsewhere runs in the same frame.
        let parts = parts_of(&analysis, index);
        let parts = parts
            .iter()
            .filter_map(|part| analysis.functions.get(*part));
        for site in parts.flat_map(|part| analysis.sites_of(part)) {
            let direct = functions.get(&site.target.0).filter(|_| site.target.0 != 0);
            let slot = Some(site.got_slot).filter(|slot| slot.0 != 0);
            let import = slot.and_then(|slot| object.slot_name(slot));
            let import = import.and_then(|name| name.split('@').next());
            let imported = import.and_then(|name| imports.get(name));
            let callees = direct.into_iter().chain(imported.into_iter().flatten());
            let callees: Vec<FunctionId> = callees.copied().collect();
            if callees.is_empty() {
                continue;
            }
            let Some(place) = call_place(lines, site.address) else {
                continue;
            };
            for callee in callees {
                let places = sources.calls.entry((caller, callee)).or_default();
                places.push(place.clone());
            }
        }
    }
}
