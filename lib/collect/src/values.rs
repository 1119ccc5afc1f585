//! Values of functions: which calls bring them, and how.
//!
//! Given what the user asks for (`-A`, `-R`), the names of a module's functions, and their
//! prototypes: of files that the user names, of the module's debug information, or known ones;
//! gives the section of the module's plan that tells the agent, and the descriptions by which a
//! reader understands what comes. Must not know what becomes of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use sptrace_addr::Svma;
use sptrace_code::Cached;
use sptrace_image::Object;
use sptrace_patch::errno::place_of_errno;
use sptrace_patch::values::{rest_at, section};
use sptrace_trace::{demangle, glob_matches, is_pattern, without_parameters};
use sptrace_types::decode::capture::{Condition, Extent, From, Length, all_captures};
use sptrace_types::decode::types::{Len, Phase};
use sptrace_types::functions::known::{self, generic};
use sptrace_types::functions::parse::{Defined, prototype};
use sptrace_types::functions::prototype::{Failure, Prototype, Source};
use sptrace_types::functions::spec::{self, Spec, Wanted};
use sptrace_wire::levels::SWITCHES;
use sptrace_wire::plan::{
    Comparison, ErrnoPlace, Failure as WireFailure, FunctionValues, NO_DESCRIPTION, PlanView,
    SOURCE_STACK, SOURCE_VECTOR, SYSTEM_ENTRIES, ValuesHead,
};

use sptrace_payload::acts::Act;
use sptrace_payload::tables::Tables;
use sptrace_types::syscalls;

use crate::acts::{Chosen, Payloads, Runs};
use crate::captures::Rest;
use crate::modules::details::File;
use crate::payloads::{Layout, Reads};

/// Where no values are asked for.
const NO_EXTENT: Extent = Extent {
    string_bytes: 0,
    verbose: false,
};

/// Which values are recorded.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What the options say, in their order.
    pub specs: Vec<Spec>,
    /// How much of strings and buffers.
    pub extent: Extent,
    /// Prototypes of the user's files, by name.
    pub prototypes: HashMap<String, Prototype>,
}

/// What was asked for, and what of it was found.
pub struct Values {
    asked: Option<Asked>,
    /// What runs at calls beside that.
    pub chosen: Option<Chosen>,
    /// What is recorded depends on which calls are open: every call has a frame.
    needs_frames: bool,
    /// Globs of functions whose values are switched off and on, and how many switches there are.
    switched: Vec<String>,
    switches: AtomicU16,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    /// Specs that fit a function.
    specs: BTreeSet<usize>,
    /// Specs that fit a function of which no prototype is known.
    unknown: BTreeMap<usize, String>,
    /// Values that a function has not.
    missing: BTreeSet<String>,
    /// Functions whose values cannot be switched.
    unswitched: u64,
}

/// What debug information says of the function at an address: a prototype's line, or a file.
type Debug<'a> = dyn Fn(Svma) -> Option<String> + 'a;

/// More names of the function at an address than its best one.
type OtherNames<'a> = dyn Fn(Svma) -> Vec<String> + 'a;

/// A function whose calls bring values.
struct Row {
    entry: u32,
    values: Option<Shown>,
    /// Number of the switch of its values; 0: none.
    switch: u16,
    acts: Option<Runs>,
}

/// What its calls bring.
struct Shown {
    prototype: Prototype,
    condition: Option<(u8, spec::Condition)>,
}

impl Values {
    /// Of what is asked for.
    pub fn new(asked: Option<Asked>, payloads: Option<Payloads>) -> Self {
        Self {
            asked,
            chosen: payloads.map(Chosen::new),
            needs_frames: false,
            switched: Vec::new(),
            switches: AtomicU16::new(0),
            found: Mutex::default(),
        }
    }

    /// With frames for all calls, if what is recorded depends on which are open.
    pub fn with_frames(self, needs_frames: bool) -> Self {
        Self {
            needs_frames,
            ..self
        }
    }

    /// Those of functions that these globs match are switched off and on while the program runs.
    pub fn switched(self, globs: Vec<String>) -> Self {
        Self {
            switched: globs,
            ..self
        }
    }

    /// A switch for the values of a function with these names; 0: it has none.
    fn switch(&self, names: &[&str]) -> u16 {
        let fits = |glob: &String| names.iter().any(|name| glob_matches(glob, name));
        if !self.switched.iter().any(fits) {
            return 0;
        }
        let next = |last: u16| (u64::from(last) + 1 < SWITCHES).then_some(last + 1);
        let taken = self
            .switches
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        if taken.is_err()
            && let Ok(mut found) = self.found.lock()
        {
            found.unswitched += 1;
        }
        taken.map_or(0, |last| last + 1)
    }

