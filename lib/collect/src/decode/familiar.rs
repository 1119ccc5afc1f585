//! Calls in order from sites that were met before: the hot loop of a host that records them.
//!
//! Part of the [`Decoder`]. What an id stands for, and which function its site lies in, is one
//! entry of a table; so a call needs that, what it ends ([`super::open`]), and its symbol in a
//! [`sptrace_trace::Run`]. It has no time of its own there, and its times are only known where the
//! row ends. What needs a closer look is left to `ordered.rs`, at the time that it has in the row.

use std::sync::atomic::{AtomicU32, Ordering};

use sptrace_trace::{FunctionId, Run, Span, Spread, Word};
use sptrace_wire::record::CONTROL_IDS;

use super::book::{AddressBook, CalledFrom};
use super::mixed::How;
use super::module::PLACE_INDIRECT;
use super::open::{Ended, Made, Open};
use super::process::Areas;
use super::sink::Sink;
use super::{Cursor, Decoder};

/// Sites that are kept at hand at first, and at most; powers of two. Most threads use few.
const SITES: usize = 1 << 12;
const MOST_SITES: usize = 1 << 16;
/// So many are looked at for one.
const SET: usize = 4;
/// Beside the number of a callee: its call is a jump; it is called through a pointer, and the entry
/// of its site and of its address says more.
const TAIL: u32 = 1 << 31;
const THROUGH: u32 = 1 << 30;
/// Of no site, and of no function.
const NOBODY: u32 = u32::MAX;

/// What is known of a site, or of one with the callee that a pointer led to.
#[derive(Clone, Copy)]
struct Site {
    id: u32,
    /// Low half of the callee, where it is a pointer's.
    low: u32,
    callee: u32,
    caller: u32,
}

/// What is known of the sites that were met.
#[derive(Clone, Default)]
pub(super) struct Familiar {
    sites: Vec<Site>,
    /// How often one of them has taken the place of another.
    replaced: usize,
    /// What they were known by: see [`super::book::AddressBook::changes`], and how many areas.
    known_by: (u64, usize),
}

impl Familiar {
    /// Forgets all if something has changed since.
    pub(super) fn known_by(&mut self, changes: u64, areas: usize) {
        if self.known_by != (changes, areas) {
            self.known_by = (changes, areas);
            self.sites.fill(Site::NONE);
        }
    }

    #[inline(always)]
    fn at(&self, id: u32, low: u32) -> Option<Site> {
        let own = slot(id, low, self.sites.len());
        let is_there = self.sites.get(own)?.is_of(id, low);
        let place = match is_there {
            true => own,
            false => self.beside(own, id, low),
        };
        self.sites.get(place).copied()
    }

    /// The place of one that had to go to another place of its set; none has it otherwise.
    #[inline(never)]
    fn beside(&self, own: usize, id: u32, low: u32) -> usize {
        let mut set = self.set(own).iter();
        let way = set.position(|site| site.is_of(id, low));
        way.map_or(usize::MAX, |way| own - own % SET + way)
    }

    /// The places that are looked at beside this one: they come from memory at once.
    fn set(&self, slot: usize) -> &[Site] {
        let first = slot - slot % SET;
        self.sites.get(first..first + SET).unwrap_or_default()
    }

    #[inline(never)]
    fn keep(&mut self, site: Site) {
        let all = self.sites.len();
        if all == 0 {
            self.sites.resize(SITES, Site::NONE);
        } else if self.replaced > all / 16 && all < MOST_SITES {
            let larger = vec![Site::NONE; all * 2];
            self.replaced = 0;
            for site in std::mem::replace(&mut self.sites, larger) {
                self.put(site);
            }
        }
        self.put(site);
    }

    /// Where it belongs, or where there is room beside.
    fn put(&mut self, site: Site) {
        let slot = slot(site.id, site.low, self.sites.len());
        let is_free = |place: &Site| place.id == 0 || place.is_of(site.id, site.low);
        let is_own = self.sites.get(slot).is_some_and(is_free);
        let free = self.set(slot).iter().position(is_free);
        let place = match free {
            Some(way) if !is_own => slot - slot % SET + way,
            _ => slot,
        };
        self.replaced += usize::from(free.is_none());
        if let Some(place) = self.sites.get_mut(place) {
            *place = site;
        }
    }
}

impl Site {
    /// No call has this id.
    const NONE: Self = Self {
        id: 0,
        low: 0,
        callee: 0,
        caller: NOBODY,
    };

    #[inline(always)]
    fn is_of(&self, id: u32, low: u32) -> bool {
        self.id == id && self.low == low
    }
}

#[inline(always)]
fn slot(id: u32, low: u32, all: usize) -> usize {
    const _: () = assert!(MOST_SITES <= 1 << 16);
    let mixed = (id ^ low.rotate_left(13)).wrapping_mul(0x9E37_79B1);
    (mixed >> 16) as usize & all.wrapping_sub(1)
}

