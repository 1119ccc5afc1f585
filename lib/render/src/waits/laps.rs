//! Why did it take longer this time? The laps of a function that is called over and over, and what
//! took more of the long ones than of most.
//!
//! A visitor. A lap goes from the end of one call of a function to the end of the next one in the
//! same thread: a frame of a player that sleeps before each, or a turn of a loop. All its time is
//! told apart: whose it was at each moment says the innermost frame that was open then. So a lap
//! that is long has a cause, if only the program's own computing. What most laps take is the
//! median of the thread's laps, cause by cause. How it is written is `laps/table.rs`. Must not
//! know where frames come from.

mod table;

pub use table::LapsShown;

use super::{Kind, Way};
use sptrace_trace::{Dictionary, Frame, FunctionId, Mark, Names, StreamId, Visitor};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// Where time of a lap goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
enum Where {
    /// Known by the kernel's side.
    Way(Way),
    /// The thread waited for sptrace.
    Sptrace,
    /// Events are missing.
    Unknown,
}

/// What a part of a lap's time was.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Cause {
    place: Where,
    /// Its own function that ran, or the innermost one of the kernel's around it.
    inside: Option<FunctionId>,
    /// Who woke it, ran in its place, interrupted it, or had the processor until it ran.
    by: Option<FunctionId>,
}

impl Cause {
    fn of(way: Way, inside: Option<FunctionId>, by: Option<FunctionId>) -> Self {
        Self {
            place: Where::Way(way),
            inside,
            by,
        }
    }

    fn alone(place: Where) -> Self {
        Self {
            place,
            inside: None,
            by: None,
        }
    }
}

/// Ticks by cause.
type Parts = BTreeMap<Cause, u64>;

struct Lap {
    start_tsc: u64,
    end_tsc: u64,
    parts: Parts,
}

impl Lap {
    fn ticks(&self) -> u64 {
        self.end_tsc.saturating_sub(self.start_tsc)
    }
}

/// What is open in a thread.
struct Open {
    function: FunctionId,
    kind: Kind,
    /// Of a wait: who woke it.
    woken: Option<FunctionId>,
}

#[derive(Default)]
struct Thread {
    open: Vec<Open>,
    /// The time up to here has been told apart.
    told_tsc: u64,
    /// Calls of the function that are open.
    calls_open: u32,
    /// When the lap began, if one has.
    start_tsc: Option<u64>,
    parts: Parts,
    laps: Vec<Lap>,
}

/// Tells laps apart.
pub struct Laps<'a> {
    dictionary: &'a Dictionary,
    kinds: Vec<Kind>,
    /// By function: its calls end laps.
    is_chosen: Vec<bool>,
    threads: HashMap<StreamId, Thread>,
}

impl<'a> Laps<'a> {
    /// Nothing seen yet; laps are those of functions for which `is_chosen` has true.
    pub fn new(names: &Names<'a>, is_chosen: Vec<bool>) -> Self {
        Self {
            dictionary: names.dictionary(),
            kinds: Kind::of_all(names),
            is_chosen,
            threads: HashMap::new(),
        }
    }

    fn kind(&self, function: FunctionId) -> Kind {
        let kind = self.kinds.get(function.0 as usize);
        kind.copied().unwrap_or(Kind::Program)
    }

    fn is_chosen(&self, function: FunctionId) -> bool {
        let is_chosen = self.is_chosen.get(function.0 as usize);
        is_chosen.is_some_and(|is| *is)
    }

    fn left(&mut self, stream: StreamId, frame: &Frame) {
        let is_chosen = self.is_chosen(frame.function);
        let thread = self.threads.entry(stream).or_default();
        thread.left(frame);
        if !is_chosen {
            return;
        }
        thread.calls_open = thread.calls_open.saturating_sub(1);
        if thread.calls_open == 0 {
            thread.lap_ends(frame.end_tsc);
        }
    }
}

