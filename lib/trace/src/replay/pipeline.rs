//! From a trace file to a view: what every report and export does.
//!
//! Given an open trace, its survey and what of it is wanted; tells a [`Visitor`]. Knows nothing of
//! the command line, of names, or of how a view looks.

use super::ahead::{Ahead, Batch, read_ahead};
use super::call_tree::CallTree;
use super::filter::{Filter, Selection};
use super::merge::Merge;
use super::min_time::MinTime;
use super::sides::Sides;
use super::snapshots::{Part, Snapshots};
use super::visitor::Visitor;
use crate::error::{Malformed, TraceError};
use crate::reader::{Item, Survey, TraceReader};
use std::io::{Read, Seek};
use std::sync::Arc;

/// In which order the events of different streams come. Those of one stream come in the order of
/// time. A thread that executes another program, or is recorded once more, has several streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// As they lie in the file: some of a thread, then some of another. A thread that calls little
    /// may come much later than it ran, and the frames that a stream leaves open end after all that
    /// is in the file. For what adds up, and for readers that put it in order themselves. Where
    /// threads have two sides ([`super::sides`]), it is the order of time.
    #[default]
    File,
    /// As they happened. For what is read from top to bottom.
    Time,
}

/// What of a trace is wanted.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Which frames.
    pub selection: Selection,
    /// Frames that are not known to be so long are hidden.
    pub min_ticks: u64,
    /// In which order.
    pub order: Order,
    /// Those of the trace, if they were kept: then a range of time is read alone.
    pub snapshots: Option<Arc<Snapshots>>,
}

/// Tells `view` of what is wanted: first of all notes, then of the frames of all threads. Gives it
/// back.
///
/// # Errors
/// [`TraceError::Read`] and [`TraceError::Damaged`].
pub fn replay<R: Read + Seek + Send, V: Visitor>(
    reader: &mut TraceReader<R>,
    survey: &Survey,
    wanted: &Wanted,
    view: V,
) -> Result<V, TraceError> {
    // Each part stands in the way of every event, so it is there only if it is needed.
    if wanted.min_ticks == 0 {
        return select(reader, survey, wanted, view);
    }
    let view = MinTime::new(wanted.min_ticks, view);
    Ok(select(reader, survey, wanted, view)?.inner)
}

fn select<R: Read + Seek + Send, V: Visitor>(
    reader: &mut TraceReader<R>,
    survey: &Survey,
    wanted: &Wanted,
    mut view: V,
) -> Result<V, TraceError> {
    if wanted.selection.is_everything() {
        tell(reader, survey, wanted, &mut view)?;
        return Ok(view);
    }
    let mut filter = Filter::new(&wanted.selection, &survey.dictionary, view);
    tell(reader, survey, wanted, &mut filter)?;
    Ok(filter.inner)
}

fn tell<R: Read + Seek + Send>(
    reader: &mut TraceReader<R>,
    survey: &Survey,
    wanted: &Wanted,
    view: &mut impl Visitor,
) -> Result<(), TraceError> {
    survey.notes.iter().for_each(|note| view.note(note));
    let sides = Sides::new(survey);
    let (from, to) = (wanted.selection.from_tsc, wanted.selection.to_tsc);
    let part = match &wanted.snapshots {
        // Of two sides there are none.
        Some(kept) if from.or(to).is_some() && !sides.is_any() => {
            Some(kept.part(survey, from.unwrap_or(0), to.unwrap_or(u64::MAX)))
        }
        _ => None,
    };
    match (wanted.order, part) {
        // The two sides of a thread are brought together by their times.
        (Order::File, None) if !sides.is_any() => in_order_of_the_file(reader, survey, view),
        (Order::File, Some(part)) => part_of_the_file(reader, survey, part, view),
        (_, part) => {
            let part = part.unwrap_or_else(|| Part::whole(survey));
            Merge::new(reader, survey, (part, sides), view)?.tell(view)
        }
    }
}

/// The blocks of a part, between what snapshots say of before and after them.
fn part_of_the_file<R: Read + Seek + Send>(
    reader: &mut TraceReader<R>,
    survey: &Survey,
    mut part: Part<'_>,
    view: &mut impl Visitor,
) -> Result<(), TraceError> {
    let dictionary = &survey.dictionary;
    let mut tree = CallTree::new();
    survey.notes.iter().for_each(|note| tree.note(note));
    let begun = part.begin(&mut tree, dictionary, view);
    begun.map_err(|what| what.at(0))?;
    let mut places = std::mem::take(&mut part.blocks).into_iter();
    let next = |reader: &mut TraceReader<R>| match places.next() {
        Some(place) => reader.block_at(place).map(|block| Some(Item::Block(block))),
        None => Ok(None),
    };
    read_ahead(reader, next, |item| {
        if let Ahead::Events(batch) = item {
            tell_batch(&mut tree, batch, survey, view)?;
        }
        Ok(!view.is_finished())
    })?;
    if view.is_finished() {
        return Ok(());
    }
    let mut streams: Vec<_> = survey.blocks.iter().map(|place| place.stream).collect();
    streams.sort_unstable();
    streams.dedup();
    for id in streams {
        match part.tails.get_mut(&id) {
            Some(tail) => {
                tail.tell(id, u64::MAX, view);
            }
            None => tree.finish_stream(id, dictionary, view),
        }
    }
    Ok(())
}

fn tell_batch(
    tree: &mut CallTree,
    batch: &Batch,
    survey: &Survey,
    view: &mut impl Visitor,
) -> Result<(), TraceError> {
    let (dictionary, at) = (&survey.dictionary, |what: Malformed| what.at(batch.offset));
    if dictionary.stream(batch.block.stream).is_none() {
        return Err(at(Malformed("a block of a stream that is not named")));
    }
    if batch.is_first {
        tree.begin(&batch.block, dictionary, view).map_err(at)?;
    }
    let told = tree.events(&batch.block, &batch.events, dictionary, view);
    told.and(batch.error.map_or(Ok(()), Err)).map_err(at)
}

fn in_order_of_the_file<R: Read + Send>(
    reader: &mut TraceReader<R>,
    survey: &Survey,
    view: &mut impl Visitor,
) -> Result<(), TraceError> {
    let dictionary = &survey.dictionary;
    let mut tree = CallTree::new();
    read_ahead(reader, TraceReader::next_item, |item| {
        match item {
            Ahead::Note(note) => tree.note(note),
            Ahead::Events(batch) => tell_batch(&mut tree, batch, survey, view)?,
        }
        Ok(!view.is_finished())
    })?;
    if !view.is_finished() {
        tree.finish(dictionary, view);
    }
    Ok(())
}