/// Why a run ends.
enum Stop {
    /// No call in order comes next.
    Other,
    /// One that needs a closer look.
    Closer,
    /// One that is taken already, and does more than to return from a number of calls.
    Taken(Made, Ended),
}

/// The row that a run is part of.
#[derive(Clone, Copy)]
struct Whole {
    /// Where it ends.
    end: usize,
    to_tsc: u64,
    /// So many calls are in it.
    moments: u64,
}

impl<S: Sink> Decoder<'_, S> {
    /// As [`Self::in_order`], for a sink that takes runs, where no calls have stamps and ends.
    pub(super) fn familiar(
        &mut self,
        halves: &[AtomicU32],
        mut at: usize,
        wide_callee: &mut Option<u64>,
    ) -> Option<usize> {
        let from_tsc = self.cursor.last_tsc;
        self.cursor.ordered.last_tsc = from_tsc;
        let (mut before, mut whole) = (0, None);
        loop {
            let (calls, stop) = match self.takes_plain(wide_callee) {
                true => self.run_of(halves, &mut at),
                false if self.is_in_order(halves, at) => (0, Stop::Closer),
                false => (0, Stop::Other),
            };
            let Whole { end, to_tsc, .. } = *whole.get_or_insert_with(|| {
                let (end, more) = match stop {
                    Stop::Other => (at, 0),
                    _ => self.count_in_order(halves, at),
                };
                let to_tsc = self.next_time(halves, end).max(from_tsc);
                let moments = before + calls + more;
                Whole {
                    end,
                    to_tsc,
                    moments,
                }
            });
            let moments = whole.map_or(0, |whole| whole.moments);
            let spread = Spread::new(from_tsc, to_tsc, moments);
            let span = Span {
                from_tsc,
                to_tsc,
                moments,
                before,
            };
            before += calls;
            self.sink.end_run(calls, span, spread.at(before));
            self.cursor.ordered.come_undated_to(spread.at(before));
            if let Stop::Other = stop {
                self.cursor.last_tsc = spread.at(before);
                self.cursor.ordered.stood_in_a_row(moments);
                return Some(at);
            }
            before += 1;
            let tsc = spread.at(before);
            self.cursor.last_tsc = tsc;
            self.sink.between(from_tsc, to_tsc);
            match stop {
                Stop::Taken(made, ended) => self.tell(tsc, &made, &ended),
                _ if self.one_in_order(halves, at, tsc, wide_callee) => {}
                _ => return None,
            }
            at += self.length_in_order(halves, at);
            if at >= end {
                self.cursor.ordered.stood_in_a_row(moments);
                return Some(at);
            }
        }
    }

    /// Takes calls from `at` on, and goes on there; gives how many, and why it is over.
    fn run_of(&mut self, halves: &[AtomicU32], at: &mut usize) -> (u64, Stop) {
        let known = Known {
            areas: self.areas,
            book: self.book,
            pid: self.cursor.pid,
        };
        let Cursor {
            ordered: open,
            familiar,
            ..
        } = &mut *self.cursor;
        let Some((mut run, classes)) = self.sink.run() else {
            return (0, Stop::Closer);
        };
        let stop = loop {
            *at = words(&mut run, open, familiar, halves, *at);
            let Some([stack, id, ..]) = halves.get(*at..) else {
                break Stop::Other;
            };
            let (stack, id) = (stack.load(Ordering::Relaxed), id.load(Ordering::Relaxed));
            // Not written, or no call: of what was never met the table says nothing.
            if stack == 0 || id < CONTROL_IDS {
                break Stop::Other;
            }
            let mut site = familiar.at(id, 0);
            if site.is_some_and(|site| site.callee == THROUGH) {
                let low = halves.get(*at + 2).map(|low| low.load(Ordering::Relaxed));
                site = low.and_then(|low| familiar.at(id, low));
                site = site.filter(|site| site.callee != THROUGH);
            }
            let site = match site.map_or_else(
                || known.learn((&*open, &mut *familiar, classes), halves, *at),
                Ok,
            ) {
                Ok(site) => site,
                Err(stop) => break stop,
            };
            let made = Made {
                place: stack,
                callee: FunctionId(site.callee & !TAIL),
                caller: (site.caller != NOBODY).then_some(FunctionId(site.caller)),
                is_tail: site.callee & TAIL != 0,
                // As far as that is known.
                tsc: open.last_tsc,
                how: How::InOrder,
            };
            let ended = open.add_undated(made);
            let is_more = ended.left != 0 || !open.have_exits();
            if is_more || !run.has_room(ended.returned) {
                break Stop::Taken(made, ended);
            }
            run.call(ended.returned, made.callee, ended.goes_on);
            *at += if site.low == 0 { 2 } else { 3 };
        };
        (run.stop(), stop)
    }

    /// Where the row of calls in order from `at` on ends, and how many there are.
    fn count_in_order(&self, halves: &[AtomicU32], mut at: usize) -> (usize, u64) {
        let mut calls = 0;
        while let [stack, id, ..] = halves.get(at..).unwrap_or_default() {
            let (stack, id) = (stack.load(Ordering::Relaxed), id.load(Ordering::Relaxed));
            let is_written = stack != 0 && id >= CONTROL_IDS;
            // Of sites that were met it is at hand, and will be needed.
            at += match self.cursor.familiar.at(id, 0).filter(|_| is_written) {
                Some(site) if site.callee == THROUGH => 3,
                Some(_) => 2,
                None => match self.look_up_in_order(halves, at) {
                    Some((_, length)) => length,
                    None => break,
                },
            };
            calls += 1;
        }
        (at, calls)
    }

    fn length_in_order(&self, halves: &[AtomicU32], at: usize) -> usize {
        self.look_up_in_order(halves, at)
            .map_or(2, |(_, length)| length)
    }
}

