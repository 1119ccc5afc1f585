//! The events thread: waits for whatever a source waits for, and lets somebody react.
//!
//! Given the sources and a descriptor by which others wake it; gives each occurrence to `react`,
//! whose answer goes back to the source. Must not know: what kinds of sources there are.

use super::{Occurrence, Source};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// So long at most, so that a wake-up that was missed does no harm.
const LONGEST: Duration = Duration::from_secs(1);

/// Waits until a source or `wake` (an eventfd) has something, once; gives what has happened to
/// `react`.
pub fn once(
    sources: &mut [Box<dyn Source>],
    wake: RawFd,
    react: &mut dyn FnMut(&Occurrence) -> String,
) {
    wait(sources, wake);
    for source in sources {
        let mut found = Vec::new();
        source.look(&mut found);
        for occurrence in found {
            let answer = react(&occurrence);
            source.answered(occurrence.event, &answer);
        }
    }
}

fn wait(sources: &[Box<dyn Source>], wake: RawFd) {
    let now = Instant::now();
    let until = |due: Instant| due.saturating_duration_since(now);
    let due = sources.iter().filter_map(|source| source.due()).min();
    let longest = due.map_or(LONGEST, until).min(LONGEST);
    let descriptors = sources.iter().flat_map(|source| source.descriptors());
    let poll = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut all: Vec<_> = std::iter::once(wake).chain(descriptors).map(poll).collect();
    // Rounded up: a moment must have come when it is looked at.
    let millis = longest.as_micros().div_ceil(1000) as i32;
    let mut count = 0u64;
    // SAFETY: descriptors of ours; an eventfd gives eight bytes and does not block.
    unsafe {
        libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, millis);
        libc::read(wake, (&raw mut count).cast(), 8);
    }
}
