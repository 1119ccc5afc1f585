//! From hooks that were hit to frames: which call of a function a task is in, and in which block.
//!
//! Given hits in the order of time; gives what happens to the task: a call of the function begins,
//! a block follows another, the call ends. Counts how often control passed where the graph has no
//! edge, which would mean that the graph is wrong, that a hook is missing, or that hits were lost.
//!
//! Must not know: tracefs, and how a trace is written.

use super::hooks::Hook;
use crate::source::{Frame, Happening};
use std::collections::{BTreeMap, HashMap};

/// Which function was hit, and what of its graph is asked for here.
pub struct Hit<'a> {
    /// Number of the instrument.
    pub function: usize,
    /// What was hit.
    pub hook: Hook,
    /// How the function's frames are known.
    pub entry: u64,
    /// How the frames of a block are known.
    pub key: &'a dyn Fn(usize) -> u64,
    /// Control may pass from one block to the other.
    pub has_edge: &'a dyn Fn(usize, usize) -> bool,
    /// Calls are followed; else single blocks are looked at.
    pub is_function: bool,
}

/// A call that a task is in.
#[derive(Clone, Copy, Debug)]
struct Call {
    function: usize,
    entry: u64,
    /// The block that was hit last, and how its frame is known.
    block: Option<(usize, u64)>,
}

/// What was seen of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Calls that were seen from their beginning.
    pub calls: u64,
    /// Hits outside of any call that was seen to begin: it ran already when its hooks came.
    pub outside: u64,
    /// Times that a block came after one that no edge leads from.
    pub without_edge: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Paths {
    tasks: HashMap<u32, Vec<Call>>,
    seen: HashMap<usize, Seen>,
    /// By function and the two blocks.
    without_edge: BTreeMap<(usize, usize, usize), u64>,
}

fn frame(address: u64) -> Frame {
    Frame::Function { address, depth: 0 }
}

impl Paths {
    /// What was seen of a function.
    pub fn seen(&self, function: usize) -> Seen {
        self.seen.get(&function).copied().unwrap_or_default()
    }

    /// The step along no edge that was taken most often in a function.
    pub fn worst_step(&self, function: usize) -> Option<(usize, usize)> {
        let own = self
            .without_edge
            .iter()
            .filter(|((f, ..), _)| *f == function);
        own.max_by_key(|(_, count)| **count)
            .map(|((_, from, to), _)| (*from, *to))
    }

    /// Takes a hit of a task.
    pub fn hit(&mut self, task: u32, hit: &Hit<'_>) -> Vec<Happening> {
        let mut happenings = Vec::new();
        let hook = hit.hook;
        if !hit.is_function {
            let of = |block: Option<usize>| block.map(|b| frame((hit.key)(b)));
            happenings.extend(of(hook.begins).map(Happening::Begin));
            happenings.extend(of(hook.ends).map(Happening::End));
            return happenings;
        }
        let calls = self.tasks.entry(task).or_default();
        let seen = self.seen.entry(hit.function).or_default();
        if hook.enters && !is_loop(calls, hit) {
            seen.calls += 1;
            calls.push(Call {
                function: hit.function,
                entry: hit.entry,
                block: None,
            });
            happenings.push(Happening::Begin(frame(hit.entry)));
        } else {
            // Of calls above the function's own the end was lost.
            let own = calls.iter().rposition(|call| call.function == hit.function);
            let Some(own) = own else {
                seen.outside += 1;
                return happenings;
            };
            for lost in calls.drain(own + 1..).rev() {
                happenings.push(Happening::End(frame(lost.entry)));
            }
        }
        let Some(call) = calls.last_mut() else {
            return happenings;
        };
        if let Some(block) = hook.begins {
            if let Some((before, key)) = call.block {
                if !(hit.has_edge)(before, block) {
                    seen.without_edge += 1;
                    let step = (hit.function, before, block);
                    *self.without_edge.entry(step).or_default() += 1;
                }
                happenings.push(Happening::End(frame(key)));
            }
            call.block = Some((block, (hit.key)(block)));
            happenings.push(Happening::Begin(frame((hit.key)(block))));
        }
        if hook.leaves {
            if call.block.is_none()
                && let Some(block) = hook.ends
            {
                let exit = frame((hit.key)(block));
                happenings.extend([Happening::Begin(exit.clone()), Happening::End(exit)]);
            }
            happenings.push(Happening::End(frame(call.entry)));
            calls.pop();
        }
        happenings
    }
}

/// The entry is reached by a jump within the call.
fn is_loop(calls: &[Call], hit: &Hit<'_>) -> bool {
    let before = calls.last().filter(|call| call.function == hit.function);
    let pair = before.and_then(|call| Some((call.block?.0, hit.hook.begins?)));
    pair.is_some_and(|(before, block)| (hit.has_edge)(before, block))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks 0 to 3 of each function; 0 → 1, 1 → 1, 1 → 2; 2 returns.
    fn hit(paths: &mut Paths, function: usize, block: usize, ends: bool) -> Vec<Happening> {
        let base = (function as u64 + 1) << 8;
        paths.hit(
            7,
            &Hit {
                function,
                hook: Hook {
                    begins: Some(block),
                    ends: ends.then_some(block),
                    enters: block == 0,
                    leaves: ends,
                },
                entry: base,
                key: &|block| base + 1 + block as u64,
                has_edge: &|from, to| [(0, 1), (1, 1), (1, 2)].contains(&(from, to)),
                is_function: true,
            },
        )
    }

    #[test]
    fn a_call_is_a_frame_with_its_blocks_in_it() {
        let mut paths = Paths::default();
        let begin = |address| Happening::Begin(frame(address));
        let end = |address| Happening::End(frame(address));
        assert_eq!(hit(&mut paths, 0, 0, false), [begin(0x100), begin(0x101)]);
        assert_eq!(hit(&mut paths, 0, 1, false), [end(0x101), begin(0x102)]);
        // Another function is called from the block.
        assert_eq!(hit(&mut paths, 1, 0, false)[0], begin(0x200));
        assert_eq!(hit(&mut paths, 1, 2, true).last(), Some(&end(0x200)));
        assert_eq!(hit(&mut paths, 0, 1, false), [end(0x102), begin(0x102)]);
        let last = hit(&mut paths, 0, 2, true);
        assert_eq!(last, [end(0x102), begin(0x103), end(0x100)]);
        let seen = Seen {
            calls: 1,
            outside: 0,
            without_edge: 0,
        };
        assert_eq!(paths.seen(0), seen);
        assert_eq!(paths.seen(1).without_edge, 1, "0 has no edge to 2");
    }

    #[test]
    fn what_began_before_the_hooks_is_counted_and_left_out() {
        let mut paths = Paths::default();
        assert_eq!(hit(&mut paths, 0, 2, true), []);
        assert_eq!(paths.seen(0).outside, 1);
    }

    #[test]
    fn an_end_that_was_lost_comes_with_the_next_hit_below() {
        let mut paths = Paths::default();
        hit(&mut paths, 0, 0, false);
        hit(&mut paths, 1, 0, false);
        let next = hit(&mut paths, 0, 1, false);
        assert_eq!(next[0], Happening::End(frame(0x200)));
    }
}
