//! What payloads are compiled to, for the user: instructions, and what they cost.
//!
//! Given the policy of a script; gives lines. Must not know how a payload was read.

use sptrace_payload::acts::{Acts, Moment, RESULT};
use sptrace_payload::acts_code::{Entry, Thread, acts_code, exit_code, instructions};
use sptrace_payload::callers::MOST_PLACES;
use sptrace_payload::contract::in_place::KEPT_IN_PLACE;
use sptrace_payload::program::{Expression, Source};
use sptrace_payload::slot_code::slot_code;
use sptrace_payload::tables::{Kind, Table, Tables};

use crate::policy::{Bid, Deed, Level, Payload, Policy};

/// Where the words of a thread are: as good as any for a listing.
const THREAD: Thread = Thread {
    tables: 0x11f0,
    muted: 0x1038,
    tid: 0x1060,
    top_frame: 0x1018,
    errno: 0x11f8,
    active: 0x1228,
    texts: 0x1250,
    counters: 0x1270,
    told: 0x12b8,
    bids: 0x1320,
    has_bidden: 0x1328,
    key: 0,
    stack_page: 8,
};
/// A tick of the clock is as long as one of the machine of the figures.
const TICK_NS: u64 = (1_000_000_000 << 32) / 2_445_000_000;

/// What a call costs by itself that goes on without a record: to look its payload up, and to pass
/// its exit over. Measured by `tests/bench/bench.py` on the machine of the figures in man page
/// sptrace-script.
const CALL_NS: f64 = 5.5;
/// The same where its slot runs the payload: to know the thread, and to keep registers.
const SLOT_NS: f64 = 1.0;
/// What it costs more to wait for the return of a call.
const RETURN_NS: f64 = 7.0;
/// To look at the clock when a call begins and when it returns.
const CLOCK_NS: f64 = 14.0;
/// Entry and return of a call by the slow path, which looks for errno.
const SLOW_NS: f64 = 700.0;
/// A caller of a stack.
const PLACE_NS: f64 = 0.7;
/// An instruction of a payload; those that seldom run are among them.
const INSTRUCTION_NS: f64 = 0.05;

/// All payloads of a script.
pub fn listing(policy: &Policy) -> Vec<String> {
    let forms = policy.tables.iter();
    let tables = Tables::telling(forms.map(|table| (table.kind, table.keys, table.told)));
    let mut lines = Vec::new();
    for (number, table) in tables.all.iter().enumerate() {
        let title = policy.tables.get(number).map_or("", |table| &table.title);
        lines.push(table_line(title, table));
    }
    for payload in &policy.payloads {
        lines.extend(payload_lines(payload, &tables));
    }
    lines.extend(policy.bids.iter().map(bid_line));
    lines
}

fn table_line(title: &str, table: &Table) -> String {
    let what = match table.kind {
        Kind::Count => "counts",
        Kind::Sum => "sums",
        Kind::Least => "least values",
        Kind::Greatest => "greatest values",
        Kind::Histogram => "histograms",
        Kind::Slowest(_) => "the greatest",
        Kind::Rows => "the first",
    };
    let (rows, bytes) = (table.most_rows(), table.bytes().div_ceil(1024));
    match table.kind {
        Kind::Slowest(_) => {
            return format!(
                "table '{title}': the {rows} rows with {what} measure, {bytes} KiB a thread"
            );
        }
        Kind::Rows => {
            return format!("table '{title}': {what} {rows} rows, {bytes} KiB a thread");
        }
        _ => {}
    }
    match table.keys {
        0 => format!("table '{title}': {what}, {bytes} KiB a thread"),
        keys => format!(
            "table '{title}': {what} by {keys} words, at most {rows} keys, {bytes} KiB a thread"
        ),
    }
}

