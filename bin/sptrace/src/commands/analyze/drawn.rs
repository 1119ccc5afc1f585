//! A control-flow graph as it is shown: as text, as lists, or as a picture.
//!
//! Given a graph, names of its places, what is known of its call sites, and what a trace has
//! counted; writes it. Knows nothing of where the graph comes from.

use std::io::{self, Write};

use sptrace_code::graph::{Block, Call, Edge, EdgeKind, Exit, Graph};
use sptrace_export::{Flow, FlowArrow, FlowBlock, write_flow_dot, write_flow_svg};

use super::counts::{Counts, bare};
use super::list::{Format, List, print};

/// See the module.
pub struct Drawn<'a> {
    /// The function's name.
    pub name: String,
    /// Its graph.
    pub graph: &'a Graph,
    /// An address of its code, in words.
    pub place: &'a dyn Fn(u64) -> String,
    /// What a call or a jump out of it leads to; empty if that is not known.
    pub callee: &'a dyn Fn(&Call) -> String,
    /// What is done at a call site, or why nothing is; empty if there is nothing to say.
    pub site: &'a dyn Fn(u64) -> String,
    /// Where a call was written; empty if that is not known.
    pub source: &'a dyn Fn(u64) -> String,
    /// What a trace has counted.
    pub counts: Option<Counts>,
}

