//! Regions of counts: those that were never taken are not looked at, for each look is a page.

use std::sync::atomic::Ordering;

use sptrace_tracee::arena::{Arena, ArenaOptions};
use sptrace_wire::counts::{REGION_COUNTS, REGION_EDGES};

fn arena() -> Arena {
    Arena::new(ArenaOptions {
        chunks: 2,
        drop_when_full: false,
        depth_limit: 0,
        loader: false,
        memory_limit: u64::MAX,
        roots_only: false,
        ahead: false,
        counts: true,
        levels: false,
        in_order: false,
        mixed: false,
        counted_in_order: false,
        keeps_returns: false,
    })
    .expect("an arena")
}

#[test]
fn regions_that_were_taken_are_seen_whatever_was_given_back_before_them() {
    let arena = arena();
    let numbers = || arena.regions().map(|(i, _)| i).collect::<Vec<_>>();
    // As an agent takes them: the first that is nobody's.
    let take = |i: usize, state: u32| {
        let words = arena.cells(i as u32);
        words[0].store(u64::from(state), Ordering::Release);
    };
    assert!(numbers().is_empty());
    take(0, REGION_EDGES);
    take(1, REGION_COUNTS);
    take(2, REGION_COUNTS);
    assert_eq!(numbers(), [0, 1, 2]);
    for (_, head) in arena.regions() {
        head.state.store(0, Ordering::Release);
    }
    assert_eq!(numbers(), [0, 1, 2]);
    (0..4).for_each(|i| take(i, REGION_COUNTS));
    assert_eq!(numbers(), [0, 1, 2, 3]);
}
