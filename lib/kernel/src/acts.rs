//! Payloads of a script as the kernel itself runs them: fetch arguments, filters of events, and
//! histograms of tracefs.
//!
//! Given what a payload does at a function's calls; gives the [`Counter`]s that add to its tables,
//! and when a call is recorded. What the kernel cannot do is refused with a reason. Tables of each
//! kind are made of the counts by value that a histogram has, so none is an estimate.
//!
//! Must not know: tracefs's files, which functions there are, and scripts.

use sptrace_payload::acted::bucket_of;
use sptrace_payload::acts::{Acts, Step};
use sptrace_payload::program::{Binary, Expression, Source, Width};
use sptrace_payload::tables::{BUCKETS, Kind};
use std::collections::{BTreeMap, HashMap};

/// Keys that a histogram of the kernel's has (TRACING_MAP_KEYS_MAX).
const MOST_KEYS: usize = 3;
/// Registers of the first words, as probes name them.
const REGISTERS: [&str; 6] = ["di", "si", "dx", "cx", "r8", "r9"];

/// Why a payload cannot be run by the kernel, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: &'static str,
    /// What to write.
    pub hint: &'static str,
}

const LATER: &str = "write later(|e| ...), which runs on what was recorded";

fn refuse<T>(reason: &'static str) -> Result<T, Refusal> {
    Err(Refusal {
        reason,
        hint: LATER,
    })
}

/// What a probe fetches, by which names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched(Vec<String>);

impl Fetched {
    /// The name of the field with this, such as `%di:u64`.
    fn field(&mut self, text: String) -> String {
        let known = self.0.iter().position(|one| *one == text);
        let index = known.unwrap_or_else(|| {
            self.0.push(text);
            self.0.len() - 1
        });
        format!("f{index}")
    }

    /// As the definition of a probe has them.
    pub fn text(&self) -> String {
        let fields = self.0.iter().enumerate();
        fields.map(|(i, text)| format!(" f{i}={text}")).collect()
    }
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It always holds.
    Always,
    /// It never does.
    Never,
    /// If the fields are so.
    If(String),
}

impl Truth {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::Always, other) | (other, Self::Always) => other,
            (Self::If(a), Self::If(b)) => Self::If(format!("({a}) && ({b})")),
        }
    }

    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Always, _) | (_, Self::Always) => Self::Always,
            (Self::Never, other) | (other, Self::Never) => other,
            (Self::If(a), Self::If(b)) => Self::If(format!("({a}) || ({b})")),
        }
    }

    fn not(self) -> Self {
        match self {
            Self::Always => Self::Never,
            Self::Never => Self::Always,
            Self::If(a) => Self::If(format!("!({a})")),
        }
    }
}

/// Adds to a table, by a histogram of an event of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The number of the table.
    pub table: usize,
    /// What the probe fetches.
    pub fetched: Fetched,
    /// Fields that are the table's keys.
    pub keys: Vec<String>,
    /// The field whose value is added; `None`: a constant.
    pub value: Option<String>,
    /// That constant.
    pub constant: u64,
    /// It is added if this holds.
    pub condition: Truth,
}

/// What becomes of a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// What it adds.
    pub counters: Vec<Counter>,
    /// When a call is recorded, and what is fetched for that.
    pub recorded: (Truth, Fetched),
}

/// Compiles, given the kinds of the tables.
///
/// # Errors
/// What the kernel cannot do.
pub fn compile(acts: &Acts, kinds: &[Kind]) -> Result<Compiled, Refusal> {
    let mut compiler = Compiler {
        kinds,
        locals: HashMap::new(),
        counters: Vec::new(),
        recorded: Truth::Never,
        fetched: Fetched::default(),
    };
    if acts.records {
        compiler.recorded = Truth::Always;
    }
    compiler.steps(&acts.steps, &[])?;
    Ok(Compiled {
        counters: compiler.counters,
        recorded: (compiler.recorded, compiler.fetched),
    })
}

struct Compiler<'a> {
    kinds: &'a [Kind],
    /// What variables stand for; `None`: that depends on a condition.
    locals: HashMap<u8, Option<Expression>>,
    counters: Vec<Counter>,
    recorded: Truth,
    /// For `recorded`.
    fetched: Fetched,
}

