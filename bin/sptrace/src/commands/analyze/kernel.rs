//! The control-flow graph of a function of the running kernel: `analyze --kernel`.
//!
//! Given the function's name, and a trace if there is one; gives what is written.

use std::path::Path;

use anyhow::Context;
use sptrace_kernel::graph::{LiveGraph, callee};
use sptrace_kernel::symbols::Symbols;
use sptrace_kernel::text::Text;
use sptrace_trace::{Function, Module};

use super::counts::Counts;
use super::drawn::Drawn;
use super::list::Format;
use super::written;

/// Writes it.
///
/// # Errors
/// A sentence for the user: there is no such function, or the kernel does not show it; the trace
/// cannot be read.
pub fn show(name: &str, trace: Option<&Path>, format: Format) -> anyhow::Result<()> {
    let symbols = Symbols::read()?;
    let text = Text::open().context("the kernel's text cannot be read (it takes root)")?;
    let live = LiveGraph::of(name, &symbols, &text)?;
    let module = live.module.as_deref().unwrap_or("kernel");
    let module = format!("[{module}]");
    let is_meant = |f: &Function, m: &Module| f.symbol == name && m.path == module;
    let place = |at: u64| live.place(at);
    let mut counts = match trace {
        Some(trace) => Some(Counts::of(trace, name, &is_meant)?),
        None => None,
    };
    if let Some(counts) = &mut counts {
        counts.complete(&live.graph, &place);
    }
    let drawn = Drawn {
        name: name.to_owned(),
        graph: &live.graph,
        place: &place,
        callee: &|call| callee(&symbols, call),
        site: &|_| String::new(),
        source: &|_| String::new(),
        counts,
    };
    written(|out| drawn.write(format, out))
}
