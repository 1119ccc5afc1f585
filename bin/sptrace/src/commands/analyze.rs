//! `sptrace analyze`: what the code analysis knows of one file.
//!
//! Is given an ELF file; prints a summary by default, or lists of functions, sites and refusals, as
//! text, CSV (RFC 4180) or JSON, or the control-flow graph of one function. That of a function of
//! the kernel needs no file. Knows nothing of running programs.

mod counts;
mod drawn;
mod function;
mod kernel;
mod list;
mod points;
mod source;

use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use sptrace_addr::Svma;
use sptrace_code::{
    Analysis, Bytes, Function, FunctionFlags, Name, Site, SiteFlags, SiteKind, analyze, name_of,
    number_before,
};
use sptrace_dwarf::Lines;
use sptrace_image::Object;
use sptrace_patch::build_plan::{build_plan, verdicts};
use sptrace_patch::system_calls::system_calls;
use sptrace_patch::{Refusal, Tactic, Verdict};

use crate::commands::symbols::SymbolArgs;
use list::{Cell, Format, List, print};

const EXAMPLES: &str = "\
Examples:
  sptrace analyze /bin/ls                                a summary
  sptrace analyze --refusals /bin/ls                     what cannot be traced, and why
  sptrace analyze --graph main --format svg ./a >a.svg   the blocks of a function
  sptrace analyze --sites --source ./a                   call sites with lines, and what was inlined
  sptrace analyze --graph main -i sptrace.data ./a       the same, with what a trace has counted
  sptrace analyze --kernel pipe_write --format svg >p.svg

A graph shows the basic blocks of a function, how control passes between them, its jump tables, and
its calls, each with how `run` would trace it or why it cannot. That of a function of the kernel is
read from the kernel's memory, which takes root.
";

/// Show what sptrace knows of a program or library: functions, call sites, and what it cannot trace
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AnalyzeArgs {
    /// ELF program or shared library for x86-64
    #[arg(required_unless_present = "kernel")]
    file: Option<PathBuf>,
    /// List every function
    #[arg(long)]
    functions: bool,
    /// List every site: calls and tail calls
    #[arg(long)]
    sites: bool,
    /// List the sites that cannot be traced, each with the reason
    #[arg(long)]
    refusals: bool,
    /// List every instruction that calls the kernel, with the call where it is written before it
    #[arg(long)]
    system_calls: bool,
    /// List every place that a call returns to, with how its end could be seen there if it kept its
    /// return address
    #[arg(long)]
    return_points: bool,
    /// Show the control-flow graph of this function, by its name or its address (0x...)
    #[arg(long, value_name = "FUNC", conflicts_with_all = ["functions", "sites", "refusals", "system_calls", "return_points"])]
    graph: Option<String>,
    /// Show the control-flow graph of this function of the running kernel
    #[arg(long, value_name = "FUNC", conflicts_with_all = ["file", "graph", "functions", "sites", "refusals", "system_calls", "return_points"])]
    kernel: Option<String>,
    /// Show in a graph what this trace has counted
    #[arg(short, long, value_name = "TRACE")]
    input: Option<PathBuf>,
    /// Show files and lines: of functions and sites in lists, with the functions that were inlined
    /// at a site; of calls in a graph
    #[arg(long)]
    source: bool,
    #[command(flatten)]
    symbols: SymbolArgs,
    /// Form of the output; dot and svg are for graphs
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs the command.
///
/// # Errors
/// When the file cannot be read or is no image that can be analysed, or stdout fails.
pub fn run(args: &AnalyzeArgs) -> anyhow::Result<()> {
    args.symbols.apply()?;
    let trace = args.input.as_deref();
    if let Some(function) = &args.kernel {
        return kernel::show(function, trace, args.format);
    }
    if args.graph.is_none() && matches!(args.format, Format::Dot | Format::Svg) {
        bail!("--format dot and svg are for --graph and --kernel; lists are text, csv or json");
    }
    if args.graph.is_none() && trace.is_some() {
        bail!("-i is for --graph and --kernel; leave it out");
    }
    let Some(file) = &args.file else {
        bail!("name a file");
    };
    let shown = file.display();
    let bytes = Bytes::open(file).with_context(|| format!("cannot read {shown}"))?;
    let object = Object::parse(bytes.bytes()).with_context(|| format!("cannot analyze {shown}"))?;
    bytes.release_pages();
    if let Some(function) = &args.graph {
        let lines = args.source.then(|| source::lines(bytes.bytes(), file));
        let asked = function::Asked {
            names: source::all_names(&object, file, &args.symbols)?,
            lines: lines.flatten(),
            wanted: function,
            format: args.format,
        };
        return function::show(&object, &asked, file, trace);
    }
    let analysis = analyze(&object);
    bytes.release_pages();
    let report = Report {
        analysis: &analysis,
        names: source::all_names(&object, file, &args.symbols)?,
        lines: args
            .source
            .then(|| source::lines(bytes.bytes(), file))
            .flatten(),
        verdicts: verdicts(&object, &analysis),
    };
    let lists = report.wanted(args, &object);
    written(|out| print(&lists, args.format, out))
}

/// Writes to stdout; whoever reads it may have had enough.
fn written(
    write: impl FnOnce(&mut BufWriter<StdoutLock<'static>>) -> io::Result<()>,
) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to stdout"),
    }
}

