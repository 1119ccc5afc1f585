//! What payloads add to sheets: the tables of these, keys, and values.
//!
//! Part of the reader of payloads. Must not know where tables lie.

use rhai::{Expr, FnCallExpr, Position};
use sptrace_payload::acts::Step;
use sptrace_payload::program::{Expression, Source};
use sptrace_payload::tables::MOST_KEYS;
use sptrace_trace::KeyColumn;

use super::{MOST_TABLES, Read, Reader, Type, constant};
use crate::policy::PayloadTable;
use crate::sheets::{Body, Mode, Printable};

impl Reader<'_, '_> {
    pub(super) fn add(
        &mut self,
        sheet: &Printable,
        method: &FnCallExpr,
        at: Position,
    ) -> Read<Step> {
        if method.name != "add" {
            let reason = format!("a payload cannot {}() a sheet", method.name);
            return self.refuse(at, &reason, "call it outside of the closure");
        }
        let (table, keys, is_count) = self.table_of(sheet, at)?;
        let arguments = &method.args;
        let (given, value) = match (arguments.len(), is_count, keys) {
            (1, true, _) | (2, ..) => (arguments.first(), arguments.get(1)),
            (1, false, 0) => (None, arguments.first()),
            _ => {
                let hint = match (is_count, keys) {
                    (true, _) => "write SHEET.add(key), or SHEET.add([key, key])",
                    (false, 0) => "write SHEET.add(value)",
                    (false, _) => "write SHEET.add(key, value)",
                };
                return self.refuse(at, "the sheet needs something else here", hint);
            }
        };
        let mut all = Vec::new();
        match given {
            Some(Expr::Array(several, _)) => {
                for one in several {
                    all.push(self.key(one)?);
                }
            }
            Some(Expr::DynamicConstant(list, _)) if list.is_array() => {
                let list = list.clone().cast::<rhai::Array>();
                let numbers = list.iter().filter_map(|n| n.as_int().ok());
                all.extend(numbers.map(|n| (constant(n), KeyColumn::Number)));
            }
            Some(one) => all.push(self.key(one)?),
            None => {}
        }
        if all.len() != keys {
            let reason = format!("{} keys for {keys} columns", all.len());
            return self.refuse(at, &reason, "give a list with one for each column");
        }
        if self.caller.is_some() {
            all.push((Source::Caller.into(), KeyColumn::Function));
        }
        let (all, columns): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        self.has_columns(table, columns, &all, at)?;
        let value = match value {
            Some(value) => self.number(value)?,
            None => constant(1),
        };
        Ok(Step::Add {
            table,
            keys: all,
            value,
        })
    }

    /// A part of a key, and what it is.
    fn key(&mut self, expression: &Expr) -> Read<(Expression, KeyColumn)> {
        Ok(match self.value(expression)? {
            (value, Type::Caller) => (value, KeyColumn::Function),
            (value, Type::Stack) => (value, KeyColumn::Stack),
            (value, Type::Text) => (value, KeyColumn::Text),
            (value, _) => (value, KeyColumn::Number),
        })
    }

    /// All payloads put the same into a column of a sheet.
    fn has_columns(
        &mut self,
        table: u8,
        columns: Vec<KeyColumn>,
        keys: &[Expression],
        at: Position,
    ) -> Read<()> {
        let Some(known) = self.around.tables.get_mut(usize::from(table)) else {
            return Ok(());
        };
        if !known.columns.is_empty() && known.columns != columns {
            let reason = "another payload adds something else to this column of the sheet";
            return self.refuse(at, reason, "use another sheet");
        }
        known.columns = columns;
        for (words, key) in known.told.iter_mut().zip(keys) {
            if let Expression::Source(source) = key {
                *words = source.told_words().max(*words);
            }
        }
        Ok(())
    }

    /// The table of a sheet, how many keys it has, and whether it counts.
    fn table_of(&mut self, sheet: &Printable, at: Position) -> Read<(u8, usize, bool)> {
        let is_it = |one: &Printable| std::sync::Arc::ptr_eq(&one.0, &sheet.0);
        let number = self
            .around
            .sheets
            .iter()
            .position(is_it)
            .unwrap_or(usize::MAX);
        let locked = sheet.lock();
        let form = match &locked.body {
            Body::Groups(groups) => groups.form(),
            Body::Slowest(_) | Body::Table(_) => None,
        };
        let Some((kind, mode, keys)) = form else {
            let reason = "payloads add to sheets of count, sum, min, max and histogram alone";
            return self.refuse(at, reason, "use one of these, or write later(|e| ...)");
        };
        let title = locked.title.clone();
        drop(locked);
        let all_keys = keys + usize::from(self.caller.is_some());
        if all_keys > MOST_KEYS {
            let most = MOST_KEYS - (all_keys - keys);
            return self.refuse(at, &format!("more than {most} keys"), "use fewer");
        }
        let tables = &mut self.around.tables;
        let is_same = |table: &PayloadTable| table.sheet == number && table.caller == self.caller;
        let known = tables.iter().position(is_same);
        let table = match known {
            Some(known) => known,
            None if tables.len() >= MOST_TABLES => {
                let reason = format!("payloads add to more than {MOST_TABLES} sheets");
                return self.refuse(at, &reason, "use one with a key more");
            }
            None => {
                tables.push(PayloadTable {
                    sheet: number,
                    title,
                    kind,
                    caller: self.caller.clone(),
                    keys: all_keys as u8,
                    columns: Vec::new(),
                    told: [0; MOST_KEYS],
                });
                tables.len() - 1
            }
        };
        Ok((table as u8, keys, mode == Mode::Count))
    }
}