impl Compiler<'_> {
    /// Steps that are done if all of these are so, true or not.
    fn steps(&mut self, steps: &[Step], so: &[(Expression, bool)]) -> Result<(), Refusal> {
        for step in steps {
            match step {
                Step::Set(local, value) => {
                    let value = self.plain(value)?;
                    self.locals.insert(*local, Some(value));
                }
                Step::If(condition, then, or) => {
                    let condition = self.plain(condition)?;
                    let before = self.locals.clone();
                    for (steps, is) in [(then, true), (or, false)] {
                        self.locals.clone_from(&before);
                        let inner = [so, &[(condition.clone(), is)]].concat();
                        self.steps(steps, &inner)?;
                    }
                    self.locals = before;
                    for local in set_in(then).into_iter().chain(set_in(or)) {
                        self.locals.insert(local, None);
                    }
                }
                Step::Add { table, keys, value } => {
                    let counter = self.counter((*table).into(), keys, value, so)?;
                    self.counters.extend(counter);
                }
                Step::Record => {
                    let mut fetched = std::mem::take(&mut self.fetched);
                    let condition = all(so, &mut fetched)?;
                    self.fetched = fetched;
                    let before = std::mem::replace(&mut self.recorded, Truth::Never);
                    self.recorded = before.or(condition);
                }
                // Refused before, where the script is read.
                Step::Next(..) | Step::Act(..) | Step::Bid(_) => {}
                Step::Keep(..) | Step::Increase(..) => {}
            }
        }
        Ok(())
    }

    fn counter(
        &self,
        table: usize,
        keys: &[Expression],
        value: &Expression,
        so: &[(Expression, bool)],
    ) -> Result<Option<Counter>, Refusal> {
        let mut fetched = Fetched::default();
        let mut names = Vec::new();
        for key in keys {
            let key = self.plain(key)?;
            let name = match key {
                Expression::Source(Source::Thread) => "common_pid".to_owned(),
                key => fetched.field(value_of(&key, false)?),
            };
            if names.contains(&name) {
                return refuse("the kernel's histograms have no key twice");
            }
            names.push(name);
        }
        let value = self.plain(value)?;
        let (value, constant) = match value {
            Expression::Constant(constant) => (None, constant),
            Expression::Source(Source::Thread) => (Some("common_pid".to_owned()), 1),
            value => (Some(fetched.field(value_of(&value, false)?)), 1),
        };
        // A value is one more key: what is kept of all follows from how often each came.
        let is_one_more = value.as_ref().is_some_and(|value| !names.contains(value));
        if names.len() + usize::from(is_one_more) > MOST_KEYS {
            return refuse("the kernel's histograms have three keys, with the value that is added");
        }
        match self.kinds.get(table) {
            None => return refuse("there is no such sheet"),
            Some(kind) if kind.has_single_rows() => {
                return refuse("the kernel adds up: it keeps no rows of single calls");
            }
            Some(_) => {}
        }
        let condition = all(so, &mut fetched)?;
        Ok((condition != Truth::Never).then_some(Counter {
            table,
            fetched,
            keys: names,
            value,
            constant,
            condition,
        }))
    }

    /// Without variables.
    fn plain(&self, expression: &Expression) -> Result<Expression, Refusal> {
        let two = |a: &Expression, b: &Expression| {
            Ok::<_, Refusal>((Box::new(self.plain(a)?), Box::new(self.plain(b)?)))
        };
        Ok(match expression {
            Expression::Local(local) => match self.locals.get(local) {
                Some(Some(value)) => value.clone(),
                Some(None) => return refuse("the value of this variable depends on a condition"),
                None => Expression::Constant(0),
            },
            Expression::Load(inner, width) => self.plain(inner)?.load(*width),
            Expression::Narrow(inner, width) => self.plain(inner)?.narrow(*width),
            Expression::Binary(operation, a, b) => {
                let (a, b) = two(a, b)?;
                Expression::Binary(*operation, a, b)
            }
            Expression::Both(a, b) => {
                let (a, b) = two(a, b)?;
                Expression::Both(a, b)
            }
            Expression::Either(a, b) => {
                let (a, b) = two(a, b)?;
                Expression::Either(a, b)
            }
            Expression::Constant(_) | Expression::Source(_) => expression.clone(),
        })
    }
}