impl Thread {
    /// What the time has been since it was last told apart.
    fn passed(&mut self, tsc: u64, cause: Cause) {
        let ticks = tsc.saturating_sub(self.told_tsc);
        self.told_tsc = self.told_tsc.max(tsc);
        if ticks > 0 && self.start_tsc.is_some() {
            *self.parts.entry(cause).or_default() += ticks;
        }
    }

    /// The cause of what passes now, where nothing that comes says more. What a vfork(2) child runs
    /// in the memory of a thread that waits is no computing of that thread's.
    fn now(&self) -> Cause {
        let waits = self.open.iter().position(|open| open.kind == Kind::Wait);
        let open = waits.and_then(|at| self.open.get(..=at));
        let open = open.unwrap_or(&self.open);
        let of_kernel = open.iter().rev();
        let mut of_kernel = of_kernel.take_while(|open| open.kind != Kind::Program);
        let inside = of_kernel.clone().find(|open| open.kind == Kind::Kernel);
        let inside = inside.map(|open| open.function);
        let Some(last) = open.last() else {
            return Cause::of(Way::Own, None, None);
        };
        match last.kind {
            Kind::Program => Cause::of(Way::Own, Some(last.function), None),
            Kind::Preempted => Cause::of(Way::Preempted, inside, Some(last.function)),
            Kind::Wait if last.woken.is_some() => Cause::of(Way::Queued, inside, last.woken),
            Kind::Wait => Cause::of(Way::Blocked, inside, None),
            _ => match of_kernel.find(|open| open.kind == Kind::Interrupt) {
                Some(open) => Cause::of(Way::Interrupt, None, Some(open.function)),
                None => Cause::of(Way::Kernel, inside, None),
            },
        }
    }

    fn entered(&mut self, tsc: u64, function: FunctionId, kind: Kind) {
        let mut cause = self.now();
        let waits = self.open.last_mut().filter(|open| open.kind == Kind::Wait);
        if let (Some(wait), Kind::Woken) = (waits, kind) {
            cause.by = Some(function);
            wait.woken.get_or_insert(function);
        } else if kind == Kind::Behind
            && matches!(cause.place, Where::Way(Way::Queued | Way::Preempted))
        {
            cause.by = Some(function);
        }
        self.passed(tsc, cause);
        self.open.push(Open {
            function,
            kind,
            woken: None,
        });
    }

    fn left(&mut self, frame: &Frame) {
        let mut cause = self.now();
        let kind = self.open.last().map(|open| open.kind);
        if frame.flags.end_unseen && kind != Some(Kind::Program) {
            cause = Cause::alone(Where::Unknown);
        }
        self.passed(frame.end_tsc, cause);
        self.open.pop();
    }

    fn lap_ends(&mut self, end_tsc: u64) {
        let parts = std::mem::take(&mut self.parts);
        if let Some(start_tsc) = self.start_tsc.replace(end_tsc) {
            self.laps.push(Lap {
                start_tsc,
                end_tsc,
                parts,
            });
        }
    }

    /// The ticks of most laps, and of each cause in most.
    fn medians(&self) -> (u64, Parts) {
        let lengths = self.laps.iter().map(Lap::ticks);
        let mut by_cause: BTreeMap<Cause, Vec<u64>> = BTreeMap::new();
        for lap in &self.laps {
            for (cause, ticks) in &lap.parts {
                by_cause.entry(*cause).or_default().push(*ticks);
            }
        }
        let all = self.laps.len();
        let parts = by_cause.into_iter();
        let parts = parts.map(|(cause, ticks)| (cause, median(ticks, all)));
        (median(lengths.collect(), all), parts.collect())
    }
}

/// Of so many numbers, of which those that are not there are 0; the lower one of two.
fn median(mut numbers: Vec<u64>, all: usize) -> u64 {
    numbers.sort_unstable();
    let zeros = all.saturating_sub(numbers.len());
    let middle = all.saturating_sub(1) / 2;
    let at = middle.checked_sub(zeros);
    at.and_then(|at| numbers.get(at)).copied().unwrap_or(0)
}