fn payload_lines(payload: &Payload, tables: &Tables) -> Vec<String> {
    let line = payload.line;
    let place = match &payload.calls {
        Some(_) => "the kernel".to_owned(),
        None => payload.functions.to_string(),
    };
    let acts = &payload.acts;
    let Some(code) = code_of(payload, tables) else {
        return vec![format!("line {line}, calls of {place}: no code")];
    };
    let all = instructions(&code);
    let (what, recorded) = match (payload.moment, acts.may_record()) {
        (Moment::Return, _) => ("returns", "not recorded by this"),
        (Moment::Call, _) if payload.calls.is_some() => ("calls", "recorded"),
        (Moment::Call, true) if acts.is_active() => ("calls", "recorded where it is changed"),
        (Moment::Call, true) if !acts.asks_for_record() => (
            "calls",
            "recorded where the recording is asked for something",
        ),
        (Moment::Call, true) => ("calls", "recorded where record() is reached"),
        (Moment::Call, false) => ("calls", "not recorded"),
    };
    let is_slow = acts.is_slow() || keeps_slowly(payload);
    let slowly = match is_slow || payload.reads_fields() || payload.calls.is_some() {
        true => SLOW_NS,
        false => 0.0,
    };
    let is_in_slot =
        payload.calls.is_none() && !payload.reads_fields() && is_in_slot(payload, tables);
    let ns = slowly + price(payload.moment, acts, is_in_slot) + INSTRUCTION_NS * all.len() as f64;
    let mut lines = vec![format!(
        "line {line}, {what} of {place}, {recorded}: {} instructions, {} bytes, some {ns:.0} ns a call",
        all.len(),
        code.len()
    )];
    if !payload.names.is_empty() {
        let names = payload.names.join(", ");
        lines.push(format!(
            "  with {names}: looked up in each function's prototype"
        ));
    }
    lines.extend(bid_lines(acts));
    lines.extend(all.iter().map(|instruction| format!("    {instruction}")));
    lines
}

/// What a payload asks of the recording costs where it does so.
fn bid_lines(acts: &Acts) -> Option<String> {
    acts.bids().then(|| {
        format!("  where it asks something of the recording: some {SLOW_NS:.0} ns more, and the host is woken")
    })
}

/// What comes of it.
fn bid_line(bid: &Bid) -> String {
    let what = match &bid.deed {
        Deed::Start => "the recording begins, with this call; up to then the program is followed",
        Deed::Stop => "the recording ends, behind this call or return",
        Deed::Dump => "the ring is written out, with this call",
        Deed::Level(_, Level::Count) => "calls of these functions are counted from here on",
        Deed::Level(_, Level::Off) => "calls of these functions are left out from here on",
        Deed::Level(_, Level::Record) => {
            "calls of these functions are recorded from here on, without values"
        }
        Deed::Level(_, Level::Values) => {
            "calls of these functions are recorded from here on, with their values"
        }
    };
    format!("{}: {what}", bid.text)
}

/// The code of a payload. None: there is none.
fn code_of(payload: &Payload, tables: &Tables) -> Option<Vec<u8>> {
    let mut acts = resolved(payload)?;
    match payload.moment {
        Moment::Call => acts_code(&acts, tables, THREAD, Entry::default()).ok()?,
        Moment::Return => {
            acts.keep().ok()?;
            exit_code(&acts, tables, THREAD, TICK_NS).ok()?
        }
    }
}

/// True if the slow path keeps what a return needs of the call.
fn keeps_slowly(payload: &Payload) -> bool {
    let acts = resolved(payload).filter(|_| payload.moment == Moment::Return);
    let kept = acts.and_then(|mut acts| acts.keep().ok());
    kept.is_some_and(|kept| kept.len() > KEPT_IN_PLACE)
}

/// The acts of a payload. Arguments with names are known when a function is; one in a register
/// stands for each. None: they cannot be known.
fn resolved(payload: &Payload) -> Option<Acts> {
    let mut acts = payload.acts.clone();
    let named = |number: u8| match number {
        RESULT => Some(Expression::Source(Source::Result)),
        number => Some(Expression::Source(Source::Argument(number % 6))),
    };
    acts.resolve(&named).ok()?;
    Some(acts)
}

/// True if direct calls in a module run the payload in their slots.
fn is_in_slot(payload: &Payload, tables: &Tables) -> bool {
    let acts = resolved(payload).filter(|_| payload.moment == Moment::Call);
    acts.is_some_and(|acts| matches!(slot_code(&acts, tables, THREAD), Ok(Some(_))))
}

/// What a call costs beside the instructions.
fn price(moment: Moment, acts: &Acts, is_in_slot: bool) -> f64 {
    let stacks = (1..=MOST_PLACES).filter(|places| acts.uses(Source::Callers(*places)));
    let stacks = stacks
        .map(|places| PLACE_NS * f64::from(places))
        .sum::<f64>();
    if moment == Moment::Call {
        return match is_in_slot {
            true => SLOT_NS,
            false => CALL_NS + stacks,
        };
    }
    let clock = if acts.is_timed() { CLOCK_NS } else { 0.0 };
    let errno = if acts.uses(Source::Errno) {
        SLOW_NS
    } else {
        0.0
    };
    CALL_NS + stacks + RETURN_NS + clock + errno
}