    /// True if there may be any.
    pub fn are_wanted(&self) -> bool {
        self.asked.is_some() || self.chosen.is_some()
    }

    /// True if what runs at calls may do so without a frame.
    pub fn act_in_slots(&self) -> bool {
        let fits = |chosen: &Chosen| chosen.payloads.fit_slots();
        !self.needs_frames && self.chosen.as_ref().is_some_and(fits)
    }

    /// What the plan of a module has to say, and the descriptions of its functions, given the
    /// number that the first of them gets. `None`: nothing. `takes_muted`: functions of which
    /// nothing else is recorded, too.
    pub fn of_module(
        &self,
        cached: &Cached,
        plan: &[u8],
        file: &Path,
        takes_muted: bool,
    ) -> Option<Planned> {
        if !self.are_wanted() {
            return None;
        }
        let view = PlanView::new(plan)?;
        let bytes = std::fs::read(file).ok()?;
        let object = Object::parse(&bytes).ok()?;
        let details = File::new(file);
        let debug = |svma: Svma| details.prototype(svma);
        let line = |svma: Svma| details.line(svma).map(|line| line.0);
        let debug: (&Debug<'_>, bool) = (&debug, is_described(file));
        let others = |svma: Svma| other_names(&object, svma);
        let mut rows = self.rows((cached, &others), view, takes_muted, (file, &line), debug);
        let head = place_of_errno(&object, Svma(view.header().base_svma));
        self.without_errno(&mut rows, &head, file);
        if view.specials().any(|special| special.kind.is_system_call()) {
            rows.extend(self.system_rows());
        }
        if rows.is_empty() {
            return None;
        }
        Some(Planned {
            rows,
            head,
            extent: self.asked.as_ref().map_or(NO_EXTENT, |asked| asked.extent),
            tables: self.tables(),
            tick_ns: self
                .chosen
                .as_ref()
                .map_or(0, |chosen| chosen.payloads.tick_ns),
            area_bytes: view.header().area_bytes,
            needs_frames: self.needs_frames,
        })
    }

    fn tables(&self) -> Tables {
        let tables = self.chosen.as_ref().map(|chosen| &chosen.payloads.tables);
        tables.cloned().unwrap_or_default()
    }

    fn rows(
        &self,
        (cached, others): (&Cached, &OtherNames<'_>),
        view: PlanView<'_>,
        takes_muted: bool,
        file: (&Path, &Debug<'_>),
        debug: (&Debug<'_>, bool),
    ) -> Vec<Row> {
        use sptrace_wire::plan::FN_MUTED;
        let h = *view.header();
        let plt = h.plt_start..h.plt_end;
        let hooks = view.specials().filter(|special| special.kind.is_hook());
        let hooked: BTreeSet<u32> = hooks.map(|special| special.entry).collect();
        let mut rows = Vec::new();
        let functions = view.functions().filter(|f| !plt.contains(&f.entry));
        for function in functions.filter(|f| takes_muted || !f.is_any(FN_MUTED)) {
            let svma = Svma(h.base_svma + u64::from(function.entry));
            let symbol = cached.named_at(svma).map_or("", |n| n.1);
            // Of a part or a copy that the compiler has made nobody says what it takes.
            let is_part = [".part.", ".constprop.", ".isra.", ".cold"];
            if symbol.ends_with("@plt") || is_part.iter().any(|part| symbol.contains(part)) {
                continue;
            }
            let name = match symbol {
                "" => sptrace_code::unnamed(svma),
                symbol => demangle(symbol),
            };
            let names = (symbol, name.as_str());
            let others = || others(svma);
            let (entry, values) = (function.entry, self.shown(names, &others, svma, debug));
            let acts = match function.is_any(FN_MUTED) {
                true => None,
                false => self.acts(file, names, svma, debug, &|| hooked.contains(&entry)),
            };
            if values.is_some() || acts.is_some() {
                let names = [symbol, &name, without_parameters(&name)];
                let switch = values.as_ref().map_or(0, |_| self.switch(&names));
                rows.push(Row {
                    entry,
                    values,
                    switch,
                    acts,
                });
            }
        }
        rows
    }

    /// What runs at calls of the kernel, as rows behind those of all functions.
    fn system_rows(&self) -> Vec<Row> {
        let Some(chosen) = &self.chosen else {
            return Vec::new();
        };
        let numbers = syscalls::all().iter().map(|call| call.number);
        let row = |number: u32| {
            Some(Row {
                entry: SYSTEM_ENTRIES | number,
                values: None,
                switch: 0,
                acts: Some(chosen.of_system_call(number)?),
            })
        };
        let mut rows: Vec<Row> = numbers.filter_map(row).collect();
        rows.sort_by_key(|row| row.entry);
        rows
    }

    /// Takes payloads away that would set errno in a library that keeps none.
    fn without_errno(&self, rows: &mut Vec<Row>, head: &ValuesHead, file: &Path) {
        let Some(chosen) = &self.chosen else {
            return;
        };
        if head.errno != ErrnoPlace::Unknown {
            return;
        }
        let sets = |runs: &Runs| runs.entry.does(Act::Errno);
        for row in rows.iter_mut() {
            if row.acts.take_if(|runs| sets(runs)).is_some() {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                chosen.trouble(format!(
                    "{name} keeps no errno that c.deny(ERRNO) could set: write c.override(RESULT)"
                ));
            }
        }
        rows.retain(|row| row.acts.is_some() || row.values.is_some());
    }

    /// What the calls of a function bring.
    fn shown(
        &self,
        names: (&str, &str),
        others: &dyn Fn() -> Vec<String>,
        svma: Svma,
        debug: (&Debug<'_>, bool),
    ) -> Option<Shown> {
        let asked = self.asked.as_ref()?;
        let wanted = self.wanted(asked, (names, &others()), svma, debug)?;
        Some(Shown {
            prototype: prototype(&wanted.text, &Defined::new()).ok()?,
            condition: wanted.condition,
        })
    }

    /// What runs at the calls of a function.
    fn acts(
        &self,
        (file, line): (&Path, &Debug<'_>),
        (symbol, name): (&str, &str),
        svma: Svma,
        debug: (&Debug<'_>, bool),
        is_hooked: &dyn Fn() -> bool,
    ) -> Option<Runs> {
        let chosen = self.chosen.as_ref()?;
        let module = file
            .file_name()
            .map_or("".into(), |name| name.to_string_lossy());
        let of_user = self.asked.as_ref().map(|asked| &asked.prototypes);
        let base = || base_of(of_user, symbol, svma, debug);
        let short = without_parameters(name);
        let acts = chosen.of(&module, &[short, name, symbol], &base, &|| line(svma))?;
        if is_hooked() {
            chosen.trouble(format!(
                "{short} is one of -F or --between, where none can run"
            ));
            return None;
        }
        Some(acts)
    }

    /// What is wanted of a function: what the last spec that fits says, -A and -R together.
    fn wanted(
        &self,
        asked: &Asked,
        ((symbol, name), others): ((&str, &str), &[String]),
        svma: Svma,
        debug: (&Debug<'_>, bool),
    ) -> Option<Wanted> {
        let short = without_parameters(name);
        let body = generic(symbol);
        let names = [name, symbol, short, body.unwrap_or(symbol)];
        let same = body.and_then(known::same_body);
        let others = || others.iter().map(String::as_str).chain(same);
        let all = || names.iter().copied().chain(others());
        let fits = |spec: &Spec| all().any(|n| glob_matches(&spec.glob, n));
        let specs: Vec<_> = (0..).zip(&asked.specs).filter(|(_, s)| fits(s)).collect();
        if specs.is_empty() {
            return None;
        }
        let base = base_of(Some(&asked.prototypes), symbol, svma, debug);
        let shown = match base.as_ref().map(|base| base.name.as_str()) {
            Some(name) if !name.is_empty() => name,
            _ => "f",
        };
        let mut chosen: Option<Wanted> = None;
        let mut found = self.found.lock().ok()?;
        let mut unknown = Vec::new();
        for (number, spec) in specs {
            found.specs.insert(number);
            let Some(wanted) = spec.of(shown, base.as_ref()) else {
                unknown.push((number, spec.result_only));
                continue;
            };
            let missing = wanted
                .missing
                .iter()
                .map(|what| format!("{short} has no {what}"));
            found.missing.extend(missing);
            // A result that is asked for by itself is added to the arguments of another spec.
            chosen = Some(match (chosen, spec.result_only) {
                (Some(before), true) => with_result(before, wanted),
                _ => wanted,
            });
        }
        // Another spec may have said what the result is.
        let read = |wanted: &Wanted| prototype(&wanted.text, &Defined::new()).ok();
        let has_result = chosen
            .as_ref()
            .and_then(read)
            .is_some_and(|known| known.result.is_some());
        for (number, _) in unknown
            .iter()
            .filter(|(_, result)| !(*result && has_result))
        {
            found
                .unknown
                .entry(*number)
                .or_insert_with(|| name.to_owned());
        }
        chosen
    }

    /// What the user should know of specs without effect.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = self.chosen.as_ref().map_or_else(Vec::new, Chosen::remarks);
        let (Some(asked), Ok(found)) = (&self.asked, self.found.lock()) else {
            return remarks;
        };
        for (number, spec) in (0..).zip(&asked.specs) {
            let option = if spec.result_only { "-R" } else { "-A" };
            let is_one = !is_pattern(&spec.glob);
            if !found.specs.contains(&number) {
                remarks.push(format!(
                    "no function matches {option} {} (names: sptrace analyze --functions)",
                    spec.glob
                ));
            } else if let Some(name) = found.unknown.get(&number).filter(|_| is_one) {
                remarks.push(format!(
                    "{option} {name}: no prototype is known; say which values, as in {name}@arg1/x"
                ));
            }
        }
        remarks.extend(found.missing.iter().map(|what| format!("-A: {what}")));
        if found.unswitched > 0 {
            remarks.push(format!(
                "values of {} functions stay as they are whatever level they are given: those of {} can be switched",
                found.unswitched,
                SWITCHES - 1
            ));
        }
        remarks
    }
}

/// The prototype of a function: of the user, of the module's debug information, or a known one.
fn base_of(
    of_user: Option<&HashMap<String, Prototype>>,
    symbol: &str,
    svma: Svma,
    (debug, is_described): (&Debug<'_>, bool),
) -> Option<Prototype> {
    let plain = symbol.split('@').next().unwrap_or(symbol);
    let users = |name: &str| of_user.and_then(|prototypes| prototypes.get(name));
    if let Some(users) = users(plain).or_else(|| users(generic(plain)?)) {
        return Some(users.clone());
    }
    let read = |text: &str| prototype(text, &Defined::new()).ok();
    let of_debug = || debug(svma).and_then(|text| read(&text));
    let of_table = || known::by_symbol(symbol);
    match is_described {
        // What is known of a function says more than C's types do.
        true => of_table().or_else(of_debug),
        false => of_debug().or_else(of_table),
    }
}

/// The names that an image's symbols give the function at an address.
fn other_names(object: &Object<'_>, svma: Svma) -> Vec<String> {
    let first = object.symbols.partition_point(|s| s.svma < svma);
    let here = object.symbols.get(first..).unwrap_or(&[]);
    let here = here.iter().take_while(|s| s.svma == svma);
    let bare = |name: &str| name.split('@').next().unwrap_or(name).to_owned();
    here.map(|symbol| bare(symbol.name)).collect()
}

/// True of a library whose functions the table of known ones describes.
fn is_described(file: &Path) -> bool {
    const LIBRARIES: [&str; 9] = [
        "libc.so",
        "libc-",
        "libm.",
        "libpthread",
        "ld-",
        "libz.",
        "libssl.",
        "libcrypto.",
        "libstdc++.",
    ];
    let name = file
        .file_name()
        .map_or("".into(), |name| name.to_string_lossy());
    LIBRARIES.iter().any(|library| name.starts_with(library))
}

/// The arguments of one, and the result of another.
fn with_result(before: Wanted, result: Wanted) -> Wanted {
    let read = |text: &str| prototype(text, &Defined::new()).ok();
    let merged = || {
        let (one, other) = (read(&before.text)?, read(&result.text)?);
        (!one.is_kernels).then_some(())?;
        let head = &one.text[one.result_text.len()..];
        Some(format!("{} {}", other.result_text, head.trim_start()))
    };
    Wanted {
        text: merged().unwrap_or_else(|| before.text.clone()),
        ..before
    }
}

/// What the plan of a module says, but for numbers.
pub struct Planned {
    rows: Vec<Row>,
    head: ValuesHead,
    extent: Extent,
    /// To which payloads add.
    tables: Tables,
    /// Of [`Payloads`].
    tick_ns: u64,
    /// Of the patch area, without code of ours.
    area_bytes: u32,
    /// What is recorded depends on which calls are open.
    needs_frames: bool,
}

impl Planned {
    /// The lines of the descriptions, and how many words each brings.
    pub fn descriptions(&self) -> impl Iterator<Item = (String, usize)> {
        let limit = self.extent.string_bytes;
        let shown = self.rows.iter().filter_map(|row| row.values.as_ref());
        shown.map(move |shown| {
            let text = format!("{}\t{limit}", shown.prototype.text);
            (text, shown.prototype.sources.len())
        })
    }

    /// The section, whose first description has this number.
    pub fn section(&self, first: u32) -> Vec<u8> {
        let mut rest = Rest {
            start: rest_at(self.rows.len()),
            bytes: Vec::new(),
        };
        let mut layout = Layout::behind(self.area_bytes, self.needs_frames);
        let head = layout.head(self.head);
        let mut number = first;
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                let (mut values, reads) = match &row.values {
                    Some(shown) => {
                        number += 1;
                        let values = shown.values(row.entry, number - 1, self.extent, &mut rest);
                        (values, shown.reads(self.extent))
                    }
                    None => (no_values(row.entry), Reads::NONE),
                };
                values.switch = row.switch;
                let acts = row.acts.as_ref();
                let acts = acts.map(|acts| (acts, &self.tables, self.tick_ns));
                layout.place(&mut values, reads, acts, &mut |code| rest.put(code));
                values
            })
            .collect();
        section(head, &rows, &rest.bytes)
    }
}

/// Of a function whose calls bring nothing.
fn no_values(entry: u32) -> FunctionValues {
    FunctionValues {
        entry,
        number: NO_DESCRIPTION,
        ..FunctionValues::default()
    }
}

impl Shown {
    fn values(&self, entry: u32, number: u32, extent: Extent, rest: &mut Rest) -> FunctionValues {
        let prototype = &self.prototype;
        let captures = rest.captures_of(&prototype.call, extent);
        let reads_after = self.reads(extent).after;
        let returns = prototype.result.is_some() || prototype.is_kernels || reads_after;
        let mut values = FunctionValues {
            entry,
            number,
            words: prototype.sources.len() as u8,
            result_bytes: prototype.result_bytes(),
            failure: match prototype.failure {
                Failure::Never => WireFailure::Never,
                Failure::MinusOne => WireFailure::MinusOne,
                Failure::Null => WireFailure::Null,
            },
            returns: returns.into(),
            result_is_integer: prototype.result_is_integer().into(),
            keep: self.keep(extent),
            arms_at: captures.arms_at,
            arms: captures.arms,
            selector: captures.selector,
            second: captures.second,
            mask: captures.mask,
            ..FunctionValues::default()
        };
        if let Some((place, condition)) = &self.condition {
            let ty = prototype.call.parameters.get(usize::from(*place));
            values.comparison = comparison(condition.comparison);
            values.compared = *place;
            values.compared_bytes = ty
                .and_then(sptrace_types::decode::types::Type::size)
                .map_or(8, |bytes| bytes.min(8) as u8);
            values.with = condition.with;
        }
        for (i, source) in prototype.sources.iter().enumerate() {
            values.set_source(
                i,
                match source {
                    Source::Register(i) => *i,
                    Source::Vector(i) => SOURCE_VECTOR + i,
                    Source::Stack(i) => SOURCE_STACK.saturating_add(*i),
                },
            );
        }
        values
    }

    fn reads(&self, extent: Extent) -> Reads {
        let all = all_captures(&self.prototype.call, extent);
        let any = |is_before: bool| {
            let is_so = |phase| (phase == Phase::Entry) == is_before;
            all.iter()
                .any(|(_, loads)| loads.iter().any(|l| is_so(l.phase)))
        };
        Reads {
            before: any(true),
            after: any(false),
        }
    }

    /// Words that the return needs.
    fn keep(&self, extent: Extent) -> u32 {
        let mut keep = 0u32;
        let mut need = |i: u8| keep |= 1u32.checked_shl(i.into()).unwrap_or(0);
        let call = &self.prototype.call;
        for (_, loads) in all_captures(call, extent) {
            for load in loads.iter().filter(|load| load.phase != Phase::Entry) {
                if let From::Argument(i) = load.from {
                    need(i);
                }
                if let Length::Counted { count, .. } = load.length {
                    match count {
                        Len::Arg(i) | Len::ArgOrResult(i) | Len::Behind(i) => need(i),
                        Len::Product(a, b) => {
                            need(a);
                            need(b);
                        }
                        Len::Const(_) | Len::Result | Len::Field(..) => {}
                    }
                }
                if let Some(Condition { argument, .. }) = load.only_if {
                    need(argument);
                }
                if let Some(variants) = call.variants {
                    need(variants.selector);
                    variants.second.into_iter().for_each(&mut need);
                }
            }
        }
        keep & ((1 << self.prototype.sources.len()) - 1)
    }
}

fn comparison(comparison: spec::Comparison) -> Comparison {
    match comparison {
        spec::Comparison::Equal => Comparison::Equal,
        spec::Comparison::NotEqual => Comparison::NotEqual,
        spec::Comparison::Less => Comparison::Less,
        spec::Comparison::LessOrEqual => Comparison::LessOrEqual,
        spec::Comparison::Greater => Comparison::Greater,
        spec::Comparison::GreaterOrEqual => Comparison::GreaterOrEqual,
    }
}
