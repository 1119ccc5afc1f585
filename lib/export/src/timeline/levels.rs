//! Levels of detail of one thread: what a page draws when a pixel is a nanosecond, or an hour.
//!
//! Level 0 has every call. Each further level has a step, four times that of the one before: calls
//! as long as the step stay as they are, shorter neighbours in a row become one item, no longer
//! than the step, that says how many they are and which function took most. A page takes the
//! coarsest level whose step is below a pixel, so it never draws much more items than pixels.
//!
//! Each level is made of the items of the finer one as they come, and is packed in parts. Holds the
//! part that is being filled and what is packed. Knows nothing of traces.

use super::columns::{COUNT, Columns, END_UNSEEN, Item, Packed, UNWOUND};

/// Items of a part: a page unpacks one in some milliseconds.
const PART_ITEMS: u32 = 8192;
/// Steps in nanoseconds are `FIRST_STEP_NS << 2 * n`; the last one is some hours.
const FIRST_STEP_NS: u64 = 256;
/// Levels, level 0 included.
pub const LEVELS: usize = 20;
/// Coarser levels that save less than this part (in percent) of items are left out.
const WORTH_PERCENT: u64 = 70;

/// Items up to this long become one at a level.
pub fn step_ns(level: usize) -> u64 {
    match level {
        0 => 0,
        _ => FIRST_STEP_NS << (2 * (level - 1)),
    }
}

/// One level.
#[derive(Default)]
struct Level {
    /// By row: short neighbours that are one item so far.
    runs: Vec<Option<Run>>,
    /// What began before this is not within the part that is being filled.
    from_ns: u64,
    part: Columns,
    /// Items that parts end within: in parts of their own, as these reach far.
    wide: Columns,
    packed: Vec<Packed>,
    items: u64,
    /// Of these, calls that stand for themselves.
    single: u64,
}

/// Short neighbours.
struct Run {
    item: Item,
    /// What the function of the item took of it, less what others took.
    lead_ns: u64,
}

/// All levels of a thread.
#[derive(Default)]
pub struct Levels {
    levels: Vec<Level>,
    /// Finer ones are not kept.
    finest: usize,
}

impl Levels {
    /// Levels from `finest` on.
    pub fn new(finest: usize) -> Self {
        let levels = std::iter::repeat_with(Level::default).take(LEVELS);
        let levels = levels.collect();
        Self { levels, finest }
    }

    /// Adds a call that ended, or a mark; `is_mark` items are not mixed with calls. Gives the bytes
    /// that were packed because of it.
    pub fn add(&mut self, item: &Item, is_mark: bool) -> usize {
        self.offer(0, item, is_mark)
    }

    fn offer(&mut self, at: usize, item: &Item, is_mark: bool) -> usize {
        let Some(level) = self.levels.get_mut(at) else {
            return 0;
        };
        if at == 0 {
            return self.emit(0, item, is_mark);
        }
        let old = match item.end_ns - item.start_ns >= step_ns(at) {
            true => {
                let old = level.take_run(item.depth);
                let bytes = old.map_or(0, |(old, is_mark)| self.emit(at, &old, is_mark));
                return bytes + self.emit(at, item, is_mark);
            }
            false => level.join(item, step_ns(at), is_mark),
        };
        old.map_or(0, |(old, is_mark)| self.emit(at, &old, is_mark))
    }

    /// An item of a level is known: keeps it and offers it to the next level.
    fn emit(&mut self, at: usize, item: &Item, is_mark: bool) -> usize {
        let is_kept = at >= self.finest;
        let bytes = match self.levels.get_mut(at) {
            Some(level) if is_kept => level.keep(item, is_mark),
            _ => 0,
        };
        bytes + self.offer(at + 1, item, is_mark)
    }

    /// Nothing more comes; gives the bytes that were packed.
    pub fn finish(&mut self) -> usize {
        let mut bytes = 0;
        for at in 1..self.levels.len() {
            for row in 0..self.levels[at].runs.len() {
                if let Some((old, is_mark)) = self.levels[at].take_run(row as u32) {
                    bytes += self.emit(at, &old, is_mark);
                }
            }
            self.levels[at].runs = Vec::new();
        }
        let levels = self.levels.iter_mut();
        bytes + levels.map(Level::pack).sum::<usize>()
    }

    /// Keeps nothing finer than `finest` any more; gives the bytes that were freed.
    pub fn drop_below(&mut self, finest: usize) -> usize {
        self.finest = finest;
        let mut bytes = 0;
        for level in self.levels.iter_mut().take(finest) {
            bytes += level
                .packed
                .iter()
                .map(|part| part.text.len())
                .sum::<usize>();
            (level.packed, level.part, level.wide) =
                (Vec::new(), Columns::default(), Columns::default());
        }
        bytes
    }

    /// Calls that the finest level shows one by one.
    pub fn single(&self) -> u64 {
        self.levels.get(self.finest).map_or(0, |level| level.single)
    }

    /// The levels that are worth their place, the coarsest first, each with its parts.
    pub fn parts(&self) -> Vec<(usize, &[Packed])> {
        let mut kept: Vec<(usize, &[Packed])> = Vec::new();
        let mut finer_items = u64::MAX;
        for (at, level) in self.levels.iter().enumerate().skip(self.finest) {
            let is_worth = level.items < finer_items.saturating_mul(WORTH_PERCENT) / 100;
            if at == self.finest || is_worth {
                kept.push((at, &level.packed));
                finer_items = level.items;
            }
        }
        kept.reverse();
        kept
    }
}

