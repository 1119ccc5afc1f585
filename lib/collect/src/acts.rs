//! Payloads of a script: which functions have one, and what their tables hold in the end.
//!
//! Given what a script asks for, and the names and prototypes of a module's functions; gives the
//! acts of a function with the places of its arguments. Must not know scripts, nor how code is made
//! of acts, nor who reads the tables.

use std::collections::BTreeSet;
use std::sync::Mutex;

use sptrace_payload::acts::{Acts, ActsError, FAILURE, MOST_TEXTS, Moment, RESULT};
use sptrace_payload::program::{Binary, Expression, Source, Width};
use sptrace_payload::slot_code::fits_slot;
use sptrace_payload::tables::{Kind, MOST_KEYS, Tables};
use sptrace_payload::text;
use sptrace_trace::{KeyColumn, glob_matches};
use sptrace_types::calls::{Selection, by_number, parameter};
use sptrace_types::decode::fields::led_to;
use sptrace_types::decode::types::Type;
use sptrace_types::functions::prototype::{Failure, Prototype, Source as Place};

/// What runs at the calls of some functions.
#[derive(Clone, Debug)]
pub struct Payload {
    /// Glob of modules' base names; None: of all.
    pub module: Option<String>,
    /// Glob of functions.
    pub glob: String,
    /// Glob of the file of the source in which these begin; None: of any.
    pub file: Option<String>,
    /// When it runs.
    pub moment: Moment,
    /// What it does.
    pub acts: Acts,
    /// Names of arguments that it uses, by their numbers.
    pub names: Vec<String>,
    /// It runs at these calls of the kernel, and at no function.
    pub calls: Option<Selection>,
}

impl Payload {
    /// Does it run at calls of the kernel of this number?
    pub fn runs_at(&self, number: u32) -> bool {
        self.calls
            .as_ref()
            .is_some_and(|calls| calls.contains(number))
    }
}

/// What runs inside of the program.
#[derive(Clone, Debug, Default)]
pub struct Payloads {
    /// In the order in which they run.
    pub all: Vec<Payload>,
    /// What they add to.
    pub tables: Tables,
    /// What these are called.
    pub titles: Vec<String>,
    /// What the words of their keys are.
    pub columns: Vec<Vec<KeyColumn>>,
    /// Nanoseconds of a tick of the clock, times 2^32, for those that ask how long a call took.
    pub tick_ns: u64,
}

impl Payloads {
    /// True if one of them may run at calls that go on without a record and a frame.
    pub fn fit_slots(&self) -> bool {
        let is_entry = |payload: &&Payload| payload.moment == Moment::Call;
        let mut at_entries = self.all.iter().filter(is_entry);
        at_entries.any(|payload| {
            let acts = &payload.acts;
            payload.calls.is_none() && fits_slot(acts) && !acts.adds_rows(&self.tables)
        })
    }
}

/// What runs at the calls of one function.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    /// When one begins.
    pub entry: Acts,
    /// When it returns.
    pub exit: Option<Exit>,
}

/// What runs when a call returns.
#[derive(Clone, Debug)]
pub struct Exit {
    /// What it does.
    pub acts: Acts,
    /// What it needs of the call, by number.
    pub kept: Vec<Source>,
}

