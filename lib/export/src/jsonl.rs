//! One object a call and line, as JSON Lines.
//!
//! The same columns as csv; what is not known is null.

use crate::Context;
use crate::output::{Output, json};
use crate::rows::{Labels, Row, RowSink, RowSource};
use std::io::Write;

/// The format.
pub struct JsonLines {
    functions: Labels,
    callers: Labels,
}

impl Default for JsonLines {
    fn default() -> Self {
        Self {
            functions: Labels::new(|module, name| {
                format!("\"module\":{},\"function\":{}", json(module), json(name))
            }),
            callers: Labels::new(|module, name| {
                format!(
                    ",\"caller_module\":{},\"caller\":{}",
                    json(module),
                    json(name)
                )
            }),
        }
    }
}

impl RowSink for JsonLines {
    fn row<W: Write>(&mut self, cx: &Context<'_>, row: &Row<'_>, out: &mut Output<W>) {
        out.text("{\"pid\":");
        out.number(row.thread.pid.into());
        out.text(",\"tid\":");
        out.number(row.thread.tid.into());
        out.text(",\"start_ns\":");
        out.number(row.start_ns);
        out.text(",\"duration_ns\":");
        or_null(row.duration_ns, out);
        out.text(",\"depth\":");
        out.number(row.depth.into());
        out.text(",");
        out.bytes(self.functions.get(cx, row.function));
        match row.caller {
            Some(caller) => out.bytes(self.callers.get(cx, caller)),
            None => out.text(",\"caller_module\":null,\"caller\":null"),
        }
        out.text(",\"self_ns\":");
        or_null(row.self_ns, out);
        out.text(",\"begin\":\"");
        out.text(row.begin_word);
        out.text("\",\"end\":\"");
        out.text(row.end_word);
        out.text("\",\"call\":");
        match &row.line {
            Some(line) => {
                out.text(&json(&line.call));
                out.text(",\"result\":");
                match line.result.strip_prefix("= ") {
                    Some(result) => out.text(&json(result)),
                    None => out.text("null"),
                }
            }
            None => out.text("null,\"result\":null"),
        }
        if let Some(source) = RowSource::of(cx, row) {
            for (key, text) in [("source", source.function), ("call_source", source.call)] {
                let text = text.map_or_else(|| "null".to_owned(), |text| json(&text));
                out.text(&format!(",\"{key}\":{text}"));
            }
        }
        out.text("}\n");
    }
}

fn or_null<W: Write>(number: Option<u64>, out: &mut Output<W>) {
    match number {
        Some(number) => out.number(number),
        None => out.text("null"),
    }
}
