//! What a script asks of a recording beside options: decisions about functions, and payloads.
//!
//! Given a loaded script; gives what the collector asks for each function, and what runs at calls.
//! Must not know how either is carried out.

use std::sync::Arc;

use sptrace_code::Places;
use sptrace_collect::acts::{Payload, Payloads};
use sptrace_collect::bids::{Bid, Deed};
use sptrace_collect::clock;
use sptrace_collect::modules::decide::{Decide, Decided};
use sptrace_collect::modules::details::Looked;
use sptrace_script::{self as script, Decision, Details, FunctionFacts, More, Script};
use sptrace_trace::Level;

/// What runs at calls inside of the program. None: nothing.
pub fn payloads(script: &Script) -> Option<Payloads> {
    let policy = &script.policy;
    let all = policy.payloads.iter().map(|payload| Payload {
        module: payload.functions.names.module.clone(),
        glob: payload.functions.names.glob.clone(),
        file: payload.functions.file.clone(),
        moment: payload.moment,
        acts: payload.acts.clone(),
        names: payload.names.clone(),
        calls: payload.calls.clone(),
    });
    let tables = policy.tables.iter();
    let tables = tables.map(|table| {
        let columns = table.columns.iter().copied().zip(table.told);
        (table.title.clone(), table.kind, columns.collect())
    });
    if policy.payloads.is_empty() {
        return None;
    }
    let payloads = Payloads::new(all.collect(), tables);
    Some(match payloads.ask_time() {
        true => payloads.timed_by(clock::frequency(Places::default().own.as_deref())),
        false => payloads,
    })
}

/// What payloads ask of the recording.
pub fn bids(script: &Script) -> Vec<Bid> {
    let name = &script.name;
    let bids = script.policy.bids.iter().map(|bid| Bid {
        deed: match &bid.deed {
            script::Deed::Start => Deed::Start,
            script::Deed::Stop => Deed::Stop,
            script::Deed::Dump => Deed::Dump,
            script::Deed::Level(glob, level) => Deed::Level(glob.clone(), level_of(*level)),
        },
        text: format!("{} of {name}", bid.text),
    });
    bids.collect()
}

fn level_of(level: script::Level) -> Level {
    match level {
        script::Level::Values => Level::Recorded,
        script::Level::Record => Level::Plain,
        script::Level::Count => Level::Counted,
        script::Level::Off => Level::Off,
    }
}

/// The levels that functions have from the beginning.
pub fn levels(script: &Script) -> Vec<(String, Level)> {
    let all = script.policy.levels.iter();
    all.map(|(glob, level)| (glob.clone(), level_of(*level)))
        .collect()
}

/// What the collector finds out of a function.
struct Found(Looked);

impl Details for Found {
    fn line(&self) -> Option<(String, u32)> {
        self.0.line()
    }

    fn prototype(&self) -> Option<String> {
        self.0.prototype()
    }

    fn has_loops(&self) -> bool {
        self.0.has_loops()
    }
}

/// What the script says of functions, for the recording.
pub fn decider(script: &Arc<Script>) -> Decide {
    let script = Arc::clone(script);
    Decide(Arc::new(move |function| {
        let facts = FunctionFacts {
            name: function.name.clone(),
            symbol: function.symbol.to_owned(),
            path: function.path.to_owned(),
            address: function.svma,
            size_bytes: function.size_bytes,
            calls: function.sites,
            more: More(Some(Arc::new(Found(function.more.clone())))),
        };
        match script.decide(&facts) {
            Decision::Record => Decided::Record,
            Decision::Skip => Decided::Skip,
            Decision::Leaf => Decided::Leaf,
        }
    }))
}
