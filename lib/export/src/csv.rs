//! One row a call, as csv (RFC 4180).
//!
//! The first nine columns never change. A time that is not known, and a caller that is not, is an
//! empty field, as is a call of which no values were recorded. Of a duration that was not measured
//! two columns say what it is at least and at most. A thread's rows come in the order in
//! which its calls ended. With lines of the source two columns more say where the function begins
//! and where it is called.

use crate::Context;
use crate::output::{Output, field};
use crate::rows::{Labels, Row, RowSink, RowSource};
use std::io::Write;

const COLUMNS: &str = "pid,tid,start_ns,duration_ns,depth,module,function,caller_module,caller,self_ns,begin,end,call,result,duration_min_ns,duration_max_ns";

/// The format.
pub struct Csv {
    labels: Labels,
}

impl Default for Csv {
    fn default() -> Self {
        let labels = Labels::new(|module, name| format!("{},{}", field(module), field(name)));
        Self { labels }
    }
}

impl RowSink for Csv {
    fn begin<W: Write>(&mut self, cx: &Context<'_>, out: &mut Output<W>) {
        out.text(COLUMNS);
        if cx.names.has_sources() {
            out.text(",source,call_source");
        }
        out.text("\r\n");
    }

    fn row<W: Write>(&mut self, cx: &Context<'_>, row: &Row<'_>, out: &mut Output<W>) {
        for number in [u64::from(row.thread.pid), row.thread.tid.into()] {
            out.number(number);
            out.text(",");
        }
        out.number(row.start_ns);
        out.text(",");
        if let Some(ns) = row.duration_ns {
            out.number(ns);
        }
        out.text(",");
        out.number(row.depth.into());
        out.text(",");
        out.bytes(self.labels.get(cx, row.function));
        out.text(",");
        match row.caller {
            Some(caller) => out.bytes(self.labels.get(cx, caller)),
            None => out.text(","),
        }
        out.text(",");
        if let Some(ns) = row.self_ns {
            out.number(ns);
        }
        for word in [row.begin_word, row.end_word] {
            out.text(",");
            out.text(word);
        }
        out.text(",");
        if let Some(line) = &row.line {
            out.text(&field(&line.call));
            out.text(",");
            out.text(&field(line.result.strip_prefix("= ").unwrap_or("")));
        } else {
            out.text(",");
        }
        for at in 0..2 {
            out.text(",");
            if let Some(bounds) = row.bounds_ns {
                out.number(bounds[at]);
            }
        }
        if let Some(source) = RowSource::of(cx, row) {
            for text in [source.function, source.call] {
                out.text(",");
                out.text(&field(&text.unwrap_or_default()));
            }
        }
        out.text("\r\n");
    }
}
