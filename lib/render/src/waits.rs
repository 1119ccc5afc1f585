//! Where the time of programs went: their own, the kernel's on their behalf, interrupts, and times
//! in which they did not run, with the reasons.
//!
//! A visitor. Given frames of a trace that has the kernel's side; gives sums for each program and
//! each of its functions, and for each cause: where a thread waited and who woke it, who ran in its
//! place, what interrupted it. A time counts for the innermost function of the program's. How it is
//! written is `waits/table.rs`; times of a function's calls one by one are `waits/laps.rs`. Must
//! not know where frames come from.

mod laps;
mod table;

pub use laps::{Laps, LapsShown};

use sptrace_trace::{Dictionary, Frame, FunctionId, Names, StreamId, Visitor};
use std::collections::{BTreeMap, HashMap};

/// Where time goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Way {
    /// The program's own code ran.
    Own,
    /// The kernel ran for it.
    Kernel,
    /// An interrupt was served, whoever it was for.
    Interrupt,
    /// It could run, and another ran.
    Preempted,
    /// It waited.
    Blocked,
    /// It had been woken, and did not run yet.
    Queued,
}

impl Way {
    /// In the order of columns.
    pub const ALL: [Self; 6] = [
        Self::Own,
        Self::Kernel,
        Self::Interrupt,
        Self::Preempted,
        Self::Blocked,
        Self::Queued,
    ];

    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Kernel => "kernel",
            Self::Interrupt => "interrupt",
            Self::Preempted => "preempted",
            Self::Blocked => "blocked",
            Self::Queued => "queued",
        }
    }
}

/// What a function of the trace stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Program,
    Kernel,
    Interrupt,
    Wait,
    Preempted,
    Woken,
    /// Who had the processor longest while a thread could have run, or at last before it ran.
    Behind,
    /// The thread has ended.
    Over,
}

impl Kind {
    /// Of each function, by its number.
    fn of_all(names: &Names<'_>) -> Vec<Self> {
        let dictionary = names.dictionary();
        let kinds = dictionary.functions.iter().enumerate().map(|(i, f)| {
            let module = dictionary.module(f.module);
            let path = module.map_or("", |m| m.path.as_str());
            let is_kernel = module.is_some_and(|m| m.is_of_kernel());
            Self::of(path, names.name(FunctionId(i as u32)), is_kernel)
        });
        kinds.collect()
    }

    fn of(module: &str, name: &str, is_kernel: bool) -> Self {
        match module {
            _ if !is_kernel => Self::Program,
            "[interrupts]" => Self::Interrupt,
            "[scheduler]" if name.starts_with(PREEMPTED) => Self::Preempted,
            "[scheduler]" if name.starts_with(WOKEN) => Self::Woken,
            "[scheduler]" if name.starts_with(BEHIND) => Self::Behind,
            "[scheduler]" if name.starts_with(AT_LAST_BEHIND) => Self::Behind,
            "[scheduler]" if name == "ended" => Self::Over,
            "[scheduler]" => Self::Wait,
            _ => Self::Kernel,
        }
    }
}

const PREEMPTED: &str = "preempted ";
const WOKEN: &str = "woken ";
const BEHIND: &str = "queued behind ";
const AT_LAST_BEHIND: &str = "queued, at last behind ";

/// Whose time it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Whose {
    /// The program, by its place in [`Waits::programs`].
    program: usize,
    /// Its function; none: nothing of the program's was recorded then.
    function: Option<FunctionId>,
}

/// Why it did not go on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Cause {
    whose: Whose,
    way: Way,
    /// The innermost frame of the kernel's around it.
    inside: Option<FunctionId>,
    /// Who woke it, ran in its place, interrupted it, or had the processor meanwhile.
    by: Option<FunctionId>,
}

/// Times of one sort.
#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    times: u64,
    /// Of these, those of which it is not known how long they were.
    untimed: u64,
    ticks: u64,
    longest_ticks: u64,
}

impl Sum {
    fn add(&mut self, ticks: Option<u64>) {
        self.times += 1;
        self.untimed += u64::from(ticks.is_none());
        self.ticks += ticks.unwrap_or(0);
        self.longest_ticks = self.longest_ticks.max(ticks.unwrap_or(0));
    }
}

/// The times of a program or a function, by [`Way`].
#[derive(Clone, Copy, Default, Debug)]
struct Split([u64; Way::ALL.len()]);

impl Split {
    fn add(&mut self, way: Way, ticks: u64) {
        self.0[way as usize] += ticks;
    }

    fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

struct Open {
    function: FunctionId,
    kind: Kind,
    /// Of a wait: when it was woken, and by whom.
    woken: Option<(u64, FunctionId)>,
    /// And who had the processor longest, where that is another than its name says.
    behind: Option<FunctionId>,
}

/// Adds up.
pub struct Waits<'a> {
    dictionary: &'a Dictionary,
    kinds: Vec<Kind>,
    /// Names of programs: of their threads, as these were called at first.
    programs: Vec<String>,
    by_name: HashMap<String, usize>,
    by_stream: HashMap<StreamId, usize>,
    open: HashMap<StreamId, Vec<Open>>,
    splits: BTreeMap<Whose, Split>,
    causes: BTreeMap<Cause, Sum>,
}