/// Variables that are set somewhere in there.
fn set_in(steps: &[Step]) -> Vec<u8> {
    let each = steps.iter().map(|step| match step {
        Step::Set(local, _) => vec![*local],
        Step::If(_, then, or) => [set_in(then), set_in(or)].concat(),
        Step::Add { .. } | Step::Record | Step::Next(..) | Step::Act(..) => Vec::new(),
        Step::Keep(..) | Step::Increase(..) | Step::Bid(_) => Vec::new(),
    });
    each.collect::<Vec<_>>().concat()
}

/// All conditions together.
fn all(so: &[(Expression, bool)], fetched: &mut Fetched) -> Result<Truth, Refusal> {
    let mut together = Truth::Always;
    for (condition, is) in so {
        let truth = truth(condition, fetched)?;
        together = together.and(if *is { truth } else { truth.not() });
    }
    Ok(together)
}

/// A condition as the filter of an event.
fn truth(expression: &Expression, fetched: &mut Fetched) -> Result<Truth, Refusal> {
    match expression {
        Expression::Constant(0) => Ok(Truth::Never),
        Expression::Constant(_) => Ok(Truth::Always),
        Expression::Both(a, b) => Ok(truth(a, fetched)?.and(truth(b, fetched)?)),
        Expression::Either(a, b) => Ok(truth(a, fetched)?.or(truth(b, fetched)?)),
        Expression::Binary(operation, a, b) => match (operation, &**a, &**b) {
            (Binary::Equal, a, Expression::Constant(0)) if is_truth(a) => {
                Ok(truth(a, fetched)?.not())
            }
            (Binary::Equal | Binary::NotEqual, a, Expression::Constant(with)) => {
                compared(*operation, a, *with, fetched)
            }
            (Binary::Equal | Binary::NotEqual, Expression::Constant(with), b) => {
                compared(*operation, b, *with, fetched)
            }
            (Binary::Less | Binary::LessOrEqual, a, Expression::Constant(with)) => {
                let sign = if *operation == Binary::Less {
                    "<"
                } else {
                    "<="
                };
                ordered(a, sign, *with, fetched)
            }
            (Binary::Less | Binary::LessOrEqual, Expression::Constant(with), b) => {
                let sign = if *operation == Binary::Less {
                    ">"
                } else {
                    ">="
                };
                ordered(b, sign, *with, fetched)
            }
            _ => refuse("filters of the kernel's events compare a value with a constant"),
        },
        _ => refuse("this condition is none of a filter of the kernel's events"),
    }
}

fn is_truth(expression: &Expression) -> bool {
    use Binary::{Below, BelowOrEqual, Equal, Less, LessOrEqual, NotEqual};
    let comparisons = [Equal, NotEqual, Below, BelowOrEqual, Less, LessOrEqual];
    match expression {
        Expression::Both(..) | Expression::Either(..) => true,
        Expression::Binary(operation, ..) => comparisons.contains(operation),
        _ => false,
    }
}

/// Is a value equal to a constant, or not?
fn compared(
    operation: Binary,
    value: &Expression,
    with: u64,
    fetched: &mut Fetched,
) -> Result<Truth, Refusal> {
    let is = operation == Binary::Equal;
    let masked = match value {
        Expression::Binary(Binary::And, a, b) => match (&**a, &**b) {
            (Expression::Constant(mask), value) | (value, Expression::Constant(mask)) => {
                Some((value, *mask))
            }
            _ => None,
        },
        _ => None,
    };
    let Some((value, mask)) = masked else {
        return ordered(value, if is { "==" } else { "!=" }, with, fetched);
    };
    let field = field_of(value, fetched, false)?;
    let any = Truth::If(format!("{field} & {mask:#x}"));
    match (with, mask.count_ones()) {
        (0, _) if is => Ok(any.not()),
        (0, _) => Ok(any),
        (with, 1) if with == mask && is => Ok(any),
        (with, 1) if with == mask => Ok(any.not()),
        _ => refuse("filters of the kernel's events know of bits whether any of them is set"),
    }
}

fn ordered(
    value: &Expression,
    sign: &str,
    with: u64,
    fetched: &mut Fetched,
) -> Result<Truth, Refusal> {
    let field = field_of(value, fetched, true)?;
    Ok(Truth::If(format!("{field} {sign} {}", with as i64)))
}

fn field_of(value: &Expression, fetched: &mut Fetched, is_signed: bool) -> Result<String, Refusal> {
    match value {
        Expression::Source(Source::Thread) => Ok("common_pid".to_owned()),
        value => Ok(fetched.field(value_of(value, is_signed)?)),
    }
}