impl Level {
    fn take_run(&mut self, row: u32) -> Option<(Item, bool)> {
        let run = self.runs.get_mut(row as usize)?.take()?;
        Some((run.item, run.lead_ns == MARK))
    }

    /// Makes a short item part of its row's run; gives the run before if it begins a new one.
    fn join(&mut self, item: &Item, step_ns: u64, is_mark: bool) -> Option<(Item, bool)> {
        let row = item.depth as usize;
        if row >= self.runs.len() {
            self.runs.resize_with(row + 1, || None);
        }
        let length_ns = item.end_ns - item.start_ns;
        if let Some(run) = &mut self.runs[row] {
            let is_alike = match is_mark {
                true => run.lead_ns == MARK && run.item.function == item.function,
                false => run.lead_ns != MARK,
            };
            let is_near = item.start_ns.saturating_sub(run.item.end_ns) < step_ns / 2;
            if is_alike && is_near && item.end_ns.saturating_sub(run.item.start_ns) <= step_ns {
                run.join(item, length_ns);
                return None;
            }
        }
        let lead_ns = if is_mark { MARK } else { length_ns };
        let new = Run {
            item: *item,
            lead_ns,
        };
        let old = self.runs[row].replace(new)?;
        Some((old.item, old.lead_ns == MARK))
    }

    fn keep(&mut self, item: &Item, is_mark: bool) -> usize {
        self.items += 1;
        self.single += u64::from(!is_mark && item.flags & COUNT == 0);
        if item.start_ns < self.from_ns {
            self.wide.push(item);
            return match self.wide.items >= PART_ITEMS {
                true => keep_packed(self.wide.pack(), &mut self.packed),
                false => 0,
            };
        }
        self.part.push(item);
        if self.part.items < PART_ITEMS {
            return 0;
        }
        let bytes = keep_packed(self.part.pack(), &mut self.packed);
        self.from_ns = self.packed.last().map_or(0, |part| part.end_ns);
        bytes
    }

    fn pack(&mut self) -> usize {
        keep_packed(self.part.pack(), &mut self.packed)
            + keep_packed(self.wide.pack(), &mut self.packed)
    }
}

fn keep_packed(part: Option<Packed>, packed: &mut Vec<Packed>) -> usize {
    let bytes = part.as_ref().map_or(0, |part| part.text.len());
    packed.extend(part);
    bytes
}

/// Instead of [`Run::lead_ns`]: these are marks.
const MARK: u64 = u64::MAX;

impl Run {
    fn join(&mut self, other: &Item, length_ns: u64) {
        let item = &mut self.item;
        let count = |item: &Item| {
            if item.flags & COUNT != 0 {
                item.count
            } else {
                1
            }
        };
        item.count = count(item).saturating_add(count(other));
        // Times of single calls are those of the finer level.
        item.flags = COUNT | (item.flags | other.flags) & (UNWOUND | END_UNSEEN);
        item.start_ns = item.start_ns.min(other.start_ns);
        item.end_ns = item.end_ns.max(other.end_ns);
        if self.lead_ns == MARK {
            return;
        }
        // The majority vote of Boyer and Moore, by time.
        if item.function == other.function {
            self.lead_ns = self.lead_ns.saturating_add(length_ns).min(MARK - 1);
        } else if length_ns > self.lead_ns {
            item.function = other.function;
            self.lead_ns = length_ns - self.lead_ns;
        } else {
            self.lead_ns -= length_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(start_ns: u64, end_ns: u64, depth: u32, function: u32) -> Item {
        Item {
            start_ns,
            end_ns,
            depth,
            function,
            ..Item::default()
        }
    }

    fn items_of(levels: &Levels) -> Vec<(usize, u32)> {
        let of = |(level, parts): &(usize, &[Packed])| {
            (*level, parts.iter().map(|part| part.items).sum())
        };
        levels.parts().iter().map(of).collect()
    }

    #[test]
    fn short_neighbours_become_one_and_long_calls_stay() {
        let mut levels = Levels::new(0);
        for n in 0..100 {
            levels.add(&call(n * 20, n * 20 + 10, 1, (n % 2) as u32), false);
        }
        levels.add(&call(0, 2000, 0, 7), false);
        levels.finish();
        let items = items_of(&levels);
        // 100 calls in 2 us: some runs of 256 ns, then two of 1024 ns, then one; and the long one.
        assert_eq!(items.last(), Some(&(0, 101)));
        assert!(items[items.len() - 2].1 < 12, "{items:?}");
        assert!(items[0].1 <= 4, "{items:?}");
        assert_eq!(levels.single(), 101);
    }

    #[test]
    fn what_is_dropped_is_not_counted_as_single() {
        let mut levels = Levels::new(0);
        for n in 0..u64::from(PART_ITEMS) * 3 {
            levels.add(&call(n * 20, n * 20 + 10, 0, 1), false);
        }
        levels.add(&call(1_000_000, 2_000_000, 0, 2), false);
        assert!(levels.drop_below(2) > 0);
        levels.finish();
        assert_eq!(levels.single(), 1);
        assert!(items_of(&levels).iter().all(|(level, _)| *level >= 2));
    }

    #[test]
    fn marks_and_calls_are_not_mixed() {
        let mut levels = Levels::new(0);
        levels.add(&call(0, 10, 0, 5), false);
        levels.add(&call(11, 11, 0, 1), true);
        levels.add(&call(12, 20, 0, 5), false);
        levels.finish();
        assert_eq!(items_of(&levels), [(0, 3)]);
    }
}
