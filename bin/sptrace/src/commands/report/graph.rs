//! `report graph`: the call graph as text, csv or a picture.
//!
//! Chooses what its nodes are and what of the trace counts; drawing is `sptrace-render`'s and
//! `sptrace-export`'s work.

use super::{Format, Reader, ReportArgs, Session, View};
use crate::talk::say;
use anyhow::bail;
use clap::{Args, ValueEnum};
use sptrace_export::{GraphSource, write_graph_dot, write_graph_svg};
use sptrace_render::{GraphView, write_graph, write_graph_csv};
use sptrace_trace::{Graph, GraphNames, Names, Recast};
use std::io::Write;

/// Options of the graph.
#[derive(Args, Debug)]
#[command(next_help_heading = "Call graph (graph)")]
pub struct GraphArgs {
    /// Of `graph`, `functions`, `callers` and `callees`: count only what leads to functions
    /// matching FUNC (name or glob) and what they call; may be repeated
    #[arg(long, value_name = "FUNC")]
    pub focus: Vec<String>,
    /// What the nodes are
    #[arg(long, value_enum, default_value_t = Per::Function)]
    per: Per,
    /// Show the dynamic loader's own work too (symbols bound at the first call, dlopen)
    #[arg(long)]
    loader: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Per {
    Function,
    Module,
}

/// Refuses options of the graph for other views.
///
/// # Errors
/// A sentence that names the option.
pub fn check(args: &ReportArgs) -> anyhow::Result<()> {
    let adds_up = matches!(
        args.view,
        View::Graph | View::Functions | View::Callers | View::Callees
    );
    if !args.graph.focus.is_empty() && !adds_up {
        bail!(
            "--focus is for graph, functions, callers and callees; -F shows what a function calls"
        );
    }
    if args.view != View::Graph && (args.graph.per == Per::Module || args.graph.loader) {
        bail!("--per and --loader are for `report graph`");
    }
    Ok(())
}

/// Shows the graph.
///
/// # Errors
/// A sentence for the user, or the error of the output.
pub fn show(session: &Session<'_>, reader: Reader, out: &mut impl Write) -> anyhow::Result<()> {
    let title = reader.header().command.join(" ");
    let (args, names) = (session.args, session.names);
    let is_of_modules = args.graph.per == Per::Module;
    let mut told_as = match is_of_modules {
        true => GraphNames::by_module(names),
        false => Vec::new(),
    };
    if !args.graph.loader {
        leave_loader_out(&mut told_as, names);
    }
    let recast = session.add_up(reader, Recast::new(told_as, Graph::default()))?;
    if recast.skipped_calls > 0 {
        let calls = recast.skipped_calls;
        say(&format!(
            "{calls} calls of the dynamic loader's own work are left out; --loader shows them"
        ));
    }
    let (graph, clock) = (&recast.inner, session.clock);
    let names = match is_of_modules {
        true => GraphNames::of_modules(names),
        false => GraphNames::of_functions(names),
    };
    let source = GraphSource {
        title,
        graph,
        names,
        clock,
        limit: args.limit.map(|limit| limit as u64),
    };
    let view = GraphView {
        graph,
        names,
        clock,
        limit: args.limit,
        style: session.style,
    };
    match args.format() {
        Format::Dot => write_graph_dot(&source, out)?,
        Format::Svg => write_graph_svg(&source, out)?,
        Format::Csv => write_graph_csv(out, &view)?,
        Format::Text | Format::Json => write_graph(out, &view)?,
    }
    Ok(())
}

/// Functions of the dynamic loader are told of no more.
fn leave_loader_out(told_as: &mut Vec<Option<sptrace_trace::FunctionId>>, names: &Names<'_>) {
    let Some(loader) = names.choose_modules(is_loader) else {
        return;
    };
    if told_as.is_empty() {
        let all = (0..loader.len() as u32).map(|id| Some(sptrace_trace::FunctionId(id)));
        told_as.extend(all);
    }
    let of_loader = told_as.iter_mut().zip(loader).filter(|(_, is)| *is);
    of_loader.for_each(|(told_as, _)| *told_as = None);
}

/// Is this the path of a dynamic loader (glibc's or musl's)?
fn is_loader(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    // musl's loader is its C library as well, of which most is no loading.
    name.starts_with("ld-linux") || name.starts_with("ld-2.") || name == "ld.so"
}

#[cfg(test)]
mod tests {
    use super::is_loader;

    #[test]
    fn loaders_are_known_by_their_names() {
        assert!(is_loader("/lib64/ld-linux-x86-64.so.2"));
        assert!(!is_loader("/lib/ld-musl-x86_64.so.1") && !is_loader("/usr/bin/ld"));
    }
}