impl<'a> Waits<'a> {
    /// Nothing seen yet.
    pub fn new(names: &Names<'a>) -> Self {
        Self {
            dictionary: names.dictionary(),
            kinds: Kind::of_all(names),
            programs: Vec::new(),
            by_name: HashMap::new(),
            by_stream: HashMap::new(),
            open: HashMap::new(),
            splits: BTreeMap::new(),
            causes: BTreeMap::new(),
        }
    }

    /// True if the trace has anything of the kernel's.
    pub fn has_kernel(names: &Names<'_>) -> bool {
        !names.dictionary().kernel_sides.is_empty()
    }

    fn kind(&self, function: FunctionId) -> Kind {
        let kind = self.kinds.get(function.0 as usize);
        kind.copied().unwrap_or(Kind::Program)
    }

    fn program(&mut self, stream: StreamId) -> usize {
        if let Some(known) = self.by_stream.get(&stream) {
            return *known;
        }
        let info = self.dictionary.stream(stream);
        let name = info.map_or("?".to_owned(), |info| info.comm.clone());
        let next = self.programs.len();
        let program = *self.by_name.entry(name.clone()).or_insert(next);
        if program == next {
            self.programs.push(name);
        }
        self.by_stream.insert(stream, program);
        program
    }

    /// Who the innermost open frame works for, and the innermost frame of the kernel's that is no
    /// interrupt and no wait.
    fn around(&self, stream: StreamId) -> (Option<FunctionId>, Option<FunctionId>, bool) {
        let open = self.open.get(&stream).map_or(&[][..], Vec::as_slice);
        let of = |kind| move |open: &&Open| open.kind == kind;
        let own = open.iter().rev().find(of(Kind::Program));
        let of_kernel = open.iter().rev();
        let mut of_kernel = of_kernel.take_while(|open| open.kind != Kind::Program);
        let is_interrupt = of_kernel.clone().any(|open| open.kind == Kind::Interrupt);
        let inside = of_kernel.find(of(Kind::Kernel));
        (
            own.map(|o| o.function),
            inside.map(|o| o.function),
            is_interrupt,
        )
    }

    fn add(&mut self, stream: StreamId, way: Way, by: Option<FunctionId>, ticks: Option<u64>) {
        let (function, inside, _) = self.around(stream);
        let program = self.program(stream);
        let whose = Whose { program, function };
        let split = self.splits.entry(whose).or_default();
        split.add(way, ticks.unwrap_or(0));
        if matches!(way, Way::Own | Way::Kernel) {
            return;
        }
        let cause = Cause {
            whose,
            way,
            inside,
            by,
        };
        self.causes.entry(cause).or_default().add(ticks);
    }

    fn ended(&mut self, stream: StreamId, open: &Open, frame: &Frame) {
        let by = Some(frame.function);
        match open.kind {
            Kind::Program => {
                let program = self.program(stream);
                let function = Some(frame.function);
                let split = self.splits.entry(Whose { program, function }).or_default();
                split.add(Way::Own, frame.self_ticks.unwrap_or(0));
            }
            Kind::Kernel => {
                let (_, _, is_interrupt) = self.around(stream);
                let ticks = frame.self_ticks;
                if !is_interrupt {
                    return self.add(stream, Way::Kernel, by, ticks);
                }
                let (function, ..) = self.around(stream);
                let program = self.program(stream);
                let split = self.splits.entry(Whose { program, function }).or_default();
                split.add(Way::Interrupt, ticks.unwrap_or(0));
            }
            Kind::Interrupt => self.add(stream, Way::Interrupt, by, frame.self_ticks),
            Kind::Preempted => {
                self.add(
                    stream,
                    Way::Preempted,
                    open.behind.or(by),
                    frame.total_ticks,
                );
            }
            Kind::Wait => {
                let whole = frame.total_ticks;
                let Some((woken_tsc, waker)) = open.woken else {
                    return self.add(stream, Way::Blocked, None, whole);
                };
                let waited = woken_tsc.saturating_sub(frame.start_tsc);
                let blocked = whole.map(|ticks| ticks.min(waited));
                let queued = whole.map(|ticks| ticks - ticks.min(waited));
                self.add(stream, Way::Blocked, Some(waker), blocked);
                let by = open.behind.unwrap_or(waker);
                self.add(stream, Way::Queued, Some(by), queued);
            }
            Kind::Woken | Kind::Behind | Kind::Over => {}
        }
    }
}

impl Visitor for Waits<'_> {
    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        let (function, kind) = (frame.function, self.kind(frame.function));
        let open = self.open.entry(stream).or_default();
        if let (Kind::Woken, Some(wait)) = (kind, open.last_mut())
            && wait.kind == Kind::Wait
        {
            wait.woken = Some((frame.start_tsc, function));
        }
        if let (Kind::Behind, Some(wait)) = (kind, open.last_mut())
            && matches!(wait.kind, Kind::Wait | Kind::Preempted)
        {
            wait.behind.get_or_insert(function);
        }
        open.push(Open {
            function,
            kind,
            woken: None,
            behind: None,
        });
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        if let Some(open) = self.open.get_mut(&stream).and_then(Vec::pop) {
            self.ended(stream, &open, frame);
        }
    }

    fn leave_hidden(&mut self, stream: StreamId, _: &Frame) {
        self.open.get_mut(&stream).and_then(Vec::pop);
    }
}
