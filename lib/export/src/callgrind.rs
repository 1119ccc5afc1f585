//! Callgrind's profile format, for KCachegrind and callgrind_annotate: calls and nanoseconds of
//! each function, and of each pair of caller and callee.
//!
//! Own costs are those of `report functions`; so are inclusive ones, as what ran at the bottom of a
//! stack is called by `[threads]`, and a call of a function that runs already costs nothing more.
//! Time of which it is not known whether a function or a call from it took it is what `[not told
//! apart]` costs.

use crate::output::Output;
use crate::{Context, Written};
use sptrace_trace::{CallPlace, Edge, FunctionId, Graph};
use std::collections::{HashMap, HashSet};
use std::io::Write;

const THREADS: &str = "fl=(0) ???\nfn=(0) [threads]\n";
const SHARED_ID: u64 = 1;

/// A function that is called, and what of it was by one caller.
type Callee = (FunctionId, Edge);

/// Numbers and names as the format wants them: written in full once, then by number.
struct Speller<'a> {
    cx: &'a Context<'a>,
    /// Names that several functions of a module have.
    ambiguous: HashSet<(&'a str, &'a str)>,
    spelt: HashSet<(&'static str, u64)>,
    /// Numbers of files of the source, behind those of modules.
    files: HashMap<&'a str, u64>,
}

impl<'a> Speller<'a> {
    fn new(cx: &'a Context<'a>, functions: &[(FunctionId, Edge)]) -> Self {
        let (mut seen, mut ambiguous) = (HashSet::new(), HashSet::new());
        for (id, _) in functions {
            let name = (cx.names.module(*id), cx.names.name(*id));
            if !seen.insert(name) {
                ambiguous.insert(name);
            }
        }
        let spelt = HashSet::new();
        Self {
            cx,
            ambiguous,
            spelt,
            files: HashMap::new(),
        }
    }

