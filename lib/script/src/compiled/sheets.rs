//! What payloads add to sheets: the tables of these, keys, and values.
//!
//! Part of the reader of payloads. Must not know where tables lie.

use rhai::{Expr, FnCallExpr, Position};
use sptrace_payload::acts::Step;
use sptrace_payload::program::{Expression, Source};
use sptrace_payload::tables::{Kind, MOST_KEYS, MOST_SLOWEST};
use sptrace_trace::KeyColumn;

use super::{MOST_TABLES, Read, Reader, Type, constant};
use crate::policy::{PayloadTable, Shows};
use crate::sheets::{Body, Mode, Printable, Sheet};

/// What is added to a sheet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// A key; how often, if that is said.
    Count,
    /// A key and a value.
    Value,
    /// A measure and what else stands in its row.
    Measure,
    /// A row.
    Row,
}

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
        let (table, keys, takes) = self.table_of(sheet, at)?;
        let arguments = &method.args;
        let (given, value) = match (arguments.len(), takes, keys) {
            (1, Takes::Count, _) | (2, Takes::Count | Takes::Value, _) => {
                (arguments.first(), arguments.get(1))
            }
            (1, Takes::Row, _) => (arguments.first(), None),
            (2, Takes::Measure, _) => (arguments.get(1), arguments.first()),
            (1, Takes::Value | Takes::Measure, 0) => (None, arguments.first()),
            _ => {
                let hint = match (takes, keys) {
                    (Takes::Count, _) => "write SHEET.add(key), or SHEET.add([key, key])",
                    (Takes::Value | Takes::Measure, 0) => "write SHEET.add(value)",
                    (Takes::Value, _) => "write SHEET.add(key, value)",
                    (Takes::Measure, _) => "write SHEET.add(measure, [cell, cell])",
                    (Takes::Row, _) => "write SHEET.add([cell, cell])",
                };
                return self.refuse(at, "the sheet needs something else here", hint);
            }
        };
        let mut all = self.keys_of(given)?;
        if all.len() != keys {
            let what = match takes {
                Takes::Measure | Takes::Row => "cells",
                Takes::Count | Takes::Value => "keys",
            };
            let reason = format!("{} {what} for {keys} columns", all.len());
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

    /// Keys that are given one by one, in a list, or not at all.
    fn keys_of(&mut self, given: Option<&Expr>) -> Read<Vec<(Expression, KeyColumn)>> {
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
        Ok(all)
    }

    pub(super) fn new_table(&mut self, new: PayloadTable, at: Position) -> Read<u8> {
        let tables = &mut self.around.tables;
        if tables.len() >= MOST_TABLES {
            let reason =
                format!("payloads add to more than {MOST_TABLES} sheets, each c.print() counted");
            return self.refuse(at, &reason, "use one with a key more");
        }
        tables.push(new);
        Ok(tables.len() as u8 - 1)
    }

    /// A part of a key, and what it is.
    pub(super) fn key(&mut self, expression: &Expr) -> Read<(Expression, KeyColumn)> {
        Ok(match self.value(expression)? {
            (value, Type::Caller) => (value, KeyColumn::Function),
            (value, Type::Stack) => (value, KeyColumn::Stack),
            (value, Type::Text) => (value, KeyColumn::Text),
            (value, _) => (value, KeyColumn::Number),
        })
    }

    /// All payloads put the same into a column of a sheet.
    pub(super) fn has_columns(
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

    /// What payloads can add to a sheet: the kind of its table, how many keys that has, and what is
    /// added.
    fn form_of(&self, sheet: &Sheet, at: Position) -> Read<(Kind, usize, Takes)> {
        let reason = "payloads add no statistics, and sums of one field alone";
        let hint = "use sum, min, max or histogram, or write later(|e| ...)";
        match &sheet.body {
            Body::Groups(groups) => match groups.form() {
                Some((kind, Mode::Count, keys)) => Ok((kind, keys, Takes::Count)),
                Some((kind, _, keys)) => Ok((kind, keys, Takes::Value)),
                None => self.refuse(at, reason, hint),
            },
            Body::Slowest(slowest) => {
                let (most, keys) = slowest.form();
                let rows = u8::try_from(most).ok().filter(|rows| *rows <= MOST_SLOWEST);
                let Some(rows) = rows else {
                    let reason = format!("payloads keep the {MOST_SLOWEST} slowest at most");
                    return self.refuse(at, &reason, "write slowest(TITLE, 10, [...])");
                };
                self.takes_all_callers(at)?;
                Ok((Kind::Slowest(rows), keys, Takes::Measure))
            }
            Body::Table(table) => {
                self.takes_all_callers(at)?;
                Ok((Kind::Rows, table.width(), Takes::Row))
            }
        }
    }

    /// Rows of other callers would take the room of those that are asked for.
    fn takes_all_callers(&self, at: Position) -> Read<()> {
        if self.caller.is_none() {
            return Ok(());
        }
        let reason = "payloads at calls by some functions add to no rows of single calls";
        let hint = "leave called_by(GLOB) out, and have c.caller as a column";
        self.refuse(at, reason, hint)
    }

    /// The table of a sheet, how many keys it has, and what is added to it.
    fn table_of(&mut self, sheet: &Printable, at: Position) -> Read<(u8, usize, Takes)> {
        let is_it = |one: &Printable| std::sync::Arc::ptr_eq(&one.0, &sheet.0);
        let number = self
            .around
            .sheets
            .iter()
            .position(is_it)
            .unwrap_or(usize::MAX);
        let (title, form) = {
            let locked = sheet.lock();
            (locked.title.clone(), self.form_of(&locked, at))
        };
        let (kind, keys, takes) = form?;
        let all_keys = keys + usize::from(self.caller.is_some());
        if all_keys > MOST_KEYS {
            let most = MOST_KEYS - (all_keys - keys);
            let reason = match takes {
                Takes::Measure => format!("more than {most} columns beside the measure"),
                Takes::Row => format!("more than {most} columns"),
                Takes::Count | Takes::Value => format!("more than {most} keys"),
            };
            return self.refuse(at, &reason, "use fewer");
        }
        let shows = Shows::Sheet(number);
        let is_same = |table: &PayloadTable| table.shows == shows && table.caller == self.caller;
        let table = match self.around.tables.iter().position(is_same) {
            Some(known) => known as u8,
            None => {
                let new = PayloadTable {
                    shows,
                    title,
                    kind,
                    caller: self.caller.clone(),
                    keys: all_keys as u8,
                    columns: Vec::new(),
                    told: [0; MOST_KEYS],
                };
                self.new_table(new, at)?
            }
        };
        Ok((table, keys, takes))
    }
}