struct Report<'a> {
    analysis: &'a Analysis,
    names: Vec<Name>,
    /// If they are asked for and known.
    lines: Option<Lines>,
    /// As `run` would decide, one for each site of the analysis.
    verdicts: Vec<Verdict>,
}

impl Report<'_> {
    /// The lists that are asked for; a summary if none is.
    fn wanted(&self, args: &AnalyzeArgs, object: &Object<'_>) -> Vec<List> {
        let mut lists = Vec::new();
        if args.functions {
            lists.push(self.functions());
        }
        if args.sites {
            lists.push(self.sites(false));
        }
        if args.refusals {
            lists.push(self.sites(true));
        }
        if args.system_calls {
            lists.push(self.system_calls(object));
        }
        if args.return_points {
            let found = points::of(object, self.analysis);
            lists.push(points::list(&found, self.analysis, &self.names));
        }
        if lists.is_empty() {
            lists.push(self.summary(object));
        }
        lists
    }

    fn summary(&self, object: &Object<'_>) -> List {
        let summary = &self.analysis.summary;
        let flagged = |flag| self.count(|f| f.flags.contains(flag));
        let mut rows: Vec<(String, u64)> = [
            ("text bytes", summary.text_bytes),
            ("functions", self.analysis.functions.len() as u64),
            (
                "  with unwind information",
                flagged(FunctionFlags::HAS_UNWIND),
            ),
            ("  parts of others", flagged(FunctionFlags::COLD_PART)),
            ("  that never return", flagged(FunctionFlags::NO_RETURN)),
            ("  using memory below rsp", flagged(FunctionFlags::RED_ZONE)),
            (
                "  with unresolved jumps",
                flagged(FunctionFlags::UNRESOLVED_JUMPS),
            ),
            ("instructions", summary.instructions),
            ("basic blocks", summary.blocks),
            ("jump tables", summary.jump_tables),
            ("unresolved jumps", summary.unresolved_jumps),
            ("sites", self.analysis.sites.len() as u64),
            ("system calls", self.analysis.system_calls.len() as u64),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .to_vec();
        rows.extend(self.sites_by_form());
        let taken = Tactic::ALL.map(|t| (format!("patched: {}", t.name()), Verdict::Taken(t)));
        let refused = Refusal::ALL.map(|r| (format!("refused: {}", r.name()), Verdict::Refused(r)));
        for (name, verdict) in taken.into_iter().chain(refused) {
            let count = self.verdicts.iter().filter(|v| **v == verdict).count() as u64;
            if count > 0 {
                rows.push((name, count));
            }
        }
        rows.extend(points::rows(&points::of(object, self.analysis)));
        let rows = rows
            .into_iter()
            .map(|(name, count)| vec![name.into(), count.into()])
            .collect();
        List {
            title: "summary",
            header: vec!["what", "count"],
            rows,
        }
    }

    fn count(&self, wanted: impl Fn(&Function) -> bool) -> u64 {
        self.analysis.functions.iter().filter(|f| wanted(f)).count() as u64
    }

    /// Sites of each kind, and of each length shorter than a patch.
    fn sites_by_form(&self) -> Vec<(String, u64)> {
        let mut rows = Vec::new();
        for kind in KINDS {
            let of_kind = || self.analysis.sites.iter().filter(move |s| s.kind == kind);
            rows.push((format!("  {}", kind_name(kind)), of_kind().count() as u64));
            for length in 2..PATCH_BYTES {
                let count = of_kind().filter(|s| s.length == length).count() as u64;
                if count > 0 {
                    rows.push((format!("    of {length} bytes"), count));
                }
            }
        }
        rows
    }

    fn sites_and_verdicts(&self) -> impl Iterator<Item = (&Function, Site, Verdict)> {
        let functions = self.analysis.functions.iter();
        let sites = functions.flat_map(|f| self.analysis.sites_of(f).map(move |s| (f, s)));
        sites
            .zip(&self.verdicts)
            .map(|((function, site), verdict)| (function, site, *verdict))
    }

    fn functions(&self) -> List {
        let row = |function: &Function| {
            vec![
                hex(function.entry.0),
                (function.end.0 - function.entry.0).into(),
                u64::from(function.site_count).into(),
                u64::from(function.link_count).into(),
                function_flags(function.flags).into(),
                name_of(&self.names, function.entry).into(),
            ]
        };
        let list = List {
            title: "functions",
            header: vec!["address", "size_bytes", "sites", "links", "flags", "name"],
            rows: self.analysis.functions.iter().map(row).collect(),
        };
        let entries: Vec<_> = self.analysis.functions.iter().map(|f| f.entry).collect();
        match &self.lines {
            Some(lines) => source::with_functions(list, &entries, lines),
            None => list,
        }
    }

    fn sites(&self, only_refused: bool) -> List {
        let is_wanted = |(.., verdict): &(&Function, Site, Verdict)| {
            !only_refused || matches!(verdict, Verdict::Refused(_))
        };
        let wanted = || self.sites_and_verdicts().filter(is_wanted);
        let addresses: Vec<_> = wanted().map(|(_, site, _)| site.address).collect();
        let rows = wanted()
            .map(|(function, site, verdict)| {
                vec![
                    hex(site.address.0),
                    u64::from(site.length).into(),
                    kind_name(site.kind).into(),
                    self.target(&site).into(),
                    site.window_bytes().into(),
                    verdict_name(verdict).into(),
                    site_flags(site.flags).into(),
                    name_of(&self.names, function.entry).into(),
                ]
            })
            .collect();
        let list = List {
            title: if only_refused { "refusals" } else { "sites" },
            header: vec![
                "address",
                "length",
                "kind",
                "target",
                "window_bytes",
                "verdict",
                "flags",
                "function",
            ],
            rows,
        };
        match &self.lines {
            Some(lines) => source::with_sites(list, &addresses, lines),
            None => list,
        }
    }

    fn system_calls(&self, object: &Object<'_>) -> List {
        let plan = build_plan(object, self.analysis);
        let found = system_calls(object, self.analysis, &plan);
        let how = |svma: Svma| {
            let offset = svma.0.wrapping_sub(object.lowest_svma().0 & !4095) as u32;
            match found.taken.iter().find(|taken| taken.at == offset) {
                Some(taken) if taken.has_springboard => Tactic::Springboard.name().to_owned(),
                Some(_) => "block".to_owned(),
                None => {
                    let refused = found.refused.iter().find(|refused| refused.at == svma);
                    refused.map_or_else(String::new, |r| format!("refused: {}", r.why.name()))
                }
            }
        };
        let row = |site: Site| {
            let call = number_before(object, &site).and_then(sptrace_types::syscalls::by_number);
            let function = self.analysis.function_at(site.address);
            let function = function.map(|i| self.analysis.functions[i].entry);
            vec![
                hex(site.address.0),
                call.map_or("", |call| call.name).into(),
                how(site.address).into(),
                function
                    .map_or_else(String::new, |entry| name_of(&self.names, entry))
                    .into(),
            ]
        };
        List {
            title: "system_calls",
            header: vec!["address", "call", "verdict", "function"],
            rows: self.analysis.system_calls.iter().map(row).collect(),
        }
    }

    fn target(&self, site: &Site) -> String {
        match (site.target.0, site.got_slot.0) {
            (0, 0) => String::new(),
            (0, slot) => format!("[{slot:#x}]"),
            _ => name_of(&self.names, site.target),
        }
    }
}