/// Takes calls from `at` on as long as each is from a site that was met, and nothing else follows
/// from it than that some have returned; gives where that is.
#[inline]
fn words(
    run: &mut Run<'_>,
    open: &mut Open,
    familiar: &Familiar,
    halves: &[AtomicU32],
    mut at: usize,
) -> usize {
    while let Some(mut word) = run.word() {
        let room = word.room();
        let Some(mut quick) = open.quick(room) else {
            return at;
        };
        let before = quick.length();
        for _ in 0..room {
            let Some([stack, id, ..]) = halves.get(at..) else {
                break;
            };
            let (stack, id) = (stack.load(Ordering::Relaxed), id.load(Ordering::Relaxed));
            if stack == 0 || id < CONTROL_IDS {
                break;
            }
            let Some(mut site) = familiar.at(id, 0) else {
                break;
            };
            if site.callee == THROUGH {
                let low = halves.get(at + 2).map(|low| low.load(Ordering::Relaxed));
                match low.and_then(|low| familiar.at(id, low)) {
                    Some(through) if through.low != 0 => site = through,
                    _ => break,
                }
            }
            let callee = FunctionId(site.callee & !TAIL);
            let is_tail = site.callee & TAIL != 0;
            let most = Word::MOST_RETURNED;
            let ended = quick.call(stack, (callee, is_tail), FunctionId(site.caller), most);
            let Some(ended) = ended else {
                break;
            };
            word.call(ended.calls, callee, ended.goes_on);
            at += if site.low == 0 { 2 } else { 3 };
        }
        let taken = word.end();
        let (left, ended) = quick.end(before);
        run.took(taken, ended, open.end_quick(left));
        if taken.calls < room {
            break;
        }
    }
    at
}

/// What sites are looked up in.
struct Known<'a> {
    areas: &'a Areas,
    book: &'a AddressBook,
    pid: u32,
}

impl Known<'_> {
    /// What is known of the site of the record at `at`, which is kept, if all of it can be said at
    /// once.
    #[inline(never)]
    fn learn(
        &self,
        (open, familiar, classes): (&Open, &mut Familiar, &[u64]),
        halves: &[AtomicU32],
        at: usize,
    ) -> Result<Site, Stop> {
        let half = |n: usize| halves.get(at + n).map(|half| half.load(Ordering::Relaxed));
        let id = half(1).unwrap_or(0);
        let place = self.areas.quick(id).filter(|place| place.is_in_order());
        let place = place.ok_or(Stop::Other)?;
        let mut low = 0;
        let callee = match place.kind() & PLACE_INDIRECT {
            0 => place.callee(),
            _ => {
                low = half(2).filter(|low| *low != 0).ok_or(Stop::Closer)?;
                self.book.recent_callee(self.pid, low)
            }
        };
        let is_watched = |callee: &FunctionId| {
            let class = classes.get(callee.0 as usize);
            class.is_some_and(|class| *class != 0)
        };
        let callee = callee.filter(|callee| callee.0 < THROUGH && !is_watched(callee));
        let caller = open.caller(id).or_else(|| {
            let (area, offset) = self.areas.find(id)?;
            let module = area.module;
            self.book.known_caller(CalledFrom { module, offset })
        });
        let (Some(callee), Some(caller)) = (callee, caller) else {
            return Err(Stop::Closer);
        };
        let site = Site {
            id,
            low,
            callee: callee.0 | if place.is_tail() { TAIL } else { 0 },
            caller: caller.map_or(NOBODY, |caller| caller.0),
        };
        if place.kind() & PLACE_INDIRECT != 0 {
            familiar.keep(Site {
                low: 0,
                callee: THROUGH,
                ..site
            });
        }
        familiar.keep(site);
        Ok(site)
    }
}