/// A value as a fetch argument with its type.
fn value_of(value: &Expression, is_signed: bool) -> Result<String, Refusal> {
    let whole = if is_signed { "s64" } else { "u64" };
    match value {
        Expression::Narrow(inner, width) => match &**inner {
            Expression::Load(address, loaded) if loaded.bytes() >= width.bytes() => {
                Ok(format!("{}:{}", behind(address)?, type_of(*width, whole)))
            }
            inner => Ok(format!("{}:{}", word(inner)?, type_of(*width, whole))),
        },
        Expression::Load(address, width) => {
            Ok(format!("{}:{}", behind(address)?, type_of(*width, whole)))
        }
        Expression::Constant(_) => refuse("a constant is no key of the kernel's histograms"),
        value => Ok(format!("{}:{whole}", word(value)?)),
    }
}

fn type_of(width: Width, whole: &'static str) -> &'static str {
    match width {
        Width::U8 => "u8",
        Width::U16 => "u16",
        Width::U32 => "u32",
        Width::U64 => whole,
        Width::I8 => "s8",
        Width::I16 => "s16",
        Width::I32 => "s32",
    }
}

/// A whole word, without type.
fn word(value: &Expression) -> Result<String, Refusal> {
    match value {
        Expression::Source(Source::Argument(i)) => match REGISTERS.get(usize::from(*i)) {
            Some(register) => Ok(format!("%{register}")),
            None => refuse("there is no such argument"),
        },
        // The return address is the first word of the stack.
        Expression::Source(Source::Stack(i)) => Ok(format!("$stack{}", u32::from(*i) + 1)),
        Expression::Load(address, Width::U64) => behind(address),
        Expression::Binary(..) | Expression::Both(..) | Expression::Either(..) => {
            refuse("probes of the kernel's fetch values, and do not calculate")
        }
        _ => refuse("probes of the kernel's cannot fetch this"),
    }
}

/// What lies at an address, without type.
fn behind(address: &Expression) -> Result<String, Refusal> {
    let (base, offset) = match address {
        Expression::Binary(operation, a, b) => match (operation, &**a, &**b) {
            (Binary::Add, base, Expression::Constant(offset))
            | (Binary::Add, Expression::Constant(offset), base) => (base, *offset as i64),
            (Binary::Subtract, base, Expression::Constant(offset)) => {
                (base, (*offset as i64).wrapping_neg())
            }
            _ => return refuse("probes of the kernel's add a constant to an address, and no more"),
        },
        base => (base, 0),
    };
    Ok(format!("{offset:+}({})", word(base)?))
}

/// A row of a histogram: its fields by name, and how often they were so.
pub type Row = (BTreeMap<String, u64>, u64);

/// The rows of a histogram's file, and how much there was no room for.
pub fn rows(text: &str) -> (Vec<Row>, u64) {
    let mut rows = Vec::new();
    let mut dropped = 0;
    for line in text.lines().map(str::trim) {
        if let Some(number) = line.strip_prefix("Dropped:") {
            dropped += number.trim().parse().unwrap_or(0);
        }
        let parts = line.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let Some((keys, values)) = parts else {
            continue;
        };
        let named = |part: &str| {
            let (name, value) = part.split_once(':')?;
            Some((name.trim().to_owned(), value.trim().parse().ok()?))
        };
        let fields: BTreeMap<String, u64> = keys.split(',').filter_map(named).collect();
        let hits = values.split_once("hitcount:").map_or("", |(_, rest)| rest);
        let hits = hits.split_whitespace().next().unwrap_or("");
        rows.push((fields, hits.parse().unwrap_or(0)));
    }
    (rows, dropped)
}

/// What a table keeps of values that came so often: how many there were, and the values by its
/// kind.
pub fn kept(kind: Kind, values: &[(u64, u64)]) -> (u64, Vec<u64>) {
    let count = values.iter().map(|(_, times)| times).sum();
    let signed = values.iter().map(|(value, _)| *value as i64);
    let values = match kind {
        Kind::Count => {
            let products = values.iter().map(|(v, times)| v.wrapping_mul(*times));
            return (products.fold(0, u64::wrapping_add), Vec::new());
        }
        Kind::Sum => {
            let products = values.iter().map(|(v, times)| v.wrapping_mul(*times));
            vec![products.fold(0, u64::wrapping_add)]
        }
        // Such a table is refused.
        Kind::Slowest(_) | Kind::Rows => Vec::new(),
        Kind::Least => vec![signed.min().unwrap_or(0) as u64],
        Kind::Greatest => vec![signed.max().unwrap_or(0) as u64],
        Kind::Histogram => {
            let mut buckets = vec![0; BUCKETS];
            for (value, times) in values {
                if let Some(bucket) = buckets.get_mut(bucket_of(*value)) {
                    *bucket += times;
                }
            }
            buckets
        }
    };
    (count, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argument(i: u8) -> Expression {
        Expression::argument(i)
    }

    #[test]
    fn a_condition_becomes_a_filter_and_a_sum_a_histogram() {
        let big = Expression::Constant(100).with(Binary::Less, argument(2).narrow(Width::I32));
        let odd = argument(1).with(Binary::And, 1).with(Binary::NotEqual, 0);
        let add = Step::Add {
            table: 0,
            keys: vec![argument(0).with(Binary::Add, 8).load(Width::U32)],
            value: Expression::Local(0),
        };
        let steps = vec![
            Step::Set(0, argument(2)),
            Step::If(
                Expression::Both(Box::new(big), Box::new(odd)),
                vec![add, Step::Record],
                Vec::new(),
            ),
        ];
        let acts = Acts {
            steps,
            records: false,
        };
        let compiled = compile(&acts, &[Kind::Sum]).unwrap();
        let counter = &compiled.counters[0];
        assert_eq!(
            counter.fetched.text(),
            " f0=+8(%di):u32 f1=%dx:u64 f2=%dx:s32 f3=%si:u64"
        );
        assert_eq!(
            (counter.keys.as_slice(), counter.value.as_deref()),
            (["f0".to_owned()].as_slice(), Some("f1"))
        );
        let condition = "(f2 > 100) && (f3 & 0x1)".to_owned();
        assert_eq!(counter.condition, Truth::If(condition));
        let recorded = "(f0 > 100) && (f1 & 0x1)".to_owned();
        assert_eq!(compiled.recorded.0, Truth::If(recorded));
    }

    #[test]
    fn what_the_kernel_cannot_do_is_refused_with_a_reason() {
        let into = |kind: Kind, value: Expression| {
            let keys = vec![value];
            let value = Expression::Constant(1);
            let steps = vec![Step::Add {
                table: 0,
                keys,
                value,
            }];
            let records = false;
            compile(&Acts { steps, records }, &[kind])
        };
        for kind in [Kind::Slowest(3), Kind::Rows] {
            let refused = into(kind, argument(0)).unwrap_err();
            assert!(refused.reason.contains("single calls"), "{refused:?}");
        }
        let of = |value: Expression| into(Kind::Count, value);
        let refused = of(argument(0).with(Binary::ShiftLeft, 2)).unwrap_err();
        assert!(refused.reason.contains("do not calculate"), "{refused:?}");
        assert!(of(Expression::Constant(3)).is_err());
        assert!(of(argument(0)).is_ok());
        let two = argument(0).with(Binary::Less, argument(1));
        let steps = vec![Step::If(two, vec![Step::Record], Vec::new())];
        let records = false;
        let refused = compile(&Acts { steps, records }, &[]).unwrap_err();
        assert!(refused.reason.contains("constant"), "{refused:?}");
    }

    #[test]
    fn histograms_are_read_and_kept_by_kind() {
        let text = "# trigger info: hist:keys=f0,f1\n\n{ f0:          3, f1: 18446744073709551615 } hitcount:          2\n\
            { f0: 3, f1:  9 } hitcount: 1\n\nTotals:\n    Hits: 3\n    Dropped: 4\n";
        let (rows, dropped) = rows(text);
        assert_eq!((rows.len(), dropped), (2, 4));
        assert_eq!((rows[0].0["f0"], rows[0].1), (3, 2));
        let values: Vec<_> = rows.iter().map(|(f, times)| (f["f1"], *times)).collect();
        assert_eq!(kept(Kind::Sum, &values), (3, vec![7]));
        assert_eq!(kept(Kind::Least, &values), (3, vec![u64::MAX]));
        assert_eq!(kept(Kind::Greatest, &values), (3, vec![9]));
        assert_eq!(kept(Kind::Count, &[(1, 5), (3, 2)]), (11, vec![]));
        assert_eq!(kept(Kind::Histogram, &values).1[4], 1);
    }
}