    /// One line: `prefix kind=(number) name`.
    fn line<W: Write>(
        &mut self,
        key: (&str, &'static str, u64),
        name: impl FnOnce() -> String,
        out: &mut Output<W>,
    ) {
        let (prefix, kind, number) = key;
        out.text(prefix);
        out.text(kind);
        out.text("=(");
        out.number(number);
        out.text(")");
        if self.spelt.insert((kind, number)) {
            out.text(" ");
            // The format ends a name with the line.
            out.text(&name().replace(char::is_control, "\u{fffd}"));
        }
        out.text("\n");
    }

    fn file(&mut self, file: &'a str) -> u64 {
        let modules = self.cx.names.dictionary().modules.len() as u64;
        let next = modules + 2 + self.files.len() as u64;
        *self.files.entry(file).or_insert(next)
    }

    /// Object, file and function; `prefix` is "c" for a callee's.
    fn function<W: Write>(&mut self, prefix: &str, id: FunctionId, out: &mut Output<W>) {
        let names = self.cx.names;
        let dictionary = names.dictionary();
        let function = dictionary.function(id);
        let module = function.map(|function| function.module);
        let number = module.map_or(1, |module| u64::from(module.0) + 2);
        let path = || {
            let module = module.and_then(|id| dictionary.module(id));
            module.map_or("?".to_owned(), |module| module.path.clone())
        };
        self.line((prefix, "ob", number), path, out);
        // Where no source is known, what tells functions of the same name apart is the module.
        let source = names.source(id);
        let file = || source.map_or_else(|| names.module(id).to_owned(), |line| line.file.clone());
        let number = match source {
            Some(line) => self.file(&line.file),
            None => number,
        };
        // A file keeps its number as a callee's.
        self.line(
            (prefix, if prefix.is_empty() { "fl" } else { "fi" }, number),
            file,
            out,
        );
        let svma = function.map_or(0, |function| function.svma.0);
        let is_ambiguous = self.ambiguous.contains(&(names.module(id), names.name(id)));
        let name = || match is_ambiguous {
            true => format!("{} [{svma:#x}]", names.name(id)),
            false => names.name(id).to_owned(),
        };
        self.line((prefix, "fn", u64::from(id.0) + 2), name, out);
    }
}

/// A line of the source, 0 for none, and what is counted there.
fn cost<W: Write>(line: u32, (ns, calls): (u64, u64), out: &mut Output<W>) {
    out.number(line.into());
    out.text(" ");
    out.number(ns);
    out.text(" ");
    out.number(calls);
    out.text("\n");
}

/// Writes the profile.
pub fn write<W: Write>(cx: &Context<'_>, graph: &Graph, out: &mut Output<W>) -> Written {
    let (functions, clock) = (graph.functions(), cx.clock);
    let mut callees: HashMap<Option<FunctionId>, Vec<(FunctionId, Edge)>> = HashMap::new();
    for ((caller, callee), edge) in graph.edges() {
        callees.entry(caller).or_default().push((callee, edge));
    }
    let sum = |part: fn(&Edge) -> u64| {
        let parts = functions.iter().map(|(_, edge)| part(edge));
        parts.fold(0_u64, u64::saturating_add)
    };
    let own_ns = sum_ns(&functions, |edge| clock.ns(edge.self_ticks));
    let shared_ns = sum_ns(&functions, |edge| clock.ns(edge.shared_ticks));
    let calls = sum(|edge| edge.calls);
    out.text("# callgrind format\nversion: 1\ncreator: sptrace ");
    out.text(&cx.header.tool_version);
    let command = cx.header.command.join(" ");
    out.text("\ncmd: ");
    out.text(&command.replace(char::is_control, " "));
    out.text("\npositions: line\nevents: Ns Calls\nsummary: ");
    out.number(own_ns.saturating_add(shared_ns));
    out.text(" ");
    out.number(calls);
    out.text("\n\n");
    let mut speller = Speller::new(cx, &functions);
    out.text("ob=(0) ???\n");
    out.text(THREADS);
    write_callees(cx, &mut speller, (None, callees.get(&None)), out);
    for (id, edge) in &functions {
        out.text("\n");
        speller.function("", *id, out);
        let line = cx.names.source(*id).map_or(0, |line| line.line);
        cost(line, (clock.ns(edge.self_ticks), edge.calls), out);
        write_callees(cx, &mut speller, (Some(*id), callees.get(&Some(*id))), out);
        let ns = clock.ns(edge.shared_ticks);
        if ns > 0 {
            out.text("cob=(0)\ncfi=(0)\n");
            speller.line(
                ("c", "fn", SHARED_ID),
                || "[not told apart]".to_owned(),
                out,
            );
            out.text("calls=1 0\n");
            cost(0, (ns, 0), out);
        }
        out.pass();
    }
    if shared_ns > 0 {
        out.text("\nob=(0)\nfl=(0)\nfn=(1)\n");
        cost(0, (shared_ns, 0), out);
    }
    Written {
        calls,
        is_cut: false,
        ..Written::default()
    }
}

fn sum_ns(functions: &[(FunctionId, Edge)], ns: impl Fn(&Edge) -> u64) -> u64 {
    let parts = functions.iter().map(|(_, edge)| ns(edge));
    parts.fold(0, u64::saturating_add)
}

fn write_callees<W: Write>(
    cx: &Context<'_>,
    speller: &mut Speller<'_>,
    (caller, callees): (Option<FunctionId>, Option<&Vec<Callee>>),
    out: &mut Output<W>,
) {
    for (callee, edge) in callees.into_iter().flatten() {
        speller.function("c", *callee, out);
        out.text("calls=");
        // Without a number, callgrind_annotate takes the costs for the caller's own.
        out.number(edge.calls.max(1));
        out.text(" ");
        out.number(cx.names.source(*callee).map_or(0, |line| line.line).into());
        out.text("\n");
        let places = caller.map_or(&[][..], |caller| cx.names.call_places(caller, *callee));
        let in_file = |place: &&CallPlace| {
            let file = caller.and_then(|caller| cx.names.source(caller));
            file.is_some_and(|line| line.file == place.at.file)
        };
        // What was inlined from another file has no line in this one.
        let line = places.iter().find(in_file).map_or(0, |place| place.at.line);
        let ns = cx.clock.ns(edge.inclusive_ticks);
        cost(line, (ns, edge.inclusive_calls), out);
        out.pass();
    }
}
