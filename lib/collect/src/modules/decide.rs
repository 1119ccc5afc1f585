//! A decision about each function of a module, before it has run.
//!
//! Given what the analysis knows of a function; somebody else says what becomes of it. Must not
//! know who decides, nor how it is done.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use sptrace_addr::Svma;
use sptrace_code::Cached;
use sptrace_trace::demangle;
use sptrace_wire::plan::{FN_MUTED, PlanFunction, PlanView};

use super::details::{File, Looked};

/// What is known of a function.
#[derive(Clone)]
pub struct Function<'a> {
    /// Demangled.
    pub name: String,
    /// As the file has it; may be empty.
    pub symbol: &'a str,
    /// The path of its file.
    pub path: &'a str,
    /// Where it begins.
    pub svma: u64,
    /// Bytes up to the next one.
    pub size_bytes: u64,
    /// Calls and tail jumps in it.
    pub sites: u64,
    /// What takes longer to find out.
    pub more: Looked,
}

/// What becomes of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// It is recorded, and what it calls.
    Record,
    /// It is not, nor what only it calls.
    Skip,
    /// It is, but its own calls are not.
    Leaf,
}

/// Who decides; called on the thread that answers the agents.
#[derive(Clone)]
pub struct Decide(pub Arc<dyn Fn(&Function<'_>) -> Decided + Send + Sync>);

impl fmt::Debug for Decide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decide")
    }
}

/// What is decided about the functions of a module.
#[derive(Debug, Default)]
pub struct Decisions {
    /// By svma, in order.
    pub skipped: Vec<u64>,
    /// The same of leaves.
    pub leaves: Vec<u64>,
}

impl Decide {
    /// Asks about all functions of a plan; stubs of the PLT are none.
    /// `file`: the module's, as it can be opened.
    pub fn ask(&self, cached: &Cached, plan: &[u8], (file, path): (&Path, &str)) -> Decisions {
        let mut decisions = Decisions::default();
        let file = Arc::new(File::new(file));
        let Some(view) = PlanView::new(plan) else {
            return decisions;
        };
        let h = view.header();
        let plt = h.plt_start..h.plt_end;
        let mut functions = view.functions().peekable();
        while let Some(function) = functions.next() {
            if plt.contains(&function.entry) {
                continue;
            }
            let end = functions.peek().map_or(h.text_end, |next| next.entry);
            let svma = h.base_svma + u64::from(function.entry);
            let symbol = cached.named_at(Svma(svma)).map_or("", |n| n.1);
            let name = match symbol {
                "" => format!("sub_{svma:x}"),
                symbol => demangle(symbol),
            };
            let size_bytes = u64::from(end.saturating_sub(function.entry));
            let facts = Function {
                name,
                symbol,
                path,
                svma,
                size_bytes,
                sites: u64::from(function.site_count),
                more: Looked {
                    file: file.clone(),
                    svma,
                    size_bytes,
                },
            };
            match (self.0)(&facts) {
                Decided::Record => {}
                Decided::Skip => decisions.skipped.push(svma),
                Decided::Leaf => decisions.leaves.push(svma),
            }
        }
        decisions
    }
}

/// Has the functions that begin at these svmas, in order, keep their own calls to themselves, while
/// calls of them stay as they are.
pub fn make_leaves(plan: &mut [u8], leaves: &[u64]) {
    let Some(view) = PlanView::new(plan) else {
        return;
    };
    let h = *view.header();
    let svma = |f: &PlanFunction| h.base_svma + u64::from(f.entry);
    let functions = (0usize..).zip(view.functions());
    let chosen = functions.filter(|(_, f)| leaves.binary_search(&svma(f)).is_ok());
    let changed: Vec<_> = chosen
        .map(|(i, f)| {
            let flags = f.flags | FN_MUTED;
            (i, PlanFunction { flags, ..f }.to_bytes())
        })
        .collect();
    for (i, bytes) in changed {
        let at = h.functions_offset as usize + i * bytes.len();
        if let Some(place) = plan.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(&bytes);
        }
    }
}
