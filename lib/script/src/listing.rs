//! What payloads are compiled to, for the user: instructions, and what they cost.
//!
//! Given the policy of a script; gives lines. Must not know how a payload was read.

use sptrace_payload::acts_code::{Thread, acts_code, instructions};
use sptrace_payload::program::{Expression, Source};
use sptrace_payload::tables::{Kind, Table, Tables};

use crate::policy::{Payload, Policy};

/// Where the words of a thread are: as good as any for a listing.
const THREAD: Thread = Thread {
    tables: 0x11f0,
    muted: 0x1038,
    tid: 0x1060,
};

/// What a call costs by itself that goes on without a record: to look its payload up, and to pass
/// its exit over. Measured by `tests/bench/bench.py` on the machine of the figures in man page
/// sptrace-script.
const CALL_NS: f64 = 5.5;
/// An instruction of a payload; those that seldom run are among them.
const INSTRUCTION_NS: f64 = 0.05;

/// All payloads of a script.
pub fn listing(policy: &Policy) -> Vec<String> {
    let forms = policy.tables.iter().map(|table| (table.kind, table.keys));
    let tables = Tables::of(forms);
    let mut lines = Vec::new();
    for (number, table) in tables.all.iter().enumerate() {
        let title = policy.tables.get(number).map_or("", |table| &table.title);
        lines.push(table_line(title, table));
    }
    for payload in &policy.payloads {
        lines.extend(payload_lines(payload, &tables));
    }
    lines
}

fn table_line(title: &str, table: &Table) -> String {
    let what = match table.kind {
        Kind::Count => "counts",
        Kind::Sum => "sums",
        Kind::Least => "least values",
        Kind::Greatest => "greatest values",
        Kind::Histogram => "histograms",
    };
    let (rows, bytes) = (1u32 << table.row_bits(), table.bytes().div_ceil(1024));
    match table.keys {
        0 => format!("table '{title}': {what}, {bytes} KiB a thread"),
        keys => format!(
            "table '{title}': {what} by {keys} words, at most {rows} keys, {bytes} KiB a thread"
        ),
    }
}

fn payload_lines(payload: &Payload, tables: &Tables) -> Vec<String> {
    let (glob, line) = (&payload.glob, payload.line);
    let place = match &payload.module {
        Some(module) => format!("{module}!{glob}"),
        None => glob.clone(),
    };
    // Arguments with names are known when a function is; one in a register stands for them.
    let mut acts = payload.acts.clone();
    let known = acts.resolve(&|_| Some(Expression::Source(Source::Argument(0))));
    let code = match (known, acts_code(&acts, tables, THREAD, None)) {
        (Ok(()), Ok(Some(code))) => code,
        _ => return vec![format!("line {line}, calls of {place}: no code")],
    };
    let all = instructions(&code);
    let recorded = match acts.may_record() {
        true => "recorded where record() is reached",
        false => "not recorded",
    };
    let ns = CALL_NS + INSTRUCTION_NS * all.len() as f64;
    let mut lines = vec![format!(
        "line {line}, calls of {place}, {recorded}: {} instructions, {} bytes, some {ns:.0} ns a call",
        all.len(),
        code.len()
    )];
    if !payload.names.is_empty() {
        let names = payload.names.join(", ");
        lines.push(format!(
            "  with {names}: looked up in each function's prototype"
        ));
    }
    lines.extend(all.iter().map(|instruction| format!("    {instruction}")));
    lines
}
