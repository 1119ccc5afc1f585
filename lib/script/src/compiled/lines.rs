//! What payloads print: rows of a table of their own, and the text around the values.
//!
//! Part of the reader of payloads. The program prints nothing: lines are made of the rows when
//! these are shown. Must not know where to.

use rhai::{Expr, FnCallExpr, Position};
use sptrace_payload::acts::Step;
use sptrace_payload::tables::{Kind, MOST_KEYS};

use super::{Read, Reader, constant};
use crate::policy::{PayloadTable, Shows};

/// How it is written.
const FORM: &str = "write c.print(\"size {} of {}\", c.arg1, c.caller)";
/// Where a value stands in a text.
const PLACE: &str = "{}";

impl Reader<'_, '_> {
    /// `c.print("size {}", c.arg1)`.
    pub(super) fn print(&mut self, method: &FnCallExpr, at: Position) -> Read<Step> {
        let Some((text, values)) = method.args.split_first() else {
            return self.refuse(at, "what is to be printed?", FORM);
        };
        let Some(all) = self.text(text) else {
            let reason = "a text that is known before the program runs is wanted here";
            return self.refuse(text.position(), reason, FORM);
        };
        let around: Vec<String> = all.split(PLACE).map(str::to_owned).collect();
        if around.len() != values.len() + 1 {
            let places = around.len() - 1;
            let reason = format!("{} values for {places} places", values.len());
            return self.refuse(at, &reason, "write {} once for each value");
        }
        self.line((all, around), values, at)
    }

    fn line(
        &mut self,
        (title, around): (String, Vec<String>),
        values: &[Expr],
        at: Position,
    ) -> Read<Step> {
        if values.len() > MOST_KEYS {
            let reason = format!("more than {MOST_KEYS} values");
            return self.refuse(at, &reason, "print them in two lines");
        }
        let mut keys = Vec::new();
        for value in values {
            keys.push(self.key(value)?);
        }
        let (keys, columns): (Vec<_>, Vec<_>) = keys.into_iter().unzip();
        let new = PayloadTable {
            shows: Shows::Lines(around),
            title,
            kind: Kind::Rows,
            caller: None,
            keys: keys.len() as u8,
            columns: Vec::new(),
            told: [0; MOST_KEYS],
        };
        let table = self.new_table(new, at)?;
        self.has_columns(table, columns, &keys, at)?;
        Ok(Step::Add {
            table,
            keys,
            value: constant(0),
        })
    }
}