impl Payloads {
    /// These, which add to tables of which the title, the kind, and what their keys are is given,
    /// with the words that a row has to tell what each stands for.
    pub fn new(
        all: Vec<Payload>,
        tables: impl IntoIterator<Item = (String, Kind, Vec<(KeyColumn, u8)>)>,
    ) -> Self {
        let (mut titles, mut forms, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        for (title, kind, keys) in tables {
            titles.push(title);
            let mut told = [0; MOST_KEYS];
            for (place, (_, words)) in told.iter_mut().zip(&keys) {
                *place = *words;
            }
            forms.push((kind, keys.len() as u8, told));
            columns.push(keys.into_iter().map(|(column, _)| column).collect());
        }
        let tables = Tables::telling(forms);
        let needs_set = all.iter().any(|one| one.acts.needs_set());
        let tables = match needs_set {
            true => tables.with_variables(),
            false => tables,
        };
        Self {
            all,
            tables,
            titles,
            columns,
            tick_ns: 1 << 32,
        }
    }

    /// True if one runs at calls of functions.
    pub fn act_on_functions(&self) -> bool {
        self.all.iter().any(|one| one.calls.is_none())
    }

    /// True if one asks how long a call took: the clock has to be known.
    pub fn ask_time(&self) -> bool {
        self.all.iter().any(|one| one.acts.is_timed())
    }

    /// With a clock of so many ticks a second.
    pub fn timed_by(self, tsc_hz: u64) -> Self {
        let tick_ns = (u128::from(1_000_000_000u64) << 32) / u128::from(tsc_hz.max(1));
        Self {
            tick_ns: u64::try_from(tick_ns).unwrap_or(u64::MAX),
            ..self
        }
    }
}

/// Payloads, and what of them was found.
#[derive(Debug, Default)]
pub struct Chosen {
    /// What was asked for.
    pub payloads: Payloads,
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    /// Payloads that fit a function.
    fitting: BTreeSet<usize>,
    /// What cannot be done at a function's calls, in words.
    troubles: BTreeSet<String>,
}

/// Troubles that are told.
const MOST_TROUBLES: usize = 10;

impl Chosen {
    /// Of what is asked for.
    pub fn new(payloads: Payloads) -> Self {
        Self {
            payloads,
            found: Mutex::default(),
        }
    }

    /// What is done at the calls of a function in a module, given its names, and its prototype if a
    /// payload needs that. None: nothing.
    pub fn of(
        &self,
        module: &str,
        names: &[&str; 3],
        prototype: &dyn Fn() -> Option<Prototype>,
        source: &dyn Fn() -> Option<String>,
    ) -> Option<Runs> {
        let fits = |payload: &Payload| {
            let module_fits = |glob: &String| glob_matches(glob, module);
            payload.calls.is_none()
                && payload.module.as_ref().is_none_or(module_fits)
                && names.iter().any(|name| glob_matches(&payload.glob, name))
                && payload
                    .file
                    .as_ref()
                    .is_none_or(|of| file_fits(of, source()))
        };
        let mut all: Option<Runs> = None;
        let mut exit = Acts::default();
        let [function, ..] = names;
        for (number, payload) in self
            .payloads
            .all
            .iter()
            .enumerate()
            .filter(|(_, p)| fits(p))
        {
            if let Ok(mut found) = self.found.lock() {
                found.fitting.insert(number);
            }
            let mut acts = payload.acts.clone();
            if let Err(name) = resolve(&mut acts, &payload.names, prototype) {
                self.trouble(match name {
                    "" => format!(
                        "what {function} gives when it fails is not known: c.deny(ERRNO, RESULT)"
                    ),
                    name => format!("{function} has no {} that is known", called(name)),
                });
                continue;
            }
            let runs = all.get_or_insert_default();
            match payload.moment {
                Moment::Call => runs.entry.join(&acts),
                Moment::Return => exit.join(&acts),
            }
        }
        let mut all = all?;
        self.limit(&mut all, function);
        self.keep(&mut all, exit, function);
        Some(all)
    }

    /// Takes acts away that ask for more memory than is read at a call.
    fn limit(&self, all: &mut Runs, what: &str) {
        if all.entry.texts().len() > MOST_TEXTS {
            self.trouble(format!("{what}: {}", ActsError::Texts));
            all.entry = Acts::default();
        }
    }

