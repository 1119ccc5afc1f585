//! The control-flow graph of one function of a file: `analyze --graph`.
//!
//! Given an image, the function's name, and a trace if there is one; gives what is written. Call
//! sites are shown with what `run` would do there.

use std::cell::RefCell;
use std::path::Path;

use sptrace_addr::Svma;
use sptrace_code::graph::{Call, Graph, analyze_with_graph, parts_of};
use sptrace_code::{Analysis, Name, name_of};
use sptrace_dwarf::Lines;
use sptrace_image::Object;
use sptrace_patch::build_plan::verdicts;
use sptrace_trace::{Function, Module, demangle, without_parameters};

use super::counts::Counts;
use super::drawn::Drawn;
use super::list::Format;
use super::source::call_text;
use super::{verdict_name, written};

/// What is to be shown, and by which names.
pub struct Asked<'a> {
    /// The names of the image.
    pub names: Vec<Name>,
    /// Its lines, if calls are to be shown with them.
    pub lines: Option<Lines>,
    /// The function.
    pub wanted: &'a str,
    /// How it is written.
    pub format: Format,
}

/// Writes the graph of the function that is called `wanted`, or lies at that address.
///
/// # Errors
/// A sentence for the user: there is no such function, or there are several; the trace cannot be
/// read.
pub fn show(
    object: &Object<'_>,
    asked: &Asked<'_>,
    file: &Path,
    trace: Option<&Path>,
) -> anyhow::Result<()> {
    let (names, wanted) = (&asked.names, asked.wanted);
    let (analysis, graph, index) = found(object, names, wanted, file)?;
    let entry = analysis.functions.get(index).map_or(Svma(0), |f| f.entry);
    let name = name_of(names, entry);
    let counts = trace.map(|trace| {
        let is_meant = |f: &Function, m: &Module| {
            let is_file = Path::new(&m.path).file_name() == file.file_name();
            is_file && f.svma == entry
        };
        Counts::of(trace, wanted, &is_meant)
    });
    let sites = verdicts(object, &analysis);
    let site = |at: u64| {
        let function = analysis.function_at(Svma(at));
        let function = function.and_then(|i| analysis.functions.get(i));
        let found = function.and_then(|f| {
            let position = analysis.sites_of(f).position(|s| s.address.0 == at)?;
            sites.get(f.first_site as usize + position)
        });
        found.map_or_else(String::new, |verdict| verdict_name(*verdict))
    };
    let starts: Vec<(Svma, Svma, String)> = parts_of(&analysis, index)
        .iter()
        .filter_map(|part| analysis.functions.get(*part))
        .map(|f| (f.entry, f.end, name_of(names, f.entry)))
        .collect();
    let place = |at: u64| {
        let part = starts
            .iter()
            .find(|(start, end, _)| (start.0..end.0).contains(&at));
        part.map_or_else(
            || format!("{at:#x}"),
            |(start, _, name)| {
                format!(
                    "{}+{:#x}",
                    without_parameters(&demangle(name)),
                    at - start.0
                )
            },
        )
    };
    let drawn = Drawn {
        name,
        graph: &graph,
        place: &place,
        callee: &|call| callee(object, names, call),
        site: &site,
        source: &|at| call_text(asked.lines.as_ref(), at),
        counts: counts.transpose()?,
    };
    written(|out| drawn.write(asked.format, out))
}

/// The analysis of the file, and the graph of the one function that is meant, with its index.
fn found(
    object: &Object<'_>,
    names: &[Name],
    wanted: &str,
    file: &Path,
) -> anyhow::Result<(Analysis, Graph, usize)> {
    let chosen = RefCell::new(Vec::new());
    let (analysis, graph) = analyze_with_graph(object, &|analysis| {
        let all = find(analysis, names, wanted);
        let first = all.first().copied();
        chosen.replace(all);
        first
    });
    let shown = file.display();
    let all = chosen.into_inner();
    let (Some(graph), [index]) = (graph, all.as_slice()) else {
        if all.is_empty() {
            anyhow::bail!(
                "no function {wanted} in {shown} (`sptrace analyze --functions {shown}` lists them)"
            );
        }
        let entry = |i: &usize| analysis.functions.get(*i).map_or(0, |f| f.entry.0);
        let all: Vec<String> = all.iter().map(|i| format!("{:#x}", entry(i))).collect();
        anyhow::bail!(
            "{shown} has several functions {wanted}; name one by its address: {}",
            all.join(", ")
        );
    };
    Ok((analysis, graph, *index))
}

/// Functions of this name, or the one at this address.
fn find(analysis: &Analysis, names: &[Name], wanted: &str) -> Vec<usize> {
    if let Some(svma) = wanted.strip_prefix("0x") {
        let svma = u64::from_str_radix(svma, 16).ok();
        let index = svma.and_then(|svma| analysis.function_at(Svma(svma)));
        return index.into_iter().collect();
    }
    let is_meant = |name: &str| {
        let readable = demangle(name);
        name == wanted || readable == wanted || without_parameters(&readable) == wanted
    };
    let named = names.iter().filter(|name| is_meant(&name.name));
    let found = named.filter_map(|name| {
        let index = analysis.function_at(name.svma)?;
        (analysis.functions[index].entry == name.svma).then_some(index)
    });
    found.collect()
}

/// What a call leads to, as far as the file says.
fn callee(object: &Object<'_>, names: &[Name], call: &Call) -> String {
    let Some(target) = call.target else {
        return String::new();
    };
    let stub = object.plt_stub_at(Svma(target));
    let import = stub.and_then(|stub| object.slot_name(stub.got_slot));
    import.map_or_else(|| name_of(names, Svma(target)), str::to_owned)
}
