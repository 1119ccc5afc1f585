//! Reads ahead: one thread reads, checks, unpacks and decodes, while the other replays.
//!
//! Given a reader; gives notes and batches of events in the order of the file, and an error where
//! it lies. Holds at most [`QUEUED`] batches of [`BATCH_EVENTS`], whatever a block claims. Knows
//! nothing of frames.

use crate::decoder::Block;
use crate::error::{Malformed, TraceError};
use crate::model::Event;
use crate::note::Note;
use crate::reader::{Item, TraceReader};
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

/// Events of a batch: handing it over costs much less than decoding it, and it stays in the cache.
const BATCH_EVENTS: usize = 8192;
/// Batches that wait to be replayed.
const QUEUED: usize = 8;

/// What comes next in the file.
pub(super) enum Ahead {
    /// A note.
    Note(Note),
    /// Events of a block.
    Events(Batch),
}

/// Some events of a block.
pub(super) struct Batch {
    /// It.
    pub block: Arc<Block>,
    /// They are the block's first.
    pub is_first: bool,
    /// In their order.
    pub events: Vec<Event>,
    /// What the block ends with early, if these are its last.
    pub error: Option<Malformed>,
    /// Where the block ends.
    pub offset: u64,
}

/// Tells of what `next` gives of the file until `tell` says that it has enough.
///
/// # Errors
/// Those of `tell`, [`TraceError::Read`] and [`TraceError::Damaged`].
pub(super) fn read_ahead<R: Read + Send>(
    reader: &mut TraceReader<R>,
    next: impl FnMut(&mut TraceReader<R>) -> Result<Option<Item>, TraceError> + Send,
    mut tell: impl FnMut(&Ahead) -> Result<bool, TraceError>,
) -> Result<(), TraceError> {
    thread::scope(|scope| {
        let (items, incoming) = mpsc::sync_channel(QUEUED);
        let (used, spare) = mpsc::channel();
        thread::Builder::new()
            .name("read".to_owned())
            .spawn_scoped(scope, move || fill(reader, next, &items, &spare))
            .map_err(TraceError::Read)?;
        for item in incoming {
            let item = item?;
            if !tell(&item)? {
                break;
            }
            if let Ahead::Events(batch) = item {
                // The other thread may have ended.
                let _ = used.send(batch.events);
            }
        }
        Ok(())
    })
}

type Items = SyncSender<Result<Ahead, TraceError>>;

/// Nobody listens any more.
struct Unheard;

fn fill<R: Read>(
    reader: &mut TraceReader<R>,
    mut next: impl FnMut(&mut TraceReader<R>) -> Result<Option<Item>, TraceError>,
    items: &Items,
    spare: &Receiver<Vec<Event>>,
) {
    loop {
        let sent = match next(reader) {
            Ok(None) => return,
            Ok(Some(Item::Note(note))) => send(items, Ok(Ahead::Note(note))),
            Ok(Some(Item::Block(block))) => decode(reader, block, items, spare),
            Err(error) => {
                let _ = items.send(Err(error));
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

fn send(items: &Items, item: Result<Ahead, TraceError>) -> Result<(), Unheard> {
    items.send(item).map_err(|_| Unheard)
}

fn decode<R: Read>(
    reader: &mut TraceReader<R>,
    block: Block,
    items: &Items,
    spare: &Receiver<Vec<Event>>,
) -> Result<(), Unheard> {
    let (block, offset) = (Arc::new(block), reader.offset());
    let mut is_first = true;
    {
        let mut decoded = block.events();
        let mut is_done = false;
        while !is_done {
            let mut events = spare.try_recv().unwrap_or_default();
            events.clear();
            let mut error = None;
            while events.len() < BATCH_EVENTS && !is_done {
                match decoded.next() {
                    Some(Ok(event)) => events.push(event),
                    Some(Err(what)) => (error, is_done) = (Some(what), true),
                    None => is_done = true,
                }
            }
            let batch = Batch {
                block: Arc::clone(&block),
                is_first,
                events,
                error,
                offset,
            };
            is_first = false;
            send(items, Ok(Ahead::Events(batch)))?;
        }
    }
    if let Some(block) = Arc::into_inner(block) {
        reader.recycle(block);
    }
    Ok(())
}