    /// What is done at a call of the kernel. None: nothing.
    pub fn of_system_call(&self, number: u32) -> Option<Runs> {
        let mut all: Option<Runs> = None;
        let mut exit = Acts::default();
        let payloads = self.payloads.all.iter().enumerate();
        for (at, payload) in payloads.filter(|(_, p)| p.runs_at(number)) {
            if let Ok(mut found) = self.found.lock() {
                found.fitting.insert(at);
            }
            let mut acts = payload.acts.clone();
            let name = |n: u8| payload.names.get(usize::from(n)).map_or("", String::as_str);
            let of = |n: u8| match n {
                RESULT => Some(Source::Result.into()),
                n => of_kernel(number, name(n)),
            };
            match (acts.resolve(&of), payload.moment) {
                (Ok(()), Moment::Call) => all.get_or_insert_default().entry.join(&acts),
                (Ok(()), Moment::Return) => {
                    all.get_or_insert_default();
                    exit.join(&acts);
                }
                (Err(n), _) => self.trouble(format!(
                    "system call {number} has no {} that is known",
                    called(name(n))
                )),
            }
        }
        let mut all = all?;
        let what = format!("system call {number}");
        self.limit(&mut all, &what);
        self.keep(&mut all, exit, &what);
        Some(all)
    }

    /// What runs at a return, with what that needs of the call.
    fn keep(&self, all: &mut Runs, mut exit: Acts, what: &str) {
        if exit.steps.is_empty() {
            return;
        }
        match exit.keep() {
            Ok(_) if exit.texts().len() > MOST_TEXTS => {
                self.trouble(format!("{what}: {}", ActsError::Texts));
            }
            Ok(kept) => all.exit = Some(Exit { acts: exit, kept }),
            Err(error) => self.trouble(format!("{what}: {error}")),
        }
    }

    /// Something cannot be done.
    pub fn trouble(&self, what: String) {
        if let Ok(mut found) = self.found.lock() {
            found.troubles.insert(what);
        }
    }

    /// What the user should know.
    pub fn remarks(&self) -> Vec<String> {
        let Ok(found) = self.found.lock() else {
            return Vec::new();
        };
        let mut remarks = Vec::new();
        for (number, payload) in self.payloads.all.iter().enumerate() {
            if !found.fitting.contains(&number) {
                let glob = &payload.glob;
                remarks.push(match payload.calls {
                    Some(_) => "no instruction that makes a system call was met, of which the \
                                script has payloads"
                        .to_owned(),
                    None => {
                        let file = payload.file.as_ref();
                        let file = file.map_or(String::new(), |of| format!(".in_file(\"{of}\")"));
                        format!(
                            "no function matches at(\"{glob}\"){file} of the script (names: sptrace analyze --functions)"
                        )
                    }
                });
            }
        }
        let troubles = found.troubles.iter().take(MOST_TROUBLES);
        remarks.extend(troubles.map(|what| format!("payload: {what}")));
        let more = found.troubles.len().saturating_sub(MOST_TROUBLES);
        if more > 0 {
            remarks.push(format!("payload: {more} more functions of that kind"));
        }
        remarks
    }
}

/// Does the path of a file of the source fit: all of it, or its last part?
fn file_fits(pattern: &str, path: Option<String>) -> bool {
    path.is_some_and(|path| {
        let short = path.rsplit('/').next().unwrap_or(&path);
        glob_matches(pattern, &path) || glob_matches(pattern, short)
    })
}

/// Puts the places of arguments into acts; else the name of one that is not known.
fn resolve<'a>(
    acts: &mut Acts,
    names: &'a [String],
    prototype: &dyn Fn() -> Option<Prototype>,
) -> Result<(), &'a str> {
    let asks_more = [RESULT, FAILURE].map(|number| acts.uses(Source::Named(number)));
    if names.is_empty() && asks_more == [false; 2] {
        return Ok(());
    }
    let prototype = prototype();
    let name = |number: u8| names.get(usize::from(number)).map_or("", String::as_str);
    let of = |number: u8| match number {
        RESULT => Some(result(prototype.as_ref())),
        FAILURE => match prototype.as_ref()?.failure {
            Failure::MinusOne => Some(u64::MAX.into()),
            Failure::Null => Some(0.into()),
            Failure::Never => None,
        },
        number => argument(prototype.as_ref()?, name(number)),
    };
    acts.resolve(&of).map_err(name)
}

