//! What takes longer to find out of a function than its name: lines, prototypes, loops.
//!
//! Given a module's file; reads it, and its debug information, when the first question comes. Must
//! not know who asks.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use sptrace_addr::Svma;
use sptrace_code::jumps_back;
use sptrace_dwarf::{Lines, Prototypes};
use sptrace_image::Object;

/// The file of a module.
pub struct File {
    path: PathBuf,
    image: OnceLock<Vec<u8>>,
    code: OnceLock<Vec<(u64, Vec<u8>)>>,
    debug: OnceLock<Mutex<(Option<Lines>, Prototypes)>>,
}

/// A function in it.
#[derive(Clone)]
pub struct Looked {
    /// Its file.
    pub file: Arc<File>,
    /// Where it begins.
    pub svma: u64,
    /// Bytes up to the next one.
    pub size_bytes: u64,
}

impl File {
    /// As it can be opened.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            image: OnceLock::new(),
            code: OnceLock::new(),
            debug: OnceLock::new(),
        }
    }

    fn image(&self) -> &[u8] {
        self.image
            .get_or_init(|| std::fs::read(&self.path).unwrap_or_default())
    }

    fn code_from(&self, svma: u64) -> Option<&[u8]> {
        let code = self.code.get_or_init(|| {
            let Ok(object) = Object::parse(self.image()) else {
                return Vec::new();
            };
            let ranges = object.code_ranges.iter();
            ranges
                .map(|range| (range.start.0, range.bytes.to_vec()))
                .collect()
        });
        code.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(svma.checked_sub(*start)?).ok()?;
            bytes.get(at..).filter(|rest| !rest.is_empty())
        })
    }

    fn with_debug<T>(&self, ask: impl FnOnce(Option<&Lines>, &Prototypes) -> T) -> Option<T> {
        let debug = self.debug.get_or_init(|| {
            let found = sptrace_symbols::places().debug_information(self.image(), &self.path);
            for why in &found.refused {
                log::warn!("{why}");
            }
            let file = found.file.map(|(_, bytes)| bytes);
            let supplement = found.supplement;
            let lines = file
                .as_deref()
                .and_then(|file| Lines::new(file, supplement.as_deref()));
            let prototypes = Prototypes::new(file).with_supplement(supplement);
            Mutex::new((lines, prototypes))
        });
        let debug = debug.lock().ok()?;
        Some(ask(debug.0.as_ref(), &debug.1))
    }

    /// Where the function at an address begins.
    pub fn line(&self, svma: Svma) -> Option<(String, u32)> {
        let line = self.with_debug(|lines, _| lines?.begin(svma))??;
        Some((line.file, line.line))
    }

    /// What it takes and gives.
    pub fn prototype(&self, svma: Svma) -> Option<String> {
        self.with_debug(|_, prototypes| prototypes.of(svma))?
    }
}

impl Looked {
    /// Where it begins: the file as the compiler was given it, and the line.
    pub fn line(&self) -> Option<(String, u32)> {
        self.file.line(Svma(self.svma))
    }

    /// What it takes and gives.
    pub fn prototype(&self) -> Option<String> {
        self.file.prototype(Svma(self.svma))
    }

    /// Does it jump back inside of itself?
    pub fn has_loops(&self) -> bool {
        let size = usize::try_from(self.size_bytes).unwrap_or(usize::MAX);
        let code = self.file.code_from(self.svma);
        code.is_some_and(|code| jumps_back(code.get(..size).unwrap_or(code), Svma(self.svma)))
    }
}
