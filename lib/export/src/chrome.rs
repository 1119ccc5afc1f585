//! Trace events as JSON, for chrome://tracing, Perfetto, speedscope: a complete event (`X`) for
//! each call.
//!
//! Times are microseconds with three decimals, so that nothing is lost, and nest as the calls did.
//! A duration on this time axis has the times in it that the thread waited for sptrace; where there
//! are any, `args` has the one without. `args` also says how a call began and ended, if not by a
//! call and a return.

use crate::Context;
use crate::output::{Output, json};
use crate::rows::{Labels, Row, RowSink};
use sptrace_trace::StreamInfo;
use std::collections::HashSet;
use std::io::Write;

/// The format.
pub struct Chrome {
    labels: Labels,
    named: HashSet<u32>,
    is_first: bool,
}

impl Default for Chrome {
    fn default() -> Self {
        let make = |module: &str, name: &str| {
            format!(
                "{{\"ph\":\"X\",\"name\":{},\"cat\":{}",
                json(name),
                json(module)
            )
        };
        Self {
            labels: Labels::new(make),
            named: HashSet::new(),
            is_first: true,
        }
    }
}

impl Chrome {
    fn separate<W: Write>(&mut self, out: &mut Output<W>) {
        out.text(if self.is_first { "\n" } else { ",\n" });
        self.is_first = false;
    }

    fn name<W: Write>(&mut self, what: &str, info: &StreamInfo, out: &mut Output<W>) {
        self.separate(out);
        let (pid, tid, name) = (info.pid, info.tid, json(&info.comm));
        out.text(&format!(
            "{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"name\":{name}}}}}"
        ));
    }
}

impl RowSink for Chrome {
    fn begin<W: Write>(&mut self, cx: &Context<'_>, out: &mut Output<W>) {
        let command = json(&cx.header.command.join(" "));
        out.text("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"command\":");
        out.text(&command);
        out.text("},\"traceEvents\":[");
    }

    fn thread<W: Write>(&mut self, _: &Context<'_>, info: &StreamInfo, out: &mut Output<W>) {
        if self.named.insert(info.pid) {
            self.name("process_name", info, out);
        }
        self.name("thread_name", info, out);
    }

    fn row<W: Write>(&mut self, cx: &Context<'_>, row: &Row<'_>, out: &mut Output<W>) {
        self.separate(out);
        out.bytes(self.labels.get(cx, row.function));
        out.text(",\"pid\":");
        out.number(row.thread.pid.into());
        out.text(",\"tid\":");
        out.number(row.thread.tid.into());
        out.text(",\"ts\":");
        out.micros(row.start_ns);
        out.text(",\"dur\":");
        let shown_ns = row.end_ns.saturating_sub(row.start_ns);
        out.micros(shown_ns);
        let (begin, end) = (row.begin_word, row.end_word);
        let exact_ns = row.duration_ns.filter(|ns| *ns != shown_ns);
        if begin != "call" || end != "return" || exact_ns.is_some() {
            out.text(",\"args\":{\"begin\":\"");
            out.text(begin);
            out.text("\",\"end\":\"");
            out.text(end);
            out.text("\"");
            if let Some(ns) = exact_ns {
                out.text(",\"duration_ns\":");
                out.number(ns);
            }
            out.text("}");
        }
        out.text("}");
    }

    fn end<W: Write>(&mut self, _: &Context<'_>, out: &mut Output<W>) {
        out.text("\n]}\n");
    }
}