/// The result, with its sign and width where they are known.
fn result(prototype: Option<&Prototype>) -> Expression {
    let word = Expression::Source(Source::Result);
    let Some(prototype) = prototype else {
        return word;
    };
    match (prototype.result.as_ref(), prototype.result_bytes()) {
        (Some(given), _) if given.ty.size().is_some() => narrowed(&given.ty, word),
        (_, 1) => word.narrow(Width::I8),
        (_, 2) => word.narrow(Width::I16),
        (_, 4) => word.narrow(Width::I32),
        _ => word,
    }
}

/// An argument by its name, with its sign and width.
fn argument(prototype: &Prototype, name: &str) -> Option<Expression> {
    let (name, field) = parts_of(name);
    let at = prototype.names.iter().position(|known| known == name)?;
    let ty = prototype.call.parameters.get(at)?;
    let source = match prototype.sources.get(at)? {
        Place::Register(n) if field.is_some() => return field_of(*n, *ty, field?),
        Place::Register(n) => Source::Argument(*n),
        Place::Stack(n) if field.is_none() => Source::Stack(*n),
        // A number with a point is none that payloads add up.
        Place::Vector(_) | Place::Stack(_) => return None,
    };
    let word = Expression::Source(source);
    Some(narrowed(ty, word))
}

/// The name of an argument, and that of a field in what it points to: `order.price.cents`.
fn parts_of(name: &str) -> (&str, Option<&str>) {
    match name.split_once('.') {
        Some((name, field)) => (name, Some(field)),
        None => (name, None),
    }
}

/// A number in the structure that an argument in a register points to.
fn field_of(argument: u8, ty: Type, field: &str) -> Option<Expression> {
    let place = led_to(argument, ty)
        .part(field.split('.'), (field, ""))
        .ok()?;
    let [offset] = place.offsets[..] else {
        return None;
    };
    let bytes = u16::try_from(place.ty.size()?).ok()?;
    let is_number = !matches!(place.ty, Type::Struct(_) | Type::Array(..) | Type::Float(_));
    // It is read in the word in which it lies.
    if !is_number || offset % 8 + bytes > 8 {
        return None;
    }
    let word = Expression::Source(Source::Text(place.argument, text::field(offset)?));
    let shift = u64::from(offset % 8 * 8);
    let word = match shift {
        0 => word,
        shift => word.with(Binary::ShiftRight, shift),
    };
    Some(narrowed(&place.ty, word))
}

/// What a payload asks for, in words.
fn called(name: &str) -> String {
    let kind = match parts_of(name) {
        (_, Some(_)) => "field",
        (_, None) => "argument",
    };
    format!("{kind} '{name}'")
}

/// The same of a call of the kernel.
fn of_kernel(number: u32, name: &str) -> Option<Expression> {
    let (name, field) = parts_of(name);
    let at = parameter(number, name)?;
    match field {
        None => Some(Source::Argument(at).into()),
        Some(field) => {
            let (types, _) = by_number(number)?.of(&[0; 6]);
            field_of(at, *types.get(usize::from(at))?, field)
        }
    }
}

/// What of a register a value of a type is.
fn narrowed(ty: &Type, word: Expression) -> Expression {
    match (ty, ty.size().unwrap_or(8)) {
        (Type::Unsigned(_) | Type::Hex(_), 1) | (Type::Bool, _) => word.narrow(Width::U8),
        (Type::Unsigned(_) | Type::Hex(_), 2) => word.narrow(Width::U16),
        (Type::Unsigned(_) | Type::Hex(_) | Type::Named(..) | Type::Id, 4) => {
            word.narrow(Width::U32)
        }
        (_, 1) => word.narrow(Width::I8),
        (_, 2) => word.narrow(Width::I16),
        (_, 4) => word.narrow(Width::I32),
        _ => word,
    }
}