/// Sites shorter than a jump are counted by length.
const PATCH_BYTES: u8 = 5;

fn verdict_name(verdict: Verdict) -> String {
    match verdict {
        Verdict::Taken(tactic) => tactic.name().to_owned(),
        Verdict::Refused(reason) => format!("refused: {}", reason.name()),
    }
}

const KINDS: [SiteKind; 5] = [
    SiteKind::CallDirect,
    SiteKind::CallIndirect,
    SiteKind::TailDirect,
    SiteKind::TailConditional,
    SiteKind::TailIndirect,
];

fn kind_name(kind: SiteKind) -> &'static str {
    match kind {
        SiteKind::CallDirect => "call-direct",
        SiteKind::CallIndirect => "call-indirect",
        SiteKind::TailDirect => "tail-direct",
        SiteKind::TailConditional => "tail-conditional",
        SiteKind::TailIndirect => "tail-indirect",
        SiteKind::SystemCall => "system-call",
    }
}

fn function_flags(flags: FunctionFlags) -> String {
    let names = [
        (FunctionFlags::HAS_UNWIND, "unwind"),
        (FunctionFlags::RED_ZONE, "red-zone"),
        (FunctionFlags::COLD_PART, "part"),
        (FunctionFlags::NO_RETURN, "no-return"),
        (FunctionFlags::UNRESOLVED_JUMPS, "unresolved"),
    ];
    join(
        names
            .iter()
            .filter(|(flag, _)| flags.contains(*flag))
            .map(|(_, name)| *name),
    )
}

fn site_flags(flags: SiteFlags) -> String {
    let names = [
        (SiteFlags::NO_RETURN_CALLEE, "no-return"),
        (SiteFlags::SURE_ENTRY, "sure-entry"),
        (SiteFlags::CALL_NEXT_POP, "call-next-pop"),
        (SiteFlags::RSP_OPERAND, "rsp-operand"),
        (SiteFlags::LEADER_SUSPECT, "leader-suspect"),
    ];
    join(
        names
            .iter()
            .filter(|(flag, _)| flags.contains(*flag))
            .map(|(_, name)| *name),
    )
}

fn join<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(" ")
}

fn hex(svma: u64) -> Cell {
    Cell::Text(format!("{svma:#x}"))
}