/// A part of a lap's time that is longer than in most laps.
struct Excess {
    place: Where,
    ticks: u64,
    /// The causes of it that have grown, the one that has most first.
    causes: Vec<(Cause, u64)>,
}

/// What has grown in a lap, the greatest part first. If nothing has, all of it.
fn excesses(parts: &Parts, most: &Parts) -> Vec<Excess> {
    let mut by_place: BTreeMap<Where, (i128, Vec<(Cause, u64)>)> = BTreeMap::new();
    let all = parts
        .keys()
        .chain(most.keys().filter(|c| !parts.contains_key(c)));
    for cause in all {
        let ticks = |parts: &Parts| parts.get(cause).copied().unwrap_or(0);
        let (here, usual) = (ticks(parts), ticks(most));
        let (sum, causes) = by_place.entry(cause.place).or_default();
        *sum += i128::from(here) - i128::from(usual);
        if here > usual {
            causes.push((*cause, here - usual));
        }
    }
    let grown = by_place.into_iter().filter(|(_, (sum, _))| *sum > 0);
    let grown = grown.map(|(place, (ticks, mut causes))| {
        causes.sort_by_key(|(cause, ticks)| (Reverse(*ticks), *cause));
        Excess {
            place,
            ticks: ticks as u64,
            causes,
        }
    });
    let mut grown: Vec<_> = grown.collect();
    grown.sort_by_key(|excess| (Reverse(excess.ticks), excess.place));
    match grown.is_empty() && !most.is_empty() {
        true => excesses(parts, &Parts::new()),
        false => grown,
    }
}

impl Visitor for Laps<'_> {
    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        let kind = self.kind(frame.function);
        let is_chosen = self.is_chosen(frame.function);
        let thread = self.threads.entry(stream).or_default();
        thread.entered(frame.start_tsc, frame.function, kind);
        thread.calls_open += u32::from(is_chosen);
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        self.left(stream, frame);
    }

    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame) {
        self.left(stream, frame);
    }

    fn mark(&mut self, stream: StreamId, tsc: u64, _: u32, mark: Mark) {
        let thread = self.threads.entry(stream).or_default();
        match mark {
            Mark::Blocked(ticks) => {
                let before = thread.now();
                thread.passed(tsc.saturating_sub(ticks), before);
                thread.passed(tsc, Cause::alone(Where::Sptrace));
            }
            Mark::Lost(_) => thread.passed(tsc, Cause::alone(Where::Unknown)),
            Mark::Resumed(_) | Mark::UnseenFrameEnded => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_counts_what_is_not_there_as_nothing() {
        assert_eq!(median(vec![5, 1, 3], 3), 3);
        assert_eq!(median(vec![5, 3], 3), 3);
        assert_eq!(median(vec![5], 3), 0);
        assert_eq!(median(vec![9, 7], 2), 7);
        assert_eq!(median(Vec::new(), 0), 0);
    }

    #[test]
    fn what_has_grown_most_comes_first_and_a_cause_is_always_named() {
        let own = Cause::of(Way::Own, Some(FunctionId(1)), None);
        let other = Cause::of(Way::Own, Some(FunctionId(2)), None);
        let behind = Cause::of(Way::Queued, None, Some(FunctionId(3)));
        let parts = |of: &[(Cause, u64)]| of.iter().copied().collect::<Parts>();
        let most = parts(&[(own, 10), (other, 20), (behind, 1)]);
        let lap = parts(&[(own, 60), (other, 5), (behind, 31)]);
        let found = excesses(&lap, &most);
        let sums: Vec<_> = found.iter().map(|e| (e.place, e.ticks)).collect();
        assert_eq!(
            sums,
            [(Where::Way(Way::Own), 35), (Where::Way(Way::Queued), 30)]
        );
        assert_eq!(found[0].causes, [(own, 50)]);
        let alike = excesses(&most, &most);
        assert_eq!(alike[0].ticks, 30, "all of it, if nothing has grown");
    }
}
