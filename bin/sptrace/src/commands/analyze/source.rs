//! Names and lines of an image that are not in it: what `analyze` adds to its lists.
//!
//! Given the image and the options; gives names, lines, and lists with one column more or two. Must
//! not know what else is in a list.

use std::path::Path;

use sptrace_addr::Svma;
use sptrace_code::{Name, names};
use sptrace_dwarf::Lines;
use sptrace_image::Object;
use sptrace_symbols::places;
use sptrace_trace::{SourceLine, call_words};

use super::list::List;
use crate::commands::symbols::{SymbolArgs, call_place, is_meant, source_line};
use crate::talk::say;

/// The names of an image: those of symbol files count more than its own.
///
/// # Errors
/// A sentence about an option.
pub fn all_names(
    object: &Object<'_>,
    file: &Path,
    symbols: &SymbolArgs,
) -> anyhow::Result<Vec<Name>> {
    let mut all = names(object, file);
    for listed in symbols.listed()? {
        let path = file.to_string_lossy();
        if !is_meant(listed.module.as_deref(), &path, object.build_id, true) {
            continue;
        }
        for named in listed.names {
            let name = Name {
                svma: Svma(named.address),
                size_bytes: named.size_bytes,
                name: named.name,
            };
            match all.binary_search_by_key(&name.svma, |n| n.svma) {
                Ok(at) => all[at] = name,
                Err(at) => all.insert(at, name),
            }
        }
    }
    Ok(all)
}

/// The lines of an image; `None`, and why that is: it has none.
pub fn lines(image: &[u8], file: &Path) -> Option<Lines> {
    let found = places().debug_information(image, file);
    found.refused.iter().for_each(|why| say(why));
    let lines = found
        .file
        .and_then(|(_, bytes)| Lines::new(&bytes, found.supplement.as_deref()));
    if lines.is_none() {
        say(&format!(
            "--source: no debug information of {} is at hand (install its debug file, or see --debug-dir, --debuginfod)",
            file.display()
        ));
    }
    lines
}

/// A list of functions with where they begin.
pub fn with_functions(mut list: List, addresses: &[Svma], lines: &Lines) -> List {
    list.header.push("source");
    for (row, svma) in list.rows.iter_mut().zip(addresses) {
        let line = lines.begin(*svma).map(source_line);
        row.push(
            line.map_or_else(String::new, |line| line.to_string())
                .into(),
        );
    }
    list
}

/// A list of sites with where they were written, and in which inlined functions, innermost first.
pub fn with_sites(mut list: List, addresses: &[Svma], lines: &Lines) -> List {
    list.header.extend(["source", "inlined"]);
    for (row, svma) in list.rows.iter_mut().zip(addresses) {
        let place = call_place(lines, *svma);
        let inlined = place
            .as_ref()
            .map_or_else(String::new, |p| p.inlined.join(" "));
        let at = place.map_or_else(String::new, |place| place.at.to_string());
        row.push(at.into());
        row.push(inlined.into());
    }
    list
}

/// A call of a graph, in words; empty: not known.
pub fn call_text(lines: Option<&Lines>, at: u64) -> String {
    let place = lines.and_then(|lines| call_place(lines, Svma(at)));
    place.map_or_else(String::new, |place| {
        call_words(&[place], SourceLine::to_string)
    })
}
