//! Shadow stacks at random, as the agent has them: calls, and frames that stand for none.
//!
//! Given choices; gives frames, and the places of the calls that are open and recorded. Must not
//! know who walks them.

use super::Choices;

/// In a frame's id: its end is not seen; it has ended; a call of the kernel; it keeps something.
const OPEN: u64 = 1 << 63;
const DONE: u64 = 1 << 62;
const SYSTEM: u64 = 1 << 61;
const VALUES: u64 = 1 << 60;
/// The stack pointer of the outermost frame, and of a barrier.
const NO_STACK: u64 = u64::MAX;

/// The innermost frames of a held call: words, the first two of them last, the time stamp, and its
/// row's function. `rsp`: the stack pointer of the call.
pub fn held(rsp: u64, kept: [u64; 6], stamp: u64) -> Vec<u64> {
    let frames = [kept[0], kept[1], stamp, 0x40_0000];
    let id = OPEN | VALUES | 1 << 42;
    let more = kept[2..].iter().rev().copied();
    let frames = more.chain(frames);
    frames.flat_map(|word| [rsp - 1, id, word]).collect()
}

/// A shadow stack, and the places of its calls from the innermost on.
pub fn at_random(choices: &mut dyn Choices) -> (Vec<u64>, Vec<u32>) {
    let (mut frames, mut places) = (vec![NO_STACK, 0, 0], Vec::new());
    for i in 0..choices.below(12) {
        let (rsp, place) = (0x8000 - 32 * i, 0x7f00_1000 + 16 * choices.below(3) as u32);
        let id = 0x5500_0000_0000 | u64::from(place);
        let frame = match choices.below(9) {
            0 => [rsp - 1, OPEN | VALUES | 1 << 41, 0],
            1 => [rsp, OPEN | SYSTEM, 5],
            2 => [NO_STACK, 0x1000, 0x2000],
            3 => [rsp, OPEN, 0x40_0000],
            4 => [rsp, OPEN | DONE | id, 0],
            kind => {
                places.push(place);
                [rsp, if kind == 5 { OPEN | id } else { id }, 0]
            }
        };
        frames.extend(frame);
    }
    places.reverse();
    (frames, places)
}
