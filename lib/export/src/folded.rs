//! Folded stacks for flame graphs: `a;b;c ns`, one line a distinct stack that has something of its
//! own.

use crate::output::Output;
use crate::paths::{Paths, ROOT};
use crate::{Context, Written};
use std::io::Write;

/// Writes the stacks.
pub fn write<W: Write>(cx: &Context<'_>, paths: &Paths, out: &mut Output<W>) -> Written {
    let nodes = paths.nodes();
    let mut written = Written::default();
    let mut stack = Vec::new();
    for node in nodes.iter().skip(1) {
        written.calls += node.calls;
        let own = node.own(cx.measure, cx.clock);
        if own == 0 || out.is_closed() {
            continue;
        }
        stack.clear();
        stack.push(node.function);
        let mut at = node.parent;
        while at != ROOT {
            stack.push(nodes[at as usize].function);
            at = nodes[at as usize].parent;
        }
        for (at, &id) in stack.iter().rev().enumerate() {
            out.text(if at > 0 { ";" } else { "" });
            // A semicolon inside a name would split it.
            out.text(&cx.names.name(id).replace(';', ":"));
        }
        out.text(" ");
        out.number(own);
        out.text("\n");
        out.pass();
    }
    written
}
