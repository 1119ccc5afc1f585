//! `sptrace analyze`: what the code analysis knows of one file.
//!
//! Is given an ELF file; prints a summary by default, or lists of functions, sites and refusals, as
//! text, CSV (RFC 4180) or JSON. Knows nothing of running programs.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use sptrace_addr::Svma;
use sptrace_code::{
    Analysis, Bytes, Function, FunctionFlags, Name, Site, SiteFlags, SiteKind, analyze, name_of,
    names, number_before,
};
use sptrace_image::Object;
use sptrace_patch::build_plan::{build_plan, verdicts};
use sptrace_patch::system_calls::system_calls;
use sptrace_patch::{Refusal, Tactic, Verdict};
use tabled::builder::Builder;
use tabled::settings::{Alignment, Style, object::Columns};

/// Show what sptrace knows of a program or library: functions, call sites, and what it cannot trace
#[derive(Debug, Args)]
pub struct AnalyzeArgs {
    /// ELF program or shared library for x86-64
    file: PathBuf,
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
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Aligned columns
    Text,
    /// RFC 4180, with a header line
    Csv,
    /// One array of objects for each list, in one object
    Json,
}

/// Runs the command.
///
/// # Errors
/// When the file cannot be read or is no image that can be analysed, or stdout fails.
pub fn run(args: &AnalyzeArgs) -> anyhow::Result<()> {
    let shown = args.file.display();
    let bytes = Bytes::open(&args.file).with_context(|| format!("cannot read {shown}"))?;
    let object = Object::parse(bytes.bytes()).with_context(|| format!("cannot analyze {shown}"))?;
    bytes.release_pages();
    let analysis = analyze(&object);
    bytes.release_pages();
    let report = Report {
        analysis: &analysis,
        names: names(&object),
        verdicts: verdicts(&object, &analysis),
    };
    let mut lists = Vec::new();
    if args.functions {
        lists.push(report.functions());
    }
    if args.sites {
        lists.push(report.sites(false));
    }
    if args.refusals {
        lists.push(report.sites(true));
    }
    if args.system_calls {
        lists.push(report.system_calls(&object));
    }
    if lists.is_empty() {
        lists.push(report.summary());
    }
    let mut out = BufWriter::new(io::stdout().lock());
    match print(&lists, args.format, &mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to stdout"),
    }
}

/// A list of rows, all as long as the header.
struct List {
    title: &'static str,
    header: &'static [&'static str],
    rows: Vec<Vec<Cell>>,
}

enum Cell {
    Text(String),
    Count(u64),
}

impl Cell {
    fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Count(count) => Cow::Owned(count.to_string()),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

struct Report<'a> {
    analysis: &'a Analysis,
    names: Vec<Name>,
    /// As `run` would decide, one for each site of the analysis.
    verdicts: Vec<Verdict>,
}

impl Report<'_> {
    fn summary(&self) -> List {
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
        let rows = rows
            .into_iter()
            .map(|(name, count)| vec![name.into(), count.into()])
            .collect();
        List {
            title: "summary",
            header: &["what", "count"],
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
        List {
            title: "functions",
            header: &["address", "size_bytes", "sites", "links", "flags", "name"],
            rows: self.analysis.functions.iter().map(row).collect(),
        }
    }

    fn sites(&self, only_refused: bool) -> List {
        let rows = self
            .sites_and_verdicts()
            .filter(|(.., verdict)| !only_refused || matches!(verdict, Verdict::Refused(_)))
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
        List {
            title: if only_refused { "refusals" } else { "sites" },
            header: &[
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
                    let refused = found.refused.iter().find(|refused| refused.0 == svma);
                    refused.map_or_else(String::new, |r| format!("refused: {}", r.1.name()))
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
            header: &["address", "call", "verdict", "function"],
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

fn print(lists: &[List], format: Format, out: &mut impl Write) -> io::Result<()> {
    match format {
        Format::Text => lists.iter().enumerate().try_for_each(|(index, list)| {
            if index > 0 {
                writeln!(out)?;
            }
            print_text(list, out)
        }),
        Format::Csv => lists.iter().enumerate().try_for_each(|(index, list)| {
            if index > 0 {
                write!(out, "\r\n")?;
            }
            print_csv(list, out)
        }),
        Format::Json => print_json(lists, out),
    }
}

fn print_text(list: &List, out: &mut impl Write) -> io::Result<()> {
    let mut builder = Builder::default();
    builder.push_record(list.header.iter().copied());
    for row in &list.rows {
        builder.push_record(row.iter().map(Cell::text));
    }
    let mut table = builder.build();
    table.with(Style::blank());
    if list.title == "summary" {
        table.modify(Columns::last(), Alignment::right());
    }
    writeln!(out, "{table}")
}

fn print_csv(list: &List, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{}\r\n", list.header.join(","))?;
    for row in &list.rows {
        let cells: Vec<_> = row.iter().map(|cell| csv_field(cell.text())).collect();
        write!(out, "{}\r\n", cells.join(","))?;
    }
    Ok(())
}

/// Quoted only when it has to be.
fn csv_field(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.contains([',', '"', '\r', '\n']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        text
    }
}

fn print_json(lists: &[List], out: &mut impl Write) -> io::Result<()> {
    write!(out, "{{")?;
    for (index, list) in lists.iter().enumerate() {
        let separator = if index > 0 { "," } else { "" };
        write!(out, "{separator}\n\"{}\": [", list.title)?;
        for (number, row) in list.rows.iter().enumerate() {
            let separator = if number > 0 { "," } else { "" };
            let fields: Vec<String> = list
                .header
                .iter()
                .zip(row)
                .map(|(name, cell)| match cell {
                    Cell::Text(text) => format!("\"{name}\": {}", json_string(text)),
                    Cell::Count(count) => format!("\"{name}\": {count}"),
                })
                .collect();
            write!(out, "{separator}\n  {{{}}}", fields.join(", "))?;
        }
        write!(out, "\n]")?;
    }
    writeln!(out, "\n}}")
}

fn json_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c < ' ' => {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> List {
        List {
            title: "functions",
            header: &["name", "count"],
            rows: vec![vec![text.into(), 3u64.into()]],
        }
    }

    fn printed(text: &str, format: Format) -> String {
        let mut out = Vec::new();
        print(&[list(text)], format, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn csv_quotes_only_what_needs_it() {
        assert_eq!(
            printed("f(int, \"x\")", Format::Csv),
            "name,count\r\n\"f(int, \"\"x\"\")\",3\r\n"
        );
        assert_eq!(printed("main", Format::Csv), "name,count\r\nmain,3\r\n");
    }

    #[test]
    fn json_escapes_quotes_and_control_characters() {
        assert_eq!(
            printed("a\"b\\\n", Format::Json),
            "{\n\"functions\": [\n  {\"name\": \"a\\\"b\\\\\\u000a\", \"count\": 3}\n]\n}\n"
        );
    }

    #[test]
    fn text_has_one_line_a_row() {
        assert_eq!(printed("main", Format::Text).lines().count(), 2);
    }
}
