//! Work shared among all processors by an atomic index.
//!
//! Items are handed out in chunks of neighbours; results come back in the order of the chunks, so
//! that the outcome does not depend on timing.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Runs `work` on every chunk of `items`; gives the results in order.
pub(crate) fn map_chunks<T: Sync, R: Send>(
    items: &[T],
    chunk_items: usize,
    work: impl Fn(&[T]) -> R + Sync,
) -> Vec<R> {
    let chunks: Vec<&[T]> = items.chunks(chunk_items.max(1)).collect();
    let threads = std::thread::available_parallelism()
        .map_or(1, NonZero::get)
        .min(chunks.len());
    if threads <= 1 {
        return chunks.into_iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        while let Some((index, chunk)) = {
            let index = next.fetch_add(1, Relaxed);
            chunks.get(index).map(|chunk| (index, chunk))
        } {
            done.push((index, work(chunk)));
        }
        done
    };
    let mut all: Vec<(usize, R)> = std::thread::scope(|scope| {
        // As many as there may be: what no helper does we do.
        let help = |_| std::thread::Builder::new().spawn_scoped(scope, run).ok();
        let helpers: Vec<_> = (1..threads).filter_map(help).collect();
        let mut all = run();
        for helper in helpers {
            match helper.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, result)| result).collect()
}