impl Drawn<'_> {
    /// Writes it.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, format: Format, out: &mut impl Write) -> io::Result<()> {
        match format {
            Format::Text => self.write_text(out),
            Format::Csv | Format::Json => print(&[self.blocks(), self.edges()], format, out),
            Format::Dot => write_flow_dot(&self.flow(), out),
            Format::Svg => write_flow_svg(&self.flow(), out),
        }
    }

    fn said(&self) -> String {
        let graph = self.graph;
        let bytes: u64 = graph.ranges.iter().map(|r| r.end - r.start).sum();
        let tables = graph.blocks.iter().filter(|b| b.table_entries.is_some());
        let mut said = format!(
            "{bytes} bytes in {}, {}, {}, {}",
            counted(graph.ranges.len() as u64, "part"),
            counted(graph.blocks.len() as u64, "block"),
            counted(graph.edges.len() as u64, "edge"),
            counted(tables.count() as u64, "jump table"),
        );
        if graph.unreached_bytes > 0 {
            let unreached = counted(graph.unreached_bytes, "byte");
            said.push_str(&format!("; nothing was seen to lead to {unreached}"));
        }
        if let Some(counts) = &self.counts {
            said.push_str(&format!("; {}", counted(counts.calls, "recorded call")));
        }
        said
    }

    fn count(&self, block: &Block) -> Option<u64> {
        let counts = self.counts.as_ref()?;
        counts.blocks.get(&(self.place)(block.start)).copied()
    }

    fn edge_count(&self, edge: &Edge) -> Option<u64> {
        let start = |index: usize| self.graph.blocks.get(index).map(|b| (self.place)(b.start));
        let counts = self.counts.as_ref()?;
        counts.edge(&start(edge.from)?, &start(edge.to)?)
    }

    /// What stands below a block's name: its calls, and how the function is left.
    fn lines(&self, block: &Block) -> Vec<String> {
        let mut lines = Vec::new();
        for call in &block.calls {
            lines.push(self.call_line("call", call));
        }
        if let Some(entries) = block.table_entries {
            lines.push(format!("jump table, {}", entries_of(entries)));
        }
        match block.exit {
            None => {}
            Some(Exit::Jump(target)) => {
                let at = block.last;
                lines.push(self.call_line("leaves by a jump to", &Call { at, target }));
            }
            Some(exit) => lines.push(exit_words(exit).to_owned()),
        }
        lines
    }

    fn call_line(&self, verb: &str, call: &Call) -> String {
        let callee = (self.callee)(call);
        let known = self
            .counts
            .as_ref()
            .and_then(|c| c.callees.get(bare(&callee)));
        let mut line = match callee.is_empty() {
            true => format!("{verb} (through a pointer)"),
            false => format!("{verb} {callee}"),
        };
        if let Some(calls) = known {
            line.push_str(&format!(", {} from here in all", counted(*calls, "time")));
        }
        let site = (self.site)(call.at);
        if !site.is_empty() {
            line.push_str(&format!(" [{site}]"));
        }
        let source = (self.source)(call.at);
        if !source.is_empty() {
            line.push_str(&format!(" at {source}"));
        }
        line
    }

    fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}: {}", self.name, self.said())?;
        for (index, block) in self.graph.blocks.iter().enumerate() {
            let entered = if block.is_entered { ", entered" } else { "" };
            let count = self.count(block);
            let count = count.map_or_else(String::new, |c| format!(", {}", counted(c, "time")));
            writeln!(
                out,
                "\n{}  {}{entered}{count}",
                (self.place)(block.start),
                counted(u64::from(block.instructions), "instruction"),
            )?;
            for line in self.lines(block) {
                writeln!(out, "    {line}")?;
            }
            for edge in self.graph.edges_from(index) {
                let to = self.graph.blocks.get(edge.to).map_or(0, |b| b.start);
                let count = self.edge_count(edge);
                let count = count.map_or_else(String::new, |c| format!(", {}", counted(c, "time")));
                let word = edge_word(edge.kind);
                writeln!(out, "    -> {} ({word}{count})", (self.place)(to))?;
            }
        }
        Ok(())
    }

    fn blocks(&self) -> List {
        let row = |block: &Block| {
            let count = self.count(block);
            let exit = block.exit.map_or("", exit_words);
            vec![
                (self.place)(block.start).into(),
                (block.end - block.start).into(),
                u64::from(block.instructions).into(),
                (block.calls.len() as u64).into(),
                u64::from(block.table_entries.unwrap_or(0)).into(),
                exit.into(),
                count.map_or_else(String::new, |c| c.to_string()).into(),
            ]
        };
        List {
            title: "blocks",
            header: vec![
                "block",
                "bytes",
                "instructions",
                "calls",
                "table_entries",
                "exit",
                "count",
            ],
            rows: self.graph.blocks.iter().map(row).collect(),
        }
    }

    fn edges(&self) -> List {
        let start = |index: usize| self.graph.blocks.get(index).map_or(0, |b| b.start);
        let row = |edge: &Edge| {
            let count = self.edge_count(edge);
            vec![
                (self.place)(start(edge.from)).into(),
                (self.place)(start(edge.to)).into(),
                edge_word(edge.kind).into(),
                count.map_or_else(String::new, |c| c.to_string()).into(),
            ]
        };
        List {
            title: "edges",
            header: vec!["from", "to", "kind", "count"],
            rows: self.graph.edges.iter().map(row).collect(),
        }
    }

    fn flow(&self) -> Flow {
        let block = |block: &Block| FlowBlock {
            name: (self.place)(block.start),
            lines: self.lines(block),
            count: self.count(block),
            is_entered: block.is_entered,
            is_left: block.exit.is_some(),
        };
        let arrow = |edge: &Edge| FlowArrow {
            from: edge.from,
            to: edge.to,
            word: match edge.kind {
                EdgeKind::Falls | EdgeKind::Jumps => "",
                kind => edge_word(kind),
            },
            is_dashed: matches!(
                edge.kind,
                EdgeKind::Switch | EdgeKind::Fault | EdgeKind::Trap
            ),
            count: self.edge_count(edge),
        };
        Flow {
            title: self.name.clone(),
            said: self.said(),
            blocks: self.graph.blocks.iter().map(block).collect(),
            arrows: self.graph.edges.iter().map(arrow).collect(),
        }
    }
}

fn edge_word(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::Falls => "falls",
        EdgeKind::Taken => "taken",
        EdgeKind::Jumps => "jumps",
        EdgeKind::Table => "table",
        EdgeKind::Switch => "if switched",
        EdgeKind::Fault => "after a fault",
        EdgeKind::Trap => "after a warning",
    }
}

fn exit_words(exit: Exit) -> &'static str {
    match exit {
        Exit::Return => "returns",
        Exit::Jump(_) => "leaves by a jump",
        Exit::NoReturn => "its last call does not return",
        Exit::Trap => "traps",
        Exit::Unresolved => "jumps to what is not known",
        Exit::Broken => "goes on to what could not be decoded",
    }
}

fn entries_of(entries: u32) -> String {
    match entries {
        1 => "1 entry".to_owned(),
        n => format!("{n} entries"),
    }
}

fn counted(count: u64, word: &str) -> String {
    match count {
        1 => format!("1 {word}"),
        n => format!("{n} {word}s"),
    }
}
