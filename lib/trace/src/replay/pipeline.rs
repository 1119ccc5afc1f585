//! From a trace file to a view: what every report and export does.
//!
//! Given an open trace, its survey and what of it is wanted; tells a [`Visitor`]. Knows nothing of
//! the command line, of names, or of how a view looks.

use super::ahead::{Ahead, read_ahead};
use super::call_tree::CallTree;
use super::filter::{Filter, Selection};
use super::merge::Merge;
use super::min_time::MinTime;
use super::sides::Sides;
use super::visitor::Visitor;
use crate::error::{Malformed, TraceError};
use crate::reader::{Survey, TraceReader};
use std::io::{Read, Seek};

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
        tell(reader, survey, wanted.order, &mut view)?;
        return Ok(view);
    }
    let mut filter = Filter::new(&wanted.selection, &survey.dictionary, view);
    tell(reader, survey, wanted.order, &mut filter)?;
    Ok(filter.inner)
}

fn tell<R: Read + Seek + Send>(
    reader: &mut TraceReader<R>,
    survey: &Survey,
    order: Order,
    view: &mut impl Visitor,
) -> Result<(), TraceError> {
    survey.notes.iter().for_each(|note| view.note(note));
    let sides = Sides::new(survey);
    match order {
        // The two sides of a thread are brought together by their times.
        Order::File if !sides.is_any() => in_order_of_the_file(reader, survey, view),
        _ => Merge::new(reader, survey, sides).tell(view),
    }
}

fn in_order_of_the_file<R: Read + Send>(
    reader: &mut TraceReader<R>,
    survey: &Survey,
    view: &mut impl Visitor,
) -> Result<(), TraceError> {
    let dictionary = &survey.dictionary;
    let mut tree = CallTree::new();
    read_ahead(reader, |item| {
        match item {
            Ahead::Note(note) => tree.note(note),
            Ahead::Events(batch) => {
                let at = |what: Malformed| what.at(batch.offset);
                if batch.is_first {
                    tree.begin(&batch.block, dictionary, view).map_err(at)?;
                }
                let told = tree.events(&batch.block, &batch.events, dictionary, view);
                told.and(batch.error.map_or(Ok(()), Err)).map_err(at)?;
            }
        }
        Ok(!view.is_finished())
    })?;
    if !view.is_finished() {
        tree.finish(dictionary, view);
    }
    Ok(())
}
